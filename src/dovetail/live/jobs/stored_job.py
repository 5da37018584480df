"""A job that is on record: what was asked for, and how far it came.

Whatever a job is between the store and the controller, it is this: a submission that the store
took and passes on, an unfinished job that a new controller recovers, one that is over.
"""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.live.jobs.record import JobRecord
from dovetail.wire.spec import JobSpec


@dataclass(frozen=True, slots=True)
class StoredJob:
    """One job as the store has it."""

    number: int
    spec: JobSpec
    record: JobRecord
    arrived: bool = True
    """Whether the controller has taken it up: an entry wrote its record."""
    damage: str = ""
    """Why its row cannot be read; spec and record then hold only what columns say."""

    @staticmethod
    def submitted(number: int, spec: JobSpec, submit_s: float) -> StoredJob:
        """Returns a job that was just put on record; no controller has taken it up yet."""
        record = JobRecord(number, submit_s=submit_s, held=spec.hold)
        return StoredJob(number, spec, record, arrived=False)


@dataclass(frozen=True, slots=True)
class DamagedRecord(JobRecord):
    """Stands for the record of a job whose row is damaged. It is never written."""

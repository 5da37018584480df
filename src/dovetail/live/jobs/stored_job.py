"""A job on record: its request and its state.

The store and the controller exchange jobs in this form: new submissions, unfinished jobs that a
new controller recovers, and jobs that are over.
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
    """Whether the controller has admitted it: an entry has its record."""
    damage: str = ""
    """Why its row cannot be read; spec and record then have only the values of columns."""

    @staticmethod
    def submitted(number: int, spec: JobSpec, submit_s: float) -> StoredJob:
        """Returns a newly submitted job; no controller has admitted it yet."""
        record = JobRecord(number, submit_s=submit_s, held=spec.hold)
        return StoredJob(number, spec, record, arrived=False)


@dataclass(frozen=True, slots=True)
class DamagedRecord(JobRecord):
    """Stands for the record of a job whose row is damaged. It is never written."""

"""A job in the store: its specification and its record.

Between store and controller every job has this shape: one that was just submitted, one that a new
controller recovers, and one that is over.
"""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.live.jobs.record import JobRecord
from dovetail.wire.spec import JobSpec


@dataclass(frozen=True, slots=True)
class StoredJob:
    """One job of the store.

    `arrived` is True once a controller has admitted it: a journal entry wrote its record. `damage`
    says why its row cannot be read, empty if it can: then `spec` and `record` have only the values
    of the columns beside the damaged texts, and the record must not be written.
    """

    spec: JobSpec
    record: JobRecord
    arrived: bool = True
    damage: str = ""

    @property
    def number(self) -> int:
        """Returns the number by which users know the job."""
        return self.record.job

    @staticmethod
    def submitted(number: int, spec: JobSpec, submit_s: float) -> StoredJob:
        """Returns a job that was just stored; no controller has admitted it yet."""
        record = JobRecord(number, submit_s=submit_s, held=spec.hold)
        return StoredJob(spec, record, arrived=False)

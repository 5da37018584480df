"""What a new controller starts from: all jobs and requests that are not over."""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.live.edges.protocols import Request
from dovetail.live.jobs.stored_job import StoredJob


@dataclass(frozen=True, slots=True)
class Recovered:
    """The state a store gives to the controller of a new `epoch`, newer than any before.

    `jobs` have arrived (an entry wrote their record) and are not over; `accepted` are on record
    but in no entry yet; `requests` are not carried out. `now_s` is the newest time on record.
    """

    epoch: int
    now_s: float = 0.0
    jobs: tuple[StoredJob, ...] = ()
    accepted: tuple[StoredJob, ...] = ()
    requests: tuple[Request, ...] = ()
    meta: tuple[tuple[str, str], ...] = ()

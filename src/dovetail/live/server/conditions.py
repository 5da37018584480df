"""What a job waits for that does not even wait in the queue: other jobs, a time, a place."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.live.jobs.lifecycle import TERMINAL, State
from dovetail.live.jobs.record import JobRecord
from dovetail.live.jobs.stored_job import StoredJob
from dovetail.live.store.queries import Queries
from dovetail.wire.spec import Dependency

SHOWN, NAMED = 20, 5
LOOKED_AT = 500
"""Of more dependencies the rest is not looked at: who asks why must not wait for it."""
MET_BY = {
    "after": "start",
    "afterok": "complete",
    "afternotok": "end otherwise than completed",
    "afterany": "end",
}
"""What a job must do that another depends on."""
UNMET = {"afterok": True, "afternotok": False}
"""Whether a job must have ended well for those who depend on its end so."""


def called(number: int, reader: Queries) -> str:
    """Returns the name that `ls` gives a job: `12`, or `12_3` for a task of an array."""
    return reader.called((number,))[number]


def conditions(kept: StoredJob, reader: Queries, now_s: float) -> list[str]:
    """Returns what a job demands before it waits in the queue, and how that stands."""
    found, (records, names) = [], _those(kept.spec.after[:SHOWN], reader)
    for need in kept.spec.after[:SHOWN]:
        record, name = records.get(need.job), names[need.job]
        state = "unknown" if record is None else str(record.state)
        found.append(f"it needs {need.kind}:{name}; job {name} is {state}")
    if len(kept.spec.after) > SHOWN:
        found.append(f"and it needs {len(kept.spec.after) - SHOWN} jobs more")
    if kept.record.not_before_s > now_s:
        found.append(f"not before {kept.record.not_before_s - now_s:.0f} s from now")
    return found


def must_come(kept: StoredJob, reader: Queries, now_s: float) -> str:
    """Returns what a job waits for that may not even wait in the queue."""
    record, named = kept.record, []
    records, names = _those(kept.spec.after[:LOOKED_AT], reader)
    for need in kept.spec.after[:LOOKED_AT]:
        other, name = records.get(need.job), names[need.job]
        over = other is not None and other.state in TERMINAL
        well = other is not None and other.state is State.COMPLETED
        if record.reason == "DependencyNeverSatisfied" and over:
            if need.kind in UNMET and well != UNMET[need.kind]:
                return f"job {name} would have to be requeued and {MET_BY[need.kind]}"
        elif record.reason == "Dependency" and not over:
            named.append(f"job {name} must {MET_BY[need.kind]}")
    if named:
        more = f", and {len(named) - NAMED} more must" if len(named) > NAMED else ""
        return ", ".join(named[:NAMED]) + more
    if record.reason == "JobArrayTaskLimit":
        return "a task of its array must end"
    if record.not_before_s > now_s:
        return f"{record.not_before_s - now_s:.0f} s must pass"
    return "its condition must be met first"


def _those(
    needs: Sequence[Dependency], reader: Queries
) -> tuple[dict[int, JobRecord], dict[int, str]]:
    """Returns the records of jobs that are depended on, and their names, all at once."""
    numbers = [need.job for need in needs]
    return {kept.number: kept.record for kept in reader.some(numbers)}, reader.called(numbers)

"""What a job waits for before it joins the queue: other jobs, a time, a place in its array."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.live.jobs.lifecycle import TERMINAL, State
from dovetail.live.jobs.record import JobRecord
from dovetail.live.jobs.stored_job import StoredJob
from dovetail.live.store.queries import Queries
from dovetail.wire.spec import Dependency

SHOWN, NAMED = 20, 5
LOOKED_AT = 500
"""Dependencies looked at; the rest is left out, so that `why` answers quickly."""
MET_BY = {
    "after": "start",
    "afterok": "complete",
    "afternotok": "end otherwise than completed",
    "afterany": "end",
}
"""What the job named by a dependency must do."""
UNMET = {"afterok": True, "afternotok": False}
"""Dependencies on a kind of end: True if the job must complete."""


def job_name(number: int, reader: Queries) -> str:
    """Returns the name that `ls` gives a job: `12`, or `12_3` for a task of an array."""
    return reader.called((number,))[number]


def conditions(kept: StoredJob, reader: Queries, now_s: float) -> list[str]:
    """Returns the conditions of a job that are checked before it queues, and their state."""
    found, (records, names) = [], _named_jobs(kept.spec.after[:SHOWN], reader)
    for need in kept.spec.after[:SHOWN]:
        record, name = records.get(need.job), names[need.job]
        state = "unknown" if record is None else str(record.state)
        found.append(f"it needs {need.kind}:{name}; job {name} is {state}")
    if len(kept.spec.after) > SHOWN:
        found.append(f"and it needs {len(kept.spec.after) - SHOWN} jobs more")
    if kept.record.not_before_s > now_s:
        found.append(f"not before {kept.record.not_before_s - now_s:.0f} s from now")
    return found


def unmet_condition(kept: StoredJob, reader: Queries, now_s: float) -> str:
    """Returns the first unmet condition of a job that is not in the queue."""
    record, named = kept.record, []
    records, names = _named_jobs(kept.spec.after[:LOOKED_AT], reader)
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


def _named_jobs(
    needs: Sequence[Dependency], reader: Queries
) -> tuple[dict[int, JobRecord], dict[int, str]]:
    """Returns the records and names of the jobs that dependencies name, in two queries."""
    numbers = [need.job for need in needs]
    return {kept.number: kept.record for kept in reader.some(numbers)}, reader.called(numbers)

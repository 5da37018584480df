"""The conditions of a job before it joins the queue: other jobs, a time, the limit of its array."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.core.cluster import DOWN
from dovetail.live.jobs.lifecycle import TERMINAL, State
from dovetail.live.jobs.record import JobRecord
from dovetail.live.jobs.status_snapshot import DISCONNECTED, NodeStatus, StatusSnapshot
from dovetail.live.jobs.stored_job import StoredJob
from dovetail.live.server.protocol import ENDLESS_S
from dovetail.live.store.queries import Queries
from dovetail.wire.spec import Dependency

SHOWN, NAMED = 20, 5
LOOKED_AT = 500
"""The most dependencies that are read, so that `why` answers quickly."""
MET_BY = {
    "after": "start",
    "afterok": "complete",
    "afternotok": "end otherwise than completed",
    "afterany": "end",
}
"""What the other job of a dependency must do."""
UNMET = {"afterok": True, "afternotok": False}
"""Dependencies on the kind of an end: True if the other job must complete."""


def job_name(number: int, reader: Queries) -> str:
    """Returns the name of a job in lists: `12`, or `12_3` for a task of an array."""
    return reader.called((number,))[number]


def conditions(job: StoredJob, reader: Queries, now_s: float) -> list[str]:
    """Returns the conditions of a job and their state."""
    texts, (records, names) = [], _named_jobs(job.spec.after[:SHOWN], reader)
    for need in job.spec.after[:SHOWN]:
        record, name = records.get(need.job), names[need.job]
        state = "unknown" if record is None else str(record.state)
        texts.append(f"it needs {need.kind}:{name}; job {name} is {state}")
    if len(job.spec.after) > SHOWN:
        texts.append(f"and it needs {len(job.spec.after) - SHOWN} jobs more")
    if job.record.not_before_s > now_s:
        texts.append(f"not before {job.record.not_before_s - now_s:.0f} s from now")
    return texts


def unmet_condition(job: StoredJob, reader: Queries, snapshot: StatusSnapshot, now_s: float) -> str:
    """Returns the first unmet condition of a job that is not in the queue."""
    record, unmet = job.record, []
    if awaited := awaited_nodes(record, snapshot, now_s):
        return awaited_text(awaited, now_s)
    records, names = _named_jobs(job.spec.after[:LOOKED_AT], reader)
    for need in job.spec.after[:LOOKED_AT]:
        other, name = records.get(need.job), names[need.job]
        over = other is not None and other.state in TERMINAL
        well = other is not None and other.state is State.COMPLETED
        if record.reason == "DependencyNeverSatisfied" and over:
            if need.kind in UNMET and well != UNMET[need.kind]:
                return f"job {name} would have to be requeued and {MET_BY[need.kind]}"
        elif record.reason == "Dependency" and not over:
            unmet.append(f"job {name} must {MET_BY[need.kind]}")
    if unmet:
        more = f", and {len(unmet) - NAMED} more must" if len(unmet) > NAMED else ""
        return ", ".join(unmet[:NAMED]) + more
    if record.reason == "JobArrayTaskLimit":
        return "a task of its array must end"
    if record.not_before_s > now_s:
        return f"{record.not_before_s - now_s:.0f} s must pass"
    return "its condition must be met first"


def awaited_nodes(record: JobRecord, snapshot: StatusSnapshot, now_s: float) -> list[NodeStatus]:
    """Returns the nodes that are down on which a job may still run.

    It may not start until they are back or lost, or it keeps its place there until then.
    """
    if record.reason != DISCONNECTED and record.state not in (State.CONFIGURING, State.RUNNING):
        return []
    awaited = (n for n in snapshot.nodes if n.node in record.nodes and n.state == DOWN)
    return [n for n in awaited if n.lost_s > now_s]


def awaited_text(nodes: Sequence[NodeStatus], now_s: float) -> str:
    """Describes what must happen on the nodes that a job waits for, and when at the latest."""
    left_s = max(n.lost_s for n in nodes) - now_s
    names = ", ".join(n.label for n in nodes)
    if left_s > ENDLESS_S:
        return f"node{'s' * (len(nodes) > 1)} {names} must be back, or be gone"
    if len(nodes) > 1:
        return (
            f"nodes {names} must be back, or be lost, as they are in {left_s:.0f} s at the latest"
        )
    return f"node {names} must be back, or be lost, as it is in {left_s:.0f} s at the latest"


def _named_jobs(
    needs: Sequence[Dependency], reader: Queries
) -> tuple[dict[int, JobRecord], dict[int, str]]:
    """Returns the records and names of the jobs that dependencies name, in two queries."""
    numbers = [need.job for need in needs]
    return {job.number: job.record for job in reader.some(numbers)}, reader.called(numbers)

"""What of a policy a site that runs Slurm can have, in one line."""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.core.policy import name_of, parse_policy
from dovetail.record.result import Comparison

BY_ORDER = (
    "not with configuration alone; near it: a QOS or partition of short limits (MaxWall) with a "
    "higher PriorityWeightQOS, or `dovetail shadow slurm --act order`, which hands Slurm the order"
)
BY_QOS = (
    "not with configuration alone; near it: PreemptType=preempt/qos with PreemptMode=REQUEUE, and "
    "two or three QOS from short to long jobs"
)
NOT_AT_ALL = "not with configuration alone"
ON_SLURM: Mapping[str, str] = {
    "slurm": "by its parameters, which are those of slurm.conf",
    "backfill": "SchedulerType=sched/backfill, which plans for every job it tests, not for one",
    "fifo": "SchedulerType=sched/builtin with PriorityType=priority/basic, one partition",
    "sjf": BY_ORDER,
    "srtf": BY_QOS,
    "srsf": BY_QOS,
    "tiresias": BY_QOS,
    "gittins": BY_QOS,
}
"""How to deploy a policy, by name."""


def on_slurm(comparison: Comparison) -> list[str]:
    """Returns how the best deployable policy comes to a site that runs Slurm."""
    first = comparison.contrast("today")
    if first is None:
        return []
    name = name_of(parse_policy(first.policy))
    return [f"{name} under Slurm: {ON_SLURM.get(name, NOT_AT_ALL)}."]

"""What of a policy a site that runs Slurm can have, in one line, with the command that brings it.

The lines of slurm.conf are in `GUIDE`.
"""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.core.policy import name_of, parse_policy, spell
from dovetail.forecast.forecasts import source_of
from dovetail.record.result import Comparison
from dovetail.report.words import duration

GUIDE = "docs/guides/which-policy.md"
NO_PLANS = "bf_min_prio_reserve=4000000000"
"""A priority above all: Slurm then plans no GPUs for waiting jobs."""
RECIPE = (
    "slurm:priority_weight_job_size=100000000,small_relative_to_time=true,bf_window=4320,"
    f"{NO_PLANS}"
)
BY_ORDER = (
    "in part by configuration alone: PriorityFlags=SMALL_RELATIVE_TO_TIME, a large "
    f"PriorityWeightJobSize and SchedulerParameters={NO_PLANS}, without which backfill keeps GPUs "
    f"for wide jobs; measure it: `dovetail compare LOG --forecast limit -p 'slurm {RECIPE} sjf'`. "
    "Or QOS of short MaxWall with a higher PriorityWeightQOS"
)
BY_QOS = (
    "not with configuration alone; in part: PreemptType=preempt/qos with PreemptMode=REQUEUE, and "
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
CONFIGURED = ("slurm", "backfill", "fifo")
"""Policies that Slurm has itself, so that nobody must hand it their order."""


def on_slurm(comparison: Comparison) -> list[str]:
    """Returns how the best deployable policy comes to a site that runs Slurm."""
    first = comparison.contrast("today")
    if first is None:
        return []
    name = name_of(parse_policy(first.policy))
    text = f"{name} under Slurm: {ON_SLURM.get(name, NOT_AT_ALL)}"
    if name in CONFIGURED:
        return [f"{text}."]
    if ON_SLURM.get(name) in (BY_ORDER, BY_QOS):
        text += _thirds(comparison, first.policy)
    return [
        f"{text}. Its order alone, while Slurm still decides who starts where: "
        f"`{_command(comparison, first.policy)}`. Lines to copy: {GUIDE}."
    ]


def _command(comparison: Comparison, policy: str) -> str:
    """Returns the command that hands Slurm the order of a policy, with the lengths used here."""
    name = policy.partition(":")[0]
    short = name if spell(parse_policy(name)) == policy else f"'{policy}'"
    forecasts = dict(comparison.table.select("policy", "forecast").iter_rows())
    forecast = str(forecasts.get(policy) or "")
    told = {"unknown": "", "": ""}.get(forecast, f" --forecast {forecast}")
    if source_of(forecast) == "predicted":
        told += " --history LOG"
    return f"dovetail shadow slurm --policy {short}{told} --act order --every 60 --yes"


def _thirds(comparison: Comparison, policy: str) -> str:
    """Returns below what a third and two thirds of the jobs ran: where a QOS may end."""
    jobs = comparison.results[policy].jobs.drop_nulls(["jct_s", "wait_s"])
    ran_s = jobs["jct_s"] - jobs["wait_s"]
    low, high = (ran_s.quantile(share) for share in (1 / 3, 2 / 3))
    if low is None or high is None:
        return ""
    ends = f"below {duration(low)}, two thirds below {duration(high)}"
    return f" (in this log a third of the jobs ran {ends})"

"""The parameters of Slurm's scheduler, named as in slurm.conf, with the defaults of Slurm 22.05.

Times are written as in slurm.conf, too: `7-0` is seven days, a plain number minutes; the keys of
SchedulerParameters (`bf_interval`, ...) have the units that Slurm gives them.

Source: slurm.conf(5); `src/plugins/sched/backfill/backfill.c`, `_load_config`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from functools import lru_cache
from math import ceil, inf

from dovetail.core.units import DAY_S, HOUR_S, MINUTE_S, NEVER_S

OFF, REQUEUE = "off", "requeue"
YEAR_S = 365 * DAY_S
"""What Slurm plans for a job without a time limit in a partition without one."""

_OTHER_MODES = {
    "cancel": ": a policy cannot end jobs; requeue stops the same ones, and they wait again",
    "suspend": ": a suspended job keeps its GPUs, so nobody gains any; choose requeue",
    "gang": ": a suspended job keeps its GPUs, so nobody gains any; choose requeue",
}

_TIME = re.compile(
    r"(?:(?P<days>\d+)-(?P<dh>\d+)(?::(?P<dm>\d+)(?::(?P<ds>\d+))?)?"
    r"|(?P<hours>\d+):(?P<hm>\d+):(?P<hs>\d+)|(?P<minutes>\d+)(?::(?P<ms>\d+))?)",
    re.ASCII,
)


@lru_cache(maxsize=64)
def slurm_seconds(text: str) -> float:
    """Returns the seconds of a time in slurm.conf; UNLIMITED and INFINITE are infinite.

    The forms: minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes,
    days-hours:minutes:seconds. Raises ValueError.
    """
    if text.upper() in ("UNLIMITED", "INFINITE"):
        return NEVER_S
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"a time is written as in slurm.conf (5, 1:00:00, 7-0), not '{text}'")
    part = {name: float(digits or 0) for name, digits in match.groupdict().items()}
    return (
        part["days"] * DAY_S
        + (part["dh"] + part["hours"]) * HOUR_S
        + (part["dm"] + part["hm"] + part["minutes"]) * MINUTE_S
        + part["ds"]
        + part["hs"]
        + part["ms"]
    )


@dataclass(frozen=True, slots=True)
class SlurmParameters:
    """What slurm.conf says about scheduling."""

    priority_weight_age: int = 0
    priority_weight_fairshare: int = 0
    priority_weight_job_size: int = 0
    priority_weight_partition: int = 0
    priority_weight_qos: int = 0
    priority_max_age: str = "7-0"
    priority_decay_half_life: str = "7-0"
    priority_calc_period: str = "5"
    priority_favor_small: bool = False
    small_relative_to_time: bool = False
    billing_gpu: float = 1.0
    billing_cpu: float = 0.0
    default_time: str = "UNLIMITED"
    over_time_limit: int = 0
    kill_wait: int = 30
    requeue_delay: int = 121
    sched_interval: int = 60
    batch_sched_delay: int = 3
    epilog: bool = False
    completing: float = 0.0
    default_queue_depth: int = 100
    partition_job_depth: int = 0
    sched_max_job_start: int = 0
    assoc_limit_stop: bool = False
    bf_interval: int = 30
    bf_window: int = 1440
    bf_resolution: int = 60
    bf_max_job_test: int = 500
    bf_max_job_part: int = 0
    bf_max_job_user: int = 0
    bf_max_job_user_part: int = 0
    bf_max_job_assoc: int = 0
    bf_max_job_start: int = 0
    bf_min_age_reserve: int = 0
    bf_min_prio_reserve: int = 0
    bf_job_part_count_reserve: int = 0
    bf_node_space_size: int = 0
    bf_window_linear: int = 0
    preempt_mode: str = OFF
    preempt_exempt_time: str = "0"
    preempt_youngest_first: bool = False
    preempt_strict_order: bool = False
    preempt_reorder_count: int = 1

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, int | float) and not 0 <= value < inf:
                raise ValueError(f"{field.name} is a number of 0 or more, not {value:g}")
        for name in ("bf_interval", "bf_window", "bf_resolution", "sched_interval"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is at least 1, not {getattr(self, name)}")
        for name in ("priority_max_age", "priority_calc_period"):
            if not 1 <= slurm_seconds(getattr(self, name)) < NEVER_S:
                raise ValueError(f"{name} is a finite time, not '{getattr(self, name)}'")
        for name in ("priority_decay_half_life", "default_time", "preempt_exempt_time"):
            slurm_seconds(getattr(self, name))
        if self.bf_max_job_test < 1:
            raise ValueError("bf_max_job_test is at least 1, not 0")
        if self.preempt_mode not in (OFF, REQUEUE):
            why = _OTHER_MODES.get(self.preempt_mode.lower(), "")
            raise ValueError(f"preempt_mode is off or requeue, not '{self.preempt_mode}'{why}")

    @property
    def preempts(self) -> bool:
        """Returns whether jobs of one QOS may stop jobs of another."""
        return self.preempt_mode == REQUEUE

    @property
    def ranks_by_time(self) -> bool:
        """Returns whether priorities change while jobs wait."""
        return bool(self.priority_weight_age or self.priority_weight_fairshare)

    @property
    def map_size(self) -> int:
        """Returns how many records the backfill map may have."""
        return self.bf_node_space_size or max(2, self.bf_max_job_test)

    @property
    def decay_per_s(self) -> float:
        """Returns the factor by which usage shrinks in a second; Slurm's own approximation."""
        half_life_s = slurm_seconds(self.priority_decay_half_life)
        return 1.0 if half_life_s in (0, NEVER_S) else 1.0 - 0.693 / half_life_s

    def limit_s(self, requested_s: float, most_s: float) -> float:
        """Returns a job's time limit in whole minutes, at most `most_s`, a year if it has none."""
        limit_s = min(requested_s, most_s)
        if limit_s == NEVER_S:
            limit_s = min(slurm_seconds(self.default_time), YEAR_S)
        return max(1, ceil(limit_s / MINUTE_S - 1e-9)) * MINUTE_S

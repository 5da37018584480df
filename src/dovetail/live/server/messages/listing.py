"""Jobs in a list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dovetail.core.units import NEVER_S


@dataclass(frozen=True, slots=True)
class ListJobs:
    """List jobs: placed, waiting in the policy's order, and with `ended` those that are over.

    `limit` rows from row `offset` on. With `group_arrays` the waiting tasks of an array are one
    row. If all `states` are ends: those that ended at `since_s` or later, the newest end first.
    """

    verb: ClassVar[str] = "ls"
    states: tuple[str, ...] = ()
    user: str = ""
    name: str = ""
    ended: bool = False
    limit: int = 200
    since_s: float = 0.0
    offset: int = 0
    group_arrays: bool = False


@dataclass(frozen=True, slots=True)
class JobRow:
    """One job in a list. `progress` is -1 where it is not known, `left_s` then infinite.

    `ran_s` is how long it ran, without what it waited in between; `gpu_hours` what it held of
    GPUs when its record was last written, which of a job that is over is all of it. A row for
    several waiting tasks of an array has their indices in `tasks`, as `3-5,9`, and `array` -1; all
    else is of the task that the policy would start first. `called` is what a user types for it:
    `12`, `12_3` for a task, `12_[3-5,9]` for several.
    """

    job: int
    name: str
    user: str
    state: str
    gpus: int
    min_gpus: int
    max_gpus: int
    submit_s: float
    held_gpus: int = 0
    where: str = ""
    reason: str = ""
    start_s: float = NEVER_S
    end_s: float = NEVER_S
    ran_s: float = 0.0
    done_s: float = 0.0
    rate: float = 0.0
    progress: float = -1.0
    left_s: float = NEVER_S
    array: int = -1
    array_of: int = -1
    exit_code: int | None = None
    retries: int = 0
    tasks: str = ""
    task_count: int = 1
    gpu_hours: float = 0.0
    called: str = ""


@dataclass(frozen=True, slots=True)
class JobList:
    """One page of the jobs, how many rows come after it, and the cluster's time.

    `total` rows match in all, and the page begins at row `offset`; `counts` are of all jobs.
    """

    now_s: float
    jobs: tuple[JobRow, ...]
    more: int = 0
    counts: tuple[tuple[str, int], ...] = ()
    total: int = 0
    offset: int = 0

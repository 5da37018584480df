"""Lists of jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dovetail.core.units import NEVER_S


@dataclass(frozen=True, slots=True)
class ListJobs:
    """Request jobs: placed ones, waiting ones in the policy's order, with `ended` also ended ones.

    `limit` rows from row `offset` on. With `group_arrays` the waiting tasks of an array are one
    row. If all `states` are terminal: jobs that ended at `since_s` or later, the latest first.
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
    """One job in a list. If `progress` is unknown it is -1, and `left_s` infinite.

    `ran_s` is the run time without pauses, `gpu_hours` the GPU time when the record was last
    written: for an ended job all of it. A row for several waiting tasks of an array has their
    indices in `tasks` (`3-5,9`) and `array` -1; its other fields are those of the task that the
    policy would start first. `called` is the name of the job: `12`, `12_3` for a task,
    `12_[3-5,9]` for several.
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
    """One page of the jobs that match, from row `offset` on, and the cluster time.

    `more` rows follow the page, `total` is the number of rows of all pages; `counts` has the number
    of all jobs in each state.
    """

    now_s: float
    jobs: tuple[JobRow, ...]
    more: int = 0
    counts: tuple[tuple[str, int], ...] = ()
    total: int = 0
    offset: int = 0

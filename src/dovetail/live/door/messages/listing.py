"""Jobs in a list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dovetail.live.door.verbs import NEVER


@dataclass(frozen=True, slots=True)
class ListJobs:
    """List jobs: placed, waiting in the policy's order, and with `ended` those that are over.

    If all `states` are ends: those that ended at `since_s` or later, the newest end first.
    """

    verb: ClassVar[str] = "ls"
    states: tuple[str, ...] = ()
    user: str = ""
    name: str = ""
    ended: bool = False
    limit: int = 200
    since_s: float = 0.0


@dataclass(frozen=True, slots=True)
class JobRow:
    """One job in a list. `progress` is -1 where it is not known, `left_s` then infinite.

    `ran_s` is how long it ran, without what it waited in between; `gpu_hours` what it held of
    GPUs when its record was last written, which of a job that is over is all of it.
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
    start_s: float = NEVER
    end_s: float = NEVER
    ran_s: float = 0.0
    done_s: float = 0.0
    rate: float = 0.0
    progress: float = -1.0
    left_s: float = NEVER
    array: int = -1
    array_of: int = -1
    exit_code: int | None = None
    retries: int = 0
    gpu_hours: float = 0.0


@dataclass(frozen=True, slots=True)
class Listed:
    """Jobs, how many more there are that were not listed, and the cluster's time."""

    now_s: float
    jobs: tuple[JobRow, ...]
    more: int = 0
    counts: tuple[tuple[str, int], ...] = ()

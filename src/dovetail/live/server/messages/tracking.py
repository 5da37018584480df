"""In which states jobs are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class TrackJobs:
    """Say in which states jobs are, with all tasks of arrays."""

    verb: ClassVar[str] = "track"
    jobs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JobState:
    """Where one job is; `called` is the name that `ls` gives it."""

    job: int
    called: str
    state: str
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class JobStates:
    """The states of jobs, by number."""

    jobs: tuple[JobState, ...]

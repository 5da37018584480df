"""The states of jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class TrackJobs:
    """Request the states of jobs; an array stands for all its tasks."""

    verb: ClassVar[str] = "track"
    jobs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JobState:
    """The state of one job; `called` is its name in lists."""

    job: int
    called: str
    state: str
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class TrackReply:
    """The states of jobs, in the order of their numbers."""

    jobs: tuple[JobState, ...]

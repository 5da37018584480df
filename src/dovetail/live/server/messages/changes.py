"""What changes something: jobs are taken, or something is done to jobs, nodes or the cluster.

Each question carries a `key` the client made: the same key twice is the same request, so a client
that lost the reply may ask again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dovetail.wire.submission import Submission


@dataclass(frozen=True, slots=True)
class Submit:
    """Take jobs, all or none; a submission with indices is an array of jobs."""

    verb: ClassVar[str] = "submit"
    key: str
    submissions: tuple[Submission, ...]


@dataclass(frozen=True, slots=True)
class JobsSubmitted:
    """The numbers of the jobs taken; they are on disk."""

    jobs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class JobChange:
    """Cancel, requeue, hold or release jobs: `12`, which is all tasks of an array, or `12_3`."""

    verb: str
    key: str
    jobs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SkippedJob:
    """A job, or all tasks of an array, as it was named, and why nothing is done to it."""

    job: str
    why: str


@dataclass(frozen=True, slots=True)
class ChangeAccepted:
    """The request is on disk and will be carried out for these jobs, and not for those `left`.

    `called` are the names that `ls` gives the jobs.
    """

    jobs: tuple[int, ...] = ()
    left: tuple[SkippedJob, ...] = ()
    called: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Drain:
    """Give a node no new work, or (`undo`) work again."""

    verb: ClassVar[str] = "drain"
    key: str
    node: int
    undo: bool = False


@dataclass(frozen=True, slots=True)
class Down:
    """Stop the controller: leave the jobs running, or (`drain`) let them end first."""

    verb: ClassVar[str] = "down"
    key: str
    drain: bool = False

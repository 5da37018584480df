"""Requests that change jobs, nodes or the cluster.

Each has a `key` made by the client. A second request with the same key changes nothing and gets the
same reply, so a client may repeat a request whose reply was lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dovetail.wire.submission import Submission


@dataclass(frozen=True, slots=True)
class Submit:
    """Submit jobs, all or none; a submission with indices is an array of jobs."""

    verb: ClassVar[str] = "submit"
    key: str
    submissions: tuple[Submission, ...]


@dataclass(frozen=True, slots=True)
class SubmitReply:
    """The number of each submission; the jobs are on disk."""

    jobs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class JobChange:
    """Cancel, requeue, hold or release jobs: `12`, which is all tasks of an array, or `12_3`."""

    verb: str
    key: str
    jobs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RefusedJob:
    """A job or array, under the name in the request, and why the request does not change it."""

    job: str
    why: str


@dataclass(frozen=True, slots=True)
class ChangeReply:
    """The request is on disk and will change these jobs, but not those `left`.

    `called` are the names of the jobs in lists.
    """

    jobs: tuple[int, ...] = ()
    left: tuple[RefusedJob, ...] = ()
    called: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Drain:
    """Start no more jobs on a node or one `gpu` of it, or (`undo`) start jobs there again."""

    verb: ClassVar[str] = "drain"
    key: str
    node: int
    undo: bool = False
    gpu: int = -1
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Down:
    """Stop the controller: at once, while jobs run on, or (`drain`) after they have ended, or
    (`save`) after jobs that may be requeued have saved and left their GPUs.
    """

    verb: ClassVar[str] = "down"
    key: str
    drain: bool = False
    save: bool = False

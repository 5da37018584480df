"""The edges of the live world: time, what comes in, what goes out, what is kept.

Everything between them is a function of what they give, so that the same code runs with threads,
sockets and a disk, and inside virtual time with faults drawn from a seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from dovetail.core.errors import DovetailError
from dovetail.core.messages import Fact
from dovetail.live.jobs.record import JobRecord
from dovetail.wire.agent import AgentOrder, AgentReport
from dovetail.wire.spec import JobSpec


@dataclass(frozen=True, slots=True)
class Accepted:
    """A job was submitted and is on record; the world is to let it arrive."""

    job: int
    spec: JobSpec
    submit_s: float


@dataclass(frozen=True, slots=True)
class Request:
    """A user's verb that is on record and is to be carried out; `seq` orders them.

    `verb` is one of cancel, requeue, hold, release (of a job), or drain, undrain (of a node),
    or down (`argument` "leave" or "drain").
    """

    seq: int
    verb: str
    job: int = -1
    node: int = -1
    argument: str = ""


@dataclass(frozen=True, slots=True)
class NodeLost:
    """The connection to a node's agent broke. Not the node's end: silence decides that."""

    node: int


Incoming = Accepted | Request | AgentReport | NodeLost

CLOCK = "clock"
"""The name under which the journal keeps the cluster's time while nothing else tells of it."""


class Clock(Protocol):
    """The cluster's time: seconds since it was first brought up. It never runs backwards."""

    def now(self) -> float:
        """Returns the present."""
        ...


class Inbox(Protocol):
    """What comes in, in order of arrival."""

    def wait(self, until: float) -> Sequence[Incoming]:
        """Returns all that has come, waiting for the first up to `until`; empty when it is time."""
        ...


class Post(Protocol):
    """Takes orders to the agents. Nothing is promised: an order may be lost, doubled or late."""

    def send(self, node: int, order: AgentOrder) -> None:
        """Sends an order to the agent of a node."""
        ...


@dataclass(frozen=True, slots=True)
class Entry:
    """What one instant changed: facts, the records of the jobs they touch, requests carried out.

    `meta` are values that replace older ones of the same name.
    """

    facts: tuple[Fact, ...] = ()
    records: tuple[JobRecord, ...] = ()
    done: tuple[int, ...] = ()
    meta: tuple[tuple[str, str], ...] = ()


class Journal(Protocol):
    """Keeps entries. An entry is kept whole or not at all, and never forgotten once written."""

    def write(self, entry: Entry) -> None:
        """Returns when the entry is durable. Raises StoreError if it cannot be kept."""
        ...


class Archive(Protocol):
    """Knows every job on record, those that ended long ago too."""

    def find(self, job: int) -> tuple[JobSpec, JobRecord] | None:
        """Returns what was asked for and how far it came, or None for an unknown number."""
        ...


@dataclass(frozen=True, slots=True)
class Edges:
    """All that a live world touches."""

    clock: Clock
    inbox: Inbox
    post: Post
    journal: Journal
    archive: Archive


class StoreError(DovetailError):
    """Says that nothing can be kept any more (a full or broken disk); nothing was changed."""

"""The edges of the live world: its clock, inbox, post, journal and archive.

The controller depends on these five alone. So the same code runs with threads, sockets and a disk,
and in virtual time with faults drawn from a seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from dovetail.core.errors import DovetailError
from dovetail.core.messages import Fact
from dovetail.live.jobs.record import JobRecord
from dovetail.live.jobs.stored_job import StoredJob
from dovetail.wire.agent import AgentOrder, AgentReport


@dataclass(frozen=True, slots=True)
class Request:
    """A request of a user that is on record and is to be carried out; `seq` orders requests.

    `verb` is one of cancel, requeue, hold, release (of a job), or drain, undrain (of a node),
    or down (`argument` "leave", "drain" or "save"). The `argument` of cancel is why, if it was not
    its owner.
    """

    seq: int
    verb: str
    job: int = -1
    node: int = -1
    argument: str = ""


@dataclass(frozen=True, slots=True)
class NodeLost:
    """The connection to a node's agent broke. Only silence makes the node down."""

    node: int


@dataclass(frozen=True, slots=True)
class NodeGone:
    """Whoever started the agent of a node says that the node is dead: nothing runs there.

    It must be true of a node that is only cut off as well: this ends the lease of the node early.
    It was asked for at `asked_s` by the clock of the controller, and may be old when it comes.
    """

    node: int
    asked_s: float


@dataclass(frozen=True, slots=True)
class NodesChanged:
    """A new node has joined, or one has other devices: the controller must start anew."""


Incoming = StoredJob | Request | AgentReport | NodeLost | NodeGone | NodesChanged
"""A submitted job, the request of a user, the report of an agent, or news of the nodes."""

CLOCK = "clock"
"""The name in the journal of the cluster's time, for times without facts and records."""
MEASURED = "measured"
"""The name in the journal of what the cluster has learned from its jobs."""
BACKUP = "backup"
"""The name in the journal of when this store was copied from another, empty once it is in use."""
POLICY_MEMORY = "policy memory"
"""The name in the journal of what the policy keeps of its memory for the next controller."""


class Clock(Protocol):
    """The cluster's time: seconds since it was first brought up. It never runs backwards."""

    def now(self) -> float:
        """Returns the present."""


class Inbox(Protocol):
    """The messages for the controller, in order of arrival."""

    def wait(self, until: float) -> Sequence[Incoming]:
        """Returns all messages, waiting for the first; none if `until` comes before it."""


class Post(Protocol):
    """Sends orders to the agents. Nothing is promised: an order may be lost, doubled or late."""

    def send(self, node: int, order: AgentOrder) -> None:
        """Sends an order to the agent of a node."""


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """The changes of one instant: facts, records of jobs, and requests that were carried out.

    `meta` are values that replace older ones of the same name.
    """

    facts: tuple[Fact, ...] = ()
    records: tuple[JobRecord, ...] = ()
    done: tuple[int, ...] = ()
    meta: tuple[tuple[str, str], ...] = ()


class Journal(Protocol):
    """Stores entries. An entry is stored whole or not at all, and is never lost once written."""

    def write(self, entry: JournalEntry) -> None:
        """Returns when the entry is durable. Raises StoreError if it cannot be written."""


class Archive(Protocol):
    """Finds any job on record, also one that ended long ago."""

    def find(self, job: int) -> StoredJob | None:
        """Returns a job, or None for an unknown number."""


@dataclass(frozen=True, slots=True)
class StoredState:
    """The state from which a new controller starts; its `epoch` is above that of any before.

    `jobs` are live and have been admitted, `accepted` not yet admitted, `requests` not yet carried
    out. `now_s` is the latest time in the store.
    """

    epoch: int
    now_s: float = 0.0
    jobs: tuple[StoredJob, ...] = ()
    accepted: tuple[StoredJob, ...] = ()
    requests: tuple[Request, ...] = ()
    meta: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Edges:
    """Everything outside itself that a live world uses."""

    clock: Clock
    inbox: Inbox
    post: Post
    journal: Journal
    archive: Archive


class StoreError(DovetailError):
    """Nothing can be written (the disk is full or broken); nothing was changed."""

"""The first line of a connection that comes in through the gate, and its answer.

An agent joins with the secret of its node; a client enters with that of the cluster's clients. What
follows are the messages of `wire.agent`, or those of clients. New fields have defaults and old ones
stay, since the peer may be of the version before.
"""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.wire.agent import WIRE_VERSION
from dovetail.wire.codec import Codec
from dovetail.wire.site import AS_USUAL, SiteSettings

SERVED = (WIRE_VERSION - 1, WIRE_VERSION)
"""The versions of agents that a controller serves, so that either may be upgraded first."""


@dataclass(frozen=True, slots=True)
class NodeDevices:
    """What a node has: its GPUs or CPU slots, all alike, and its cores and memory."""

    names: tuple[str, ...]
    gpu_type: str
    gpu_memory_bytes: float
    cpus: float = 0.0
    memory_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class Join:
    """An agent joins as a node. `incarnation` is new for each process of an agent.

    It begins with the identity of the folder that the agent keeps (see `folder_of`).

    With `has_users` it runs jobs as their submitters, without as its own user.
    """

    wire: int
    version: str
    node: str
    secret: str
    incarnation: str
    devices: NodeDevices
    has_users: bool = False


def incarnation_of(folder: str, process: str) -> str:
    """Returns the incarnation of an agent: of the identity of its folder, "" for none, and a word.

    One string, since controllers of the version before know of no folder.
    """
    return f"{folder}-{process}" if folder else process


def folder_of(incarnation: str) -> str:
    """Returns the identity of an agent's folder, "" if it has not said one."""
    return incarnation.rpartition("-")[0]


@dataclass(frozen=True, slots=True)
class CheckFolder:
    """Asks an agent to show that it has the shared folder `path`: there is a new file `name`.

    Also what it must find there later on: the mark of the `cluster`.
    """

    path: str
    cluster: str
    name: str


@dataclass(frozen=True, slots=True)
class FolderChecked:
    """What the file has, which the agent wrote beside it too; or `why` that was not possible.

    `busy` if workers live on the node.
    """

    content: str
    why: str = ""
    busy: bool = False


@dataclass(frozen=True, slots=True)
class Enter:
    """A client enters; its requests follow."""

    version: str
    secret: str


@dataclass(frozen=True, slots=True)
class CarryFiles:
    """The agent of a node that has joined opens its connection for files (`wire.shipping`)."""

    version: str
    node: str
    secret: str


@dataclass(frozen=True, slots=True)
class CarryTerminal:
    """The agent of a node opens the connection for a terminal that it was asked for."""

    version: str
    node: str
    secret: str
    ticket: str


@dataclass(frozen=True, slots=True)
class Welcome:
    """The peer is admitted; an agent serves the node of this number, as the site has set it."""

    version: str
    number: int = -1
    site: SiteSettings = AS_USUAL


@dataclass(frozen=True, slots=True)
class JoinRefused:
    """The peer is not admitted, why, and how to mend it."""

    why: str
    mend: str = ""


ENTRANCES: Codec[Join | Enter | FolderChecked | CarryFiles | CarryTerminal] = Codec(
    {
        "Join": Join,
        "Enter": Enter,
        "FolderChecked": FolderChecked,
        "CarryFiles": CarryFiles,
        "CarryTerminal": CarryTerminal,
    }
)
ANSWERS: Codec[Welcome | JoinRefused | CheckFolder] = Codec(
    {"Welcome": Welcome, "JoinRefused": JoinRefused, "CheckFolder": CheckFolder}
)
TERMINALS_SINCE = 5
"""The first version whose agents know interactive jobs, and jobs that start once on each node."""

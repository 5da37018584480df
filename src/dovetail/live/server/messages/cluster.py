"""The controller and the nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dovetail.live.jobs.drain_reason import DrainReason


@dataclass(frozen=True, slots=True)
class Ping:
    """Request the identity of the controller."""

    verb: ClassVar[str] = "ping"


@dataclass(frozen=True, slots=True)
class PingReply:
    """The controller: its process, start number and options, and the cluster time and its speed."""

    pid: int
    epoch: int
    version: str
    policy: str
    engine: str
    forecast: str
    now_s: float
    speed: float = 1.0


@dataclass(frozen=True, slots=True)
class ListNodes:
    """Request the nodes and the jobs on their GPUs."""

    verb: ClassVar[str] = "nodes"


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One node: state, GPUs by name, and for each GPU the jobs on it and their names in lists.

    `silent_s` is the time since the last message of its agent, -1 if there was none. `drains` say
    who drained the node or GPUs of it, and why.
    """

    node: int
    state: str
    gpus: tuple[str, ...]
    jobs: tuple[tuple[int, ...], ...]
    called: tuple[tuple[str, ...], ...]
    silent_s: float = 0.0
    gpu_type: str = ""
    drains: tuple[DrainReason, ...] = ()
    warnings: tuple[str, ...] = ()
    name: str = ""

    @property
    def label(self) -> str:
        """Returns the name of the node, or its number if it has none."""
        return self.name or str(self.node)


@dataclass(frozen=True, slots=True)
class NodeList:
    """The nodes, and the cluster time."""

    now_s: float
    nodes: tuple[NodeRow, ...]

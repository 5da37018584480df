"""Who answers, and what its nodes are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Ping:
    """Say who you are."""

    verb: ClassVar[str] = "ping"


@dataclass(frozen=True, slots=True)
class Pong:
    """Who answers: process, start number, policy, engine, cluster time and its speed."""

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
    """List the nodes and who is on their GPUs."""

    verb: ClassVar[str] = "nodes"


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One node: state, GPUs by name, and the jobs on each, which are `called` so in `ls`."""

    node: int
    state: str
    gpus: tuple[str, ...]
    jobs: tuple[tuple[int, ...], ...]
    called: tuple[tuple[str, ...], ...]
    silent_s: float = 0.0
    gpu_type: str = ""


@dataclass(frozen=True, slots=True)
class NodeList:
    """The nodes, and the cluster's time."""

    now_s: float
    nodes: tuple[NodeRow, ...]

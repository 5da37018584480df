"""The agents of many emulated nodes, in one process: each joins the gate over TLS on its own."""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from time import monotonic

import numpy as np

from benchmarks.control_plane import GPUS
from benchmarks.measure import until
from dovetail.core.cluster import Cluster
from dovetail.core.errors import InputError
from dovetail.core.job import JobTable
from dovetail.live.emulation.nodes import EmulatedNodes
from dovetail.live.engines.agent_server import AgentServer
from dovetail.live.join.dial import Joiner, NodeRefused
from dovetail.live.node.agent import Agent
from dovetail.live.node.transport import EventLoop
from dovetail.live.serving.scheduler import live_options, live_physics
from dovetail.wire.agent import AgentOrder, AgentReport
from dovetail.wire.join import NodeDevices

REDIAL_S = 1.0
"""How often an agent without a controller calls it."""


@dataclass(frozen=True, slots=True)
class AgentUsage:
    """What the process of all agents has used, and how far its nodes are behind its clock."""

    cpu_s: float
    behind_s: float


class ManyNodes(EmulatedNodes):
    """Emulated nodes that can die, each behind the server of a real agent, on one thread."""

    def play(self, join: Path, orders: Connection) -> None:
        """Joins all nodes over TLS, and plays them until this process is killed."""
        self._loop, self._began_s, self._beaten_s = EventLoop(), monotonic(), 0.0
        self._loop.watch(
            orders.fileno(), selectors.EVENT_READ, lambda events: self._obey(orders.recv(), orders)
        )
        count = len(self._nodes)
        self._links = [
            DialedLink(join / name(n), self.gpu_names(n), self._loop) for n in range(count)
        ]
        self._servers = [
            AgentServer(self._loop, link, OneOf(self, n), (n,), self.clock, gathers=True)
            for n, link in enumerate(self._links)
        ]
        orders.send("ready")
        while True:
            self._loop.wait(min(self.next_due() - self.clock(), 0.5 / count))
            self.route(self.tick(self.clock()))
            self.beat()

    def clock(self) -> float:
        """Returns the time of the nodes."""
        return monotonic() - self._began_s

    def gpu_names(self, node: int) -> tuple[str, ...]:
        """Returns what the agent of a node calls its GPUs."""
        return tuple(f"paced-{gpu}" for gpu in range(self._gpus[node]))

    def route(self, reports: Sequence[AgentReport], own: int = -1) -> list[AgentReport]:
        """Lets each agent send what is its own; returns what is that of one node."""
        for report in reports:
            if report.node != own:
                self._servers[report.node].publish([report])
        return [report for report in reports if report.node == own]

    def agent_of(self, node: int) -> Agent | None:
        """Returns the agent of a node that has not died."""
        return self._nodes[node].agent

    def beat(self) -> None:
        """Lets every node that is due send its line of this second, one after the other."""
        count, now = len(self._nodes), self.clock()
        first, last = int(self._beaten_s * count), int(now * count)
        self._beaten_s = now
        for n in range(max(first, last - count), last):
            node = n % count
            if self._nodes[node].agent is not None:
                self._servers[node].publish(self._servers[node]._nodes.heartbeats(now))
                self._servers[node]._source.turn()

    def _obey(self, order: object, orders: Connection) -> None:
        if isinstance(order, range):
            for node in order:
                # As when a machine loses its power: the connection stays, and nothing is said.
                self._nodes[node].agent = None
        else:
            orders.send(AgentUsage(time.process_time(), self.clock() - self._now))


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of many nodes, for the server of its agent."""

    all: ManyNodes
    number: int

    def handle(self, node: int, order: AgentOrder, now: float) -> list[AgentReport]:
        """Passes an order to the agent. Others must be heard however many orders there are."""
        self.all.beat()
        return self.all.route(self.all.handle(node, order, now), own=node)

    def heartbeats(self, now: float) -> list[AgentReport]:
        """Returns the sign of life of the node."""
        agent = self.all.agent_of(self.number)
        return [] if agent is None else [agent.heartbeat(now)]


class DialedLink:
    """Calls the controller of a join word whenever there is no connection."""

    def __init__(self, word: Path, gpus: tuple[str, ...], loop: EventLoop) -> None:
        devices = NodeDevices(gpus, "emulated", 80e9, 64.0, 1e12)
        self._joiner = Joiner(word, word.name, devices)
        self._call_s = 0.0

    def open(self, server: AgentServer) -> None:
        """Calls from now on."""
        self._server = server
        self.turn()

    def turn(self) -> bool:
        """Calls if there is no connection; the controller may be away for a while."""
        if not self._server.is_connected and monotonic() >= self._call_s:
            self._call_s = monotonic() + REDIAL_S
            with suppress(OSError, NodeRefused, InputError):
                self._server.add(self._joiner.join().link)
        return True


def name(node: int) -> str:
    """Returns the name of a node."""
    return f"n{node:04d}"


def play_agents(home: Path, nodes: int, orders: Connection) -> None:
    """Plays the agents of all nodes; orders are nodes that die, or the wish to know the usage."""
    # A session of its own gets a share of the CPU of its own, as other machines have theirs.
    os.setsid()
    table = JobTable.build([], np.empty(0), np.empty(0, np.int64))
    options = live_options(Cluster.uniform(nodes, GPUS), {})
    played = ManyNodes(nodes, GPUS, jobs=table, physics=live_physics(table, options), steps_max=20)
    words = home / "join"
    until(lambda: (words / name(nodes - 1)).exists(), "the join words are there")
    played.play(words, orders)

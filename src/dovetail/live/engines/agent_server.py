"""The process of agents: one loop between the connections of controllers and the nodes.

It outlives controllers. Reports go only to the connections of the newest controller; an older one
is not obeyed and gets no reports. It ends when it is dismissed, or when no controller can come:
its workers end with it then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from time import monotonic
from typing import Protocol

from dovetail.live.node.transport import (
    TO_AGENTS,
    Addressed,
    Dismiss,
    EventLoop,
    LineChannel,
    LinkTerminal,
)
from dovetail.wire.agent import REPORTS, AgentOrder, AgentReport, WorkerReport, is_progress
from dovetail.wire.codec import WireError
from dovetail.wire.connection import LineConnection, Stream

ALIVE_S = 1.0
LONGEST_WAIT_S = 0.5
LOGGED_MAX = 10_000
"""So many ends are remembered as logged."""
LINKS_MAX = 64
"""Controllers that are connected at once: there is one, and one that takes over."""
GRACE_S = 3.0
"""Between SIGTERM and SIGKILL if this process is to end: batch systems give it seconds."""
KILLED_WITHIN_S = 30.0
"""After SIGKILL a process may still take this long to be gone."""


class EngineNodes(Protocol):
    """The nodes of an engine, as a function of orders and the present."""

    def handle(self, node: int, order: AgentOrder, now: float) -> list[AgentReport]:
        """Passes an order to the agent of a node."""
        ...

    def tick(self, now: float) -> list[AgentReport]:
        """Does what is due, and returns the reports."""
        ...

    def next_due(self) -> float:
        """Returns when something is due."""
        ...

    def heartbeats(self, now: float) -> list[AgentReport]:
        """Returns the signs of life of all agents."""
        ...

    def end_all(self, grace_s: float, now: float) -> list[AgentReport]:
        """Ends all workers, without an order of a controller."""
        ...

    def open_terminal(self, wanted: LinkTerminal, link: LineConnection | None) -> None:
        """Joins the terminal of a worker to a connection, or to one that it opens by a ticket."""
        ...

    def close(self) -> None:
        """Closes what this process has open; workers live on."""
        ...

    @property
    def alive(self) -> Sequence[tuple[int, int, int]]:
        """Returns (node, job, worker) of every worker that lives."""
        ...


class ControllerLinks(Protocol):
    """How controllers reach an agent process: it listens for them, or calls them."""

    def open(self, server: AgentServer) -> None:
        """Passes connections to `server.add` from now on."""
        ...

    def turn(self) -> bool:
        """Does what is due; False if no controller can ever come again."""
        ...

    def close(self) -> None:
        """Closes what it has open."""
        ...


class AgentServer:
    """Serves controllers until it is dismissed. `speed` is cluster seconds per second.

    With `gathers` progress waits for the next heartbeat: one line for each node and second, however
    many workers it has. Nothing overtakes it.
    """

    def __init__(
        self,
        loop: EventLoop,
        links: ControllerLinks,
        nodes: EngineNodes,
        numbers: Collection[int],
        clock: Callable[[], float],
        *,
        speed: float = 1.0,
        gathers: bool = False,
        log: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._gathers = gathers
        self._progress: dict[int, list[WorkerReport]] = {}
        self._loop, self._source, self._nodes, self._clock = loop, links, nodes, clock
        self._numbers, self._speed, self._log = numbers, speed, log
        self._links: list[_Controller] = []
        self._epoch = -1
        self._logged: set[tuple[int, int]] = set()
        self._dismissed = False
        self._ends_soon = False
        self._alive_s = monotonic()
        links.open(self)

    def serve(self) -> None:
        """Serves until dismissed, or until no controller can come any more."""
        while not self._dismissed:
            due_s = (self._nodes.next_due() - self._clock()) / self._speed
            self._loop.wait(min(due_s, LONGEST_WAIT_S))
            reports = self._nodes.tick(self._clock())
            self._log_ends(reports)
            self.publish(reports)
            self._heartbeat()
            if self._ends_soon:
                self._log("ending all workers, as requested")
                self.end_workers(GRACE_S)
                return
            if not self._source.turn():
                self.end_workers(0.0)
                return

    def end_soon(self) -> None:
        """Makes `serve` end all workers and return; a handler of signals may call it."""
        self._ends_soon = True

    def _log_ends(self, reports: Sequence[AgentReport]) -> None:
        """Logs, once each, the ends of workers that the node has caused, as by its lease."""
        for end in (report.ended for report in reports):
            if end is None or not end.why or (end.job, end.worker) in self._logged:
                continue
            if len(self._logged) >= LOGGED_MAX:
                self._logged.clear()
            self._logged.add((end.job, end.worker))
            self._log(f"worker {end.worker} of job {end.job} was ended: {end.why}")

    def publish(self, reports: Sequence[AgentReport]) -> None:
        """Sends reports to the newest controller, if it is connected."""
        links = [link for link in self._links if link.epoch == self._epoch >= 0]
        for report in reports if links else ():
            if self._gathers and is_progress(report) and report.said is not None:
                self._progress.setdefault(report.node, []).append(report.said)
                continue
            gathered = tuple(self._progress.pop(report.node, ()))
            if gathered and report.alive is not None:
                report = replace(report, progress=gathered)
            elif gathered:
                self._send(AgentReport(report.node, progress=gathered), links)
            self._send(report, links)

    def _send(self, report: AgentReport, links: Sequence[_Controller]) -> None:
        line = REPORTS.encode(report)
        for link in links:
            link.channel.send(line)

    def end_workers(self, grace_s: float) -> None:
        """Ends all workers: SIGTERM now, SIGKILL after `grace_s` seconds of the machine."""
        give_up_s = monotonic() + grace_s + KILLED_WITHIN_S
        self.publish(self._nodes.end_all(grace_s * self._speed, self._clock()))
        while self._nodes.alive and monotonic() < give_up_s:
            self._loop.wait(0.02)
            self.publish(self._nodes.tick(self._clock()))

    def close(self) -> None:
        """Closes all connections, and waits for none any more."""
        for link in list(self._links):
            link.channel.close()
        self._source.close()

    @property
    def is_connected(self) -> bool:
        """True while any controller is connected."""
        return bool(self._links)

    def add(self, link: Stream) -> None:
        """Serves a controller on a new connection; of too many one that gave no order is closed."""
        if len(self._links) >= LINKS_MAX:
            next((one for one in self._links if one.epoch < 0), self._links[0]).channel.close()
        self._links.append(_Controller(self, link))
        self._log("a controller connected")

    def _heartbeat(self) -> None:
        now = monotonic()
        if now >= self._alive_s:
            self._alive_s = now + ALIVE_S
            self.publish(self._nodes.heartbeats(self._clock()))

    # What connections do.

    def receive(self, link: _Controller, text: bytes) -> None:
        """Carries out a line of a controller."""
        try:
            message = TO_AGENTS.decode(text)
        except WireError as error:
            self._log(f"an order that cannot be read: {error}")
            link.channel.close()
            return
        if isinstance(message, Dismiss):
            # Any process of this user may shut the cluster down, also without a controller.
            self._log("dismissed: ending all workers")
            self.end_workers(message.grace_s)
            self._dismissed = True
            return
        if isinstance(message, LinkTerminal):
            self._nodes.open_terminal(message, None if message.ticket else self._release(link))
            return
        assert isinstance(message, Addressed)
        if message.node not in self._numbers:
            return
        link.epoch = max(link.epoch, message.order.epoch)
        self._epoch = max(self._epoch, link.epoch)
        self.publish(self._nodes.handle(message.node, message.order, self._clock()))

    def _release(self, link: _Controller) -> LineConnection:
        """Returns the connection itself, which carries no more orders."""
        self._links.remove(link)
        return link.channel.release()

    def disconnected(self, link: _Controller) -> None:
        """Removes a connection that was closed."""
        self._links.remove(link)
        # The next controller's inventory has newer progress than what waits here.
        self._progress.clear()
        self._log("a controller disconnected")


class _Controller:
    """One connection, and the newest epoch that came in on it."""

    def __init__(self, server: AgentServer, link: Stream) -> None:
        self.epoch = -1
        self.channel = LineChannel(
            server._loop,
            link,
            lambda text: server.receive(self, text),
            lambda: server.disconnected(self),
        )

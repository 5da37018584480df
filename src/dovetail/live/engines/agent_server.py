"""The process of the agents: one loop between the controller's socket and the nodes.

It outlives controllers. Reports go only to the connections of the newest controller; an older one
is not obeyed and gets no reports. It ends when it is dismissed, or when its folder is gone: no
controller can reach it then, and its workers end with it.
"""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import Protocol

from dovetail.live.node.transport import TO_AGENTS, Addressed, Dismiss, EventLoop, LineChannel
from dovetail.live.system.private_file import is_gone
from dovetail.live.system.unix_socket import is_same_user, listen, peer_uid, remove_socket
from dovetail.wire.agent import REPORTS, AgentOrder, AgentReport
from dovetail.wire.codec import WireError

ALIVE_S = 1.0
LOOK_S = 1.0
"""How often it checks that the folder is there, in seconds of the machine."""
LONGEST_WAIT_S = 0.5
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

    def close(self) -> None:
        """Closes what this process has open; workers live on."""
        ...

    @property
    def alive(self) -> Sequence[tuple[int, int, int]]:
        """Returns (node, job, worker) of every worker that lives."""
        ...


class AgentServer:
    """Serves controllers until it is dismissed. `speed` is cluster seconds per second.

    A controller runs as the same user, or as the one of `controller_uid` if that is set.
    """

    def __init__(
        self,
        loop: EventLoop,
        path: Path,
        nodes: EngineNodes,
        count: int,
        clock: Callable[[], float],
        *,
        speed: float = 1.0,
        log: Callable[[str], None] = lambda text: None,
        controller_uid: int = -1,
    ) -> None:
        self._controller_uid = controller_uid
        self._loop, self._path, self._nodes, self._clock = loop, path, nodes, clock
        self._count, self._speed, self._log = count, speed, log
        self._server = listen(path, for_all=controller_uid >= 0)
        self._server.setblocking(False)
        self._inode = path.stat().st_ino
        self._links: list[_Controller] = []
        self._epoch = -1
        self._dismissed = False
        self._logged = ""
        self._alive_s = self._look_s = monotonic()
        loop.watch(self._server, selectors.EVENT_READ, self._accept)

    def serve(self) -> None:
        """Serves until dismissed, or until its folder is gone."""
        while not self._dismissed:
            due_s = (self._nodes.next_due() - self._clock()) / self._speed
            self._loop.wait(min(due_s, LONGEST_WAIT_S))
            self.publish(self._nodes.tick(self._clock()))
            self._heartbeat()
            if not self._is_there():
                self._log("the folder is gone: ending all workers")
                self.end_workers(0.0)
                return

    def publish(self, reports: Sequence[AgentReport]) -> None:
        """Sends reports to the newest controller, if it is connected."""
        links = [link for link in self._links if link.epoch == self._epoch >= 0]
        if links:
            for report in reports:
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
        """Closes all connections, and removes the socket if it is still its own."""
        for link in list(self._links):
            link.channel.close()
        self._loop.leave(self._server)
        remove_socket(self._path, self._inode)
        self._server.close()

    def _is_there(self) -> bool:
        now = monotonic()
        if now < self._look_s:
            return True
        self._look_s = now + LOOK_S
        try:
            gone = is_gone(self._path, self._inode)
        except OSError as error:
            # Not known: workers must not end for a disk or a permission that comes back.
            self._log_once(f"{self._path} cannot be looked at: {error.strerror}")
            return True
        self._logged = ""
        return not gone

    def _log_once(self, text: str) -> None:
        if text != self._logged:
            self._log(text)
        self._logged = text

    def _heartbeat(self) -> None:
        now = monotonic()
        if now >= self._alive_s:
            self._alive_s = now + ALIVE_S
            self.publish(self._nodes.heartbeats(self._clock()))

    def _accept(self, events: int) -> None:
        try:
            link, _ = self._server.accept()
        except OSError:
            return
        if not is_same_user(link) and peer_uid(link) != self._controller_uid:
            self._log(f"another user (uid {peer_uid(link)}) connected and was refused")
            link.close()
            return
        self._links.append(_Controller(self, link))
        self._log("a controller connected")

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
        assert isinstance(message, Addressed)
        if not 0 <= message.node < self._count:
            return
        link.epoch = max(link.epoch, message.order.epoch)
        self._epoch = max(self._epoch, link.epoch)
        self.publish(self._nodes.handle(message.node, message.order, self._clock()))

    def disconnected(self, link: _Controller) -> None:
        """Removes a connection that was closed."""
        self._links.remove(link)
        self._log("a controller disconnected")


class _Controller:
    """One connection, and the newest epoch that came in on it."""

    def __init__(self, server: AgentServer, link: socket.socket) -> None:
        self.epoch = -1
        self.channel = LineChannel(
            server._loop,
            link,
            lambda text: server.receive(self, text),
            lambda: server.disconnected(self),
        )

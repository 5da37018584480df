"""The two ways to a controller: a socket that it listens on, or a controller that it calls."""

from __future__ import annotations

import os
import selectors
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic

from dovetail.live.engines.agent_server import AgentServer
from dovetail.live.join.dial import JoinedNode, Joiner, JoinThread
from dovetail.live.node.transport import EventLoop
from dovetail.live.system.private_file import is_gone
from dovetail.live.system.unix_socket import is_same_user, listen, peer_uid, remove_socket
from dovetail.wire.connection import PIECE_BYTES

LOOK_S = 1.0
"""How often it checks that the folder is there, in seconds of the machine."""


class LocalLinks:
    """A Unix socket in the folder of a cluster on this machine.

    It is gone when the folder is: a cluster that was removed has no controller any more.
    A controller runs as the same user, or as that of `controller_uid` if it is not negative.
    """

    def __init__(
        self,
        loop: EventLoop,
        path: Path,
        log: Callable[[str], None],
        controller_uid: int = -1,
    ) -> None:
        self._loop, self._path, self._log = loop, path, log
        self._controller_uid = controller_uid
        self._listener = listen(path, for_all=controller_uid >= 0)
        self._listener.setblocking(False)
        self._inode = path.stat().st_ino
        self._look_s = monotonic()
        self._logged = ""

    def open(self, server: AgentServer) -> None:
        """Passes controllers of the same user on from now on."""
        self._server = server
        self._loop.watch(self._listener, selectors.EVENT_READ, self._accept)

    def turn(self) -> bool:
        """Looks for the folder; False if it is gone."""
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
        if gone:
            self._log("the folder is gone: ending all workers")
        return not gone

    def close(self) -> None:
        """Removes the socket if it is still its own."""
        self._loop.leave(self._listener)
        remove_socket(self._path, self._inode)
        self._listener.close()

    def _log_once(self, text: str) -> None:
        if text != self._logged:
            self._log(text)
        self._logged = text

    def _accept(self, events: int) -> None:
        try:
            link, _ = self._listener.accept()
        except OSError:
            return
        if not is_same_user(link) and peer_uid(link) != self._controller_uid:
            self._log(f"another user (uid {peer_uid(link)}) connected and was refused")
            link.close()
            return
        self._server.add(link)


class GateLinks:
    """Calls the controller of a join word, again after each loss.

    No folder and no silence of the network makes it go: workers end by their lease alone. It is
    gone if the controller knows the node by another `number`, and then `moved` is True: orders for
    the number that this process has would be those of another node. `on_join` is called with each
    connection before orders come in on it.
    """

    def __init__(
        self,
        loop: EventLoop,
        joiner: Joiner,
        number: int,
        log: Callable[[str], None],
        joined: JoinedNode | None = None,
        on_join: Callable[[JoinedNode], None] = lambda joined: None,
    ) -> None:
        self._loop, self._number, self._log = loop, number, log
        self._first, self._on_join = joined, on_join
        self._wake_r, self._wake_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._dialer = JoinThread(joiner, self._wake, log)
        self.moved = False

    def open(self, server: AgentServer) -> None:
        """Passes the connection to a controller on, now and after each loss."""
        self._server = server
        self._loop.watch(self._wake_r, selectors.EVENT_READ, self._woken)
        if self._first is not None:
            self._add(self._first)

    def turn(self) -> bool:
        """Calls if there is no connection; False if the node has another number by now."""
        if self._server.is_connected:
            return True
        joined = self._dialer.turn()
        if joined is None:
            return True
        if joined.number != self._number:
            joined.link.close()
            self._log(f"the controller knows this node as {joined.number}, not {self._number}")
            self.moved = True
            return False
        self._add(joined)
        return True

    def _add(self, joined: JoinedNode) -> None:
        self._on_join(joined)
        self._server.add(joined.link)

    def close(self) -> None:
        """Closes the pipe of its thread, unless an attempt is still under way."""
        self._loop.leave(self._wake_r)

    def _wake(self) -> None:
        with suppress(OSError):
            os.write(self._wake_w, b".")

    def _woken(self, events: int) -> None:
        with suppress(BlockingIOError):
            os.read(self._wake_r, PIECE_BYTES)

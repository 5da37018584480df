"""The agent's part in interactive jobs: it joins connections of the controller to keepers.

Each has a thread of its own, so that the agent itself never waits. A later connection for a worker
takes the place of the one before it, whose controller may be gone without a word.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from dovetail.live.engines.keeper_terminal import SOCKET
from dovetail.live.terminals.relay import relay
from dovetail.wire.connection import LineConnection, Stream


class AgentTerminals:
    """The connections of one process of agents, by their workers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[Path, socket.socket] = {}
        self.call: Callable[[str], tuple[Stream, bytes]] = no_ticket
        """Returns the connection to the controller for a ticket, and what came in on it."""

    def open(self, folder: Path | None, ticket: str, link: LineConnection | None) -> None:
        """Joins the terminal in a worker's folder to a link, or to a connection for a ticket.

        Closes the link if there is no such worker.
        """
        if folder is not None:
            self._join(folder, lambda: link.detach() if link else self.call(ticket))
        elif link is not None:
            link.close()

    def _join(self, folder: Path, call: Callable[[], tuple[Stream, bytes]]) -> None:
        threading.Thread(
            target=self._run, args=(folder, call), name="terminal", daemon=True
        ).start()

    def _run(self, folder: Path, call: Callable[[], tuple[Stream, bytes]]) -> None:
        try:
            stream, early = call()
        except OSError:
            # Whoever asked will ask again.
            return
        try:
            keeper = keeper_of(folder)
        except OSError:
            stream.close()
            return
        with self._lock:
            older, self._open[folder] = self._open.get(folder), keeper
        if older is not None:
            with suppress(OSError):
                older.shutdown(socket.SHUT_RDWR)
        try:
            relay(stream, keeper, early)
        finally:
            with self._lock:
                if self._open.get(folder) is keeper:
                    del self._open[folder]
            keeper.close()
            stream.close()


def no_ticket(ticket: str) -> tuple[Stream, bytes]:
    """Raises OSError: this agent is called by its controller, and calls nobody."""
    raise ConnectionError("no controller was joined through a gate")


def keeper_of(folder: Path) -> socket.socket:
    """Returns a connection to the keeper of a worker. Raises OSError."""
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # By descriptor: the path of the folder may be longer than the kernel takes for a socket.
    place = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        link.connect(f"/proc/self/fd/{place}/{SOCKET}")
    except OSError:
        link.close()
        raise
    finally:
        os.close(place)
    return link

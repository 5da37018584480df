"""The network between an agent and the gate, which a test cuts: one way, both ways, or for good."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

CHUNK_BYTES = 1 << 16
UP, DOWN = "up", "down"
"""From the agent to the controller, and back."""


class CutLine:
    """A TCP proxy of one node. What is sent into a cut is not lost: it arrives late, in order.

    `target` is where the gate listens now.
    """

    def __init__(self, target: Callable[[], tuple[str, int]]) -> None:
        self._target = target
        self._open = {UP: threading.Event(), DOWN: threading.Event()}
        self._links: set[socket.socket] = set()
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._door.getsockname()[1]
        self.mend()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, *ways: str) -> None:
        """Lets nothing through these ways from now on; new connections come to nothing."""
        for way in ways:
            self._open[way].clear()

    def mend(self) -> None:
        """Lets everything through again."""
        for way in self._open.values():
            way.set()

    def reset(self) -> None:
        """Breaks the connections: what was under way is lost."""
        for link in list(self._links):
            with suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Ends the proxy."""
        with suppress(OSError):
            self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()
        self.reset()
        self.mend()

    def _accept(self) -> None:
        while True:
            try:
                agent, _ = self._door.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(agent,), daemon=True).start()

    def _connect(self, agent: socket.socket) -> None:
        self._open[UP].wait()
        try:
            gate = socket.create_connection(self._target(), timeout=10.0)
        except OSError:
            agent.close()
            return
        gate.settimeout(None)
        self._links |= {agent, gate}
        pumps = [
            threading.Thread(target=self._pump, args=(*pair, self._open[way]), daemon=True)
            for pair, way in (((agent, gate), UP), ((gate, agent), DOWN))
        ]
        for pump in pumps:
            pump.start()
        for pump in pumps:
            pump.join()
        self._links -= {agent, gate}
        agent.close()
        gate.close()

    @staticmethod
    def _pump(source: socket.socket, sink: socket.socket, is_open: threading.Event) -> None:
        with suppress(OSError):
            while data := source.recv(CHUNK_BYTES):
                is_open.wait()
                sink.sendall(data)
        # Also the end of a connection is no news to the other side while the line is cut.
        is_open.wait()
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

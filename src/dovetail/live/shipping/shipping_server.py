"""Serves the connections on which nodes ship files: a thread each, as disks may take long."""

from __future__ import annotations

import logging
import socket
import threading

from dovetail.live.shipping.shipping_store import ShippingStore
from dovetail.wire.codec import WireError
from dovetail.wire.connection import LineConnection
from dovetail.wire.shipping import SHIPPING_REPLIES, SHIPPING_REQUESTS

LOG = logging.getLogger(__name__)
SILENT_S = 600.0
"""An agent with files asks every few seconds, but for while it reads a large checkpoint."""


class ShippingServer:
    """Answers nodes from a store; one connection for each node, the newest."""

    def __init__(self, store: ShippingStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._links: dict[int, socket.socket] = {}
        self._closed = False

    def serve(self, node: int, link: socket.socket) -> None:
        """Serves a connection in a thread of its own."""
        with self._lock:
            older, self._links[node] = self._links.get(node), link
            closed = self._closed
        if older is not None:
            _shut(older)
        if closed:
            link.close()
            return
        threading.Thread(
            target=self._run, args=(node, link), name=f"files-{node}", daemon=True
        ).start()

    def close(self) -> None:
        """Ends all connections; agents call again."""
        with self._lock:
            self._closed = True
            links = list(self._links.values())
        for link in links:
            _shut(link)

    def _run(self, node: int, link: socket.socket) -> None:
        try:
            link.setblocking(True)
            lines = LineConnection(link)
            while not self._closed and (line := lines.read_line(SILENT_S)) is not None:
                reply = self._store.answer(node, SHIPPING_REQUESTS.decode(line))
                lines.send(SHIPPING_REPLIES.encode(reply), SILENT_S)
        except (OSError, WireError) as error:
            LOG.info("files of node %d: %s", node, error)
        finally:
            with self._lock:
                if self._links.get(node) is link:
                    del self._links[node]
            link.close()


def _shut(link: socket.socket) -> None:
    try:
        link.shutdown(socket.SHUT_RDWR)
    except OSError:
        return

"""A TLS connection that behaves as a plain socket: it raises what a plain one raises."""

from __future__ import annotations

import hashlib
import hmac
import select
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

WANTS = (ssl.SSLWantReadError, ssl.SSLWantWriteError)


class UnknownController(OSError):
    """The peer is not the controller of the join word."""


class GateStream:
    """Carries the lines of a `LineConnection` over TLS.

    The handshake of a socket without a timeout happens within the first calls that read or write.
    """

    def __init__(self, link: ssl.SSLSocket) -> None:
        self._link = link

    def fileno(self) -> int:
        """Returns the descriptor to wait for."""
        return self._link.fileno()

    @property
    def link(self) -> ssl.SSLSocket:
        """Returns the socket itself, for threads that wait with timeouts."""
        return self._link

    @property
    def own_host(self) -> str:
        """Returns the address of this end."""
        return str(self._link.getsockname()[0])

    def close(self) -> None:
        """Closes the socket."""
        self._link.close()

    def shutdown(self, how: int) -> None:
        """Ends one or both directions for both peers."""
        self._link.shutdown(how)

    def gettimeout(self) -> float | None:
        """Returns how long a call waits."""
        return self._link.gettimeout()

    def settimeout(self, value: float | None, /) -> None:
        """Sets how long a call waits."""
        self._link.settimeout(value)

    def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
        """Returns what came in; with MSG_PEEK only whether something did, or the end."""
        if flags:
            if not self._link.pending() and not select.select([self._link], [], [], 0)[0]:
                raise BlockingIOError
            return b""
        with _as_plain():
            return self._link.recv(bufsize)

    def send(self, data: memoryview, /) -> int:
        """Returns how much was taken."""
        with _as_plain():
            return self._link.send(data)

    def sendall(self, data: bytes, /) -> None:
        """Sends all."""
        with _as_plain():
            self._link.sendall(data)


@contextmanager
def _as_plain() -> Iterator[None]:
    try:
        yield
    except WANTS:
        raise BlockingIOError from None


def served(link: socket.socket, context: ssl.SSLContext) -> GateStream:
    """Returns the end of a connection that came in; its handshake does not wait."""
    link.setblocking(False)
    return GateStream(context.wrap_socket(link, server_side=True, do_handshake_on_connect=False))


def called(host: str, port: int, fingerprint: str, timeout_s: float) -> GateStream:
    """Returns a connection to the controller with a certificate of this fingerprint.

    Each wait takes at most `timeout_s`. Raises UnknownController before anything is sent to another
    peer, OSError if nobody answers.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # The fingerprint is checked instead, which no authority can vouch for wrongly.
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    plain = socket.create_connection((host, port), timeout_s)
    try:
        keep_alive(plain)
        link = context.wrap_socket(plain)
    except BaseException:
        plain.close()
        raise
    seen = hashlib.sha256(link.getpeercert(binary_form=True) or b"").hexdigest()
    if not hmac.compare_digest(seen, fingerprint):
        link.close()
        raise UnknownController(f"{host}:{port} has another certificate than the join word")
    return GateStream(link)


def keep_alive(link: socket.socket) -> None:
    """Lets the kernel notice a peer that vanished, and send small lines at once."""
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 20_000)

"""The door of the controller: lines of JSON over a Unix socket, and loopback TCP if asked.

It knows who may ask, how long a line may be and how long it waits for a slow client; what the
answer is, it asks the desk. On the Unix socket the kernel says who is there, and only the user
whose controller this is may ask; over TCP each line carries the token of a file only that user
can read. Nothing a client sends is ever executed, and no refusal repeats a token.
"""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
import logging
import os
import pwd
import selectors
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from time import monotonic, sleep
from typing import Protocol

from dovetail.core.errors import DovetailError, InputError
from dovetail.live import own_socket
from dovetail.live.door.questions import Question, Reply, question_of
from dovetail.live.door.verbs import CROWDED, Refused, line_of_reply
from dovetail.live.edges import StoreError
from dovetail.wire.codec import LINE_BYTES_MAX, WireError, parse_object

LOG = logging.getLogger(__name__)
STOP_S = 1.0


class Desk(Protocol):
    """Answers questions; called from many threads at once."""

    def answer(self, question: Question, user: str) -> Iterator[Reply]:
        """Yields the reply, or the pieces of one. Raises InputError for what the user can mend."""
        ...


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of the controller a client can hold, and for how long.

    A connection that waits for its client's next line is held for `idle_s`, and ended sooner if
    its place is wanted: clients open another when they have something to ask.
    """

    connections: int = 64
    idle_s: float = 60.0
    line_s: float = 60.0
    send_s: float = 60.0
    line_bytes: int = LINE_BYTES_MAX


def _unnoticed(is_idle: bool) -> None:
    """Notices nothing: the usual watcher of a connection."""


class Server:
    """Listens and serves each connection in a thread of its own, a bounded number of them."""

    def __init__(
        self, desk: Desk, socket_path: Path, *, token: str = "", limits: Limits | None = None
    ) -> None:
        self._desk = desk
        self._path = socket_path
        self._token = token
        self._limits = limits or Limits()
        self._owner = name_of_user(os.getuid())
        self._open: set[socket.socket] = set()
        self._idle: dict[socket.socket, None] = {}
        """Those that wait for their client's next line, the longest first."""
        self._guard = threading.Lock()
        self._doors: list[tuple[socket.socket, bool]] = []
        self._wake: socket.socket | None = None
        self.address = ""

    def start(self, listen: str = "") -> None:
        """Opens the Unix socket, and TCP on `listen` (HOST:PORT). Raises InputError."""
        address = loopback(listen) if listen else None
        if address is not None and not self._token:
            raise InputError("--listen", "a TCP listener needs a token")
        if address is not None:
            listener = _tcp_listener(*address)
            host, port = listener.getsockname()[:2]
            self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            self._doors.append((listener, False))
        try:
            self._doors.append((own_socket.listen(self._path), True))
            self._inode = self._path.stat().st_ino
        except BaseException:
            self._close_doors()
            raise
        self._wake, woken = socket.socketpair()
        self._thread = threading.Thread(
            target=self._listen, args=(woken,), name="door", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Closes all, waiting shortly for answers under way."""
        if self._wake is None:
            return
        own_socket.take_away(self._path, self._inode)
        with self._wake as wake:
            wake.send(b"x")
            self._thread.join()
        self._wake = None
        # Whoever waits for a question hears no more; whoever answers one may end its answer.
        for how in (socket.SHUT_RD, socket.SHUT_RDWR):
            with self._guard:
                for connection in self._open:
                    with contextlib.suppress(OSError):
                        connection.shutdown(how)
            deadline = monotonic() + STOP_S
            while self._open and monotonic() < deadline:
                sleep(0.01)

    def _close_doors(self) -> None:
        for listener, _ in self._doors:
            listener.close()

    def _listen(self, woken: socket.socket) -> None:
        with woken, selectors.DefaultSelector() as selector:
            selector.register(woken, selectors.EVENT_READ, None)
            for listener, local in self._doors:
                listener.setblocking(False)
                selector.register(listener, selectors.EVENT_READ, (listener, local))
            while True:
                for key, _ in selector.select():
                    if key.data is None:
                        self._close_doors()
                        return
                    listener, local = key.data
                    with contextlib.suppress(OSError):
                        self._welcome(listener.accept()[0], local=local)

    def _welcome(self, connection: socket.socket, *, local: bool) -> None:
        with self._guard:
            full = len(self._open) >= self._limits.connections and not self._end_idle()
            if not full:
                self._open.add(connection)
        if full:
            refusal = Refused("controller", CROWDED, "try again", fault=True)
            with connection, contextlib.suppress(OSError):
                connection.setblocking(False)
                connection.send(line_of_reply(refusal))
            return
        serve = threading.Thread(
            target=self._serve, args=(connection, local), name="client", daemon=True
        )
        serve.start()

    def _end_idle(self) -> bool:
        """Gives the place of the connection that was idle longest away; tells if there was one."""
        oldest = next(iter(self._idle), None)
        if oldest is None:
            return False
        del self._idle[oldest]
        self._open.discard(oldest)
        with contextlib.suppress(OSError):
            # What it has just sent is still read and answered.
            oldest.shutdown(socket.SHUT_RD)
        return True

    def _serve(self, connection: socket.socket, local: bool) -> None:
        def waits(is_idle: bool) -> None:
            with self._guard:
                if is_idle and connection in self._open:
                    self._idle[connection] = None
                else:
                    self._idle.pop(connection, None)

        try:
            with connection:
                user = user_behind(connection) if local else self._owner
                if user != self._owner:
                    refusal = Refused("controller", f"it belongs to user {self._owner}, not {user}")
                    connection.sendall(line_of_reply(refusal))
                    return
                token = "" if local else self._token
                talk(connection, self._desk, user, token, self._limits, waits)
        except OSError:
            pass  # the client went away
        finally:
            with self._guard:
                self._open.discard(connection)
                self._idle.pop(connection, None)


def talk(
    connection: socket.socket,
    desk: Desk,
    user: str,
    token: str,
    limits: Limits,
    waits: Callable[[bool], None] = _unnoticed,
) -> None:
    """Answers the lines of one connection until it ends, breaks a rule or is too slow.

    With a token each line must carry it, and the first that does not is the last. `waits` is told
    when the connection begins and ceases to wait for a line.
    """
    for line in lines_of(connection, limits, waits):
        if line is None:
            refusal = Refused("request", f"a line is over {limits.line_bytes} bytes or too slow")
            connection.sendall(line_of_reply(refusal))
            return
        try:
            said = parse_object(line)
        except WireError as error:
            connection.sendall(line_of_reply(Refused("request", str(error))))
            if token:
                return
            continue
        given = said.pop("token", "")
        if token and not (
            isinstance(given, str)
            and hmac.compare_digest(given.encode("utf-8", "replace"), token.encode())
        ):
            connection.sendall(line_of_reply(Refused("controller", "the token is not right")))
            return
        for reply in _replies(desk, said, user):
            connection.settimeout(limits.send_s)
            connection.sendall(line_of_reply(reply))


def _replies(desk: Desk, said: dict[str, object], user: str) -> Iterator[Reply]:
    try:
        yield from desk.answer(question_of(said), user)
    except WireError as error:
        yield Refused("request", str(error))
    except InputError as error:
        yield Refused(error.where, error.what, error.mend)
    except StoreError as error:
        yield Refused("store", str(error), "free space on its disk", fault=True)
    except DovetailError as error:
        yield Refused("controller", str(error), fault=True)
    except Exception as error:
        # What went wrong is ours to mend; its text may hold what a user sent, so it stays out.
        LOG.error("answering failed with %s at %s", type(error).__name__, _place(error))
        yield Refused("controller", f"an error of ours ({type(error).__name__})", fault=True)


def _place(error: Exception) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "an unknown place"
    return f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"


def lines_of(
    connection: socket.socket, limits: Limits, waits: Callable[[bool], None] = _unnoticed
) -> Iterator[bytes | None]:
    """Yields the lines of a connection; None for one too long or too slow, which is the last."""
    kept = bytearray()
    while True:
        end = kept.find(b"\n")
        deadline = monotonic() + limits.line_s
        while end < 0:
            if len(kept) > limits.line_bytes:
                yield None
                return
            is_idle = not kept
            left_s = limits.idle_s if is_idle else deadline - monotonic()
            if is_idle:
                waits(True)
            try:
                connection.settimeout(max(left_s, 1e-3))
                piece = connection.recv(65536)
            except TimeoutError:
                if kept:
                    yield None
                return
            if is_idle:
                waits(False)
            if not piece:
                return
            if not kept:
                deadline = monotonic() + limits.line_s
            end = piece.find(b"\n")
            end = -1 if end < 0 else len(kept) + end
            kept += piece
        line = bytes(kept[:end])
        del kept[: end + 1]
        yield line if len(line) <= limits.line_bytes else None
        if len(line) > limits.line_bytes:
            return


def user_behind(connection: socket.socket) -> str:
    """Returns the name of the user at the other end of a Unix socket, as the kernel says."""
    return name_of_user(own_socket.uid_behind(connection))


@lru_cache(maxsize=64)
def name_of_user(uid: int) -> str:
    """Returns the name of a user, or the number where there is no name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def loopback(listen: str) -> tuple[str, int]:
    """Returns host and port of a form like `127.0.0.1:7077`. Raises InputError off loopback."""
    host, colon, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise InputError(f"--listen {listen}", "expected HOST:PORT", "as in 127.0.0.1:7077")
    try:
        inside = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        inside = False
    if not inside:
        raise InputError(
            f"--listen {listen}", "only this machine may be listened to", "give 127.0.0.1:PORT"
        )
    return ("127.0.0.1" if host == "localhost" else host), int(port)


def _tcp_listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise InputError(f"--listen {host}:{port}", error.strerror or "cannot be used") from None
    listener.listen(own_socket.BACKLOG)
    return listener

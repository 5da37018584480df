"""The door of the controller: lines of JSON over a Unix socket, and loopback TCP if asked.

It knows who may ask, how long a line may be and how long it waits for a slow client; what the
answer is, it asks the desk. On the Unix socket the kernel says who is there, and only the user
whose controller this is may ask; over TCP each line carries the token of a file only that user
can read. Nothing a client sends is ever executed, and no refusal repeats a token.
"""

from __future__ import annotations

import errno
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
from functools import lru_cache, partial
from pathlib import Path
from time import monotonic, sleep
from typing import Protocol

from dovetail.core.errors import DovetailError, InputError
from dovetail.live.edges.protocols import StoreError
from dovetail.live.server.connections import Connections, end_after_reply
from dovetail.live.server.protocol import CROWDED, TOO_SLOW, Refused, line_of_reply
from dovetail.live.server.requests import Question, Reply, question_of
from dovetail.live.system import unix_socket as own_socket
from dovetail.wire.codec import LINE_BYTES_MAX, WireError, parse_object

LOG = logging.getLogger(__name__)
STOP_S = 1.0
NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
ACCEPT_PAUSE_S = 0.05
"""Between attempts to accept while the process has no free file descriptor."""


class Desk(Protocol):
    """Answers questions; called from many threads at once."""

    def answer(self, question: Question, user: str) -> Iterator[Reply]:
        """Yields the reply, or the pieces of one. Raises InputError for what the user can mend."""
        ...


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of the controller a client can hold, and for how long.

    The Unix socket and TCP have connection limits of their own: on TCP any user of the machine
    may connect, and must not keep the owner out. A connection has `first_line_s` for its first
    whole line, with the secret on TCP. Later it may be idle for `idle_s`, and is ended sooner if
    a new one needs its place: clients open another when they have something to ask.
    """

    connections: int = 64
    tcp_connections: int = 32
    refusals: int = 16
    """Of each listener: connections that are told at one time that there are too many."""
    first_line_s: float = 5.0
    idle_s: float = 60.0
    line_s: float = 60.0
    send_s: float = 60.0
    line_bytes: int = LINE_BYTES_MAX


class _Listener:
    """A listening socket with the connections it has accepted."""

    def __init__(self, listener: socket.socket, limits: Limits, *, local: bool) -> None:
        self.socket = listener
        self.local = local
        self.open = Connections(limits.connections if local else limits.tcp_connections)
        self.refused = Connections(limits.refusals)


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
        self._doors: list[_Listener] = []
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
            self._doors.append(_Listener(listener, self._limits, local=False))
        try:
            local = own_socket.listen(self._path)
            self._doors.append(_Listener(local, self._limits, local=True))
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
        tables = [table for door in self._doors for table in (door.open, door.refused)]
        for how in (socket.SHUT_RD, socket.SHUT_RDWR):
            for table in tables:
                table.shut_down(how)
            deadline = monotonic() + STOP_S
            while any(map(len, tables)) and monotonic() < deadline:
                sleep(0.01)

    def _close_doors(self) -> None:
        for door in self._doors:
            door.socket.close()

    def _listen(self, woken: socket.socket) -> None:
        with woken, selectors.DefaultSelector() as selector:
            selector.register(woken, selectors.EVENT_READ, None)
            for door in self._doors:
                door.socket.setblocking(False)
                selector.register(door.socket, selectors.EVENT_READ, door)
            while True:
                for key, _ in selector.select():
                    if key.data is None:
                        self._close_doors()
                        return
                    try:
                        connection = key.data.socket.accept()[0]
                    except OSError as error:
                        if error.errno in NO_DESCRIPTOR:
                            sleep(ACCEPT_PAUSE_S)  # the listener stays readable
                        continue
                    self._welcome(key.data, connection)

    def _welcome(self, door: _Listener, connection: socket.socket) -> None:
        """Serves a new connection in a thread, or refuses it in one; never waits for its client."""
        if door.open.admit(connection):
            self._start(self._serve, door, connection, door.open)
        elif door.refused.admit(connection):
            self._start(self._refuse, door, connection, door.refused)
        else:
            connection.close()

    def _start(
        self,
        work: Callable[[_Listener, socket.socket], None],
        door: _Listener,
        connection: socket.socket,
        table: Connections,
    ) -> None:
        def run() -> None:
            try:
                with connection:
                    work(door, connection)
                    end_after_reply(connection)
            except OSError:
                pass  # the client went away
            finally:
                table.release(connection)

        try:
            threading.Thread(target=run, name="client", daemon=True).start()
        except RuntimeError:  # the process may have no more threads
            table.release(connection)
            connection.close()

    def _refuse(self, door: _Listener, connection: socket.socket) -> None:
        refusal = Refused("controller", CROWDED, "try again in a moment", fault=True)
        connection.settimeout(STOP_S)
        connection.sendall(line_of_reply(refusal))

    def _serve(self, door: _Listener, connection: socket.socket) -> None:
        user = user_behind(connection) if door.local else self._owner
        if user != self._owner:
            refusal = Refused("controller", f"it belongs to user {self._owner}, not {user}")
            connection.settimeout(self._limits.send_s)
            connection.sendall(line_of_reply(refusal))
            return
        token = "" if door.local else self._token
        waits = partial(door.open.set_idle, connection)
        talk(connection, self._desk, user, token, self._limits, waits)


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
        if isinstance(line, Refused):
            connection.settimeout(limits.send_s)
            connection.sendall(line_of_reply(line))
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
) -> Iterator[bytes | Refused]:
    """Yields the lines of a connection; a refusal for one too long or too slow is the last.

    A client that is idle too long, or never began its first line, is left without a word.
    """
    too_long = Refused("request", f"a line is over {limits.line_bytes} bytes")
    kept, is_first = bytearray(), True
    deadline = monotonic() + limits.first_line_s
    while True:
        end = kept.find(b"\n")
        while end < 0:
            if len(kept) > limits.line_bytes:
                yield too_long
                return
            is_idle = not kept
            if is_idle and not is_first:
                deadline = monotonic() + limits.idle_s
            piece = _piece_of(connection, deadline, waits if is_idle else _unnoticed)
            if piece is None and kept:
                yield Refused("request", TOO_SLOW, "try again", fault=True)
            if not piece:
                return
            if is_idle and not is_first:
                deadline = monotonic() + limits.line_s
            end = piece.find(b"\n")
            end = -1 if end < 0 else len(kept) + end
            kept += piece
        line = bytes(kept[:end])
        del kept[: end + 1]
        if len(line) > limits.line_bytes:
            yield too_long
            return
        yield line
        is_first, deadline = False, monotonic() + limits.line_s


def _piece_of(
    connection: socket.socket, deadline: float, waits: Callable[[bool], None]
) -> bytes | None:
    """Returns the next bytes of a connection, none at its end; None when its time is over."""
    left_s = deadline - monotonic()
    if left_s <= 0:
        return None
    waits(True)
    connection.settimeout(left_s)
    try:
        piece = connection.recv(65536)
    except TimeoutError:
        return None
    waits(False)
    return piece


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

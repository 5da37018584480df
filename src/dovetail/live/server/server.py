"""The server of the controller: lines of JSON over a Unix socket, optionally over loopback TCP.

It authenticates clients, bounds the length of lines and the time for them; a `Handler` answers. On
a Unix socket the kernel identifies the user, and only the owner of the controller is served; with a
`UserAdmission` those whom it admits are, on a socket that all may open. Over TCP each line carries
a token from a file that only the owner can read. Nothing that a client sends is executed, and no
refusal repeats a token.
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
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from time import monotonic, sleep
from typing import Protocol

from dovetail.core.errors import DovetailError, InputError
from dovetail.live.edges.protocols import StoreError
from dovetail.live.server.connections import Connections, end_after_reply
from dovetail.live.server.messages.terminal import AttachReply
from dovetail.live.server.protocol import CROWDED, TOO_SLOW, RequestRefused, line_of_reply
from dovetail.live.server.requests import Question, Reply, question_of
from dovetail.live.system import unix_socket
from dovetail.wire.codec import LINE_BYTES_MAX, WireError, parse_object
from dovetail.wire.connection import LineConnection, LineTooLong

LOG = logging.getLogger(__name__)
STOP_S = 1.0
NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
ACCEPT_PAUSE_S = 0.05
"""The pause between attempts to accept while the process has no free file descriptor."""


class Handler(Protocol):
    """Answers requests; called from many threads at once."""

    def answer(self, question: Question, user: str) -> Iterator[Reply]:
        """Yields the reply, or the pieces of one. Raises InputError for an error of the user."""
        ...


@dataclass(frozen=True, slots=True)
class UserAdmission:
    """Where others than the owner reach the controller; `why_not` says why a user may not."""

    socket: Path
    why_not: Callable[[str], str]


class TerminalHandler(Protocol):
    """Serves the clients of interactive jobs, which have limits of their own."""

    def serve(self, client: socket.socket, number: int, user: str) -> None:
        """Serves the client of a job until either is over, in the thread of the connection."""
        ...

    def close(self) -> None:
        """Lets go of all clients, who come back to the next controller."""
        ...


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """The limits of connections, in number and in seconds.

    The Unix socket and TCP have separate limits: over TCP any user of the machine may connect, and
    must not lock out the owner. A connection has `first_line_s` for its first whole line, with the
    token over TCP. Later it may be idle for `idle_s`, and is ended sooner if a new connection needs
    its place: clients open another one for their next request. `refusals` is the number of
    connections of a listener that are being refused at the same time, `each_user` that of one user
    where there are several.
    """

    connections: int = 64
    tcp_connections: int = 32
    each_user: int = 16
    refusals: int = 16
    first_line_s: float = 5.0
    idle_s: float = 60.0
    line_s: float = 60.0
    send_s: float = 60.0
    line_bytes: int = LINE_BYTES_MAX


class _Listener:
    """A listening socket with the connections it has accepted."""

    def __init__(
        self, listener: socket.socket, limits: ServerLimits, *, local: bool, for_all: bool = False
    ) -> None:
        self.socket = listener
        self.local = local
        self._for_all = for_all
        most = limits.connections if local else limits.tcp_connections
        self.open = Connections(most, limits.each_user if for_all else 0)
        self.refused = Connections(limits.refusals)

    def peer(self, connection: socket.socket) -> int:
        """Returns the uid whose connections are counted apart, -1 where only one user may come."""
        return unix_socket.peer_uid(connection) if self._for_all else -1


def _unnoticed(is_idle: bool) -> None:
    """Does nothing."""


def _unattached(number: int) -> None:
    """Serves no terminal."""


class Server:
    """Listens and serves each connection in a thread of its own, a bounded number of them."""

    def __init__(
        self,
        handler: Handler,
        socket_path: Path,
        *,
        token: str = "",
        limits: ServerLimits | None = None,
        door: UserAdmission | None = None,
        terminals: TerminalHandler | None = None,
    ) -> None:
        self._handler, self._terminals = handler, terminals
        self._path = socket_path
        self._door = door
        self._inodes: dict[Path, int] = {}
        self._token = token
        self._limits = limits or ServerLimits()
        self._owner = user_name(os.getuid())
        self._listeners: list[_Listener] = []
        self._remote = Connections(self._limits.tcp_connections)
        self._wake: socket.socket | None = None
        self.address = ""

    def start(self, listen: str = "") -> None:
        """Opens the Unix socket, and TCP on `listen` (HOST:PORT). Raises InputError."""
        address = loopback_address(listen) if listen else None
        if address is not None and not self._token:
            raise InputError("--listen", "a TCP listener needs a token")
        if address is not None:
            listener = _tcp_listener(*address)
            host, port = listener.getsockname()[:2]
            self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            self._listeners.append(_Listener(listener, self._limits, local=False))
        try:
            self._listen_here(self._path, for_all=False)
            if self._door is not None:
                self._listen_here(self._door.socket, for_all=True)
        except BaseException:
            self._close_listeners()
            raise
        # A byte on this pair wakes the thread from its selector, so that `stop` need not wait.
        self._wake, woken = socket.socketpair()
        self._thread = threading.Thread(
            target=self._listen, args=(woken,), name="server", daemon=True
        )
        self._thread.start()

    def serve_remote(self, connection: socket.socket) -> None:
        """Serves a client that another listener has admitted as the owner, in a thread."""
        if not self._remote.admit(connection):
            connection.close()
            return
        self._start(self._serve_owner, connection, self._remote)

    def _listen_here(self, path: Path, *, for_all: bool) -> None:
        local = unix_socket.listen(path, for_all=for_all)
        self._listeners.append(_Listener(local, self._limits, local=True, for_all=for_all))
        self._inodes[path] = path.stat().st_ino

    def stop(self) -> None:
        """Closes all connections after a short wait for replies under way."""
        if self._wake is None:
            return
        if self._terminals is not None:
            # Before its connections end: no client must be taken for one that went away.
            self._terminals.close()
        # So that a client finds no controller instead of one that is about to end.
        for path, inode in self._inodes.items():
            unix_socket.remove_socket(path, inode)
        with self._wake as wake:
            wake.send(b"x")
            self._thread.join()
        self._wake = None
        # First for reading: threads that wait for a request end, and those that reply may finish.
        tables = [
            table for listener in self._listeners for table in (listener.open, listener.refused)
        ]
        tables.append(self._remote)
        for how in (socket.SHUT_RD, socket.SHUT_RDWR):
            for table in tables:
                table.shut_down(how)
            deadline = monotonic() + STOP_S
            while any(map(len, tables)) and monotonic() < deadline:
                sleep(0.01)

    def _close_listeners(self) -> None:
        for listener in self._listeners:
            listener.socket.close()

    def _listen(self, woken: socket.socket) -> None:
        with woken, selectors.DefaultSelector() as selector:
            selector.register(woken, selectors.EVENT_READ, None)
            for listener in self._listeners:
                listener.socket.setblocking(False)
                selector.register(listener.socket, selectors.EVENT_READ, listener)
            while True:
                for key, _ in selector.select():
                    if key.data is None:
                        self._close_listeners()
                        return
                    try:
                        connection = key.data.socket.accept()[0]
                    except OSError as error:
                        # Also BlockingIOError: the client may have gone since the selector woke.
                        if error.errno in NO_DESCRIPTOR:
                            # The listener stays readable: without a pause this loop would spin.
                            sleep(ACCEPT_PAUSE_S)
                        continue
                    self._welcome(key.data, connection)

    def _welcome(self, listener: _Listener, connection: socket.socket) -> None:
        """Serves or refuses a new connection in a thread of its own: a client must not block us."""
        if listener.open.admit(connection, listener.peer(connection)):
            self._start(partial(self._serve, listener), connection, listener.open)
        elif listener.refused.admit(connection):
            self._start(self._refuse, connection, listener.refused)
        else:
            connection.close()

    def _start(
        self,
        work: Callable[[socket.socket], None],
        connection: socket.socket,
        table: Connections,
    ) -> None:
        def run() -> None:
            try:
                with connection:
                    work(connection)
                    end_after_reply(connection)
            except OSError:
                pass  # The client has closed the connection.
            finally:
                table.release(connection)

        try:
            threading.Thread(target=run, name="client", daemon=True).start()
        except RuntimeError:
            # The process may have no more threads: one client less must not end the listener.
            table.release(connection)
            connection.close()

    def _refuse(self, connection: socket.socket) -> None:
        refusal = RequestRefused("controller", CROWDED, "try again in a moment", fault=True)
        connection.settimeout(STOP_S)
        connection.sendall(line_of_reply(refusal))

    def _serve_owner(self, connection: socket.socket) -> None:
        waits = partial(self._remote.set_idle, connection)
        attach = partial(self._attach, self._remote, connection, self._owner)
        serve_connection(connection, self._handler, self._owner, "", self._limits, waits, attach)

    def _serve(self, listener: _Listener, connection: socket.socket) -> None:
        user = peer_user(connection) if listener.local else self._owner
        why_not = self._why_not(user)
        if why_not:
            LOG.warning("refused: user %s connected: %s", user, why_not)
            refusal = RequestRefused("controller", why_not)
            connection.settimeout(self._limits.send_s)
            connection.sendall(line_of_reply(refusal))
            return
        token = "" if listener.local else self._token
        waits = partial(listener.open.set_idle, connection)
        attach = partial(self._attach, listener.open, connection, user)
        serve_connection(connection, self._handler, user, token, self._limits, waits, attach)

    def _attach(self, table: Connections, client: socket.socket, user: str, number: int) -> None:
        """Serves the terminal of a job, whose connection counts among requests no more."""
        table.release(client)
        if self._terminals is not None:
            self._terminals.serve(client, number, user)

    def _why_not(self, user: str) -> str:
        """Returns why a user is not served, empty if they are."""
        if user == self._owner:
            return ""
        if self._door is not None:
            return self._door.why_not(user)
        return f"it belongs to user {self._owner}, not {user}"


def serve_connection(
    connection: socket.socket,
    handler: Handler,
    user: str,
    token: str,
    limits: ServerLimits,
    waits: Callable[[bool], None] = _unnoticed,
    attach: Callable[[int], None] = _unattached,
) -> None:
    """Answers the lines of one connection until it ends, breaks a rule or is too slow.

    With a token each line must carry it, and the first without it ends the connection. `waits` is
    called with True when the connection begins to wait for a line, with False when it stops. Once
    the terminal of a job is granted, the connection carries no more lines: `attach` has it.
    """
    lines = LineConnection(connection, line_bytes_max=limits.line_bytes)
    for line in request_lines(lines, limits, waits):
        if isinstance(line, RequestRefused):
            lines.send(line_of_reply(line), limits.send_s)
            return
        try:
            request = parse_object(line)
        except WireError as error:
            lines.send(line_of_reply(RequestRefused("request", str(error))), limits.send_s)
            # With a token such a line may be a guess of it, of which a connection has one.
            if token:
                return
            continue
        if not _is_token(request.pop("token", ""), token):
            refusal = RequestRefused("controller", "the token is not right")
            lines.send(line_of_reply(refusal), limits.send_s)
            return
        for reply in _replies(handler, request, user):
            lines.send(line_of_reply(reply), limits.send_s)
            if isinstance(reply, AttachReply) and not reply.over:
                attach(reply.job)
                return


def _is_token(value: object, token: str) -> bool:
    """True if a request carries the right token, or none is needed."""
    text = value.encode("utf-8", "replace") if isinstance(value, str) else b""
    # In constant time: a shorter comparison would reveal how much of a guess is right.
    return not token or hmac.compare_digest(text, token.encode())


def _replies(handler: Handler, request: dict[str, object], user: str) -> Iterator[Reply]:
    try:
        yield from handler.answer(question_of(request), user)
    except WireError as error:
        yield RequestRefused("request", str(error))
    except InputError as error:
        yield RequestRefused(error.where, error.what, error.mend)
    except StoreError as error:
        yield RequestRefused("store", str(error), "free space on its disk", fault=True)
    except DovetailError as error:
        yield RequestRefused("controller", str(error), fault=True)
    except Exception as error:
        # Its text is not logged: it may quote what a user sent, such as a secret in a variable.
        name, frame = type(error).__name__, traceback.extract_tb(error.__traceback__)[-1]
        LOG.error(
            "answering failed with %s at %s:%s", name, Path(frame.filename).name, frame.lineno
        )
        yield RequestRefused("controller", f"an error of ours ({name})", fault=True)


def request_lines(
    connection: LineConnection, limits: ServerLimits, waits: Callable[[bool], None] = _unnoticed
) -> Iterator[bytes | RequestRefused]:
    """Yields the lines of a connection, and at last a refusal if one is too long or too slow.

    A client that is idle too long, or never begins its first line, gets no reply.
    """
    is_first, deadline = True, monotonic() + limits.first_line_s
    while True:
        try:
            line = connection.take_line()
        except LineTooLong as error:
            yield RequestRefused("request", str(error))
            return
        if line is not None:
            yield line
            is_first, deadline = False, monotonic() + limits.line_s
            continue
        # The time for a line begins with its first byte; before it the client is idle.
        is_idle = connection.is_empty
        begins_line = is_idle and not is_first
        if begins_line:
            deadline = monotonic() + limits.idle_s
        try:
            if not _receive(connection, deadline, waits if is_idle else _unnoticed):
                return
        except TimeoutError:
            if not is_idle:
                yield RequestRefused("request", TOO_SLOW, "try again", fault=True)
            return
        if begins_line:
            deadline = monotonic() + limits.line_s


def _receive(connection: LineConnection, deadline: float, waits: Callable[[bool], None]) -> bool:
    """Waits for more bytes; False at the end of the connection. Raises TimeoutError."""
    timeout_s = deadline - monotonic()
    if timeout_s <= 0:
        raise TimeoutError
    waits(True)
    has_more = connection.receive(timeout_s)
    waits(False)
    return has_more


def peer_user(connection: socket.socket) -> str:
    """Returns the user name of the peer of a Unix socket, from the kernel."""
    return user_name(unix_socket.peer_uid(connection))


@lru_cache(maxsize=64)
def user_name(uid: int) -> str:
    """Returns the name of a user, or the number where there is no name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def loopback_address(listen: str) -> tuple[str, int]:
    """Returns host and port of `127.0.0.1:7077`. Raises InputError unless it is loopback."""
    host, colon, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise InputError(f"--listen {listen}", "expected HOST:PORT", "as in 127.0.0.1:7077")
    try:
        is_loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        raise InputError(
            f"--listen {listen}", "only this machine may be listened to", "give 127.0.0.1:PORT"
        )
    return ("127.0.0.1" if host == "localhost" else host), int(port)


def _tcp_listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=unix_socket.BACKLOG)
    except OSError as error:
        what = os.strerror(error.errno) if error.errno else "cannot be used"
        raise InputError(f"--listen {host}:{port}", what) from None

"""The gate of a controller: where the agents of other machines, and clients, come in over TLS.

One connection for each node. The first line says who comes; until then a connection is a stranger,
of which there are few and none for long. What a node reports of another node is refused: whoever
has one machine has no more than that one. A living node keeps its place: a second agent under its
name is refused until the first has been silent for a while.
"""

from __future__ import annotations

import errno
import hmac
import logging
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Protocol

from dovetail.live.edges.protocols import Incoming, NodeLost
from dovetail.live.join.gate_stream import GateStream, keep_alive, served
from dovetail.live.join.identity import ControllerIdentity
from dovetail.live.join.shared_folder import SharedFolder, begin_check, end_check
from dovetail.live.join.terminal_hub import TerminalHub
from dovetail.live.join.word import CLIENT
from dovetail.live.node.post_thread import PostThread
from dovetail.live.node.transport import LineChannel
from dovetail.version import __version__
from dovetail.wire.agent import REPORTS
from dovetail.wire.codec import WireError
from dovetail.wire.connection import Stream
from dovetail.wire.join import (
    ANSWERS,
    ENTRANCES,
    SERVED,
    TERMINALS_SINCE,
    CarryFiles,
    CarryTerminal,
    CheckFolder,
    Enter,
    FolderChecked,
    Join,
    JoinRefused,
    Welcome,
)
from dovetail.wire.site import AS_USUAL, SiteSettings

LOG = logging.getLogger(__name__)
STRANGERS_MAX = 256
"""Connections that have not said who they are; beyond this the oldest is closed."""
STRANGER_S = 10.0
STRANGER_BYTES_MAX = 1 << 16
ALIVE_S = 15.0
"""An agent that was silent for longer gives its place to another under its name."""
TURN_S = 1.0
CHECK_TURN_S = 0.02
"""How often it looks whether a check of a shared folder has ended."""
ACCEPT_PAUSE_S = 0.1
"""How long nobody is accepted while the process has no free descriptor."""
LOGGED_EVERY_S = 60.0
"""How often the same refusal of the same address is logged."""
LOGGED_MAX, LOGGED_CHARACTERS = 1000, 16
BACKLOG = 1024
TERMINAL_S = 5.0
"""How long an agent may take to call back for a terminal."""

_AS_WHOM = (
    "this cluster has several users, and its agent runs all jobs as one",
    "this cluster has one user, and its agent runs jobs as several",
)
_AGENT_OF_USERS = "start it as root with `dovetail agent --users FILE`, or without for one user"

ClientServer = Callable[[socket.socket], None]
"""Serves a client that has entered, without waiting for it."""
FileServer = Callable[[int, socket.socket], None]
"""Serves the connection for the files of a node, without waiting for it."""


class NodeAdmission(Protocol):
    """Knows the nodes of a cluster; called by the thread of the gate."""

    def admit(self, join: Join) -> int | JoinRefused:
        """Returns the number of a node whose secret was right, or why it is not admitted."""


@dataclass(slots=True)
class _Check:
    """The check of the shared folder of a node that joins: of a file, by what it has."""

    join: Join
    name: str = ""
    secret: str = ""


@dataclass(slots=True)
class _Stranger:
    link: GateStream
    address: str
    since_s: float
    channel: LineChannel = field(init=False)
    check: _Check | None = None


@dataclass(slots=True)
class _NodeChannel:
    """The connection of the agent of a node."""

    name: str
    number: int
    incarnation: str
    channel: LineChannel
    heard_s: float
    wire: int
    dismissed: bool = False


class Gate(PostThread):
    """Listens for agents and clients: a `Post` to the nodes that have joined."""

    def __init__(
        self,
        listener: socket.socket,
        identity: ControllerIdentity,
        register: NodeAdmission,
        *,
        alive_s: float = ALIVE_S,
        shared: SharedFolder | None = None,
        has_users: bool = False,
        site: SiteSettings = AS_USUAL,
    ) -> None:
        super().__init__("gate")
        self._listener, self._identity, self._register = listener, identity, register
        self._tls = identity.tls()
        self._alive_s, self._shared, self._site = alive_s, shared, site
        # What threads found out about the shared folder, which may not answer them.
        self._found: deque[Callable[[], None]] = deque()
        self._put: Callable[[Incoming], None] = lambda incoming: None
        self._serve_client: ClientServer | None = None
        self._has_users = has_users
        self._serve_files: FileServer = _no_files
        self._calls = TerminalHub()
        self._strangers: list[_Stranger] = []
        self._nodes: dict[int, _NodeChannel] = {}
        self._changed = threading.Condition()
        self._logged: dict[tuple[str, str], float] = {}
        self._accept_s = 0.0
        listener.setblocking(False)
        self._thread.start()

    @property
    def address(self) -> tuple[str, int]:
        """Returns host and port that it listens on."""
        host, port = self._listener.getsockname()[:2]
        return str(host), int(port)

    def report_to(self, put: Callable[[Incoming], None]) -> None:
        """Passes the reports of the agents on from now; before this they are dropped."""
        self._put = put

    def serve_clients(self, serve: ClientServer | None) -> None:
        """Hands connections of clients over from now on; None refuses them."""
        self._serve_client = serve

    def serve_files(self, serve: FileServer | None) -> None:
        """Hands connections that carry files of a node over from now on; None refuses them."""
        self._serve_files = serve or _no_files

    def joined(self) -> dict[int, str]:
        """Returns the nodes whose agents are connected: number and name."""
        with self._changed:
            return {node.number: node.name for node in self._nodes.values()}

    def await_nodes(self, are_enough: Callable[[dict[int, str]], bool], within_s: float) -> bool:
        """Returns when the joined nodes are enough; False if they are not in time."""
        give_up_s = monotonic() + within_s
        while not are_enough(self.joined()):
            left_s = give_up_s - monotonic()
            if left_s <= 0:
                return False
            with self._changed:
                self._changed.wait(min(left_s, TURN_S))
        return True

    # The thread.

    def _turn(self) -> float:
        now = monotonic()
        while self._found:
            self._found.popleft()()
        for node, line in self._calls.take_lines():
            self._say(node, line)
        late = [s for s in self._strangers if now - s.since_s > STRANGER_S]
        for stranger in late:
            if stranger.check is None:
                self._refuse(stranger, "it did not say who it is")
                continue
            self._refuse_folder(stranger, stranger.check, "was not checked in time")
        if now >= self._accept_s:
            self._loop.watch(self._listener, selectors.EVENT_READ, self._accept)
            return CHECK_TURN_S if any(s.check for s in self._strangers) else TURN_S
        return ACCEPT_PAUSE_S

    def _say(self, node: int, line: bytes) -> None:
        known = self._nodes.get(node)
        if known is not None:
            known.channel.send(line)

    def _dismiss_now(self, line: bytes) -> None:
        for known in list(self._nodes.values()):
            if not known.dismissed:
                known.dismissed = True
                known.channel.send(line)

    def _end(self) -> None:
        for stranger in list(self._strangers):
            stranger.channel.close()
        for known in list(self._nodes.values()):
            known.channel.close()
        self._listener.close()

    # Strangers.

    def _accept(self, events: int) -> None:
        try:
            link, address = self._listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                # The listener stays readable: without a pause this loop would spin.
                self._accept_s = monotonic() + ACCEPT_PAUSE_S
                self._loop.leave(self._listener)
            return
        try:
            keep_alive(link)
            secured = served(link, self._tls)
        except OSError:
            link.close()
            return
        if len(self._strangers) >= STRANGERS_MAX:
            self._refuse(self._strangers[0], "too many have not said who they are")
        stranger = _Stranger(secured, str(address[0]), monotonic())
        stranger.channel = LineChannel(
            self._loop,
            secured,
            partial(self._introduce, stranger),
            partial(self._leave, stranger),
            line_bytes_max=STRANGER_BYTES_MAX,
        )
        self._strangers.append(stranger)

    def _leave(self, stranger: _Stranger) -> None:
        if stranger in self._strangers:
            self._strangers.remove(stranger)

    def _introduce(self, stranger: _Stranger, line: bytes) -> None:
        """Takes the first line of a connection."""
        try:
            entrance = ENTRANCES.decode(line)
        except WireError as error:
            self._refuse(stranger, f"its first line is wrong: {error}")
            return
        if isinstance(entrance, FolderChecked):
            self._take_checked(stranger, entrance)
        elif stranger.check is not None:
            self._refuse(stranger, "it says twice who it is")
        elif isinstance(entrance, Enter):
            self._enter(stranger, entrance)
        elif isinstance(entrance, CarryFiles):
            self._carry(stranger, entrance)
        elif isinstance(entrance, CarryTerminal):
            self._carry_terminal(stranger, entrance)
        else:
            self._join(stranger, entrance)

    def _is_secret(self, name: str, secret: str) -> bool:
        # In constant time: a shorter comparison would reveal how much of a guess is right.
        right = self._identity.secret_of(name) if name.isascii() else ""
        return hmac.compare_digest(secret.encode("utf-8", "replace"), right.encode())

    def _refuse(self, stranger: _Stranger, why: str, mend: str = "") -> None:
        self._log_refusal(stranger.address, why)
        stranger.channel.send(ANSWERS.encode(JoinRefused(why, mend)))
        stranger.channel.close()

    def _log_refusal(self, address: str, why: str) -> None:
        if self._is_news(address, why):
            LOG.warning("gate: %s refused: %s", address, why)

    def _is_news(self, who: str, what: str) -> bool:
        """Returns whether something was not logged lately: no peer may fill the log."""
        now, key = monotonic(), (who, what[:LOGGED_CHARACTERS])
        if now - self._logged.get(key, -LOGGED_EVERY_S) < LOGGED_EVERY_S:
            return False
        if len(self._logged) >= LOGGED_MAX:
            del self._logged[next(iter(self._logged))]
        self._logged.pop(key, None)
        self._logged[key] = now
        return True

    # Clients.

    def _enter(self, stranger: _Stranger, enter: Enter) -> None:
        if not self._is_secret(CLIENT, enter.secret):
            self._refuse(stranger, "the secret of a client is wrong")
            return
        if self._serve_client is None:
            self._refuse(stranger, "the controller is starting", "try again in a moment")
            return
        stranger.channel.send(ANSWERS.encode(Welcome(__version__)))
        stranger.channel.release()
        self._leave(stranger)
        self._serve_client(stranger.link.link)

    # Agents.

    def _carry(self, stranger: _Stranger, carry: CarryFiles) -> None:
        if not self._is_secret(carry.node, carry.secret):
            self._refuse(stranger, f"the secret of node {carry.node[:64]!r} is wrong")
            return
        numbers = [known.number for known in self._nodes.values() if known.name == carry.node]
        if not numbers or self._serve_files is _no_files:
            self._refuse(stranger, f"node {carry.node}: no files are served yet", "try again")
            return
        stranger.channel.send(ANSWERS.encode(Welcome(__version__, numbers[0])))
        stranger.channel.release()
        self._leave(stranger)
        self._serve_files(numbers[0], stranger.link.link)

    def _join(self, stranger: _Stranger, join: Join) -> None:
        # The secret first: a stranger learns nothing about versions or names.
        if not self._is_secret(join.node, join.secret):
            self._refuse(stranger, f"the secret of node {join.node[:64]!r} is wrong")
            return
        if join.wire not in SERVED:
            why = f"agent {join.version} speaks wire {join.wire}, not {SERVED[0]} or {SERVED[-1]}"
            self._refuse(stranger, f"node {join.node}: {why}", f"install dovetail {__version__}")
            return
        if join.has_users is not self._has_users:
            self._refuse(stranger, f"node {join.node}: {_AS_WHOM[join.has_users]}", _AGENT_OF_USERS)
            return
        if self._shared is None:
            self._admit(stranger, join)
            return
        stranger.check = _Check(join)
        self._in_thread(partial(self._begin_check, stranger, stranger.check, self._shared))

    def wire_of(self, node: int) -> int:
        """Returns the version of the agent of a node, -1 if none is connected."""
        with self._changed:
            known = self._nodes.get(node)
        return -1 if known is None else known.wire

    def open_terminal(self, node: int, job: int, worker: int) -> Stream:
        """Returns a connection to the keeper of a worker, by its agent. Raises OSError."""
        if self.wire_of(node) < TERMINALS_SINCE:
            raise ConnectionError(f"node {node} is not connected, or knows no interactive jobs")
        with self._calls.waiting(node, job, worker) as answer:
            self.wake()
            return answer.get(TERMINAL_S)

    def _carry_terminal(self, stranger: _Stranger, carry: CarryTerminal) -> None:
        if not self._is_secret(carry.node, carry.secret):
            self._refuse(stranger, f"the secret of node {carry.node[:64]!r} is wrong")
            return
        asked = self._calls.node_of(carry.ticket)
        if asked is None or asked not in self._nodes or self._nodes[asked].name != carry.node:
            self._refuse(stranger, f"node {carry.node}: it was asked for no such terminal")
            return
        stranger.channel.send(ANSWERS.encode(Welcome(__version__, asked)))
        stranger.channel.release()
        self._leave(stranger)
        self._calls.answer(carry.ticket, stranger.link)

    # The shared folder.

    def _in_thread(self, do: Callable[[], Callable[[], None]]) -> None:
        """Lets a thread touch the folder, which may hang; this one then does what it returns."""
        # NOTE: it does not wake the loop, which looks often meanwhile: it may outlive the gate, and
        # the number of the gate's pipe may belong to another file then.
        thread = threading.Thread(
            target=lambda: self._found.append(do()), name="folder-check", daemon=True
        )
        thread.start()

    def _begin_check(
        self, stranger: _Stranger, check: _Check, shared: SharedFolder
    ) -> Callable[[], None]:
        try:
            check.name, check.secret = begin_check(shared)
        except OSError as error:
            why = f"cannot be written by the controller: {error.strerror}"
            return lambda: self._refuse_folder(stranger, check, why)
        ask = ANSWERS.encode(CheckFolder(str(shared.path), shared.cluster, check.name))
        return lambda: stranger.channel.send(ask)

    def _take_checked(self, stranger: _Stranger, said: FolderChecked) -> None:
        check, shared = stranger.check, self._shared
        if check is None or shared is None or not check.name:
            self._refuse(stranger, "it was not asked for its folder")
            return
        if not said.why:
            self._in_thread(partial(self._end_check, stranger, check, shared, said.content))
            return
        self._in_thread(lambda: partial(_ignore, end_check(shared, check.name, "", "")))
        if not said.busy:
            self._refuse_folder(stranger, check, said.why)
            return
        # Its jobs must not end with their lease because a folder is away; no other starts there.
        LOG.warning("node %s: the shared folder %s %s", check.join.node, shared.path, said.why)
        self._admit(stranger, check.join)

    def _end_check(
        self, stranger: _Stranger, check: _Check, shared: SharedFolder, content: str
    ) -> Callable[[], None]:
        if wrong := end_check(shared, check.name, check.secret, content):
            return lambda: self._refuse_folder(stranger, check, wrong)
        return lambda: self._admit(stranger, check.join)

    def _refuse_folder(self, stranger: _Stranger, check: _Check, why: str) -> None:
        path = self._shared.path if self._shared is not None else ""
        mend = f"mount the controller's {path} there, to be read and written"
        self._refuse(stranger, f"node {check.join.node}: the shared folder {path} {why}", mend)

    def _admit(self, stranger: _Stranger, join: Join) -> None:
        if not stranger.channel.open:
            return
        number = self._register.admit(join)
        if isinstance(number, JoinRefused):
            self._refuse(stranger, f"node {join.node}: {number.why}", number.mend)
            return
        holder = self._nodes.get(number)
        if holder is not None and not self._gives_way(holder, join):
            why = f"node {join.node}: an agent of this name is connected"
            self._refuse(stranger, why, "give each machine a join word of its own")
            return
        self._seat(stranger, join, number)
        if holder is not None:
            holder.channel.close()

    def _gives_way(self, holder: _NodeChannel, join: Join) -> bool:
        is_same = holder.incarnation == join.incarnation
        return is_same or monotonic() - holder.heard_s > self._alive_s

    def _seat(self, stranger: _Stranger, join: Join, number: int) -> None:
        stranger.channel.send(ANSWERS.encode(Welcome(__version__, number, self._site)))
        stranger.channel.release()
        self._leave(stranger)
        known = _NodeChannel(
            join.node, number, join.incarnation, stranger.channel, monotonic(), join.wire
        )
        known.channel = LineChannel(
            self._loop, stranger.link, partial(self._heard, known), partial(self._lost, known)
        )
        with self._changed:
            self._nodes[number] = known
            self._changed.notify_all()
        if self._is_news(join.node, stranger.address):
            LOG.info("node %s joined from %s as node %d", join.node, stranger.address, number)
        self._hail(number)

    def _heard(self, known: _NodeChannel, line: bytes) -> None:
        known.heard_s = monotonic()
        try:
            report = REPORTS.decode(line)
        except WireError as error:
            if self._is_news(known.name, "report"):
                LOG.error("node %s sent a report that cannot be read: %s", known.name, error)
            known.channel.close()
            return
        about = {report.node, *(part.node for part in (report.inventory, report.alive) if part)}
        if about != {known.number}:
            self._log_refusal(known.name, "it reports on another node")
            known.channel.close()
            return
        self._put(report)

    def _lost(self, known: _NodeChannel) -> None:
        with self._changed:
            if self._nodes.get(known.number) is not known:
                return
            del self._nodes[known.number]
            self._changed.notify_all()
        if not self._closing:
            if self._is_news(known.name, "disconnected"):
                LOG.warning("node %s is disconnected", known.name)
            self._put(NodeLost(known.number))


def _no_files(node: int, link: socket.socket) -> None:
    """Closes a connection: no controller serves files now."""
    link.close()


def _ignore(result: str) -> None:
    """Does nothing: only the files of a check had to go."""

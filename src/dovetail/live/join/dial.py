"""How an agent reaches its controller: dial, check the certificate, join; again after each loss."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Protocol

from dovetail.core.errors import InputError
from dovetail.live.join.gate_stream import GateStream, called
from dovetail.live.join.shared_folder import SharedFolder, answer_check
from dovetail.live.join.word import JoinWord
from dovetail.version import __version__
from dovetail.wire.agent import WIRE_VERSION
from dovetail.wire.codec import WireError
from dovetail.wire.connection import LineConnection, Stream
from dovetail.wire.join import (
    ANSWERS,
    ENTRANCES,
    CarryFiles,
    CarryTerminal,
    CheckFolder,
    Enter,
    FolderChecked,
    Join,
    JoinRefused,
    NodeDevices,
    Welcome,
)
from dovetail.wire.site import SiteSettings

TIMEOUT_S = 10.0
"""For each wait of an attempt to join."""
PAUSES_S = (0.2, 0.5, 1.0, 2.0, 5.0)
"""Pauses between attempts, each longer or shorter by up to `JITTER`; the last one repeats.

A controller is back within seconds, and all nodes must have joined again within `node_patience_s`.
"""
JITTER = 0.5


class NodeRefused(Exception):
    """The controller does not admit this node, or the node does not serve it, and why."""


class NodeGuard(Protocol):
    """What the agent of several users takes from no controller."""

    def why_not(self, site: SiteSettings) -> str:
        """Returns why this node does not do what a controller has set, empty if it does."""
        ...

    def check_access(self, check: Path) -> AbstractContextManager[None]:
        """Returns what a check of the shared folder is answered in."""
        ...


@dataclass(frozen=True, slots=True)
class JoinedNode:
    """A connection that was admitted, as the node of this number, and the host it comes from.

    `site` is what its controller has set for all nodes.
    """

    link: GateStream
    number: int
    host: str
    fingerprint: str
    site: SiteSettings
    shared: SharedFolder | None = None


@dataclass(frozen=True, slots=True)
class Joiner:
    """Who joins. The word is read for each attempt: a controller may have moved meanwhile.

    `is_busy` tells whether workers live on the node. With a `guard` it serves several users.
    """

    word: Path
    incarnation: str
    devices: NodeDevices
    is_busy: Callable[[], bool] = lambda: False
    guard: NodeGuard | None = None

    def join(self) -> JoinedNode:
        """Returns a connection. Raises NodeRefused, OSError, InputError for a damaged word."""
        word = JoinWord.read(self.word)
        link = called(word.host, word.port, word.fingerprint, TIMEOUT_S)
        try:
            join = Join(
                *(WIRE_VERSION, __version__, word.name, word.secret),
                *(self.incarnation, self.devices, self.guard is not None),
            )
            lines = LineConnection(link)
            lines.send(ENTRANCES.encode(join), TIMEOUT_S)
            answer = _answer_of(lines.read_line(TIMEOUT_S))
            shared = None
            if isinstance(answer, CheckFolder):
                shared = SharedFolder(Path(answer.path), answer.cluster)
                content, why = self._checked(shared.path, answer.name)
                checked = FolderChecked(content, why, self.is_busy())
                lines.send(ENTRANCES.encode(checked), TIMEOUT_S)
                answer = _answer_of(lines.read_line(TIMEOUT_S))
            welcome = _admitted(answer)
            if why := self.guard.why_not(welcome.site) if self.guard is not None else "":
                raise NodeRefused(f"refused: {why}")
            return JoinedNode(
                link, welcome.number, link.own_host, word.fingerprint, welcome.site, shared
            )
        except BaseException:
            link.close()
            raise

    def _checked(self, folder: Path, name: str) -> tuple[str, str]:
        if self.guard is None:
            return answer_check(folder, name)
        return answer_check(folder, name, self.guard.check_access)


def enter(word: JoinWord, timeout_s: float = TIMEOUT_S) -> GateStream:
    """Returns the connection of a client. Raises NodeRefused, OSError."""
    link = called(word.host, word.port, word.fingerprint, timeout_s)
    try:
        lines = LineConnection(link)
        lines.send(ENTRANCES.encode(Enter(__version__, word.secret)), timeout_s)
        _admitted(_answer_of(lines.read_line(timeout_s)))
    except BaseException:
        link.close()
        raise
    return link


def carry_files(path: Path) -> LineConnection:
    """Returns the connection for files of the node of a join word. Raises OSError."""
    return _carry(path, lambda word: CarryFiles(__version__, word.name, word.secret))


def _carry(
    path: Path, entrance: Callable[[JoinWord], CarryFiles | CarryTerminal]
) -> LineConnection:
    """Returns another connection of the node of a join word. Raises OSError."""
    try:
        word = JoinWord.read(path)
        link = called(word.host, word.port, word.fingerprint, TIMEOUT_S)
    except InputError as error:
        raise ConnectionError(str(error)) from None
    try:
        lines = LineConnection(link)
        lines.send(ENTRANCES.encode(entrance(word)), TIMEOUT_S)
        _admitted(_answer_of(lines.read_line(TIMEOUT_S)))
    except NodeRefused as refused:
        link.close()
        raise ConnectionError(str(refused)) from None
    except BaseException:
        link.close()
        raise
    return lines


def carry_terminal(path: Path, ticket: str) -> tuple[Stream, bytes]:
    """Returns the connection for a terminal, and what came in on it. Raises OSError."""

    def shows(word: JoinWord) -> CarryTerminal:
        return CarryTerminal(__version__, word.name, word.secret, ticket)

    return _carry(path, shows).detach()


def _admitted(answer: Welcome | JoinRefused | CheckFolder) -> Welcome:
    """Returns the welcome of the gate. Raises NodeRefused if it is none."""
    if isinstance(answer, JoinRefused):
        raise NodeRefused(f"{answer.why}{f'; {answer.mend}' if answer.mend else ''}")
    if not isinstance(answer, Welcome):
        raise NodeRefused("the controller asks for its folder twice")
    return answer


def _answer_of(line: bytes | None) -> Welcome | JoinRefused | CheckFolder:
    """Returns the answer of the gate. Raises NodeRefused if it is none."""
    if line is None:
        raise NodeRefused("the controller closed the connection")
    try:
        return ANSWERS.decode(line)
    except WireError as error:
        raise NodeRefused(f"the controller's answer is wrong: {error}") from None


class JoinThread:
    """Attempts to join in a thread of its own, so that nothing of the node waits for a network.

    `wake` is called by that thread when an attempt has ended.
    """

    def __init__(
        self,
        joiner: Joiner,
        wake: Callable[[], None],
        log: Callable[[str], None],
        random_part: Callable[[], float] = random.random,
    ) -> None:
        self._joiner, self._wake, self._log = joiner, wake, log
        self._random = random_part
        self._thread: threading.Thread | None = None
        self._result: JoinedNode | None = None
        self._failures = 0
        self._next_s = 0.0
        self._logged = ""

    @property
    def next_s(self) -> float:
        """Returns when the next attempt is due, by the monotonic clock."""
        return self._next_s

    def turn(self) -> JoinedNode | None:
        """Begins an attempt if one is due, and returns the connection of one that succeeded."""
        if self._thread is not None and self._thread.is_alive():
            return None
        result, self._result = self._result, None
        if result is not None:
            self._thread, self._failures, self._logged = None, 0, ""
            return result
        if self._thread is not None:
            self._thread = None
            pause_s = PAUSES_S[min(self._failures, len(PAUSES_S) - 1)]
            self._failures += 1
            self._next_s = monotonic() + pause_s * (1 + JITTER * (2 * self._random() - 1))
        if monotonic() >= self._next_s:
            self._thread = threading.Thread(target=self._attempt, name="dial", daemon=True)
            self._thread.start()
        return None

    def _attempt(self) -> None:
        try:
            self._result = self._joiner.join()
        except (NodeRefused, OSError, InputError) as error:
            text = str(error) or type(error).__name__
            if text != self._logged:
                self._logged = text
                self._log(f"cannot join: {text}")
        finally:
            self._wake()

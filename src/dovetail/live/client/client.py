"""The Python client: the verbs of the command line as methods, with typed replies.

```
from dovetail.live.client import Client
client = Client("~/.dovetail")
(job,) = client.submit(JobSpec(name="hello", command=("echo", "hi"), workdir="/data"))
client.wait(job)
```

A request that changes something carries a key made here, so that it is safe to ask again when
the controller went away before it answered; the client does so until its time is up.

Connections are kept open from one question to the next. Any thread may ask: each takes one that
is free, or opens one.
"""

from __future__ import annotations

import contextlib
import os
import socket
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, TypeVar

from dovetail.core.errors import DovetailError, InputError
from dovetail.live.jobs.lifecycle import TERMINAL
from dovetail.live.server.protocol import (
    CROWDED,
    REPLY_BYTES_MAX,
    TOO_SLOW,
    Refused,
    line_of_question,
    reply_of,
)
from dovetail.wire.codec import LINE_BYTES_MAX, WireError

if TYPE_CHECKING:
    from dovetail.live.server.messages.changes import Changed
    from dovetail.live.server.messages.cluster import NodesShown, Pong
    from dovetail.live.server.messages.events import Event
    from dovetail.live.server.messages.listing import Listed
    from dovetail.live.server.messages.one_job import Shown
    from dovetail.live.server.messages.output import Logs, LogText
    from dovetail.live.server.messages.reason import Explained
    from dovetail.live.server.messages.tracking import JobState
    from dovetail.live.server.requests import Question
    from dovetail.wire.spec import JobSpec
    from dovetail.wire.submission import Submission

R = TypeVar("R")
AGAIN_S = 0.1
POLL_S, SELDOM_S = 0.2, 2.0
"""How often and how seldom who waits for jobs looks at them."""
CROWDED_S = 10.0
"""How long a client asks again while the controller has too many clients."""
RESTS = 5
"""And how many times longer than a look took until the next."""
DEFAULT_HOME = "~/.dovetail"


class NoController(DovetailError):
    """Says that no controller answers here."""


class Absent(NoController):
    """Says that none runs here, and how to start one."""

    def __init__(self, home: Path) -> None:
        super().__init__(f"no controller runs in {home} (dovetail up starts one)")


class Gone(NoController):
    """Says that the controller ended while it was asked."""


class Broken(Exception):
    """The connection ended before the reply."""


class Crowded(Broken):
    """The controller refused the connection: it serves as many clients as it can."""


class Client:
    """Asks the controller whose folder is `home`, or the one at a loopback `address`.

    Without either it looks where the commands do: in `DOVETAIL_HOME`, else `~/.dovetail`.
    `patience_s` is how long to go on asking a controller that does not answer; one that is not
    there at all is reported at once. Raises InputError for what the user can mend.
    """

    def __init__(
        self, home: str | Path = "", *, address: str = "", patience_s: float = 30.0
    ) -> None:
        home = home or os.environ.get("DOVETAIL_HOME") or DEFAULT_HOME
        self.home = Path(home).expanduser().absolute()
        self._address = address
        self._patience_s = patience_s
        self._process = os.getpid()
        self._free: list[socket.socket] = []
        weakref.finalize(self, _close_all, self._free)

    def close(self) -> None:
        """Ends the connections that are kept; the next question opens another."""
        _close_all(self._free)

    def submit(self, *jobs: JobSpec | Submission, key: str = "") -> tuple[int, ...]:
        """Returns the number of each submission; all are on disk, or none was taken."""
        from dovetail.live.server.messages.changes import Submit, Submitted
        from dovetail.wire.submission import Submission

        taken = tuple(j if isinstance(j, Submission) else Submission(j) for j in jobs)
        return self._ask(Submit(key or new_key(), taken), Submitted).jobs

    def cancel(self, *jobs: int | str, key: str = "") -> tuple[int, ...]:
        """Ends jobs: waiting ones at once, running ones within their grace."""
        return self.change("cancel", *jobs, key=key).jobs

    def requeue(self, *jobs: int | str, key: str = "") -> tuple[int, ...]:
        """Lets jobs wait again, running or ended."""
        return self.change("requeue", *jobs, key=key).jobs

    def hold(self, *jobs: int | str, key: str = "") -> tuple[int, ...]:
        """Keeps waiting jobs from being started."""
        return self.change("hold", *jobs, key=key).jobs

    def release(self, *jobs: int | str, key: str = "") -> tuple[int, ...]:
        """Ends a hold."""
        return self.change("release", *jobs, key=key).jobs

    def drain(self, node: int, *, undo: bool = False, key: str = "") -> None:
        """Gives a node no new work; `undo` opens it again."""
        from dovetail.live.server.messages.changes import Changed, Drain

        self._ask(Drain(key or new_key(), node, undo), Changed)

    def down(self, *, drain: bool = False, key: str = "") -> None:
        """Stops the controller: jobs run on, or (`drain`) are waited for."""
        from dovetail.live.server.messages.changes import Changed, Down

        with contextlib.suppress(Gone):
            self._ask(Down(key or new_key(), drain), Changed)

    def ping(self) -> Pong:
        """Returns who answers."""
        from dovetail.live.server.messages.cluster import Ping, Pong

        return self._ask(Ping(), Pong)

    def jobs(
        self,
        *,
        states: Sequence[str] = (),
        user: str = "",
        name: str = "",
        ended: bool = False,
        limit: int = 200,
        since_s: float = 0.0,
        offset: int = 0,
        group_arrays: bool = False,
    ) -> Listed:
        """Returns the jobs, placed ones first, then waiting ones in the policy's order.

        `limit` rows from row `offset` on; with `group_arrays` the waiting tasks of an array are
        one row. If all `states` are ends: those that ended at `since_s` or later, the newest end
        first.
        """
        from dovetail.live.server.messages.listing import Listed, ListJobs

        asked = ListJobs(tuple(states), user, name, ended, limit, since_s, offset, group_arrays)
        return self._ask(asked, Listed)

    def show(self, job: int | str) -> Shown:
        """Returns all of one job."""
        from dovetail.live.server.messages.one_job import Show, Shown

        return self._ask(Show(str(job)), Shown)

    def why(self, job: int | str) -> Explained:
        """Returns why a job is where it is."""
        from dovetail.live.server.messages.reason import Explained, Why

        return self._ask(Why(str(job)), Explained)

    def nodes(self) -> NodesShown:
        """Returns the nodes and who is on their GPUs."""
        from dovetail.live.server.messages.cluster import Nodes, NodesShown

        return self._ask(Nodes(), NodesShown)

    def history(self, job: int | str = "") -> Iterator[Event]:
        """Yields the facts of one job, or of all, in order."""
        from dovetail.live.server.messages.events import History, Recalled

        after = 0
        while after >= 0:
            found = self._ask(History(str(job), after), Recalled)
            yield from found.events
            after = found.more_after

    def logs(self, job: int | str, *, follow: bool = False, tail: int = -1) -> Iterator[LogText]:
        """Yields what a job printed; with `follow` until it ends.

        A controller that goes away meanwhile is waited for, as long as patience lasts; what was
        read before is not read again.
        """
        from dovetail.live.server.messages.output import Logs

        asked, was_there = Logs(str(job), follow, tail), False
        deadline = monotonic() + self._patience_s
        crowded_until = monotonic() + min(CROWDED_S, self._patience_s)
        while True:
            try:
                for piece in self._pieces(asked):
                    was_there, deadline = True, monotonic() + self._patience_s
                    if piece.at >= 0:
                        asked = replace(asked, begin=piece.at)
                    yield piece
                return
            except (Broken, OSError, NoController) as error:
                if not (was_there or isinstance(error, Broken)):
                    raise
                if isinstance(error, Crowded) and monotonic() > crowded_until:
                    raise self._too_many() from error
                if monotonic() > deadline:
                    gone = f"the controller went away, and job {job} is left to itself"
                    mute = f"the controller in {self.home} does not answer"
                    raise NoController(
                        f"{gone}: `dovetail up` finds it again" if was_there else mute
                    ) from error
            sleep(AGAIN_S)

    def _pieces(self, asked: Logs) -> Iterator[LogText]:
        from dovetail.live.server.messages.output import LogText

        with self._connected() as connection:
            connection.settimeout(self._patience_s)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(self._line(asked))
            for line in _lines(connection):
                piece = _accepted(line, LogText)
                yield piece
                if piece.end:
                    return
        raise Broken

    def states(self, *jobs: int | str) -> tuple[JobState, ...]:
        """Returns where jobs are, an array standing for all of its tasks."""
        from dovetail.live.server.messages.tracking import Track, Tracked

        return self._ask(Track(tuple(map(str, jobs))), Tracked).jobs

    def wait(self, *jobs: int | str, timeout_s: float = float("inf")) -> tuple[JobState, ...]:
        """Returns where jobs ended, once all are over. Raises TimeoutError.

        A controller that is started anew meanwhile is waited for, as long as patience lasts.
        """
        deadline = monotonic() + timeout_s
        while True:
            asked_s = monotonic()
            states = self._states_patiently(jobs)
            waited = [s for s in states if s.state not in TERMINAL]
            if not waited:
                return states
            if monotonic() > deadline:
                raise TimeoutError(f"job {waited[0].called} is {waited[0].state}")
            # A long list takes the time of the controller too.
            took_s = monotonic() - asked_s
            sleep(min(max(POLL_S, RESTS * took_s), SELDOM_S))

    def _states_patiently(self, jobs: Sequence[int | str]) -> tuple[JobState, ...]:
        deadline = monotonic() + self._patience_s
        while True:
            try:
                return self.states(*jobs)
            except NoController:
                if monotonic() > deadline:
                    raise
                sleep(AGAIN_S)

    def change(self, verb: str, *jobs: int | str, key: str = "") -> Changed:
        """Does one of these to jobs; says for which it is done, and which are left and why."""
        from dovetail.live.server.messages.changes import Change, Changed

        return self._ask(Change(verb, key or new_key(), tuple(map(str, jobs))), Changed)

    def _ask(self, question: Question, cls: type[R]) -> R:
        """Asks, and asks the same again when the connection breaks: keys make that safe."""
        deadline = monotonic() + self._patience_s
        crowded_until = monotonic() + min(CROWDED_S, self._patience_s)
        was_there = False
        while True:
            try:
                return self._ask_once(question, cls, deadline)
            except (Broken, OSError, NoController) as error:
                # One that was there just now is being started anew, or it was told to end.
                if isinstance(error, NoController) and not was_there:
                    raise
                if isinstance(error, NoController) and question.verb == "down":
                    raise Gone("the controller ended before it answered") from error
                was_there = True
                if isinstance(error, Crowded) and monotonic() > crowded_until:
                    raise self._too_many() from error
                if monotonic() > deadline:
                    raise NoController(f"the controller in {self.home} does not answer") from error
                sleep(AGAIN_S)

    def _too_many(self) -> NoController:
        where = f"at {self._address}" if self._address else f"in {self.home}"
        return NoController(f"the controller {where} has {CROWDED}; try again in a moment")

    def _ask_once(self, question: Question, cls: type[R], deadline: float) -> R:
        asked = self._line(question)
        connection = self._kept() or self._connected()
        try:
            connection.settimeout(max(0.01, deadline - monotonic()))
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                # A connection that was refused has its reply to be read, though it takes no more.
                connection.sendall(asked)
            line = next(_lines(connection), None)
        except BaseException:
            # Half a question or half a reply may be under way on it.
            connection.close()
            raise
        if line is None:
            connection.close()
            raise Broken
        self._free.append(connection)
        return _accepted(line, cls)

    def _line(self, question: Question) -> bytes:
        """Returns the line that asks a question. Raises InputError for one that nobody reads."""
        line = line_of_question(question, self._token())
        if len(line) > LINE_BYTES_MAX:
            what = f"it takes {len(line) >> 10} KiB at once, over {LINE_BYTES_MAX >> 10} KiB"
            mend = "name fewer jobs at once, or put long texts into files"
            raise InputError(question.verb, what, mend)
        return line

    def _kept(self) -> socket.socket | None:
        """Returns a connection that is free and that the controller has not ended."""
        if self._process != os.getpid():
            # A fork has the connections of its parent, who still speaks on them.
            _close_all(self._free)
            self._process = os.getpid()
        with contextlib.suppress(IndexError):
            while True:
                connection = self._free.pop()
                try:
                    connection.setblocking(False)
                    connection.recv(1, socket.MSG_PEEK)
                except BlockingIOError:
                    return connection
                except OSError:
                    pass
                # It is at its end, or says what nobody asked for.
                connection.close()
        return None

    def _connected(self) -> socket.socket:
        if self._address:
            return self._connected_to(self._address)
        path = self.home / "api.sock"
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(os.fspath(path))
        except (FileNotFoundError, ConnectionRefusedError):
            connection.close()
            raise Absent(self.home) from None
        except OSError as error:
            connection.close()
            from dovetail.live.system.unix_socket import check_path

            check_path(path)
            if isinstance(error, PermissionError | NotADirectoryError):
                what = f"cannot be entered: {error.strerror}"
                raise InputError(
                    str(self.home), what, "give the --home of a cluster of yours"
                ) from None
            raise
        return connection

    def _connected_to(self, address: str) -> socket.socket:
        host, colon, port = address.rpartition(":")
        if not (colon and port.isdecimal()):
            raise InputError(f"address {address}", "expected HOST:PORT", "as in 127.0.0.1:7077")
        try:
            return socket.create_connection((host.strip("[]"), int(port)), timeout=self._patience_s)
        except ConnectionRefusedError:
            raise NoController(f"no controller listens on {address}") from None
        except socket.gaierror as error:
            raise InputError(f"address {address}", error.strerror or "is unknown") from None

    def _token(self) -> str:
        if not self._address:
            return ""
        try:
            return (self.home / "token").read_text().strip()
        except OSError as error:
            raise InputError(str(self.home / "token"), f"no token: {error.strerror}") from None


def new_key() -> str:
    """Returns a key no other request has."""
    return os.urandom(16).hex()


def _close_all(connections: list[socket.socket]) -> None:
    with contextlib.suppress(IndexError):
        while True:
            connections.pop().close()


def _accepted(line: bytes, cls: type[R]) -> R:
    try:
        reply = reply_of(line, cls)
    except WireError as error:
        raise DovetailError(f"the controller answers in another tongue: {error}") from None
    if isinstance(reply, Refused):
        if reply.what == CROWDED:
            raise Crowded
        if reply.what == TOO_SLOW:
            raise Broken
        if reply.fault:
            raise DovetailError(
                f"{reply.where}: {reply.what}" + (f" ({reply.mend})" if reply.mend else "")
            )
        raise InputError(reply.where, reply.what, reply.mend)
    return reply


def _lines(connection: socket.socket) -> Iterator[bytes]:
    kept = bytearray()
    while True:
        piece = connection.recv(1 << 18)
        if not piece:
            return
        start = len(kept)
        kept += piece
        while (end := kept.find(b"\n", start)) >= 0:
            yield bytes(kept[:end])
            del kept[: end + 1]
            start = 0
        if len(kept) > REPLY_BYTES_MAX:
            raise DovetailError("the controller's answer is too long")

"""The Python client: the verbs of the command line as methods, with typed replies.

```
from dovetail.live.client import Client
client = Client("~/.dovetail")
(job,) = client.submit(JobSpec(name="hello", command=("echo", "hi"), workdir="/data"))
client.wait(job)
```

A request that changes something carries a key made here, so that it can be repeated when the
controller ended before it answered; the client retries until its patience is over.

Connections stay open from one request to the next. Any thread may call: each takes a free
connection, or opens one.
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
    RequestRefused,
    line_of_question,
    reply_of,
)
from dovetail.wire.codec import LINE_BYTES_MAX, WireError
from dovetail.wire.connection import LineConnection, LineTooLong

if TYPE_CHECKING:
    from dovetail.live.server.messages.changes import ChangeAccepted
    from dovetail.live.server.messages.cluster import NodeList, Pong
    from dovetail.live.server.messages.events import Event
    from dovetail.live.server.messages.listing import JobList
    from dovetail.live.server.messages.one_job import JobDetails
    from dovetail.live.server.messages.output import Logs, LogText
    from dovetail.live.server.messages.reason import JobExplanation
    from dovetail.live.server.messages.tracking import JobState
    from dovetail.live.server.requests import Question
    from dovetail.wire.spec import JobSpec
    from dovetail.wire.submission import Submission

R = TypeVar("R")
AGAIN_S = 0.1
POLL_S, SELDOM_S = 0.2, 2.0
"""The shortest and the longest pause between two looks of `wait` at its jobs."""
CROWDED_S = 10.0
"""How long a client retries while the controller has too many clients."""
RESTS = 5
"""The pause is at least so many times as long as the look took."""
REPLY_PIECE_BYTES = 1 << 18
"""A list of many jobs is long: larger pieces make fewer system calls."""
DEFAULT_HOME = "~/.dovetail"


class NoController(DovetailError):
    """No controller answers."""


class ControllerAbsent(NoController):
    """No controller runs here; the text says how to start one."""

    def __init__(self, home: Path) -> None:
        super().__init__(f"no controller runs in {home} (dovetail up starts one)")


class ControllerGone(NoController):
    """The controller ended before it answered."""


class ConnectionBroken(Exception):
    """The connection ended before the reply."""


class TooManyClients(ConnectionBroken):
    """The controller refused the connection: it serves as many clients as it can."""


class Client:
    """Asks the controller whose folder is `home`, or the one at a loopback `address`.

    Without either it looks where the commands do: in `DOVETAIL_HOME`, else `~/.dovetail`.
    `patience_s` is how long to retry while a controller does not answer; one that is not there at
    all is reported at once. Raises InputError for what the user can mend.
    """

    def __init__(
        self, home: str | Path = "", *, address: str = "", patience_s: float = 30.0
    ) -> None:
        home = home or os.environ.get("DOVETAIL_HOME") or DEFAULT_HOME
        self.home = Path(home).expanduser().absolute()
        self._address = address
        self._patience_s = patience_s
        self._process = os.getpid()
        self._free: list[LineConnection] = []
        weakref.finalize(self, _close_all, self._free)

    def close(self) -> None:
        """Closes the open connections; the next request opens another."""
        _close_all(self._free)

    def submit(self, *jobs: JobSpec | Submission, key: str = "") -> tuple[int, ...]:
        """Returns the number of each submission; all are on disk, or none was taken."""
        from dovetail.live.server.messages.changes import JobsSubmitted, Submit
        from dovetail.wire.submission import Submission

        taken = tuple(j if isinstance(j, Submission) else Submission(j) for j in jobs)
        return self._ask(Submit(key or new_key(), taken), JobsSubmitted).jobs

    def cancel(self, *jobs: int | str, key: str = "") -> tuple[int, ...]:
        """Ends jobs: waiting ones at once, running ones within their grace."""
        return self.change("cancel", *jobs, key=key).jobs

    def requeue(self, *jobs: int | str, key: str = "") -> tuple[int, ...]:
        """Puts jobs back into the queue, running or ended."""
        return self.change("requeue", *jobs, key=key).jobs

    def hold(self, *jobs: int | str, key: str = "") -> tuple[int, ...]:
        """Keeps waiting jobs from being started."""
        return self.change("hold", *jobs, key=key).jobs

    def release(self, *jobs: int | str, key: str = "") -> tuple[int, ...]:
        """Ends a hold."""
        return self.change("release", *jobs, key=key).jobs

    def drain(self, node: int, *, undo: bool = False, key: str = "") -> None:
        """Closes a node to new work; `undo` opens it again."""
        from dovetail.live.server.messages.changes import ChangeAccepted, Drain

        self._ask(Drain(key or new_key(), node, undo), ChangeAccepted)

    def down(self, *, drain: bool = False, key: str = "") -> None:
        """Stops the controller: jobs run on, or (`drain`) are waited for."""
        from dovetail.live.server.messages.changes import ChangeAccepted, Down

        with contextlib.suppress(ControllerGone):
            self._ask(Down(key or new_key(), drain), ChangeAccepted)

    def ping(self) -> Pong:
        """Returns the process, version and options of the controller."""
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
    ) -> JobList:
        """Returns the jobs, placed ones first, then waiting ones in the policy's order.

        `limit` rows from row `offset` on; with `group_arrays` the waiting tasks of an array are
        one row. If all `states` are ends: those that ended at `since_s` or later, the newest end
        first.
        """
        from dovetail.live.server.messages.listing import JobList, ListJobs

        asked = ListJobs(tuple(states), user, name, ended, limit, since_s, offset, group_arrays)
        return self._ask(asked, JobList)

    def show(self, job: int | str) -> JobDetails:
        """Returns all of one job."""
        from dovetail.live.server.messages.one_job import JobDetails, ShowJob

        return self._ask(ShowJob(str(job)), JobDetails)

    def why(self, job: int | str) -> JobExplanation:
        """Returns why a job is where it is."""
        from dovetail.live.server.messages.reason import ExplainJob, JobExplanation

        return self._ask(ExplainJob(str(job)), JobExplanation)

    def nodes(self) -> NodeList:
        """Returns the nodes and the jobs on their GPUs."""
        from dovetail.live.server.messages.cluster import ListNodes, NodeList

        return self._ask(ListNodes(), NodeList)

    def history(self, job: int | str = "") -> Iterator[Event]:
        """Yields the facts of one job, or of all, in order."""
        from dovetail.live.server.messages.events import History, HistoryPage

        after = 0
        while after >= 0:
            found = self._ask(History(str(job), after), HistoryPage)
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
            except (ConnectionBroken, OSError, NoController) as error:
                if not (was_there or isinstance(error, ConnectionBroken)):
                    raise
                if isinstance(error, TooManyClients) and monotonic() > crowded_until:
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
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.send(self._line(asked), self._patience_s)
            for line in _reply_lines(connection, self._patience_s):
                piece = _accepted(line, LogText)
                yield piece
                if piece.end:
                    return
        raise ConnectionBroken

    def states(self, *jobs: int | str) -> tuple[JobState, ...]:
        """Returns where jobs are, an array standing for all of its tasks."""
        from dovetail.live.server.messages.tracking import JobStates, TrackJobs

        return self._ask(TrackJobs(tuple(map(str, jobs))), JobStates).jobs

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

    def change(self, verb: str, *jobs: int | str, key: str = "") -> ChangeAccepted:
        """Changes jobs by one of these verbs; returns which changed, which not, and why."""
        from dovetail.live.server.messages.changes import ChangeAccepted, JobChange

        return self._ask(JobChange(verb, key or new_key(), tuple(map(str, jobs))), ChangeAccepted)

    def _ask(self, question: Question, cls: type[R]) -> R:
        """Asks, and asks the same again when the connection breaks: keys make that safe."""
        deadline = monotonic() + self._patience_s
        crowded_until = monotonic() + min(CROWDED_S, self._patience_s)
        was_there = False
        while True:
            try:
                return self._ask_once(question, cls, deadline)
            except (ConnectionBroken, OSError, NoController) as error:
                # It answered just now, so it is restarting, or ending on request.
                if isinstance(error, NoController) and not was_there:
                    raise
                if isinstance(error, NoController) and question.verb == "down":
                    raise ControllerGone("the controller ended before it answered") from error
                was_there = True
                if isinstance(error, TooManyClients) and monotonic() > crowded_until:
                    raise self._too_many() from error
                if monotonic() > deadline:
                    raise NoController(f"the controller in {self.home} does not answer") from error
                sleep(AGAIN_S)

    def _too_many(self) -> NoController:
        where = f"at {self._address}" if self._address else f"in {self.home}"
        return NoController(f"the controller {where} has {CROWDED}; try again in a moment")

    def _ask_once(self, question: Question, cls: type[R], deadline: float) -> R:
        asked = self._line(question)
        connection = self._free_connection() or self._connected()
        try:
            timeout_s = max(0.01, deadline - monotonic())
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                # A connection that was refused has its reply to be read, though it takes no more.
                connection.send(asked, timeout_s)
            line = next(_reply_lines(connection, timeout_s), None)
        except BaseException:
            # Half a question or half a reply may be under way on it.
            connection.close()
            raise
        if line is None:
            connection.close()
            raise ConnectionBroken
        self._free.append(connection)
        return _accepted(line, cls)

    def _line(self, question: Question) -> bytes:
        """Returns the line that asks a question. Raises InputError for one that is too long."""
        line = line_of_question(question, self._token())
        if len(line) > LINE_BYTES_MAX:
            what = f"it takes {len(line) >> 10} KiB at once, over {LINE_BYTES_MAX >> 10} KiB"
            mend = "name fewer jobs at once, or put long texts into files"
            raise InputError(question.verb, what, mend)
        return line

    def _free_connection(self) -> LineConnection | None:
        """Returns a free connection that the controller has not closed."""
        if self._process != os.getpid():
            # A fork shares these sockets: parent and child would read each other's replies.
            _close_all(self._free)
            self._process = os.getpid()
        with contextlib.suppress(IndexError):
            while True:
                connection = self._free.pop()
                if connection.is_quiet():
                    return connection
                # It is closed, or has bytes that no request asked for.
                connection.close()
        return None

    def _connected(self) -> LineConnection:
        link = self._connected_to(self._address) if self._address else self._connected_here()
        return LineConnection(link, line_bytes_max=REPLY_BYTES_MAX, piece_bytes=REPLY_PIECE_BYTES)

    def _connected_here(self) -> socket.socket:
        path = self.home / "api.sock"
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(os.fspath(path))
        except (FileNotFoundError, ConnectionRefusedError):
            connection.close()
            raise ControllerAbsent(self.home) from None
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


def _close_all(connections: list[LineConnection]) -> None:
    with contextlib.suppress(IndexError):
        while True:
            connections.pop().close()


def _accepted(line: bytes, cls: type[R]) -> R:
    try:
        reply = reply_of(line, cls)
    except WireError as error:
        raise DovetailError(f"the controller answers in another protocol: {error}") from None
    if isinstance(reply, RequestRefused):
        if reply.what == CROWDED:
            raise TooManyClients
        if reply.what == TOO_SLOW:
            raise ConnectionBroken
        if reply.fault:
            raise DovetailError(
                f"{reply.where}: {reply.what}" + (f" ({reply.mend})" if reply.mend else "")
            )
        raise InputError(reply.where, reply.what, reply.mend)
    return reply


def _reply_lines(connection: LineConnection, timeout_s: float) -> Iterator[bytes]:
    """Yields replies. Raises DovetailError for one that has no end."""
    try:
        yield from connection.lines(timeout_s)
    except LineTooLong:
        raise DovetailError("the controller's answer is too long") from None

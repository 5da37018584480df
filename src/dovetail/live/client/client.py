"""The Python client: the verbs of the command line as methods, with typed replies.

```
from dovetail.live.client import Client
client = Client("~/.dovetail")
(job,) = client.submit(JobSpec(name="hello", command=("echo", "hi"), workdir="/data"))
client.wait(job)
```

A request that changes something has a key made here, so that the client may repeat it if the
connection breaks before the reply; it retries for `patience_s`.

Connections stay open between requests. Any thread may call: each takes a free connection, or opens
one.
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
from dovetail.wire.connection import LineConnection, LineTooLong, Stream

if TYPE_CHECKING:
    from dovetail.live.server.messages.changes import ChangeReply
    from dovetail.live.server.messages.cluster import NodeList, PingReply
    from dovetail.live.server.messages.events import Event
    from dovetail.live.server.messages.listing import JobList
    from dovetail.live.server.messages.one_job import ShowReply
    from dovetail.live.server.messages.output import Logs, LogsReply
    from dovetail.live.server.messages.reason import ExplainReply
    from dovetail.live.server.messages.tenants import TenantList
    from dovetail.live.server.messages.terminal import AttachReply
    from dovetail.live.server.messages.tracking import JobState
    from dovetail.live.server.requests import Question
    from dovetail.wire.spec import JobSpec
    from dovetail.wire.submission import Submission

R = TypeVar("R")
RETRY_S = 0.1
POLL_S, POLL_S_MAX = 0.2, 2.0
"""The shortest and the longest pause between two requests of `wait`."""
PAUSE_RATIO = 5
"""The pause of `wait` is at least so many times the duration of its last request."""
REMOTE_S = 5.0
"""How long a controller on another machine may take to answer a connection."""
CROWDED_S = 10.0
"""How long a client retries while the controller has too many clients."""
REPLY_PIECE_BYTES = 1 << 18
"""Larger than that of requests: a list of many jobs is long."""
DEFAULT_HOME = "~/.dovetail"


class NoController(DovetailError):
    """No controller answers."""


class ControllerDown(NoController):
    """No controller runs in this folder."""

    def __init__(self, home: Path) -> None:
        super().__init__(f"no controller runs in {home} (dovetail up starts one)")


class ConnectionBroken(Exception):
    """The connection ended before the reply."""


class ControllerFull(ConnectionBroken):
    """The controller refused the connection: it is at its limit of clients."""


class Client:
    """Sends requests to the controller of the folder `home`, or at a loopback `address`.

    On another machine than the controller's it goes by the join word in the folder's file `client`;
    `home` may be a copy of that file.
    The default is the folder of the commands: `DOVETAIL_HOME`, else `~/.dovetail`. `patience_s` is
    how long to retry while a controller does not answer; if none runs, methods raise NoController
    at once. They raise InputError for errors of the user.
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
        """Closes all free connections; the next request opens another."""
        _close_all(self._free)

    def submit(self, *jobs: JobSpec | Submission, key: str = "") -> tuple[int, ...]:
        """Submits jobs, all or none, and returns their numbers once they are on disk."""
        from dovetail.live.server.messages.changes import Submit, SubmitReply
        from dovetail.wire.submission import Submission

        submissions = tuple(j if isinstance(j, Submission) else Submission(j) for j in jobs)
        return self._ask(Submit(key or new_key(), submissions), SubmitReply).jobs

    def cancel(self, *jobs: int | str, key: str = "") -> tuple[int, ...]:
        """Cancels jobs: waiting ones at once, running ones within their grace period."""
        return self.change("cancel", *jobs, key=key).jobs

    def requeue(self, *jobs: int | str, key: str = "") -> tuple[int, ...]:
        """Requeues jobs that run or have ended."""
        return self.change("requeue", *jobs, key=key).jobs

    def hold(self, *jobs: int | str, key: str = "") -> tuple[int, ...]:
        """Holds waiting jobs in the queue until they are released."""
        return self.change("hold", *jobs, key=key).jobs

    def release(self, *jobs: int | str, key: str = "") -> tuple[int, ...]:
        """Releases held jobs."""
        return self.change("release", *jobs, key=key).jobs

    def drain(
        self, node: int, *, gpu: int = -1, reason: str = "", undo: bool = False, key: str = ""
    ) -> None:
        """Stops placing jobs on a node, or on one GPU of it; with `undo`, resumes it."""
        from dovetail.live.server.messages.changes import ChangeReply, Drain

        self._ask(Drain(key or new_key(), node, undo, gpu, reason), ChangeReply)

    def down(self, *, drain: bool = False, save: bool = False, key: str = "") -> None:
        """Stops the controller: at once, while jobs run on, or (`drain`) after they have ended, or
        (`save`) after they have saved and wait again.
        """
        from dovetail.live.server.messages.changes import ChangeReply, Down

        with contextlib.suppress(ConnectionBroken):
            self._ask(Down(key or new_key(), drain, save), ChangeReply)

    def ping(self) -> PingReply:
        """Returns the process, version and options of the controller."""
        from dovetail.live.server.messages.cluster import Ping, PingReply

        return self._ask(Ping(), PingReply)

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
        """Returns the jobs: placed ones first, then waiting ones in the policy's order.

        `limit` rows from row `offset` on; with `group_arrays` the waiting tasks of an array are
        one row. If all `states` are terminal: jobs that ended at `since_s` or later, the latest
        first.
        """
        from dovetail.live.server.messages.listing import JobList, ListJobs

        request = ListJobs(tuple(states), user, name, ended, limit, since_s, offset, group_arrays)
        return self._ask(request, JobList)

    def show(self, job: int | str) -> ShowReply:
        """Returns the details of one job."""
        from dovetail.live.server.messages.one_job import ShowJob, ShowReply

        return self._ask(ShowJob(str(job)), ShowReply)

    def why(self, job: int | str) -> ExplainReply:
        """Returns the explanation of the state of a job."""
        from dovetail.live.server.messages.reason import ExplainJob, ExplainReply

        return self._ask(ExplainJob(str(job)), ExplainReply)

    def nodes(self) -> NodeList:
        """Returns the nodes and the jobs on their GPUs."""
        from dovetail.live.server.messages.cluster import ListNodes, NodeList

        return self._ask(ListNodes(), NodeList)

    def tenants(self) -> TenantList:
        """Returns the tenants of the cluster, and where each stands."""
        from dovetail.live.server.messages.tenants import ListTenants, TenantList

        return self._ask(ListTenants(), TenantList)

    def history(self, job: int | str = "") -> Iterator[Event]:
        """Yields the facts of one job, or of all, in order."""
        from dovetail.live.server.messages.events import History, HistoryReply

        after = 0
        while after >= 0:
            page = self._ask(History(str(job), after), HistoryReply)
            yield from page.events
            after = page.more_after

    def logs(self, job: int | str, *, follow: bool = False, tail: int = -1) -> Iterator[LogsReply]:
        """Yields the output of a job; with `follow` until the job ends.

        If the connection breaks, the client retries for `patience_s` and goes on where it was.
        """
        from dovetail.live.server.messages.output import Logs

        request, has_replied = Logs(str(job), follow, tail), False
        deadline = monotonic() + self._patience_s
        crowded_until = monotonic() + min(CROWDED_S, self._patience_s)
        while True:
            try:
                for piece in self._pieces(request):
                    has_replied, deadline = True, monotonic() + self._patience_s
                    if piece.at >= 0:
                        request = replace(request, begin=piece.at)
                    yield piece
                return
            except (ConnectionBroken, OSError, NoController) as error:
                if not (has_replied or isinstance(error, ConnectionBroken)):
                    raise
                lost = f"the controller went away, and job {job} is left to itself: `dovetail up`"
                what = f"{lost} finds it again" if has_replied else ""
                self._pause(error, deadline, crowded_until, what)

    def _pieces(self, request: Logs) -> Iterator[LogsReply]:
        from dovetail.live.server.messages.output import LogsReply

        with self._connected() as connection:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.send(self._line(request), self._patience_s)
            for line in _reply_lines(connection, self._patience_s):
                piece = _accepted(line, LogsReply)
                yield piece
                if piece.end:
                    return
        raise ConnectionBroken

    def attach(self, job: int | str) -> tuple[AttachReply, Stream | None, bytes]:
        """Returns the connection for the terminal of a job, and what came in on it.

        None if the job is over. A connection that breaks is the caller's to open again.
        """
        from dovetail.live.server.messages.terminal import AttachReply, AttachTerminal

        connection = self._connected()
        try:
            connection.send(self._line(AttachTerminal(str(job))), REMOTE_S)
            line = connection.read_line(REMOTE_S)
            if line is None:
                raise ConnectionBroken
            reply = _accepted(line, AttachReply)
        except BaseException:
            connection.close()
            raise
        if reply.over:
            connection.close()
            return reply, None, b""
        return reply, *connection.detach()

    def states(self, *jobs: int | str) -> tuple[JobState, ...]:
        """Returns the states of jobs; an array stands for all its tasks."""
        from dovetail.live.server.messages.tracking import TrackJobs, TrackReply

        return self._ask(TrackJobs(tuple(map(str, jobs))), TrackReply).jobs

    def wait(self, *jobs: int | str, timeout_s: float = float("inf")) -> tuple[JobState, ...]:
        """Returns the states of jobs once all have ended. Raises TimeoutError.

        If no controller answers, the client retries for `patience_s`: it may be restarted.
        """
        deadline = monotonic() + timeout_s
        while True:
            began_s = monotonic()
            states = self._states_patiently(jobs)
            live = [s for s in states if s.state not in TERMINAL]
            if not live:
                return states
            if monotonic() > deadline:
                raise TimeoutError(f"job {live[0].called} is {live[0].state}")
            # A request about many jobs takes time of the controller, so it is sent less often.
            request_s = monotonic() - began_s
            sleep(min(max(POLL_S, PAUSE_RATIO * request_s), POLL_S_MAX))

    def _states_patiently(self, jobs: Sequence[int | str]) -> tuple[JobState, ...]:
        deadline = monotonic() + self._patience_s
        while True:
            try:
                return self.states(*jobs)
            except NoController:
                if monotonic() > deadline:
                    raise
                sleep(RETRY_S)

    def change(self, verb: str, *jobs: int | str, key: str = "") -> ChangeReply:
        """Cancels, requeues, holds or releases jobs; returns the changed and the skipped ones."""
        from dovetail.live.server.messages.changes import ChangeReply, JobChange

        return self._ask(JobChange(verb, key or new_key(), tuple(map(str, jobs))), ChangeReply)

    def _ask(self, request: Question, cls: type[R]) -> R:
        """Sends a request, and repeats it if the connection breaks: its key makes that safe."""
        deadline = monotonic() + self._patience_s
        crowded_until = monotonic() + min(CROWDED_S, self._patience_s)
        had_controller = False
        while True:
            try:
                return self._ask_once(request, cls, deadline)
            except (ConnectionBroken, OSError, NoController) as error:
                # After a broken connection a missing controller restarts, or ends on request.
                if isinstance(error, NoController) and not had_controller:
                    raise
                if isinstance(error, NoController) and request.verb == "down":
                    # The request was carried out, and only the reply is lost.
                    raise ConnectionBroken from error
                had_controller = True
                self._pause(error, deadline, crowded_until)

    def _pause(
        self, error: Exception, deadline: float, crowded_until: float, what: str = ""
    ) -> None:
        """Waits before a retry. Raises NoController after the time for retries, with `what`."""
        if isinstance(error, ControllerFull) and monotonic() > crowded_until:
            where = f"at {self._address}" if self._address else f"in {self.home}"
            what = f"the controller {where} has {CROWDED}; try again in a moment"
            raise NoController(what) from error
        if monotonic() > deadline:
            what = what or f"the controller in {self.home} does not answer"
            raise NoController(what) from error
        sleep(RETRY_S)

    def _ask_once(self, request: Question, cls: type[R], deadline: float) -> R:
        line = self._line(request)
        connection = self._free_connection() or self._connected()
        try:
            timeout_s = max(0.01, deadline - monotonic())
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                # A refused connection accepts no request, but its refusal can still be read.
                connection.send(line, timeout_s)
            reply = next(_reply_lines(connection, timeout_s), None)
        except BaseException:
            # A part of a request or of a reply may be under way: the next one would mix with it.
            connection.close()
            raise
        if reply is None:
            connection.close()
            raise ConnectionBroken
        self._free.append(connection)
        return _accepted(reply, cls)

    def _line(self, request: Question) -> bytes:
        """Returns the line of a request. Raises InputError if it is too long."""
        line = line_of_question(request.verb, request, self._token())
        if len(line) > LINE_BYTES_MAX:
            what = f"it takes {len(line) >> 10} KiB at once, over {LINE_BYTES_MAX >> 10} KiB"
            mend = "name fewer jobs at once, or put long texts into files"
            raise InputError(request.verb, what, mend)
        return line

    def _free_connection(self) -> LineConnection | None:
        """Returns a free connection that the controller has not closed."""
        if self._process != os.getpid():
            # After a fork parent and child share these sockets: they would mix their replies.
            _close_all(self._free)
            self._process = os.getpid()
        with contextlib.suppress(IndexError):
            while True:
                connection = self._free.pop()
                if connection.is_quiet():
                    return connection
                # It is closed, or has bytes that are no reply to a request.
                connection.close()
        return None

    def _connected(self) -> LineConnection:
        link: Stream
        if self._address:
            link = self._connected_to(self._address)
        elif self.home.is_file():
            link = self._connected_by(self.home)
        else:
            try:
                link = self._connected_here()
            except ControllerDown:
                # The folder may be shared with the controller's machine, its socket is not.
                if not (self.home / "client").exists():
                    raise
                link = self._connected_by(self.home / "client")
        return LineConnection(link, line_bytes_max=REPLY_BYTES_MAX, piece_bytes=REPLY_PIECE_BYTES)

    def _connected_by(self, file: Path) -> Stream:
        """Returns a connection by a join word. Raises ControllerDown, InputError."""
        from dovetail.live.join.dial import NodeRefused, enter
        from dovetail.live.join.word import JoinWord

        word = JoinWord.read(file)
        try:
            return enter(word, min(REMOTE_S, self._patience_s))
        except NodeRefused as refused:
            raise NoController(f"{word.host}:{word.port}: {refused}") from None
        except OSError:
            raise ControllerDown(self.home) from None

    def _connected_here(self) -> socket.socket:
        path = self.home / "api.sock"
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(os.fspath(path))
        except OSError as error:
            connection.close()
            if isinstance(error, FileNotFoundError | ConnectionRefusedError):
                raise ControllerDown(self.home) from None
            from dovetail.live.system.unix_socket import check_path

            check_path(path)
            if isinstance(error, PermissionError | NotADirectoryError):
                what = f"cannot be entered: {error.strerror}"
                mend = "give the --home of a cluster of yours"
                raise InputError(str(self.home), what, mend) from None
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
    """Returns a key that no other request has."""
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
            raise ControllerFull
        if reply.what == TOO_SLOW:
            raise ConnectionBroken
        refusal = InputError(reply.where, reply.what, reply.mend)
        raise DovetailError(str(refusal)) if reply.fault else refusal
    return reply


def _reply_lines(connection: LineConnection, timeout_s: float) -> Iterator[bytes]:
    """Yields the lines of replies. Raises DovetailError for one that is too long."""
    try:
        yield from connection.lines(timeout_s)
    except LineTooLong:
        raise DovetailError("the controller's answer is too long") from None

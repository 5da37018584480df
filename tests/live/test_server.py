"""The server: who may ask, how long a line may be, and that nothing a client sends hurts it."""

import contextlib
import json
import os
import shutil
import socket
import stat
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dovetail.core.errors import DovetailError, InputError
from dovetail.live.client.client import Client, NoController
from dovetail.live.edges.protocols import StoreError
from dovetail.live.server import server as server_module
from dovetail.live.server.messages.changes import (
    ChangeReply,
    Down,
    JobChange,
    Submit,
    SubmitReply,
)
from dovetail.live.server.messages.cluster import Ping, PingReply
from dovetail.live.server.messages.one_job import ShowJob
from dovetail.live.server.messages.output import Logs, LogsReply
from dovetail.live.server.protocol import line_of_question
from dovetail.live.server.requests import CHANGES, Question, Reply, question_of
from dovetail.live.server.server import Server, ServerLimits, loopback_address, serve_connection
from dovetail.wire.codec import WireError
from dovetail.wire.spec import JobSpec
from dovetail.wire.submission import Submission
from patience import PATIENCE_S

PONG = PingReply(1, 1, "0", "fifo", "local", "unknown", 0.0)
QUICK = ServerLimits(
    connections=4,
    first_line_s=PATIENCE_S,
    idle_s=PATIENCE_S,
    line_s=0.3,
    send_s=0.3,
    line_bytes=4096,
)
fuzz = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


class Echo:
    """A desk that notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[Question, str]] = []

    def answer(self, question: Question, user: str) -> Iterator[Reply]:
        self.asked.append((question, user))
        match question:
            case Ping():
                yield PONG
            case Submit():
                yield SubmitReply(tuple(range(1, 1 + len(question.submissions))))
            case ShowJob(job):
                raise InputError(f"job {job}", "there is no such job")
            case Logs():
                yield LogsReply("one\n")
                yield LogsReply("two\n", True, "COMPLETED", 0)
            case Down():
                raise StoreError("the disk is full")
            case JobChange("hold"):
                raise RuntimeError("hunter2")
            case _:
                yield ChangeReply()


@pytest.fixture
def home() -> Iterator[Path]:
    """Returns a folder with a short path, as sockets need."""
    folder = Path(tempfile.mkdtemp(prefix="dv-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


@contextlib.contextmanager
def opened(
    home: Path, *, listen: str = "", token: str = "", limits: ServerLimits = QUICK
) -> Iterator[tuple[Server, Echo]]:
    """Gives a server that listens in a folder, and its desk."""
    desk = Echo()
    server = Server(desk, home / "api.sock", token=token, limits=limits)
    server.start(listen)
    try:
        yield server, desk
    finally:
        server.stop()


def ask(home: Path, *lines: bytes) -> list[dict[str, Any]]:
    """Returns the replies to lines sent over one connection that is then closed for writing."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(home / "api.sock"))
        return _replies(connection, b"".join(lines))


def _replies(connection: socket.socket, sent: bytes) -> list[dict[str, Any]]:
    connection.settimeout(PATIENCE_S)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
    said = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(65536):
            said += piece
    return [json.loads(line) for line in said.splitlines()]


def test_a_question_is_answered_in_the_name_of_the_user_behind_the_socket(home: Path) -> None:
    with opened(home) as (_, desk):
        (said,) = ask(home, b'{"verb":"ping"}\n')
    assert said["ok"] and said["policy"] == "fifo"
    assert desk.asked == [(Ping(), server_module.user_name(os.getuid()))]


def test_the_socket_is_its_owners_alone_and_goes_with_the_server(home: Path) -> None:
    with opened(home):
        assert stat.S_IMODE((home / "api.sock").stat().st_mode) == 0o600
    assert not (home / "api.sock").exists()


def test_a_server_that_is_slow_to_end_leaves_the_socket_of_its_successor_alone(home: Path) -> None:
    with opened(home):
        # Its folder was removed and made anew, and another controller was faster than its end.
        (home / "api.sock").unlink()
        with socket.socket(socket.AF_UNIX) as another:
            another.bind(str(home / "api.sock"))
    assert (home / "api.sock").exists()


def test_another_user_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "peer_user", lambda connection: "mallory")
    with opened(home) as (_, desk):
        (said,) = ask(home, b'{"verb":"ping"}\n')
    assert not said["ok"] and "not mallory" in said["what"]
    assert desk.asked == []


def test_several_lines_of_one_connection_are_answered_in_turn(home: Path) -> None:
    with opened(home):
        said = ask(home, b'{"verb":"ping"}\n{"verb":"logs","job":"1"}\n', b'{"verb":"nodes"}\n')
    assert [r["ok"] for r in said] == [True, True, True, True]
    assert said[2]["end"] and said[2]["exit_code"] == 0


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (b"GET / HTTP/1.1", "not JSON"),
        (b"[]", "must be a JSON object"),
        (b"{}", "unknown verb"),
        (b'{"verb":7}', "unknown verb"),
        (b'{"verb":"rm"}', "unknown verb 'rm'"),
        (b'{"verb":"show"}', "'job' is missing"),
        (b'{"verb":"show","job":1}', "expected str"),
        (b'{"verb":"show","job":"1","x":1}', "unknown field 'x'"),
        (b'{"verb":"show","job":"1\\u0000"}', "no character"),
        (b'{"verb":"show","job":"\\ud800"}', "no character"),
        (b'{"verb":"drain","key":"k","node":99999999999999999999}', "too large"),
        (b'{"verb":"cancel","key":"","jobs":["1"]}', "a key is"),
        (b'{"verb":"submit","key":"k","submissions":[{}]}', "'spec' is missing"),
        (b'{"verb":"ping","token":"guess","verb":"nope"}', "unknown verb"),
    ],
)
def test_a_wrong_line_is_refused_with_a_sentence(home: Path, line: bytes, what: str) -> None:
    with opened(home) as (_, desk):
        wrong, right = ask(home, line + b"\n", b'{"verb":"ping"}\n')
    assert not wrong["ok"] and what in wrong["what"], wrong
    assert right["ok"]
    assert [type(q) for q, _ in desk.asked] == [Ping]


def test_refusals_say_whose_fault_it_is_and_keep_what_was_sent_to_themselves(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(home):
        theirs, full, ours = ask(
            home,
            b'{"verb":"show","job":"9"}\n',
            b'{"verb":"down","key":"k"}\n',
            b'{"verb":"hold","key":"k","jobs":["1"]}\n',
        )
    assert theirs == {
        "ok": False, "where": "job 9", "what": "there is no such job", "mend": "", "fault": False,
    }  # fmt: skip
    assert full["fault"] and full["where"] == "store"
    assert ours["fault"] and "RuntimeError" in ours["what"]
    assert "hunter2" not in json.dumps(ours) + caplog.text
    assert "RuntimeError at test_server.py:" in caplog.text


def test_a_line_that_is_too_long_ends_the_connection(home: Path) -> None:
    with opened(home) as (_, desk):
        said = ask(home, b'{"verb":"' + b"x" * QUICK.line_bytes + b'"}\n', b'{"verb":"ping"}\n')
        assert ask(home, b'{"verb":"ping"}\n')[0]["ok"]
    assert "over 4096 bytes" in said[0]["what"]
    assert len(desk.asked) == 1


def test_a_line_that_never_ends_is_given_up_and_others_are_served_meanwhile(home: Path) -> None:
    with opened(home) as (_, desk), socket.socket(socket.AF_UNIX) as slow:
        slow.connect(str(home / "api.sock"))
        slow.settimeout(PATIENCE_S)
        slow.sendall(b'{"verb":"ping"}\n{"verb":')
        assert b'"ok":true' in slow.recv(4096)
        assert ask(home, b'{"verb":"ping"}\n')[0]["ok"]
        assert b"did not come in time" in slow.recv(4096)
        assert slow.recv(4096) == b""
    assert len(desk.asked) == 2


def test_a_client_that_does_not_read_is_dropped(home: Path) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                ours.setblocking(False)
                ours.send(b"x" * 65536)
        theirs.sendall(b'{"verb":"ping"}\n')
        with pytest.raises(TimeoutError):
            serve_connection(ours, Echo(), "me", "", QUICK)


def test_who_asks_nothing_gives_its_place_to_who_does(home: Path) -> None:
    with opened(home), contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(4)]
        for connection in held:
            connection.settimeout(PATIENCE_S)
            connection.connect(str(home / "api.sock"))
            connection.sendall(b'{"verb":"ping"}\n')
            assert b'"ok":true' in connection.recv(4096)
        fifth = Client(home, patience_s=PATIENCE_S)
        assert fifth.ping() == PONG
        ended = 0
        for connection in held:
            with contextlib.suppress(BrokenPipeError):
                connection.sendall(b'{"verb":"ping"}\n')
            ended += connection.recv(4096) == b""
        assert ended == 1
        fifth.close()


def test_too_many_that_are_being_answered_are_told_so_and_a_client_waits_for_a_place(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, enough = threading.Semaphore(0), threading.Event()

    def answer(self: Echo, question: Question, user: str) -> Iterator[Reply]:
        if isinstance(question, ShowJob):
            begun.release()
            enough.wait(PATIENCE_S)
        yield PONG

    monkeypatch.setattr(Echo, "answer", answer)
    with opened(home), contextlib.ExitStack() as stack:
        for _ in range(QUICK.connections):
            busy = stack.enter_context(socket.socket(socket.AF_UNIX))
            busy.connect(str(home / "api.sock"))
            busy.sendall(b'{"verb":"show","job":"1"}\n')
            assert begun.acquire(timeout=PATIENCE_S)
        with socket.socket(socket.AF_UNIX) as one_more:
            one_more.connect(str(home / "api.sock"))
            one_more.settimeout(PATIENCE_S)
            assert b"too many clients" in one_more.recv(4096)
        with pytest.raises(NoController, match=r"has too many clients at once; try again"):
            Client(home, patience_s=0.2).ping()
        threading.Timer(0.2, enough.set).start()
        assert Client(home, patience_s=PATIENCE_S).ping() == PONG


def test_loopback_tcp_wants_the_token_on_every_line(home: Path) -> None:
    (home / "token").write_text("s3cret\n")
    with opened(home, listen="127.0.0.1:0", token="s3cret") as (server, desk):
        host, port = server.address.split(":")
        assert Client(home, address=server.address).ping() == PONG
        for line in (b'{"verb":"ping"}\n', b'{"verb":"ping","token":"guess"}\n', b"GET /\n"):
            with socket.create_connection((host, int(port))) as connection:
                said = _replies(connection, line + b'{"verb":"ping","token":"s3cret"}\n')
            assert [r["ok"] for r in said] == [False], line
            assert "s3cret" not in json.dumps(said)
    assert len(desk.asked) == 1


@pytest.mark.parametrize(
    "listen",
    [
        "0.0.0.0:1",
        "192.168.1.5:7000",
        "example.org:80",
        ":80",
        "127.0.0.1",
        "[::]:1",
        "127.0.0.1:x",
    ],
)
def test_no_listener_off_loopback(home: Path, listen: str) -> None:
    with pytest.raises(InputError, match="--listen"):
        loopback_address(listen)
    server = Server(Echo(), home / "api.sock", token="t")
    with pytest.raises(InputError):
        server.start(listen)


def test_no_tcp_listener_without_a_token(home: Path) -> None:
    with pytest.raises(InputError, match="needs a token"):
        Server(Echo(), home / "api.sock").start("127.0.0.1:0")


def test_a_path_too_long_for_a_socket_is_said_so(home: Path) -> None:
    with pytest.raises(InputError, match="shorter --home"):
        Server(Echo(), home / ("x" * 120) / "api.sock").start()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
verbs = st.sampled_from(
    ["submit", "show", "logs", "why", "ls", "history", "drain", "down", *CHANGES]
)
fields = st.sampled_from(
    ["job", "jobs", "key", "submissions", "limit", "follow", "tail", "node", "spec"]
)
requests = st.builds(
    lambda verb, rest: {**rest, "verb": verb},
    verbs,
    st.dictionaries(fields, json_values, max_size=5),
)
lines = st.one_of(
    st.binary(max_size=300),
    json_values.map(lambda v: json.dumps(v).encode()),
    requests.map(lambda v: json.dumps(v).encode()),
    requests.map(lambda v: json.dumps(v).encode()[:-1]),
    st.just(b"[" * 3000),
    st.just(b"9" * 4000),
)


@fuzz
@given(st.lists(lines, max_size=6), st.booleans())
def test_whatever_is_sent_each_line_gets_one_json_reply_or_the_connection_ends(
    sent: list[bytes], closed: bool
) -> None:
    desk = Echo()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        serve = threading.Thread(target=_talk_quietly, args=(ours, desk))
        serve.start()
        replies = _replies(theirs, b"\n".join(sent) + (b"\n" if closed else b""))
        serve.join(PATIENCE_S)
        assert not serve.is_alive()
    for reply in replies:
        assert isinstance(reply["ok"], bool)
        if not reply["ok"]:
            assert reply["where"] and reply["what"]
            assert "hunter2" not in json.dumps(reply)
    whole = sum(line.count(b"\n") + 1 for line in sent) - (0 if closed else 1)
    assert len(replies) <= 2 * max(whole, 0) + 1


def _talk_quietly(connection: socket.socket, desk: Echo) -> None:
    with contextlib.suppress(OSError):
        serve_connection(
            connection, desk, "me", "", replace(QUICK, line_s=PATIENCE_S, send_s=PATIENCE_S)
        )
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


@fuzz
@given(requests)
def test_a_question_is_exactly_one_of_the_known_or_refused(said: dict[str, Any]) -> None:
    try:
        asked = question_of(json.loads(json.dumps(said)))
    except WireError:
        return
    assert question_of(json.loads(line_of_question(asked.verb, asked))) == asked


def test_a_question_says_no_more_than_what_is_unusual() -> None:
    spec = JobSpec(name="a", command=("true",), workdir="/")
    assert json.loads(line_of_question("submit", Submit("k", (Submission(spec),)))) == {
        "verb": "submit",
        "key": "k",
        "submissions": [{"spec": {"name": "a", "command": ["true"], "workdir": "/"}}],
    }


def test_the_client_says_when_nobody_is_there(home: Path) -> None:
    with pytest.raises(NoController, match=r"no controller runs in .* \(dovetail up starts one\)"):
        Client(home).ping()


def test_the_client_passes_refusals_on(home: Path) -> None:
    with opened(home):
        client = Client(home)
        with pytest.raises(InputError, match="job 9: there is no such job"):
            client.show(9)
        with pytest.raises(DovetailError, match="disk is full"):
            client.down()
        assert [piece.text for piece in client.logs(1)] == ["one\n", "two\n"]


def test_a_request_whose_reply_was_lost_is_asked_again_with_the_same_key(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = JobSpec(name="a", command=("true",), workdir="/")
    lose = [True, True]
    real = server_module.line_of_reply

    def lost(reply: Reply) -> bytes:
        if isinstance(reply, SubmitReply) and lose:
            lose.pop()
            raise BrokenPipeError
        return real(reply)

    monkeypatch.setattr(server_module, "line_of_reply", lost)
    with opened(home) as (_, desk):
        client = Client(home)
        assert client.ping() == PONG  # so that the connection lost is one that was kept
        assert client.submit(spec, Submission(spec, array=(0, 2))) == (1, 2)
    keys = {q.key for q, _ in desk.asked if isinstance(q, Submit)}
    assert (len(desk.asked), len(keys)) == (4, 1)

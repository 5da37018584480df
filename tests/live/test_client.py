"""The Python client: waits, retries under one key, and clear words when nobody answers."""

import contextlib
import json
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import monotonic

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cluster_by_hand import ByHand, spec
from dovetail.core.errors import DovetailError, InputError
from dovetail.live.client.client import Client, NoController
from dovetail.live.edges.protocols import JournalEntry
from dovetail.live.jobs.lifecycle import State
from dovetail.live.server.messages.output import Logs
from dovetail.live.server.protocol import RequestRefused, line_of_question, reply_of
from dovetail.live.server.requests import CHANGES
from dovetail.live.server.server import Server, ServerLimits, serve_connection
from dovetail.wire.codec import WireError
from dovetail.wire.submission import Submission
from patience import PATIENCE_S


@pytest.fixture
def home() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="dv-", dir="/tmp"))
    yield folder
    # Whoever followed a log may just be looking into the store once more.
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def cluster(home: Path) -> Iterator[ByHand]:
    by_hand = ByHand(home)
    yield by_hand
    by_hand.close()


def serve(cluster: ByHand) -> Server:
    server = Server(cluster.desk, cluster.folder.socket)
    server.start()
    return server


def test_every_verb_of_the_command_line_is_a_method(cluster: ByHand) -> None:
    server = serve(cluster)
    client = Client(cluster.home)
    one, many = client.submit(spec(), Submission(spec("array"), array=(0, 1)))
    assert (one, many) == (1, 2)
    assert client.hold(one) == (1,)
    assert client.release("2_1") == (3,)
    assert [j.state for j in client.states(many)] == ["PENDING", "PENDING"]
    assert client.show(one).row.name == "job"
    assert client.why(one).state == "PENDING"
    assert len(client.jobs().jobs) == 3
    assert client.nodes().nodes[0].state == "up"
    assert list(client.history()) == []
    assert client.ping().policy == "srtf"
    client.drain(0)
    client.drain(0, undo=True)
    assert client.cancel(many) == (2, 3)
    cluster.record(1, state=State.COMPLETED)
    assert client.requeue(one) == (1,)
    client.down(drain=True)
    server.stop()


def test_a_client_looks_where_the_commands_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOVETAIL_HOME", raising=False)
    assert Client().home == Path.home() / ".dovetail"
    monkeypatch.setenv("DOVETAIL_HOME", "/tmp/of-mine")
    assert Client().home == Path("/tmp/of-mine")
    assert Client("/tmp/other").home == Path("/tmp/other")


def test_the_same_key_submits_once(cluster: ByHand) -> None:
    server = serve(cluster)
    client = Client(cluster.home)
    assert client.submit(spec(), key="mine") == client.submit(spec(), key="mine") == (1,)
    with pytest.raises(InputError, match="used for another request"):
        client.submit(spec("other"), key="mine")
    server.stop()


def counted(cluster: ByHand, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns a list that grows with every connection that the server welcomes."""
    welcomed: list[int] = []
    welcome = Server._welcome

    def count(self: Server, listener: object, connection: socket.socket) -> None:
        welcomed.append(len(welcomed))
        welcome(self, listener, connection)  # type: ignore[arg-type]

    monkeypatch.setattr(Server, "_welcome", count)
    return welcomed


def test_a_client_asks_over_one_connection_and_each_thread_over_its_own(
    cluster: ByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    welcomed = counted(cluster, monkeypatch)
    server = serve(cluster)
    client = Client(cluster.home)
    for _ in range(5):
        client.submit(spec())
        assert client.ping().policy == "srtf"
    assert len(welcomed) == 1
    found: list[tuple[int, ...]] = []
    threads = [
        threading.Thread(target=lambda: found.extend(client.submit(spec()) for _ in range(20)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [(job,) for job in range(6, 86)]
    assert len(welcomed) <= 4
    with pytest.raises(InputError):
        client.show(1000)
    client.close()
    client.ping()
    server.stop()


def test_a_controller_started_anew_is_asked_without_a_pause_and_nothing_counts_twice(
    cluster: ByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(cluster.home)
    monkeypatch.setattr("dovetail.live.client.client.sleep", lambda s: pytest.fail("it waited"))
    for number in range(1, 5):
        server = serve(cluster)
        assert client.submit(spec(), key=f"key {number}") == (number,)
        assert client.submit(spec(), key=f"key {number}") == (number,)
        server.stop()
    with pytest.raises(NoController, match="no controller runs"):
        client.ping()


def test_a_fork_does_not_speak_on_its_parents_connection(
    cluster: ByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    welcomed = counted(cluster, monkeypatch)
    server = serve(cluster)
    client = Client(cluster.home)
    client.ping()
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(theirs, str(client.submit(spec())).encode())
        finally:
            os._exit(0)
    os.close(theirs)
    assert os.read(ours, 100) == b"(1,)"
    os.waitpid(child, 0)
    os.close(ours)
    assert len(welcomed) == 2, "the fork asked on the connection of its parent"
    assert client.submit(spec()) == (2,)
    assert len(welcomed) == 2, "and took it away from its parent"
    server.stop()


def test_followers_of_logs_leave_room_for_everyone_else(cluster: ByHand) -> None:
    server = serve(cluster)
    client = Client(cluster.home)
    (job,) = client.submit(spec())
    client.close()
    with contextlib.ExitStack() as stack:
        for _ in range(ServerLimits().connections):
            follower = stack.enter_context(socket.socket(socket.AF_UNIX))
            follower.connect(str(cluster.folder.socket))
            follower.sendall(line_of_question("logs", Logs(str(job), follow=True)))
        others = [stack.enter_context(contextlib.closing(Client(cluster.home))) for _ in range(16)]
        assert [other.show(job).row.job for other in others] == [job] * 16
    server.stop()


def test_waiting_outlives_a_controller_that_is_started_anew(cluster: ByHand) -> None:
    server = serve(cluster)
    client = Client(cluster.home, patience_s=PATIENCE_S)
    (job,) = client.submit(spec())
    found = cluster.store.find(job)
    assert found is not None
    over = replace(found.record, state=State.FAILED, exit_code=4)

    def restart() -> None:
        server.stop()
        cluster.store.write(JournalEntry(records=(over,)))
        again.append(serve(cluster))

    again: list[Server] = []
    timer = threading.Timer(0.3, restart)
    timer.start()
    (end,) = client.wait(job, timeout_s=PATIENCE_S)
    timer.join()
    again[0].stop()
    assert (end.job, end.state, end.exit_code) == (job, "FAILED", 4)


def test_a_log_is_followed_through_a_controller_that_is_started_anew(cluster: ByHand) -> None:
    server = serve(cluster)
    client = Client(cluster.home, patience_s=PATIENCE_S)
    (job,) = client.submit(spec())
    path = cluster.folder.make_job(job) / "output.log"
    path.write_bytes("one\ntwo ö".encode()[:-1])
    found = cluster.store.find(job)
    assert found is not None
    pieces = client.logs(job, follow=True, tail=1)
    assert next(pieces).text == "two "
    server.stop()
    with path.open("ab") as file:
        file.write("ö".encode()[-1:] + b"\nthree\n")
    cluster.store.write(
        JournalEntry(records=(replace(found.record, state=State.COMPLETED, exit_code=0),))
    )
    again = serve(cluster)
    rest = list(pieces)
    again.stop()
    assert "".join(piece.text for piece in rest) == "ö\nthree\n"
    assert (rest[-1].end, rest[-1].state, rest[-1].exit_code) == (True, "COMPLETED", 0)


def test_who_follows_a_log_is_told_when_the_controller_stays_away(
    cluster: ByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(cluster)
    client = Client(cluster.home, patience_s=PATIENCE_S)
    (job,) = client.submit(spec())
    (cluster.folder.make_job(job) / "output.log").write_text("one\n")
    pieces = client.logs(job, follow=True)
    assert next(pieces).text == "one\n"
    server.stop()
    # From now on the patience of the client passes as quickly as it waits.
    waited: list[float] = []
    monkeypatch.setattr("dovetail.live.client.client.sleep", waited.append)
    monkeypatch.setattr(
        "dovetail.live.client.client.monotonic", lambda: monotonic() + 1e3 * len(waited)
    )
    with pytest.raises(NoController, match="went away, and job 1 is left to itself: `dovetail up`"):
        list(pieces)
    assert waited, "it was asked for again"


def test_waiting_has_an_end(cluster: ByHand) -> None:
    server = serve(cluster)
    client = Client(cluster.home)
    (job,) = client.submit(spec())
    with pytest.raises(TimeoutError, match="job 1 is PENDING"):
        client.wait(job, timeout_s=0.1)
    server.stop()


def test_a_controller_that_never_answers_is_given_up(home: Path) -> None:
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(home / "api.sock"))
        mute.listen()
        with pytest.raises(NoController, match="does not answer"):
            Client(home, patience_s=0.3).ping()


def test_an_answer_that_nobody_understands_is_an_error_not_a_crash(home: Path) -> None:
    with socket.socket(socket.AF_UNIX) as odd:
        odd.bind(str(home / "api.sock"))
        odd.listen()

        def babble() -> None:
            connection, _ = odd.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b'{"ok":true,"tongue":"another"}\n')

        thread = threading.Thread(target=babble)
        thread.start()
        with pytest.raises(DovetailError, match="another protocol"):
            Client(home).ping()
        thread.join()


@pytest.mark.parametrize("line", [b"", b"[]", b'{"ok":1}', b'{"ok":false}', b"\xff"])
def test_a_reply_is_what_it_should_be_or_refused(line: bytes) -> None:
    with pytest.raises(WireError):
        reply_of(line, RequestRefused)


numbers = st.sampled_from(["1", "2", "1_0", "99", "", "-1", "../1", "1_", "x", "9" * 30, "0"])
jobs = st.one_of(numbers, st.text(max_size=6))
asked = st.one_of(
    st.fixed_dictionaries({"verb": st.sampled_from(["show", "why", "logs"]), "job": jobs}),
    st.fixed_dictionaries({"verb": st.just("logs"), "job": jobs, "tail": st.integers(-5, 5)}),
    st.fixed_dictionaries(
        {"verb": st.sampled_from(CHANGES), "key": jobs, "jobs": st.lists(jobs, max_size=3)}
    ),
    st.fixed_dictionaries({"verb": st.just("track"), "jobs": st.lists(jobs, max_size=3)}),
    st.fixed_dictionaries({"verb": st.just("drain"), "key": jobs, "node": st.integers()}),
    st.fixed_dictionaries(
        {"verb": st.just("ls"), "name": st.text(max_size=5), "limit": st.integers()}
    ),
    st.fixed_dictionaries({"verb": st.just("ls"), "states": st.lists(jobs, max_size=2)}),
    st.fixed_dictionaries({"verb": st.just("history"), "job": jobs, "after": st.integers()}),
)


@settings(
    max_examples=80,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(asked, min_size=1, max_size=8))
def test_no_question_makes_the_desk_stumble(
    cluster: ByHand, questions: list[dict[str, object]]
) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.settimeout(PATIENCE_S)
        theirs.sendall(b"".join(json.dumps(q).encode() + b"\n" for q in questions))
        theirs.shutdown(socket.SHUT_WR)
        reader = threading.Thread(
            target=serve_connection, args=(ours, cluster.desk, "ann", "", ServerLimits())
        )
        reader.start()
        reader.join(PATIENCE_S)
        ours.shutdown(socket.SHUT_WR)
        said = b""
        while piece := theirs.recv(65536):
            said += piece
    replies = [json.loads(line) for line in said.splitlines()]
    assert len(replies) == len(questions)
    for reply, question in zip(replies, questions, strict=True):
        assert reply["ok"] or not reply["fault"], (question, reply)

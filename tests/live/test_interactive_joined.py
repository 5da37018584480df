"""Interactive jobs on nodes that join over TLS, and what the gate asks of their agents."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dovetail.live.edges.protocols import Incoming
from dovetail.live.engines.joined_engine import GatePost
from dovetail.live.join.dial import carry_terminal
from dovetail.live.node.transport import TO_AGENTS, LinkTerminal
from dovetail.wire.agent import WIRE_VERSION, AgentOrder, AgentReport, StartWorker
from dovetail.wire.connection import LineConnection, Stream
from dovetail.wire.join import ANSWERS, ENTRANCES, CarryTerminal, Join, JoinRefused
from gate_scene import DEVICES, GateScene
from interactive_client import BetweenPipes, InTerminal
from joined_cluster import JoinedCluster
from patience import PATIENCE_S, until

pytest.importorskip("cryptography")
BASH = ("bash", "--norc", "--noprofile", "--noediting", "-i")


@pytest.fixture
def cluster() -> Iterator[JoinedCluster]:
    root = Path(tempfile.mkdtemp(prefix="dv-", dir="/tmp"))
    made = JoinedCluster(root, {"n1": 2})
    yield made
    made.close()
    shutil.rmtree(root)


def test_a_shell_on_a_node_that_joined_for_a_client_that_enters_by_its_word(
    cluster: JoinedCluster,
) -> None:
    up = ("--jobs", "none", "--policy", "fifo")
    cluster.start(*up)
    cluster.join("n1")
    cluster.until(cluster.answers, "the controller answers")
    # The word of clients alone, as on another machine.
    word = cluster.root / "word"
    shutil.copy(cluster.home / "client", word)
    shell = InTerminal(word, *BASH, size=(25, 90))
    try:
        job = shell.job()
        assert shell.says("stty size; kept=yes") == "25 90"
        pid = shell.says("echo $$")
        with BetweenPipes(word, "sh", "-c", "cat; exit 3") as run:
            assert run.rest(b"over TLS")[::2] == (b"over TLS", 3)
        cluster.kill()
        shell.expect("trying again (Ctrl-C gives up)\r\n")
        cluster.start(*up)
        shell.expect("connected again\r\n")
        assert shell.says("echo $$ $kept") == f"{pid} yes"
        assert cluster.client.states(job)[0].state == "RUNNING"
        shell.type("exit 5\n")
        assert shell.end() == 5
    finally:
        shell.close()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[GateScene]:
    tmp_path.chmod(0o700)
    scene = GateScene(tmp_path)
    yield scene
    scene.close()


def asked(scene: GateScene, link: Stream, found: list[Stream | OSError]) -> LinkTerminal:
    """Returns what the agent of node 0 is asked when the controller wants a terminal."""

    def ask() -> None:
        try:
            found.append(scene.gate.open_terminal(0, 7, 1))
        except OSError as error:
            found.append(error)

    until(lambda: 0 in scene.gate.joined())
    threading.Thread(target=ask, daemon=True).start()
    line = LineConnection(link).read_line(PATIENCE_S)
    assert line is not None
    order = TO_AGENTS.decode(line)
    assert isinstance(order, LinkTerminal) and (order.node, order.job, order.worker) == (0, 7, 1)
    return order


def test_an_agent_calls_back_with_its_ticket_once(scene: GateScene) -> None:
    link, found = scene.join("n1").link, list[Stream | OSError]()
    ticket = asked(scene, link, found).ticket
    stream, _ = carry_terminal(scene.word("n1"), ticket)
    stream.sendall(b"bytes")
    until(lambda: found)
    (got,) = found
    assert not isinstance(got, OSError)
    got.settimeout(PATIENCE_S)
    assert got.recv(5) == b"bytes"
    with pytest.raises(OSError, match="it was asked for no such terminal"):
        carry_terminal(scene.word("n1"), ticket)
    got.close()
    stream.close()


@pytest.mark.parametrize(
    ("node", "secret_of", "ticket", "why"),
    [
        ("n2", "n2", "", "it was asked for no such terminal"),
        ("n1", "n2", "", "the secret of node 'n1' is wrong"),
        ("n1", "n1", "0" * 32, "it was asked for no such terminal"),
        ("n1", "n1", "é\0", "it was asked for no such terminal"),
    ],
)
def test_no_other_gets_the_terminal(
    scene: GateScene, node: str, secret_of: str, ticket: str, why: str
) -> None:
    """Another node of the cluster, one without the secret, one with a ticket of its own."""
    link, found = scene.join("n1").link, list[Stream | OSError]()
    scene.join("n2")
    order = asked(scene, link, found)
    secret = scene.identity.secret_of(secret_of)
    entrance = CarryTerminal("0", node, secret, ticket or order.ticket)
    lines = scene.raw()
    lines.send(ENTRANCES.encode(entrance))
    answer = ANSWERS.decode(lines.read_line(PATIENCE_S) or b"")
    assert isinstance(answer, JoinRefused) and why in answer.why
    assert not found, "and the right one is still awaited"
    carry_terminal(scene.word("n1"), order.ticket)[0].close()
    until(lambda: found)
    assert not isinstance(found[0], OSError)
    found[0].close()


def test_an_agent_of_the_version_before_is_given_no_job_that_it_does_not_know(
    scene: GateScene,
) -> None:
    join = Join(WIRE_VERSION - 1, "0", "n1", scene.identity.secret_of("n1"), "a", DEVICES)
    lines = scene.raw()
    lines.send(ENTRANCES.encode(join))
    assert lines.read_line(PATIENCE_S)
    scene.join("n2")
    until(lambda: len(scene.gate.joined()) == 2)
    said: list[Incoming] = []
    post = GatePost(scene.gate, lambda node, order: None, said.append)
    start = StartWorker(7, 1, 3, 0, ("bash",), "/f", "/o", "/", terminal="pty")
    post.send(0, AgentOrder(1, start=start))
    (report,) = said
    assert isinstance(report, AgentReport) and report.ended is not None
    assert report.ended.exit_code == 126 and (report.node, report.ended.job) == (0, 7)
    assert "knows no interactive jobs; install dovetail" in report.ended.why
    with pytest.raises(OSError, match="knows no interactive jobs"):
        scene.gate.open_terminal(0, 7, 1)
    said.clear()
    post.send(0, AgentOrder(1, start=replace(start, terminal="", per_node=True)))
    (report,) = said
    assert isinstance(report, AgentReport) and report.ended is not None
    assert "knows no jobs that start once on each node; install" in report.ended.why
    # A newer one gets it, and an old one all else.
    post.send(1, AgentOrder(1, start=start))
    post.send(0, AgentOrder(1, start=StartWorker(8, 1, 3, 0, ("x",), "/f", "/o", "/")))
    assert len(said) == 1
    line = lines.read_line(PATIENCE_S)
    assert line is not None and b"terminal" not in line

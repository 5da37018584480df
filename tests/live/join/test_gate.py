"""Who comes in through the gate: the agent of each node, by its own secret, and clients."""

import queue
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from dovetail.core.errors import InputError
from dovetail.live.edges.protocols import NodeLost
from dovetail.live.engines.node_registry import NodeRegistry
from dovetail.live.join import gate as gate_module
from dovetail.live.join.dial import Joiner, NodeRefused, enter
from dovetail.live.join.gate_stream import UnknownController
from dovetail.live.join.identity import ControllerIdentity
from dovetail.live.join.word import CLIENT, JoinWord
from dovetail.live.node.transport import TO_AGENTS, Addressed, Dismiss
from dovetail.wire.agent import (
    REPORTS,
    WIRE_VERSION,
    AgentOrder,
    AgentReport,
    Heartbeat,
    Inventory,
    InventoryRequest,
)
from dovetail.wire.connection import LineConnection
from dovetail.wire.join import (
    ENTRANCES,
    Join,
    JoinRefused,
    NodeDevices,
    Welcome,
    incarnation_of,
)
from gate_scene import DEVICES, GateScene
from patience import PATIENCE_S, until

pytest.importorskip("cryptography")


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[GateScene]:
    tmp_path.chmod(0o700)
    scene = GateScene(tmp_path)
    yield scene
    scene.close()


def test_nodes_get_numbers_as_they_join_and_keep_them(scene: GateScene) -> None:
    assert (scene.join("n2").number, scene.join("n1").number) == (0, 1)
    again = NodeRegistry(scene.folder / "registry.json")
    assert [node.name for node in again.nodes] == ["n2", "n1"]
    assert again.take().installed == (2, 2)


def test_an_agent_of_another_folder_is_admitted_when_its_node_is_lost(scene: GateScene) -> None:
    """What it does not list may run for the agent before it, that of the first folder."""
    scene.join("n1", "f0-1").link.close()
    assert scene.join("n1", "f0-2").number == 0, "another agent of that folder"
    for registry in (scene.registry, NodeRegistry(scene.folder / "registry.json")):
        registry.expect(("n1", "n2"), keeps=True)
        strange = Join(WIRE_VERSION, "", "n1", "", incarnation_of("f1", "3"), DEVICES)
        refused = registry.admit(strange)
        assert isinstance(refused, JoinRefused) and "another --folder" in refused.why
        assert "wait until the node is lost" in refused.mend
    lost: set[int] = set()
    scene.registry.is_lost = lost.__contains__
    assert isinstance(scene.registry.admit(strange), JoinRefused)
    lost.add(0)
    assert scene.registry.admit(strange) == 0
    lost.clear()
    # The first agent is back, whose node was lost: another has the name now.
    before = Join(WIRE_VERSION, "", "n1", "", incarnation_of("f0", "2"), DEVICES)
    assert isinstance(scene.registry.admit(before), JoinRefused)
    assert scene.registry.admit(replace(before, incarnation="4")) == 0, (
        "an agent of before says none"
    )
    scene.registry.expect(("n1", "n2"), keeps=False)
    assert scene.registry.admit(before) == 0, "no job is under way"
    (scene.folder / "folders.json").write_text("[]")
    with pytest.raises(InputError, match=r"folders\.json: cannot be read"):
        NodeRegistry(scene.folder / "registry.json")


def test_orders_and_reports_travel_both_ways(scene: GateScene) -> None:
    lines = LineConnection(scene.join("n1").link)
    scene.gate.send(0, AgentOrder(3, hail=InventoryRequest(3)))
    order = TO_AGENTS.decode(lines.read_line(PATIENCE_S) or b"")
    assert order == Addressed(0, AgentOrder(3, hail=InventoryRequest(3)))
    report = AgentReport(0, alive=Heartbeat(0, "a", 1.0))
    lines.send(REPORTS.encode(report))
    assert scene.come.get(timeout=PATIENCE_S) == report


def test_who_joins_later_gets_the_newest_request_for_its_inventory(scene: GateScene) -> None:
    scene.join("n1")
    for epoch in (1, 2):
        scene.gate.send(1, AgentOrder(epoch, hail=InventoryRequest(epoch)))
    lines = LineConnection(scene.join("n2").link)
    order = TO_AGENTS.decode(lines.read_line(PATIENCE_S) or b"")
    assert isinstance(order, Addressed) and order.order.epoch == 2


@pytest.mark.parametrize("name", ["n1", "n3", CLIENT, "é"])
def test_a_wrong_secret_is_refused_before_anything_else_is_looked_at(
    scene: GateScene, name: str
) -> None:
    join = Join(99, "9", name, "0" * 64, "a", DEVICES)
    answer = scene.says(ENTRANCES.encode(join))
    assert isinstance(answer, JoinRefused) and "secret" in answer.why
    assert "wire" not in answer.why, "a stranger learns nothing of versions"


def test_the_secret_of_one_node_does_not_open_the_door_for_another(scene: GateScene) -> None:
    theirs = scene.identity.secret_of("n2")
    with pytest.raises(NodeRefused, match="the secret of node 'n1' is wrong"):
        scene.join("n1", secret=theirs)


def test_an_agent_says_its_secret_to_no_other_controller(scene: GateScene, tmp_path: Path) -> None:
    other = ControllerIdentity.of(tmp_path / "other")
    heard: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def listen() -> None:
        link, _ = listener.accept()
        with other.tls().wrap_socket(link, server_side=True) as secured:
            heard.append(secured.recv(100))

    thread = threading.Thread(target=listen)
    thread.start()
    host, port = listener.getsockname()
    word = JoinWord(host, port, scene.identity.fingerprint, "n1", scene.identity.secret_of("n1"))
    word.write(tmp_path / "w")
    with pytest.raises(UnknownController):
        Joiner(tmp_path / "w", "a", DEVICES).join()
    thread.join()
    listener.close()
    assert heard == [b""]


def test_a_node_that_is_not_expected_is_refused(scene: GateScene) -> None:
    with pytest.raises(NodeRefused, match="n3: it is no node of this cluster; add it"):
        scene.join("n3")


@pytest.mark.parametrize("wire", [WIRE_VERSION - 2, WIRE_VERSION + 1])
def test_agents_of_versions_that_are_not_served_are_refused(scene: GateScene, wire: int) -> None:
    join = Join(wire, "9.9", "n1", scene.identity.secret_of("n1"), "a", DEVICES)
    answer = scene.says(ENTRANCES.encode(join))
    assert isinstance(answer, JoinRefused)
    assert f"agent 9.9 speaks wire {wire}" in answer.why and "install dovetail" in answer.mend


def test_agents_of_the_version_before_are_served(scene: GateScene) -> None:
    join = Join(WIRE_VERSION - 1, "0", "n1", scene.identity.secret_of("n1"), "a", DEVICES)
    assert isinstance(scene.says(ENTRANCES.encode(join)), Welcome)


def test_a_second_agent_under_a_living_name_is_refused(scene: GateScene) -> None:
    first = scene.join("n1")
    with pytest.raises(NodeRefused, match="n1: an agent of this name is connected"):
        scene.join("n1", incarnation="b")
    scene.gate.send(0, AgentOrder(1, hail=InventoryRequest(1)))
    assert LineConnection(first.link).read_line(PATIENCE_S), "the first one is served on"


def test_the_same_agent_may_come_again_at_once(scene: GateScene) -> None:
    first = scene.join("n1")
    assert scene.join("n1").number == 0
    assert LineConnection(first.link).read_line(PATIENCE_S) is None, "its old connection is over"
    with pytest.raises(queue.Empty):
        scene.come.get(timeout=0.1)


def test_a_silent_agent_gives_way_to_another_one(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    scene = GateScene(tmp_path)
    scene.gate._alive_s = 0.0
    scene.join("n1")
    assert scene.join("n1", incarnation="b").number == 0
    scene.close()


def test_a_lost_connection_is_reported(scene: GateScene) -> None:
    scene.join("n1").link.close()
    assert scene.come.get(timeout=PATIENCE_S) == NodeLost(0)
    assert scene.gate.joined() == {}


@pytest.mark.parametrize(
    "report",
    [
        AgentReport(0, alive=Heartbeat(0)),
        AgentReport(1, alive=Heartbeat(0)),
        AgentReport(1, inventory=Inventory(0, "a", ("x",), ())),
    ],
)
def test_a_node_that_reports_on_another_is_disconnected(
    scene: GateScene, report: AgentReport
) -> None:
    scene.join("n2")
    lines = LineConnection(scene.join("n1").link)
    lines.send(REPORTS.encode(report))
    assert lines.read_line(PATIENCE_S) is None
    assert scene.come.get(timeout=PATIENCE_S) == NodeLost(1), "and nothing of it was passed on"


def test_other_devices_are_news(scene: GateScene) -> None:
    news: list[bool] = []
    scene.registry.on_change = lambda: news.append(True)
    scene.join("n1").link.close()
    scene.come.get(timeout=PATIENCE_S)
    scene.registry.take()
    scene.join("n1", devices=replace(DEVICES, names=("slot-0",)))
    assert news == [True, True] and scene.registry.has_changed
    assert scene.registry.take().installed == (1,)


def test_other_devices_again_must_wait_as_each_change_starts_the_controller_anew(
    scene: GateScene,
) -> None:
    scene.join("n1").link.close()
    scene.join("n1", "b", replace(DEVICES, names=("slot-0",))).link.close()
    scene.gate._alive_s = 0.0
    with pytest.raises(NodeRefused, match="n1: it said other devices a moment ago"):
        scene.join("n1", "c")
    scene.registry._clock = lambda: 1e12
    scene.join("n1", "d")
    assert scene.registry.take().installed == (2,)


def test_a_full_disk_refuses_a_node_and_the_gate_lives(scene: GateScene) -> None:
    scene.registry._path = scene.folder / "no" / "such" / "folder" / "registry.json"
    with pytest.raises(NodeRefused, match="n1: it cannot be stored: No such file"):
        scene.join("n1")
    scene.registry._path = scene.folder / "registry.json"
    assert scene.join("n1").number == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"names": ()},
        {"names": ("a",) * 2},
        {"names": tuple(map(str, range(1025)))},
        {"names": ("a\nb",)},
        {"names": ("",)},
        {"gpu_type": "h" * 101},
        {"gpu_type": "\ud800"},
        {"gpu_memory_bytes": float("inf")},
        {"gpu_memory_bytes": -1.0},
        {"cpus": -1.0},
        {"memory_bytes": float("-inf")},
    ],
)
def test_devices_that_cannot_be_are_refused(scene: GateScene, wrong: dict[str, object]) -> None:
    with pytest.raises(NodeRefused, match="n1: "):
        scene.join("n1", devices=replace(DEVICES, **wrong))  # type: ignore[arg-type]
    assert not scene.registry.has_any


def test_nodes_that_differ_are_groups_of_their_own(scene: GateScene) -> None:
    big = NodeDevices(("a", "b", "c"), "h100", 80e9, 8.0, 1e12)
    scene.join("n1")
    scene.join("n2", devices=big)
    cluster = scene.registry.take()
    assert cluster.installed == (2, 3)
    assert [g.gpu_type for g in cluster.groups] == ["cpu", "h100"]


def test_clients_enter_with_a_secret_of_their_own(scene: GateScene) -> None:
    served: list[socket.socket] = []
    word = JoinWord.read(scene.word(CLIENT))
    with pytest.raises(NodeRefused, match="starting"):
        enter(word)
    scene.gate.serve_clients(served.append)
    link = enter(word)
    until(lambda: served, lambda: "no client came")
    served[0].settimeout(PATIENCE_S)
    link.sendall(b"hello\n")
    assert served[0].recv(100) == b"hello\n"
    served[0].close()
    link.close()
    with pytest.raises(NodeRefused, match="secret of a client"):
        enter(replace(word, secret=scene.identity.secret_of("n1")))


def test_a_dismissal_reaches_those_who_are_there_and_those_who_come(scene: GateScene) -> None:
    first = LineConnection(scene.join("n1").link)
    scene.gate.dismiss(3.0)
    assert TO_AGENTS.decode(first.read_line(PATIENCE_S) or b"") == Dismiss(3.0)
    late = LineConnection(scene.join("n2").link)
    assert TO_AGENTS.decode(late.read_line(PATIENCE_S) or b"") == Dismiss(3.0)


def test_plain_tcp_gets_no_answer(scene: GateScene) -> None:
    with socket.create_connection(scene.gate.address, PATIENCE_S) as plain:
        plain.sendall(ENTRANCES.encode(Join(3, "", "n1", "", "", DEVICES)))
        answer = b""
        with suppress(ConnectionError):
            answer = plain.recv(1000)
    assert b"{" not in answer, "an alert of TLS at most"


def test_older_tls_is_refused(scene: GateScene) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    plain = socket.create_connection(scene.gate.address, PATIENCE_S)
    with closing(plain), pytest.raises(ssl.SSLError, match="protocol"):
        context.wrap_socket(plain)


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"{}\n",
        b'{"m":"Join"}\n',
        b"\xff\xfe\n",
        b"[" * 60_000 + b"\n",
        b'{"m":"Enter","version":"","secret":"\\ud800"}\n',
        REPORTS.encode(AgentReport(0, alive=Heartbeat(0))),
    ],
)
def test_a_first_line_that_is_none_is_refused(scene: GateScene, line: bytes) -> None:
    assert isinstance(scene.says(line), JoinRefused)


def test_a_first_line_without_end_ends_the_connection(scene: GateScene) -> None:
    lines, sent = scene.raw(), 0
    with suppress(OSError):
        while sent < 1000:
            lines.send(b"x" * 10_000)
            sent += 1
    assert sent < 1000


def test_strangers_do_not_keep_the_door_shut(
    scene: GateScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate_module, "STRANGERS_MAX", 3)
    plain = [socket.create_connection(scene.gate.address, PATIENCE_S) for _ in range(10)]
    assert scene.join("n1").number == 0
    ended = 0
    for link in plain:
        link.settimeout(0.0)
        try:
            ended += link.recv(1) == b""
        except BlockingIOError:
            pass
        except OSError:
            ended += 1
        link.close()
    assert ended >= 7


def test_a_stranger_that_says_nothing_is_ended(
    scene: GateScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate_module, "STRANGER_S", 0.0)
    with socket.create_connection(scene.gate.address, PATIENCE_S) as plain:
        end = b""
        with suppress(ConnectionError):
            end = plain.recv(1000)
    assert b"{" not in end, "ended, with an alert of TLS at most"

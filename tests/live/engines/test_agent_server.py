"""Whom the process of the agents obeys and tells: the newest controller, and no other user."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from dovetail.live.engines.agent_server import AgentServer
from dovetail.live.engines.controller_links import LocalLinks
from dovetail.live.node.transport import TO_AGENTS, Addressed, EventLoop
from dovetail.wire.agent import (
    REPORTS,
    AgentOrder,
    AgentReport,
    Heartbeat,
    InventoryRequest,
    WorkerReport,
)
from dovetail.wire.worker import Saved, Training


class Scene:
    """A server of one node that answers nothing by itself, and the controllers that call."""

    def __init__(self, path: Path, *, gathers: bool = False) -> None:
        self.path = path
        self.loop = EventLoop()
        self.carried_out: list[int] = []
        self.says: list[AgentReport] = []
        self.logged: list[str] = []
        self.links = LocalLinks(self.loop, path, self.logged.append)
        self.server = AgentServer(
            self.loop,
            self.links,
            self,
            (0,),
            lambda: 0.0,
            gathers=gathers,
            log=self.logged.append,
        )

    def handle(self, node: int, order: AgentOrder, now: float) -> list[AgentReport]:
        self.carried_out.append(order.epoch)
        return self.says

    def tick(self, now: float) -> list[AgentReport]:
        return []

    def next_due(self) -> float:
        return 0.0

    def heartbeats(self, now: float) -> list[AgentReport]:
        return [AgentReport(0, alive=Heartbeat(0))]

    def end_all(self, grace_s: float, now: float) -> list[AgentReport]:
        return []

    def close(self) -> None:
        pass

    @property
    def alive(self) -> Sequence[tuple[int, int, int]]:
        return ()

    def call(self) -> socket.socket:
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        link.connect(str(self.path))
        link.setblocking(False)
        self.turn()
        return link

    def say(self, link: socket.socket, epoch: int) -> None:
        link.sendall(
            TO_AGENTS.encode(Addressed(0, AgentOrder(epoch, hail=InventoryRequest(epoch))))
        )
        self.turn()

    def turn(self) -> None:
        for _ in range(3):
            self.loop.wait(0.0)


REPORT = AgentReport(0, alive=Heartbeat(0))


def told(link: socket.socket) -> list[AgentReport]:
    try:
        return [REPORTS.decode(line) for line in link.recv(10_000).splitlines()]
    except BlockingIOError:
        return []


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path / "s")
    yield scene
    scene.server.close()
    scene.loop.close()


def test_reports_go_to_the_newest_controller_alone_whoever_speaks_last(scene: Scene) -> None:
    with scene.call() as old, scene.call() as new, scene.call() as silent:
        scene.say(old, 1)
        scene.server.publish([REPORT])
        assert [told(link) for link in (old, new, silent)] == [[REPORT], [], []]
        scene.say(new, 2)
        scene.say(old, 1)
        scene.server.publish([REPORT])
        assert [told(link) for link in (old, new, silent)] == [[], [REPORT], []]


def test_an_older_controller_is_told_nothing_when_the_newest_is_gone(scene: Scene) -> None:
    with scene.call() as old:
        with scene.call() as new:
            scene.say(old, 1)
            scene.say(new, 2)
        scene.turn()
        scene.server.publish([REPORT])
        assert told(old) == []


def test_another_user_is_not_even_listened_to(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dovetail.live.system.unix_socket.peer_uid", lambda link: -1)
    with scene.call() as link:
        assert link.recv(1) == b""
    assert scene.carried_out == []


def test_nonsense_and_nodes_that_do_not_exist_reach_no_agent(scene: Scene) -> None:
    with scene.call() as link:
        for node in (-1, 1):
            link.sendall(TO_AGENTS.encode(Addressed(node, AgentOrder(1, hail=InventoryRequest(1)))))
        scene.turn()
        assert scene.carried_out == []
        link.sendall(b"{}\n")
        scene.turn()
        assert link.recv(1) == b""


def test_a_server_whose_folder_is_anothers_by_now_leaves_its_socket_alone(scene: Scene) -> None:
    scene.path.unlink()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as another:
        another.bind(str(scene.path))
        another.listen()
        scene.server.serve()  # It ends: its own folder is gone.
        scene.server.close()
        assert scene.path.exists()


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.ESTALE, errno.ELOOP])
def test_workers_end_only_when_the_socket_is_surely_gone(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """A disk or a permission that fails for a moment is no answer, and is asked again."""

    def fails(path: Path, **_: object) -> os.stat_result:
        raise OSError(number, os.strerror(number))

    def looks() -> bool:
        scene.links._look_s = 0.0
        return scene.links.turn()

    with monkeypatch.context() as patch:
        patch.setattr(Path, "stat", fails)
        assert [looks() for _ in range(3)] == [True] * 3
    assert len(scene.logged) == 1 and os.strerror(number) in scene.logged[0], (
        "said once, not every second"
    )
    assert looks()
    scene.path.rename(scene.path.with_name("moved"))
    assert not looks(), "it is gone"
    scene.path.touch()
    assert not looks(), "another has its name"


def test_orders_of_a_controller_that_was_killed_are_all_carried_out(scene: Scene) -> None:
    scene.says = [REPORT]
    with scene.call() as link:
        for _ in range(3):
            link.sendall(TO_AGENTS.encode(Addressed(0, AgentOrder(1, hail=InventoryRequest(1)))))
    scene.turn()
    assert scene.carried_out == [1, 1, 1]


def test_progress_waits_for_the_next_heartbeat_and_nothing_overtakes_it(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "s", gathers=True)
    with scene.call() as link:
        scene.say(link, 1)
        steps = [WorkerReport(7, 0, training=Training(1, step, step, 1.0, 0.1)) for step in (1, 2)]
        scene.server.publish([AgentReport(0, said=step) for step in steps])
        assert told(link) == []
        scene.server.publish([REPORT])
        assert told(link) == [AgentReport(0, alive=Heartbeat(0), progress=tuple(steps))]
        saved = AgentReport(0, said=WorkerReport(7, 0, saved=Saved(3, 3)))
        scene.server.publish([AgentReport(0, said=steps[0]), saved, REPORT])
        assert told(link) == [AgentReport(0, progress=(steps[0],)), saved, REPORT]
        scene.server.publish([AgentReport(0, said=steps[0])])
    scene.turn()
    with scene.call() as link:
        scene.say(link, 1)
        # What was gathered for a controller that is gone is old: the inventory has newer progress.
        scene.server.publish([REPORT])
        assert told(link) == [REPORT]
    scene.server.close()
    scene.loop.close()

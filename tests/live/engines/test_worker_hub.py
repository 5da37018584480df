"""Where workers reach their agent: who is let in, who replaces whom, and who is dropped."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail.live.engines.worker_hub import HELLO_WITHIN_S, LINES_PER_S, STRANGERS_MAX, WorkerHub
from dovetail.live.node.transport import EventLoop
from dovetail.wire.worker import FROM_WORKER, TO_WORKER, Checkpoint, FromWorker, Hello, Ready
from patience import PATIENCE_S

SECRET = "its secret"


class Scene:
    """A hub, and what the agent behind it is told. Its one worker is 1/0."""

    def __init__(self, path: Path) -> None:
        self.now = 0.0
        self.path = path
        self.heard: list[FromWorker] = []
        self.hung_up_: list[tuple[int, int]] = []
        self.loop = EventLoop()
        self.hub = WorkerHub(
            self.loop, path, lambda: self.now, lambda job, worker, said: self.heard.append(said)
        )
        self.hub.attach(self)

    def admits(self, job: int, worker: int, token: str) -> bool:
        return (job, worker, token) == (1, 0, SECRET)

    def disconnected(self, job: int, worker: int) -> None:
        self.hung_up_.append((job, worker))

    def call(self, *said: FromWorker) -> socket.socket:
        """Calls as a worker does, and lets the hub hear it."""
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        link.settimeout(PATIENCE_S)
        link.connect(str(self.path))
        link.sendall(b"".join(FROM_WORKER.encode(m) for m in said))
        self.turn()
        return link

    def turn(self) -> None:
        for _ in range(3):
            self.loop.wait(0.0)
        self.hub.tick()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path / "s")
    yield scene
    scene.hub.close()
    scene.loop.close()


def is_open(link: socket.socket) -> bool:
    link.settimeout(0.0)
    try:
        return link.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


def hello(token: str = SECRET) -> Hello:
    return Hello("1/0", token, 1)


def test_another_user_is_not_even_listened_to(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dovetail.live.system.unix_socket.peer_uid", lambda link: -1)
    with scene.call() as link:
        assert not is_open(link)
    assert scene.heard == []


def test_who_says_anything_before_its_name_is_dropped(scene: Scene) -> None:
    with scene.call(Ready(1), hello()) as link:
        assert not is_open(link)
    assert scene.heard == []


def test_a_worker_has_one_line_and_it_is_the_newest(scene: Scene) -> None:
    with scene.call(hello()) as first, scene.call(hello()) as second:
        assert not is_open(first)
        assert scene.hung_up_ == [(1, 0)] and scene.heard == [hello(), hello()]
        scene.hub.send(1, 0, Checkpoint())
        second.settimeout(PATIENCE_S)
        assert TO_WORKER.decode(second.recv(1000)) == Checkpoint()
        scene.turn()
        assert scene.hung_up_ == [(1, 0)], "it listens"


def test_a_name_is_said_once(scene: Scene) -> None:
    with scene.call(hello(), hello("another"), Ready(2)) as link:
        assert is_open(link)
    assert scene.heard == [hello(), Ready(2)]


def test_what_a_worker_said_before_it_ended_is_heard_though_nobody_had_let_it_in(
    scene: Scene,
) -> None:
    """On a busy machine it calls, speaks and ends before the agent looks at its socket again."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.connect(str(scene.path))
        said = [hello(), *[Ready(1)] * (2 * LINES_PER_S), Ready(2)]
        link.sendall(b"".join(map(FROM_WORKER.encode, said)))
    scene.hub.drain(1, 0)
    assert scene.heard == said


def test_who_does_not_say_who_it_is_in_time_is_dropped(scene: Scene) -> None:
    with scene.call() as silent, scene.call(hello()) as worker:
        assert scene.hub.next_due() == HELLO_WITHIN_S
        scene.now = HELLO_WITHIN_S + 0.1
        scene.turn()
        assert not is_open(silent) and is_open(worker)
    assert scene.hung_up_ == []


def test_of_too_many_strangers_the_oldest_goes(scene: Scene) -> None:
    links = [scene.call() for _ in range(STRANGERS_MAX + 1)]
    assert [is_open(link) for link in links] == [False] + [True] * STRANGERS_MAX
    with scene.call(hello()) as worker:
        assert is_open(worker)
    for link in links:
        link.close()


def test_a_hub_that_is_slow_to_end_leaves_the_socket_of_its_successor_alone(scene: Scene) -> None:
    """Its folder was removed and made anew, and another agent was faster than its end."""
    scene.path.unlink()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as another:
        another.bind(str(scene.path))
        another.listen()
        scene.hub.close()
        assert scene.path.exists()

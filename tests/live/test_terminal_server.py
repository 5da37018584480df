"""The controller's part in interactive jobs: whom it serves, and what it does when they go."""

from __future__ import annotations

import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cluster_by_hand import ByHand, spec
from dovetail.live.jobs.lifecycle import State
from dovetail.live.jobs.record import GangMember
from dovetail.live.server.messages.changes import Submit, SubmitReply
from dovetail.live.terminals.terminal_server import CROWDED, LEFT, TerminalJobs, TerminalServer
from dovetail.wire.connection import Stream
from dovetail.wire.submission import Submission
from dovetail.wire.terminal import FROM_KEEPER, REFUSED, FrameBuffer, window
from patience import PATIENCE_S, until


class Scene:
    """A controller with one interactive job, and the agent that it asks for terminals."""

    def __init__(self, folder: Path) -> None:
        self.hand = ByHand(folder)
        job = replace(spec(), terminal="pty", requeue=False, preemptible=False, retries=0)
        reply = self.hand.ask(Submit("k", (Submission(job),)))
        assert isinstance(reply, SubmitReply)
        (self.job,) = reply.jobs
        self.cancelled: list[tuple[int, str]] = []
        self.asked: list[tuple[int, int, int]] = []
        self.keepers: list[socket.socket] = []
        jobs = TerminalJobs(self.hand.folder.store, lambda *what: self.cancelled.append(what))
        self.server = TerminalServer(jobs, self.open, most=3, each_user=2)
        self.threads: list[threading.Thread] = []
        self.clients: list[socket.socket] = []

    def open(self, node: int, job: int, worker: int) -> Stream:
        self.asked.append((node, job, worker))
        if len(self.asked) == 1:
            raise TimeoutError("its agent is away")
        ours, theirs = socket.socketpair()
        self.keepers.append(ours)
        return theirs

    def starts(self) -> None:
        """The job begins to run on node 0."""
        self.hand.record(self.job, state=State.RUNNING, members=(GangMember(4, 0, 1),))

    def come(self, user: str = "ann") -> socket.socket:
        """A client comes."""
        ours, theirs = socket.socketpair()

        def serve() -> None:
            with theirs:
                self.server.serve(theirs, self.job, user)

        self.threads.append(threading.Thread(target=serve))
        self.threads[-1].start()
        ours.settimeout(PATIENCE_S)
        self.clients.append(ours)
        return ours

    def close(self) -> None:
        self.server.close()
        for each in (*self.clients, *self.keepers):
            each.close()
        for thread in self.threads:
            thread.join(PATIENCE_S)
        self.hand.close()


@pytest.fixture
def scene() -> Iterator[Scene]:
    folder = Path(tempfile.mkdtemp(prefix="dv-", dir="/tmp"))
    made = Scene(folder)
    yield made
    made.close()
    shutil.rmtree(folder)


def test_a_client_waits_for_its_job_and_for_the_agent(scene: Scene) -> None:
    client = scene.come()
    client.sendall(window(1, 2))
    scene.starts()
    until(lambda: scene.keepers)
    (keeper,) = scene.keepers
    keeper.settimeout(PATIENCE_S)
    assert keeper.recv(99) == window(1, 2)
    keeper.sendall(b"bytes")
    assert client.recv(99) == b"bytes"
    assert scene.asked == [(0, scene.job, 4)] * 2


def test_a_job_is_cancelled_when_its_client_goes_and_not_when_its_agent_does(scene: Scene) -> None:
    scene.starts()
    client = scene.come()
    until(lambda: scene.keepers)
    scene.keepers[0].close()
    assert client.recv(99) == b"", "it comes back on another connection"
    again = scene.come()
    until(lambda: len(scene.keepers) == 2)
    assert scene.cancelled == []
    again.close()
    until(lambda: scene.cancelled)
    assert scene.cancelled == [(scene.job, LEFT)]


def test_a_job_that_waits_is_cancelled_with_its_client(scene: Scene) -> None:
    scene.come().close()
    until(lambda: scene.cancelled == [(scene.job, LEFT)])
    assert scene.asked == []


def test_a_controller_that_ends_cancels_nothing(scene: Scene) -> None:
    scene.starts()
    client = scene.come()
    until(lambda: scene.keepers)
    scene.server.close()
    assert client.recv(99) == b""
    scene.threads[0].join(PATIENCE_S)
    assert scene.cancelled == []
    assert scene.come().recv(99), "and takes nobody any more"


def test_clients_are_bounded_for_each_user_and_for_all(scene: Scene) -> None:
    def is_refused(user: str) -> bool:
        client = scene.come(user)
        client.settimeout(0.2)
        frames = FrameBuffer(FROM_KEEPER)
        try:
            frames.add(client.recv(999))
        except TimeoutError:
            return False
        found = frames.take()
        assert found is not None and (found.kind, found.content) == (REFUSED, CROWDED.encode())
        return True

    assert [is_refused(user) for user in ("ann", "ann", "ann")] == [False, False, True]
    assert [is_refused(user) for user in ("bob", "eve")] == [False, True]


def test_who_says_too_much_before_the_job_runs_is_not_kept(scene: Scene) -> None:
    client = scene.come()
    client.sendall(bytes(10_000))
    scene.threads[0].join(PATIENCE_S)
    assert not scene.threads[0].is_alive()
    assert scene.cancelled == []

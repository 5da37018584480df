"""The line to the agent: training never waits for it, and what matters is said in the end."""

import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("torch")

from dovetail.train.measure.stages import StageTimer
from dovetail.train.membership.agent_connection import WAITING_MAX, AgentConnection
from dovetail.train.membership.mailbox import Mailbox
from dovetail.train.process.environment import WorkerEnvironment
from dovetail.wire.generation import CheckpointDone, ShowLife
from dovetail.wire.worker import (
    FROM_WORKER,
    TO_WORKER,
    Abandon,
    Checkpoint,
    Entered,
    FromWorker,
    Hello,
    Lost,
    Meet,
    Regroup,
    Saved,
    Training,
)
from patience import PATIENCE_S

EACH = 1500


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="dvl") as folder:
        yield Path(folder) / "agent"


def listen(place: Path) -> socket.socket:
    ear = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    ear.bind(str(place))
    ear.listen()
    ear.settimeout(PATIENCE_S)
    return ear


def hear(peer: socket.socket, count: int) -> list[FromWorker]:
    peer.settimeout(PATIENCE_S)
    with peer.makefile("rb") as lines:
        return [FROM_WORKER.decode(lines.readline()) for _ in range(count)]


def line_to(place: Path, desk: Mailbox, generation: int = 4) -> AgentConnection:
    line = AgentConnection(WorkerEnvironment(str(place), "1/7", "secret"), desk)
    line.open(generation=lambda: generation, first_messages=lambda: [Entered(generation, 1, 2)])
    return line


def test_what_is_said_while_nobody_listens_is_said_later(place: Path) -> None:
    line = line_to(place, Mailbox())
    for step in range(2000):
        line.send(Training(4, step, step, 1.0, 1.0))
    line.send(Saved(3, 30))
    with listen(place) as ear, ear.accept()[0] as peer:
        hello, entered, *rest = hear(peer, 4)
        assert (hello.worker, hello.token, hello.generation) == ("1/7", "secret", 4)
        assert isinstance(hello, Hello) and entered == Entered(4, 1, 2)
        assert [m for m in rest if isinstance(m, Training)] == [Training(4, 1999, 1999, 1.0, 1.0)]
        assert Saved(3, 30) in rest
        line.close(PATIENCE_S)


def test_an_agent_that_neither_reads_nor_goes_does_not_hold_training_up(place: Path) -> None:
    with listen(place) as ear:
        line = line_to(place, Mailbox())
        peer, _ = ear.accept()
        trains = threading.Thread(
            target=lambda: [line.send(Entered(n, n, n)) for n in range(20_000)]
        )
        trains.daemon = True
        trains.start()
        trains.join(PATIENCE_S)
        assert not trains.is_alive()
        peer.close()
        line.close(PATIENCE_S)


def test_what_several_threads_say_while_the_line_speaks_is_all_said(place: Path) -> None:
    def says(first: int) -> None:
        for number in range(first, first + EACH):
            line.send(Saved(number, number))
            line.send(Training(4, number, number, 1.0, 1.0))
            while len(line._waiting) > WAITING_MAX // 2:  # none of the oldest is to go
                time.sleep(0.001)

    with listen(place) as ear:
        line = line_to(place, Mailbox())
        with ear.accept()[0] as peer, ThreadPoolExecutor() as threads, switching_often():
            saying = [threads.submit(says, first) for first in (0, EACH)]
            saved = set[int]()
            with peer.makefile("rb") as said:
                peer.settimeout(PATIENCE_S)
                while len(saved) < 2 * EACH:
                    message = FROM_WORKER.decode(said.readline())
                    if isinstance(message, Saved):
                        saved.add(message.step)
            for each in saying:
                each.result()
            line.close(PATIENCE_S)


@contextmanager
def switching_often() -> Iterator[None]:
    """Lets threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def test_a_time_too_short_for_a_clock_is_none() -> None:
    """A report with it would be refused, and the worker would fail."""
    watch = StageTimer(loaders=2)
    watch.read(storage_s=6e-10, cpu_s=4e-10)
    watch.end()
    assert Training(1, 1, 1, 1.0, 1.0, stage_s=watch.stage_s).stage_s[:2] == (0.0, 0.0)


def test_a_broken_line_is_called_again_and_nonsense_breaks_it(place: Path) -> None:
    desk = Mailbox()
    with listen(place) as ear:
        line = line_to(place, desk)
        with ear.accept()[0] as peer:
            hear(peer, 2)  # it has no more to say: a line that breaks as it speaks hears nothing
            peer.sendall(TO_WORKER.encode(Regroup(5, (7,)))[:10])
            peer.sendall(TO_WORKER.encode(Regroup(5, (7,)))[10:] + b'{"m":"Format disk"}\n')
        with ear.accept()[0] as peer:
            assert isinstance(hear(peer, 1)[0], Hello)
            assert desk.generations.ordered == Regroup(5, (7,))
            line.close(PATIENCE_S)


def test_older_and_repeated_orders_do_no_harm() -> None:
    desk, heard, probed, stopped = Mailbox(1), list[Regroup](), list[ShowLife](), list[int]()
    desk.listen(prepare=heard.append, stop=stopped.append, show_life=probed.append)
    for message in (Regroup(3, (1,)), Regroup(2, (2,)), Regroup(3, (1,)), Meet(3, "here")):
        desk.receive(message)
    assert heard == [Regroup(3, (1,))]
    assert desk.generations.address_of(3) == "here"
    assert not desk.generations.is_overtaken(3) and desk.generations.is_overtaken(2)
    desk.receive(Abandon(3))
    desk.receive(Abandon(3))
    assert desk.generations.is_overtaken(3) and desk.generations.is_abandoned(3)
    assert probed == 2 * [ShowLife(Lost(3, "abandoned"))]
    assert not stopped


def test_an_order_to_leave_outlives_a_checkpoint_that_was_on_its_way() -> None:
    desk = Mailbox()
    desk.receive(Checkpoint(leave=True))
    desk.handle(CheckpointDone(leaves=False))
    assert desk.generations.leave
    desk.handle(CheckpointDone(leaves=True))
    assert not desk.generations.leave


def test_who_is_wanted_in_a_newer_generation_does_not_leave_by_an_older_order() -> None:
    """Another controller took it on: all would leave with it, and the job would count as done."""
    desk = Mailbox()
    desk.receive(Regroup(3, (1,)))
    desk.receive(Checkpoint(leave=True))
    desk.receive(Regroup(3, (1,)))
    assert desk.generations.leave
    desk.receive(Regroup(4, (1, 2)))
    assert not desk.generations.leave

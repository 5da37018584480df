"""The keeper of an interactive worker: what its client may do, and what no stranger can."""

from __future__ import annotations

import shutil
import signal
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from dovetail.live.engines.keeper_terminal import NOBODY_CAME
from dovetail.live.engines.processes import ProcessLauncher
from dovetail.live.node.launcher import WorkerExit
from dovetail.wire.agent import StartWorker
from dovetail.wire.terminal import (
    ACCEPTED,
    ATTACHED,
    DONE,
    ERROR_OUTPUT,
    EXIT,
    FROM_CLIENT,
    FROM_KEEPER,
    INPUT,
    INPUT_BYTES_MAX,
    INPUT_END,
    OUTPUT,
    PIPES,
    PTY,
    REFUSED,
    SIGNAL,
    TAKEN,
    WINDOW,
    Attach,
    FrameBuffer,
    FrameError,
    a_signal,
    attach,
    count,
    count_of,
    exit_of,
    frame,
    frames,
    window,
)
from keeper_line import Line, line_of
from patience import FOR_EVER_S, until

KEY, OTHER = b"k" * 16, b"o" * 16
SLEEP = ("sleep", FOR_EVER_S)


class Worker:
    """A worker with a terminal, and its launcher."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.launcher = ProcessLauncher(folder / "workers")
        self.lines: list[Line] = []

    def start(self, *command: str, terminal: str = PIPES) -> None:
        launch = (command, str(self.folder / "job"), str(self.folder / "out"), str(self.folder))
        order = StartWorker(7, 0, 1, 0, *launch, terminal=terminal, grace_s=0.5)
        self.launcher.start(order, "t", 0.0)

    def line(self) -> Line:
        place = self.launcher.terminal(7, 0)
        assert place is not None
        self.lines.append(line_of(place))
        return self.lines[-1]

    def end(self) -> WorkerExit:
        ends: list[WorkerExit] = []
        until(lambda: ends.extend(self.launcher.poll()) or ends)
        return ends[0]


@pytest.fixture
def worker() -> Iterator[Worker]:
    folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="dt"))
    made = Worker(folder)
    yield made
    for line in made.lines:
        line.link.close()
    made.launcher.signal(7, 0, signal.SIGKILL)
    until(lambda: (made.launcher.poll(), not made.launcher.alive)[1])
    made.launcher.close()
    shutil.rmtree(folder)


def test_frames_come_out_as_they_went_in_and_others_are_refused() -> None:
    data = bytes(range(256)) * 200
    buffer = FrameBuffer(FROM_CLIENT)
    for byte in frames(INPUT, data) + window(3, 70_000) + a_signal(2) + frame(INPUT_END):
        buffer.add(bytes([byte]))
    found = []
    while (one := buffer.take()) is not None:
        found.append(one)
    assert b"".join(f.content for f in found if f.kind == INPUT) == data
    assert [f.kind for f in found[-3:]] == [WINDOW, SIGNAL, INPUT_END]
    for wrong in (frame(99), frame(INPUT), frame(INPUT, b"x" * (1 << 15)), frame(EXIT, b"0000")):
        buffer = FrameBuffer(FROM_CLIENT)
        buffer.add(wrong[:5])
        with pytest.raises(FrameError):
            buffer.take()


def test_the_program_begins_when_its_client_comes_and_both_outputs_are_told_apart(
    worker: Worker,
) -> None:
    worker.start("sh", "-c", "touch began; read x; echo $x; echo bad >&2; exit 4")
    line = worker.line()
    assert not (worker.folder / "began").exists()
    line.say(attach(Attach(KEY, 0)))
    assert count_of(line.until(ATTACHED).content) == 0
    line.say(frame(INPUT, b"word\n"), frame(INPUT_END))
    assert line.until(OUTPUT).content == b"word\n"
    assert line.until(ERROR_OUTPUT).content == b"bad\n"
    assert exit_of(line.until(EXIT).content) == 4
    line.say(frame(DONE))
    assert line.is_dropped()
    assert worker.end() == WorkerExit(7, 0, 4)
    assert not (worker.folder / "out").exists(), "its output is on no disk"


def test_a_client_that_comes_back_goes_on_where_it_was(worker: Worker) -> None:
    worker.start("sh", "-c", "echo one; cat")
    line = worker.line().say(attach(Attach(KEY, 0)))
    assert line.output(4) == b"one\n"
    line.say(frame(INPUT, b"two\n"))
    assert line.output(4) == b"two\n"
    line.link.close()
    # It has taken five of eight bytes, and does not know how much of its input has come.
    again = worker.line().say(attach(Attach(KEY, 5)))
    assert count_of(again.until(ATTACHED).content) == 4
    assert again.output(3) == b"wo\n"
    again.say(frame(INPUT, b"three\n"))
    assert again.output(6) == b"three\n"
    # A third one, while the second is there: its way may be cut without a word.
    third = worker.line().say(attach(Attach(KEY, 8)))
    assert third.output(6) == b"three\n"
    assert again.is_dropped()
    third.say(frame(INPUT_END))
    assert exit_of(third.until(EXIT).content) == 0
    third.say(frame(DONE))
    assert worker.end() == WorkerExit(7, 0, 0)


def test_a_warning_of_the_agent_reaches_the_client(worker: Worker) -> None:
    worker.start(*SLEEP)
    line = worker.line().say(attach(Attach(KEY, 0)))
    line.until(ATTACHED)
    worker.launcher.warn(7, 0, "this job does not use its GPUs")
    assert b"[dovetail: this job does not use its GPUs]" in line.until(ERROR_OUTPUT).content


def test_another_client_is_refused_and_the_first_one_served_on(worker: Worker) -> None:
    worker.start("cat")
    line = worker.line().say(attach(Attach(KEY, 0)))
    line.until(ATTACHED)
    other = worker.line().say(attach(Attach(OTHER, 0)))
    assert other.until(REFUSED).content == b"another client has the terminal of this job"
    assert other.is_dropped()
    line.say(frame(INPUT, b"on\n"))
    assert line.output(3) == b"on\n"


@pytest.mark.parametrize(
    "said",
    [
        [frame(INPUT, b"x")],
        [window(1, 1)],
        [attach(Attach(KEY, 1))],
        [attach(Attach(KEY, 0)), attach(Attach(KEY, 0))],
        [attach(Attach(KEY, 0)), count(TAKEN, 1 << 63)],
        [attach(Attach(KEY, 0)), frames(INPUT, bytes(4 * INPUT_BYTES_MAX))],
        [attach(Attach(KEY, 0)), frame(INPUT_END), frame(INPUT, b"x")],
        [attach(Attach(KEY, 0)), frame(ACCEPTED, bytes(8))],
        [struct.pack("!BI", INPUT, 0xFFFFFFFF)],
        [b"GET / HTTP/1.1\r\n\r\n"],
    ],
)
def test_who_does_not_keep_to_the_frames_is_dropped(worker: Worker, said: list[bytes]) -> None:
    worker.start(*SLEEP)
    assert worker.line().say(*said).is_dropped()
    line = worker.line().say(attach(Attach(KEY, 0)))
    assert line.until(ATTACHED), "and its client is served"


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_no_bytes_end_a_keeper(worker: Worker, seed: int) -> None:
    """Kinds and lengths that exist, and others, from a client that has attached or has not."""
    rng = Random(seed)
    deaf = f"trap '' INT TERM HUP QUIT USR1 USR2; exec sleep {FOR_EVER_S}"
    worker.start("sh", "-c", deaf, terminal=PTY)
    worker.line().say(attach(Attach(KEY, 0))).until(ATTACHED)
    for _ in range(150):
        line = worker.line()
        if rng.random() < 0.7:
            line.say(attach(Attach(KEY, 0, rng.randrange(1 << 17), rng.randrange(99))))
        for _ in range(rng.randrange(6)):
            kind = rng.choice([*FROM_CLIENT, *FROM_KEEPER, rng.randrange(256)])
            least, most = FROM_CLIENT.get(kind, (0, 64))
            size = rng.choice((least, most, rng.randrange(64)))
            line.say(frame(kind, rng.randbytes(min(size, 4096))))
        if rng.random() < 0.3:
            line.say(rng.randbytes(rng.randrange(40)))
        line.link.close()
    assert worker.line().say(attach(Attach(KEY, 0))).until(ATTACHED, REFUSED).kind == ATTACHED
    assert worker.launcher.alive == 1


def test_a_process_whose_client_does_not_come_back_is_hung_up(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    _with_return_s(worker, monkeypatch, 0.2)
    worker.start("sh", "-c", "trap '' HUP; sleep 3600", terminal=PTY)
    line = worker.line().say(attach(Attach(KEY, 0)))
    line.until(ATTACHED)
    line.link.close()
    end = worker.end()
    assert end.exit_code == -signal.SIGKILL and "did not come back" in end.why


def test_a_program_whose_client_never_comes_is_not_executed(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    _with_return_s(worker, monkeypatch, 0.2)
    worker.start("touch", "began")
    assert worker.end() == WorkerExit(7, 0, -signal.SIGHUP, NOBODY_CAME)
    assert not (worker.folder / "began").exists()


def _with_return_s(worker: Worker, monkeypatch: pytest.MonkeyPatch, length_s: float) -> None:
    """Lets keepers wait for less long: they run a copy of the source with another number."""
    from dovetail.live.engines import keeper

    source = Path(keeper.__file__).parents[3] / "dovetail"
    copy = worker.folder / "src" / "dovetail"
    (copy / "live").mkdir(parents=True)
    for part in ("__init__.py", "version.py", "wire", "live/__init__.py", "live/engines"):
        place = copy / part
        if (source / part).is_dir():
            shutil.copytree(source / part, place, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source / part, place)
    frames_file = copy / "wire" / "terminal.py"
    text = frames_file.read_text()
    assert "\nRETURN_S = 120.0\n" in text
    frames_file.write_text(text.replace("\nRETURN_S = 120.0\n", f"\nRETURN_S = {length_s}\n"))
    monkeypatch.setattr(keeper, "__file__", str(copy / "live" / "engines" / "keeper.py"))

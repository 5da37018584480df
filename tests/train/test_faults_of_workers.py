"""Workers are killed and frozen in the middle of steps; nothing is lost and nothing doubled."""

import json
import os
import signal
import socket
import time
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")

from train_scene import (
    Scene,
    assert_untouched,
    let_end,
    read,
    rehearse,
    stands_still,
    steps_of,
)

from dovetail.train.rehearsal import Rehearsal
from dovetail.wire.worker import (
    Abandon,
    Checkpoint,
    Entered,
    Hello,
    Lost,
    Saved,
    WorkerLeft,
    WorkerRefused,
)
from patience import is_there

PACED = Scene(samples=500, pace_s=0.003)


def hit(stage: Rehearsal, number: int, what: signal.Signals) -> None:
    os.kill(stage.workers[number].process.pid, what)


def test_killed_workers_leave_the_others_training(tmp_path: Path) -> None:
    """Again and again one of three dies in the middle of whatever it does; a new one joins.

    Nobody dies before one of the others has all of the state: that one may be the last that has it.
    """
    scene, log = replace(PACED, samples=1000, pace_s=0.001), tmp_path / "log"
    with rehearse(scene, log) as stage:
        stage.start(0, 1, 2)
        generation = stage.regroup(0, 1, 2)
        members = [0, 1, 2]
        for round_, fresh in enumerate(range(3, 9)):
            stage.entered(generation)
            dead = members.pop(round_ % 2)  # sometimes the first, who hosts the meeting
            stage.until(lambda g=generation: any(steps_of(log, n, g) for n in members))
            time.sleep(0.0137 * round_)
            hit(stage, dead, signal.SIGKILL)
            stage.until(lambda d=dead: stage.workers[d].process.poll() is not None)
            stage.abandon()
            stage.start(fresh)
            members.append(fresh)
            generation = stage.regroup(*members)
        stage.entered(generation)
        let_end(log)
        assert stage.ended(*members) == [0, 0, 0]
        assert [stage.workers[n].process.poll() for n in (0, 1)] == [-signal.SIGKILL] * 2
        assert any(stage.messages(n, Lost) for n in members)
    assert_untouched(scene, read(tmp_path / "log"), all_told=False)


@pytest.mark.parametrize("members", [(0, 1), (1, 0), (1,)])
def test_a_step_that_some_have_made_and_some_not_is_made_once(
    tmp_path: Path, members: tuple[int, ...]
) -> None:
    """Worker 0 is a step ahead when the generation breaks; with it or without, nothing is lost."""
    scene = replace(PACED, breaks_at=9)
    with rehearse(scene, tmp_path / "log") as stage:
        stage.start(0, 1)
        stage.entered(stage.regroup(0, 1))
        stage.until(lambda: all(stage.messages(n, Lost) for n in (0, 1)))
        entered = {e.step for e in stage.entered(stage.regroup(*members))}
        assert entered == ({10} if 0 in members else {9})
        let_end(tmp_path / "log")
        assert stage.ended(0, 1) == [0, 0]
    assert_untouched(scene, read(tmp_path / "log"), all_told=False)


def test_loader_processes_end_with_their_worker(tmp_path: Path) -> None:
    scene = replace(PACED, loaders=2)
    with rehearse(scene, tmp_path / "log") as stage:
        stage.start(0, 1)
        stage.entered(stage.regroup(0, 1))
        loaders = children(stage.workers[1].process.pid)
        assert len(loaders) == 2
        hit(stage, 1, signal.SIGKILL)
        stage.until(lambda: not any(is_there(pid) for pid in loaders))
        stage.abandon()
        stage.entered(stage.regroup(0))
        let_end(tmp_path / "log")
        assert stage.ended(0) == [0]
    assert_untouched(scene, read(tmp_path / "log"), all_told=False)


def children(pid: int) -> list[int]:
    return [int(n) for n in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_frozen_worker_is_noticed_and_left_behind(tmp_path: Path) -> None:
    with rehearse(PACED, tmp_path / "log") as stage:
        stage.start(0, 1, 2, environment={"DOVETAIL_STALL_S": "0.3"})
        generation = stage.regroup(0, 1, 2)
        stage.entered(generation)
        hit(stage, 2, signal.SIGSTOP)
        stage.until(lambda: stands_still(stage.workers[2].process.pid))
        stage.until(lambda: all(stage.messages(n, Lost) for n in (0, 1)))
        stage.tell(Abandon(generation))
        stage.entered(stage.regroup(0, 1))
        assert all(m.why != "abandoned" for m in stage.messages(2, Lost)), "it does not answer"
        hit(stage, 2, signal.SIGKILL)
        let_end(tmp_path / "log")
        assert stage.ended(0, 1) == [0, 0]
    assert_untouched(PACED, read(tmp_path / "log"), all_told=False)


def test_all_may_die_and_others_go_on_from_the_last_checkpoint(tmp_path: Path) -> None:
    scene = replace(PACED, checkpoint_s=0.05)
    with rehearse(scene, tmp_path / "log") as stage:
        stage.start(0, 1)
        stage.entered(stage.regroup(0, 1))
        stage.until(lambda: bool(list(stage.folder.glob("checkpoint-*.pt"))))
        hit(stage, 0, signal.SIGKILL)
        hit(stage, 1, signal.SIGKILL)
        stage.ended(0, 1)
        stage.start(2, 3, 4)
        (entered, *_) = stage.entered(stage.regroup(2, 3, 4))
        assert entered.step > 0
        let_end(tmp_path / "log")
        assert stage.ended(2, 3, 4) == [0, 0, 0]
    assert_untouched(scene, read(tmp_path / "log"), all_told=False)


@pytest.mark.parametrize("others_go_on", [True, False])
def test_who_is_to_leave_alone_saves_its_last_step_and_the_others_may_go_on(
    tmp_path: Path, others_go_on: bool
) -> None:
    """As where the lease of its node is over, and nobody knows whom it can still reach."""
    log, folder, later = tmp_path / "log", tmp_path / "job", tmp_path / "later"
    with rehearse(PACED, log, folder=folder) as stage:
        stage.start(0, 1)
        generation = stage.regroup(0, 1)
        stage.entered(generation)
        stage.until(lambda: len(read(log).losses) > 7)
        stage.tell(Abandon(generation), 1)
        stage.tell(Checkpoint(leave=True), 1)
        assert stage.ended(1) == [0]
        (saved,) = stage.messages(1, Saved)
        assert [m.step for m in stage.messages(1, WorkerLeft)] == [saved.step]
        assert stage.messages(0, WorkerLeft) == []
        if others_go_on:
            (entered,) = stage.entered(stage.regroup(0))
            assert abs(entered.step - saved.step) <= 1
            let_end(log)
            assert stage.ended(0) == [0]
            assert_untouched(PACED, read(log), all_told=False)
            return
    with rehearse(PACED, later, folder=folder) as stage:
        stage.start(2)
        (entered,) = stage.entered(stage.regroup(2))
        assert (entered.step, entered.samples) == (saved.step, saved.samples)
        let_end(later)
        assert stage.ended(2) == [0]


def test_the_only_worker_saves_and_leaves_though_its_generation_is_abandoned(
    tmp_path: Path,
) -> None:
    with rehearse(PACED, tmp_path / "log", folder=tmp_path / "job") as stage:
        stage.start(0)
        generation = stage.regroup(0)
        stage.entered(generation)
        stage.tell(Abandon(generation))
        stage.tell(Checkpoint(leave=True))
        assert stage.ended(0) == [0]
        assert len(stage.messages(0, Saved)) == 1


def test_a_probe_is_answered_though_nothing_broke(tmp_path: Path) -> None:
    with rehearse(PACED, tmp_path / "log") as stage:
        stage.start(0, 1)
        generation = stage.regroup(0, 1)
        stage.entered(generation)
        for answers in (1, 2):
            stage.tell(Abandon(generation))
            stage.until(lambda n=answers: all(len(stage.messages(w, Lost)) >= n for w in (0, 1)))
        stage.entered(stage.regroup(0, 1))
        let_end(tmp_path / "log")
        assert stage.ended(0, 1) == [0, 0]
    # One that was slow makes a step which the other has given up, and does not tell its samples of.
    assert_untouched(PACED, read(tmp_path / "log"), all_told=False)


def test_a_refused_worker_ends_at_once_and_saves_nothing(tmp_path: Path) -> None:
    with rehearse(PACED, tmp_path / "log") as stage:
        stage.start(0)
        stage.entered(stage.regroup(0))
        stage.tell(WorkerRefused("replaced by worker 4"), 0)
        assert stage.ended(0) == [3]
        assert list(stage.folder.glob("*")) == []


def test_a_worker_that_nobody_can_continue_from_says_so(tmp_path: Path) -> None:
    """The only one with the state dies while the other has half of it, before any checkpoint."""
    scene = replace(PACED, slice_bytes=8)  # more slices than there are steps
    with rehearse(scene, tmp_path / "log") as stage:
        stage.start(0)
        stage.entered(stage.regroup(0))
        stage.until(lambda: len(read(tmp_path / "log").losses) > 2)
        stage.start(1)
        stage.regroup(0, 1)
        stage.until(lambda: bool(stage.messages(1, Entered)))
        hit(stage, 0, signal.SIGKILL)
        stage.ended(0)
        stage.abandon()
        stage.regroup(1)
        assert stage.ended(1) == [4]


def test_the_store_of_a_meeting_listens_on_loopback_alone(tmp_path: Path) -> None:
    with rehearse(PACED, tmp_path / "log") as stage:
        stage.start(0, 1)
        stage.entered(stage.regroup(0, 1))
        pids = {str(w.process.pid) for w in stage.workers.values()}
        assert listening_beyond_loopback(pids) == []
        let_end(tmp_path / "log")
        stage.ended(0, 1)


def link(descriptor: Path) -> str:
    """Returns what a descriptor of another process is; nothing if that has closed it by now."""
    try:
        return os.readlink(descriptor)
    except FileNotFoundError:
        return ""


def listening_beyond_loopback(pids: set[str]) -> list[str]:
    """Returns addresses on which processes listen for others, from the kernel's tables."""
    links = [link(fd) for pid in pids for fd in Path(f"/proc/{pid}/fd").iterdir()]
    inodes = {it.removeprefix("socket:[").rstrip("]") for it in links if it.startswith("socket:[")}
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            listens, address = words[3] == "0A", words[1].rpartition(":")[0]
            loopback = socket.htonl(0x7F000001)
            if listens and words[9] in inodes and int(address[-8:], 16) != loopback:
                found.append(json.dumps(words[:4]))
    return found


def test_an_order_that_cannot_be_carried_out_does_not_disturb_training(tmp_path: Path) -> None:
    """One of the new members never comes: the generation is given up, the old one trains on."""
    scene = replace(PACED, samples=1000)
    with rehearse(scene, tmp_path / "log") as stage:
        stage.start(0, 1, 2)
        stage.entered(stage.regroup(0, 1))
        stage.until(lambda: bool(stage.messages(2, Hello)))
        never = stage.regroup(0, 1, 2, 7)
        before = len(read(tmp_path / "log").losses)
        stage.tell(Abandon(never))
        stage.until(lambda: all(stage.messages(n, Lost) for n in (0, 1, 2)))
        stage.until(lambda: len(read(tmp_path / "log").losses) > before + 10)
        assert all(e.generation < never for e in stage.messages(0, Entered))
        stage.entered(stage.regroup(1, 2))
        let_end(tmp_path / "log")
        assert stage.ended(0, 1, 2) == [0, 0, 0]
    assert_untouched(scene, read(tmp_path / "log"))

"""Orders that come while others are carried out: nobody goes too early, and nothing is dropped."""

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")

from train_scene import Scene, assert_untouched, let_end, read, rehearse, stands_still

from dovetail.wire.worker import Entered, Finished, Lost, WorkerLeft

LONG = Scene(samples=3000, epochs=1, pace_s=0.003)


def test_who_has_the_state_stays_until_the_one_that_is_to_go_on_alone_has_it(
    tmp_path: Path,
) -> None:
    scene = replace(LONG, slice_bytes=200)
    with rehearse(scene, tmp_path / "log") as stage:
        stage.start(0, 1)
        stage.entered(stage.regroup(0))
        (joined, _) = stage.entered(stage.regroup(0, 1))
        stage.entered(stage.regroup(1))
        let_end(tmp_path / "log")
        assert stage.ended(0, 1) == [0, 0]
        (left,) = stage.messages(0, WorkerLeft)
        assert left.step > joined.step + 5, "the state takes so many iterations to arrive"
    assert_untouched(scene, read(tmp_path / "log"))


def test_a_generation_under_construction_outlives_that_an_older_one_is_entered(
    tmp_path: Path,
) -> None:
    scene = replace(LONG, samples=640, pace_s=0.1)
    with rehearse(scene, tmp_path / "log") as stage:
        stage.start(0, 1, environment={"DOVETAIL_STALL_S": "1"})
        first = stage.regroup(0, 1)
        stage.entered(first)
        # Both orders are there before the loop notices that 1 is gone: it waits for 1, and says so.
        frozen = stage.workers[1].process
        os.kill(frozen.pid, signal.SIGSTOP)
        stage.until(lambda: stands_still(frozen.pid))
        stage.until(lambda: bool(stage.messages(0, Lost)))
        without, newest = stage.regroup(0), stage.regroup(0, 2)
        frozen.kill()
        stage.until(lambda: len(stage.messages(0, Entered)) == 2)
        stage.start(2)
        stage.entered(newest)
        assert [e.generation for e in stage.messages(0, Entered)] == [first, without, newest]
        let_end(tmp_path / "log")
        assert stage.ended(0, 2) == [0, 0]
    assert_untouched(scene, read(tmp_path / "log"), all_told=False)


def test_no_script_comes_to_see_a_model_that_is_not_all_there(tmp_path: Path) -> None:
    """Training ends before the joiner has learned the state: it ends as one who leaves."""
    scene = replace(LONG, samples=1600, slice_bytes=8)  # 110 slices, and 100 steps
    with rehearse(scene, tmp_path / "log") as stage:
        stage.start(0, 1)
        stage.entered(stage.regroup(0))
        stage.entered(stage.regroup(0, 1))
        let_end(tmp_path / "log")
        assert stage.ended(0, 1) == [0, 0]
        assert len(stage.messages(1, Finished)) == 1
    assert (tmp_path / "log" / "1.jsonl").read_text() == ""
    assert_untouched(scene, read(tmp_path / "log"))

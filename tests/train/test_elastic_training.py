"""Jobs of real processes grow, shrink, are split and stopped, and train as if nothing happened."""

import random
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")

from train_scene import Scene, assert_untouched, let_end, lines, read, rehearse, steps_of

from dovetail.train.rehearsal import Rehearsal, RehearsalWorker
from dovetail.wire.worker import (
    Checkpoint,
    Entered,
    Finished,
    FromWorker,
    Ready,
    Saved,
    Training,
    WorkerLeft,
)

PACED = Scene(samples=500, pace_s=0.003)


def test_a_job_that_grows_from_1_to_4_and_shrinks_to_1_trains_as_alone(tmp_path: Path) -> None:
    with rehearse(PACED, tmp_path / "log") as stage:
        stage.start(0, 1, 2, 3)
        stage.entered(stage.regroup(0))
        stage.entered(stage.regroup(0, 1))
        stage.entered(stage.regroup(3, 0, 1, 2))
        stage.entered(stage.regroup(1, 2))
        assert stage.ended(0, 3) == [0, 0]
        stage.entered(stage.regroup(2))
        let_end(tmp_path / "log")
        assert stage.ended(1, 2) == [0, 0]
        assert [m.generation for m in stage.messages(0, WorkerLeft)] == [4]
        done = stage.messages(2, Finished)
        assert [(f.step, f.samples) for f in done] == [(96, 1500)]
        steps = [e.step for e in stage.messages(2, Entered)]
        assert steps == sorted(steps)
        assert len(stage.messages(2, Ready)) == 3
    assert_untouched(PACED, read(tmp_path / "log"))


def test_a_joiner_learns_a_state_that_takes_many_iterations_to_arrive(tmp_path: Path) -> None:
    """Parameters are updated as they arrive, so what their update needs must be there too."""
    scene = replace(PACED, samples=3200, epochs=1, slice_bytes=200)
    with rehearse(scene, tmp_path / "log") as stage:
        stage.start(0, 1)
        stage.entered(stage.regroup(0))
        stage.entered(stage.regroup(0, 1))
        let_end(tmp_path / "log")
        assert stage.ended(0, 1) == [0, 0]
    assert steps_of(tmp_path / "log", 1) > 0, "there is time enough after it joined"
    got = read(tmp_path / "log")
    assert_untouched(scene, got)


@pytest.mark.parametrize(("micro_batch", "pieces"), [(0, 1), (8, 2)])
def test_while_a_joiner_learns_the_loop_body_runs_as_often_as_before(
    tmp_path: Path, micro_batch: int, pieces: int
) -> None:
    scene = replace(PACED, samples=3200, epochs=1, slice_bytes=200, micro_batch=micro_batch)
    with rehearse(scene, tmp_path / "log") as stage:
        stage.start(0, 1)
        stage.entered(stage.regroup(0))
        stage.entered(stage.regroup(0, 1))
        let_end(tmp_path / "log")
        assert stage.ended(0, 1) == [0, 0]
    told = [t for t in lines(tmp_path / "log" / "0.jsonl") if "pieces" in t]
    whole = [t for t in told if len(t["mine"]) == scene.batch_size]
    assert {t["pieces"] for t in whole} == {pieces}
    assert any(t["generation"] == 1 for t in whole), "it computed for the joiner too"


def test_members_with_uneven_samples_and_micro_batches_add_up_exactly(tmp_path: Path) -> None:
    scene = replace(PACED, samples=507)
    with rehearse(scene, tmp_path / "log") as stage:
        stage.start(0, 1, 2)
        stage.entered(stage.regroup(0, 1, 2, steps=3, samples=(9, 0, 7)))
        stage.entered(stage.regroup(0, 1, steps=2, samples=(1, 15)))
        let_end(tmp_path / "log")
        assert stage.ended(0, 1, 2) == [0, 0, 0]
    assert_untouched(scene, read(tmp_path / "log"))


def storm(stage: Rehearsal, orders: int, *, seed: int, most: int) -> None:
    """Orders random members, new ones among them, before older orders can be carried out."""
    draw = random.Random(seed)
    stage.start(0)
    stage.entered(stage.regroup(0))
    others: list[int] = []
    for number in range(1, orders):
        kept = draw.sample(others, draw.randint(0, len(others)))
        fresh = [number] if len(kept) < most - 1 and draw.random() < 0.6 else []
        stage.start(*fresh)
        others = [*kept, *fresh]
        order = stage.regroup(*draw.sample([0, *others], len(others) + 1))
        if draw.random() < 0.3:
            stage.entered(order)
        elif draw.random() < 0.5:
            with suppress(TimeoutError):
                stage.entered(order, draw.random() * 0.1)
    stage.regroup(0, *others, orders)  # nobody starts this one: it is overtaken, whatever happens
    stage.entered(stage.regroup(0, *others))


def test_orders_that_overtake_each_other_end_alike_everywhere(tmp_path: Path) -> None:
    scene = replace(PACED, samples=2400)
    with rehearse(scene, tmp_path / "log") as stage:
        storm(stage, 20, seed=7, most=4)
        let_end(tmp_path / "log")
        # One whose order was overtaken before it could hear it still waits for its turn.
        codes = stage.ended(*(n for n in stage.workers if stage.messages(n, Ready)))
        entered = {e.generation for e in stage.messages(0, Entered)}
        assert codes == [0] * len(codes)
        assert 4 < len(entered) < 22
    assert_untouched(scene, read(tmp_path / "log"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_55_orders_for_up_to_6_workers_end_alike_everywhere(tmp_path: Path, seed: int) -> None:
    scene = replace(PACED, samples=12_000)
    with rehearse(scene, tmp_path / "log") as stage:
        storm(stage, 55, seed=seed, most=6)
        let_end(tmp_path / "log")
        codes = stage.ended(*(n for n in stage.workers if stage.messages(n, Ready)))
        assert codes == [0] * len(codes)
        assert len({e.generation for e in stage.messages(0, Entered)}) > 10
    assert_untouched(scene, read(tmp_path / "log"))


def test_a_job_stopped_with_2_workers_goes_on_with_3(tmp_path: Path) -> None:
    first, second, folder = tmp_path / "first", tmp_path / "second", tmp_path / "job"
    with rehearse(PACED, first, folder=folder) as stage:
        stage.start(0, 1)
        stage.entered(stage.regroup(0, 1))
        stage.until(lambda: len(read(first).losses) > 7)
        stage.tell(Checkpoint(leave=True))
        assert stage.ended(0, 1) == [0, 0]
        (saved,) = stage.messages(0, Saved)
        assert stage.messages(1, Saved) == []
        assert [m.step for n in (0, 1) for m in stage.messages(n, WorkerLeft)] == [saved.step] * 2
    with rehearse(PACED, second, folder=folder) as stage:
        stage.start(10, 11, 12)
        entered = stage.entered(stage.regroup(12, 10, 11))
        assert {(e.step, e.samples) for e in entered} == {(saved.step, saved.samples)}
        let_end(second)
        assert stage.ended(10, 11, 12) == [0, 0, 0]
    for path in first.glob("*.jsonl"):
        path.rename(second / path.name)
    assert_untouched(PACED, read(second))


def test_a_worker_trains_on_while_its_agent_is_away(tmp_path: Path) -> None:
    scene = replace(PACED, samples=1000)
    with rehearse(scene, tmp_path / "log") as stage:
        stage.start(0, 1, environment={"DOVETAIL_REPORT_S": "0.01"})
        stage.entered(stage.regroup(0))
        stage.hang_up()
        before = len(read(tmp_path / "log").losses)
        stage.until(lambda: len(read(tmp_path / "log").losses) > before + 20)
        stage.answer()
        stage.entered(stage.regroup(0, 1))
        stage.until(lambda: len(stage.messages(0, Training)) > 2)
        let_end(tmp_path / "log")
        assert stage.ended(0, 1) == [0, 0]
    assert_untouched(scene, read(tmp_path / "log"))


def test_who_has_ended_was_heard_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a worker says last is heard when its process may be gone."""
    note = Rehearsal._note

    def slowly(stage: Rehearsal, worker: RehearsalWorker, message: FromWorker) -> None:
        time.sleep(0.5 if isinstance(message, Finished) else 0.0)
        note(stage, worker, message)

    monkeypatch.setattr(Rehearsal, "_note", slowly)
    with rehearse(PACED, tmp_path / "log") as stage:
        stage.start(0)
        stage.entered(stage.regroup(0))
        let_end(tmp_path / "log")
        assert stage.ended(0) == [0]
        assert len(stage.messages(0, Finished)) == 1

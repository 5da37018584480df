"""A job in one process is the ordinary loop, bit by bit where nothing is added up in parts."""

import errno
import json
import os
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss
from train_scene import Scene, job_of, train

from dovetail.train import Job
from dovetail.train.data.samples import BatchSplit, permutation
from dovetail.train.process import background as aside
from dovetail.train.state import checkpoint
from dovetail.wire.worker import TOKEN, Checkpoint

SCENE = Scene(samples=90, batch_size=16, epochs=2)


def run(scene: Scene, split: BatchSplit | None = None, **more: Any) -> tuple[list[float], Job]:
    parts = scene.parts()
    job = job_of(scene, parts, environment={}, **more)
    if split is not None:
        keep = job._membership.enter_next
        job._membership.enter_next = lambda since_s: (  # type: ignore[method-assign]
            keep(since_s),
            setattr(job._membership, "batch_split", split),
        )[0]
    losses: list[float] = []
    train(job, parts.model, lambda told: losses.append(told["loss"]))
    return losses, job


def test_alone_it_is_the_ordinary_loop_bit_by_bit() -> None:
    losses, job = run(SCENE)
    plain, parts = SCENE.plainly()
    assert losses == pytest.approx(plain, rel=1e-6)
    assert job.digest() == parts.digest()
    assert (job.steps_done, job.samples_done, job.epoch) == (12, 180, 2)


def test_a_batch_in_micro_batches_has_the_same_gradient() -> None:
    for steps in (3, 16, 40):
        losses, job = run(SCENE, BatchSplit(16, steps=steps))
        plain, parts = SCENE.plainly()
        assert losses == pytest.approx(plain, rel=1e-6)
        for mine, theirs in zip(job._parts.tensors(), parts.tensors(), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-11)


def test_stopped_and_resumed_it_is_the_same_bit_by_bit(tmp_path: Path) -> None:
    whole, end = run(SCENE, folder=tmp_path / "whole")
    first = SCENE.parts()
    job = job_of(SCENE, first, folder=tmp_path / "parts", environment={})
    batches = job.batches()
    for _ in range(5):
        _, x, y = next(batches)
        job.backward(cross_entropy(first.model(x), y))
        job.step()
    assert job._saving.save(at_once=True)
    again, resumed = run(SCENE, folder=tmp_path / "parts")
    assert again == whole[5:]
    assert resumed.digest() == end.digest()


def test_a_job_that_is_complete_is_not_trained_again(tmp_path: Path) -> None:
    _, end = run(SCENE, folder=tmp_path)
    losses, again = run(SCENE, folder=tmp_path)
    assert losses == []
    assert again.digest() == end.digest()


@pytest.mark.parametrize("full", [False, True])
def test_nobody_leaves_before_what_it_has_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, full: bool
) -> None:
    def no_room(file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(aside, "_leaving", None)  # or the tests themselves would end with 0
    parts = SCENE.parts()
    job = job_of(SCENE, parts, folder=tmp_path, environment={})
    with monkeypatch.context() as disk:
        if full:
            disk.setattr(os, "fsync", no_room)
        batches = job.batches()
        _, x, y = next(batches)
        job._mailbox.receive(Checkpoint(leave=True))
        job.backward(cross_entropy(parts.model(x), y))
        job.step()
        _, x, y = next(batches)
        job.backward(cross_entropy(parts.model(x), y))
        job.step()
        if full:
            next(batches)
        else:
            with pytest.raises(SystemExit) as left:
                next(batches)
            assert left.value.code == 0
    assert job.steps_done == 2
    assert len(checkpoint.list_checkpoints(tmp_path)) == (0 if full else 1)


def test_the_secret_of_a_worker_is_nobody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a script starts, readers of data above all, could speak to the agent in its name."""
    monkeypatch.setenv(TOKEN, "secret")
    job_of(SCENE, SCENE.parts(), environment={})
    assert TOKEN not in os.environ


def test_a_checkpoint_of_other_data_is_refused(tmp_path: Path) -> None:
    run(SCENE, folder=tmp_path)
    with pytest.raises(ValueError, match="of another job"):
        run(replace(SCENE, seed=6), folder=tmp_path)
    with pytest.raises(ValueError, match="of another model"):
        run(replace(SCENE, width=13), folder=tmp_path)


class Marked(torch.utils.data.Dataset[Any]):
    """Samples that draw at random, from all three generators."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> Any:
        import numpy as np

        drawn = random.random() + float(np.random.random()) + float(torch.rand(()))
        return index, drawn


def test_what_a_sample_draws_does_not_depend_on_who_reads_it_or_when() -> None:
    def drawn(batch_size: int, loaders: int) -> dict[tuple[int, int], float]:
        model = nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        job = Job(
            model, optimizer, data=Marked(), batch_size=batch_size, epochs=2, loaders=loaders,
            environment={},
        )  # fmt: skip
        found = {}
        for index, value in job.batches():
            found |= {
                (job.epoch, i): v for i, v in zip(index.tolist(), value.tolist(), strict=True)
            }
            job.backward(model(torch.ones(1, 1)).sum())
            job.step()
        return found

    alone = drawn(8, 0)
    assert len(alone) == 48
    assert len(set(alone.values())) == 48
    assert drawn(5, 2) == alone


def test_dropout_depends_on_the_place_in_the_order_alone() -> None:
    x, y = torch.ones(40, 8), torch.ones(40, 1)

    def trained(noise: int) -> Any:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 1))
        torch.manual_seed(noise)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        job = Job(model, optimizer, data=(x, y), batch_size=10, environment={})
        for a, b in job.batches():
            job.backward(mse_loss(model(a), b))
            job.step()
            torch.rand(noise)
        return job.digest()

    assert trained(1) == trained(2)


def test_a_weight_of_ones_own_gives_the_mean_over_it() -> None:
    """Each sample has its own number of tokens; the loss is the mean over all tokens."""
    x = torch.randn(12, 4, dtype=torch.float64)
    tokens = torch.arange(1, 13, dtype=torch.float64)

    def model() -> Any:
        torch.manual_seed(0)
        return nn.Linear(4, 1).double()

    whole = model()
    ((whole(x).squeeze() * tokens).sum() / tokens.sum()).backward()
    split = model()
    optimizer = torch.optim.SGD(split.parameters(), lr=1.0)
    before = [p.detach().clone() for p in split.parameters()]
    job = Job(split, optimizer, data=(x, tokens), batch_size=12, environment={})
    batches = job.batches()
    job._membership.enter_next(0.0)
    job._membership.enter_next = lambda since_s: None  # type: ignore[method-assign]
    job._membership.batch_split = BatchSplit(12, steps=5)
    for a, n in batches:
        job.backward((split(a).squeeze() * n).sum() / n.sum(), weight=n.sum())
        job.step()
    for old, new, plain in zip(before, split.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(old - new.detach(), plain.grad, rtol=1e-6, atol=1e-9)


def test_parameters_that_nobody_used_are_left_alone() -> None:
    model = nn.ModuleDict({"used": nn.Linear(2, 1), "idle": nn.Linear(2, 1)})
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
    before = [p.detach().clone() for p in model["idle"].parameters()]
    job = Job(model, optimizer, data=(torch.ones(8, 2),), batch_size=4, environment={})
    for (x,) in job.batches():
        job.backward(model["used"](x).mean())
        job.step()
    assert all(torch.equal(a, b) for a, b in zip(before, model["idle"].parameters(), strict=True))


def test_clipping_scaling_and_a_schedule_by_pass_are_those_of_an_ordinary_loop() -> None:
    x, y = torch.randn(30, 4), torch.randn(30, 1)

    def parts() -> Any:
        torch.manual_seed(0)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        return model, optimizer, torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)

    mine, optimizer, scheduler = parts()
    job = Job(
        mine, optimizer, data=(x, y), batch_size=8, epochs=2, scheduler=scheduler,
        schedule="epoch", clip_norm=0.1, scaler=torch.amp.GradScaler("cpu"), environment={},
    )  # fmt: skip
    for a, b in job.batches():
        job.backward(mse_loss(mine(a), b))
        job.step()
    plain, optimizer, scheduler = parts()
    for epoch in range(2):
        for at in torch.from_numpy(permutation(0, epoch, 30)).split(8):
            optimizer.zero_grad()
            mse_loss(plain(x[at]), y[at]).backward()
            nn.utils.clip_grad_norm_(plain.parameters(), 0.1)
            optimizer.step()
        scheduler.step()
    torch.testing.assert_close(mine.weight, plain.weight)
    assert job._update.scheduler is not None
    assert job._update.scheduler.get_last_lr() == scheduler.get_last_lr() == [0.125]


def test_a_dry_run_tries_sub_batches_and_saves_nothing(tmp_path: Path) -> None:
    parts = SCENE.parts()
    told = tmp_path / "told.json"
    environment = {"DOVETAIL_PROFILE_STEPS": "2", "DOVETAIL_PROFILE_FILE": str(told)}
    job = job_of(SCENE, parts, folder=tmp_path / "job", environment=environment)
    with pytest.raises(SystemExit) as ended:
        train(job, parts.model, lambda told: None)
    assert ended.value.code == 0
    found = json.loads(told.read_text())
    assert [(s["samples"], s["steps"]) for s in found["sub_batches"]] == [
        (16, 1), (8, 2), (4, 4), (2, 8), (1, 16),
    ]  # fmt: skip
    assert found["batch_size"] == 16
    assert all(len(s["stage_s"]) == 4 and s["rate"] > 0 for s in found["sub_batches"])
    assert not (tmp_path / "job").exists()


def test_a_dry_run_that_takes_long_reads_few_data_again(tmp_path: Path) -> None:
    parts = SCENE.parts()
    told = tmp_path / "told.json"
    environment = {"DOVETAIL_PROFILE_STEPS": "30", "DOVETAIL_PROFILE_FILE": str(told)}
    job = job_of(SCENE, parts, environment=environment)
    job._reporter._every_s = 0.0  # it is always time for a report
    with pytest.raises(SystemExit):
        train(job, parts.model, lambda told: None)
    assert len(json.loads(told.read_text())["sub_batches"]) == 5


def test_stop_ends_after_the_iteration_under_way() -> None:
    parts = SCENE.parts()
    job = job_of(SCENE, parts, environment={})
    for _, x, y in job.batches():
        job.backward(cross_entropy(parts.model(x), y))
        job.step()
        if job.steps_done == 3:
            job.stop()
    assert job.steps_done == 3


def test_a_loop_that_forgets_a_call_is_told() -> None:
    parts = SCENE.parts()
    job = job_of(SCENE, parts, environment={})
    batches = job.batches()
    next(batches)
    with pytest.raises(RuntimeError, match=r"job\.step\(\) once"):
        job.step()
    with pytest.raises(RuntimeError, match="each batch needs"):
        next(batches)
    with pytest.raises(RuntimeError, match="go through it once"):
        next(job.batches())


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"batch_size": 0}, "at least 1"),
        ({"drop_last": True, "batch_size": 200}, "do not fill"),
        ({"schedule": "hour"}, "one of step, epoch"),
        ({"data": 7}, "data set"),
        ({"data": (torch.ones(3), torch.ones(4))}, "one row"),
    ],
)
def test_arguments_that_cannot_be_are_refused(more: dict[str, Any], why: str) -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    given: dict[str, Any] = {"data": (torch.ones(8, 2),), "batch_size": 4, "environment": {}}
    with pytest.raises(ValueError, match=why):
        Job(model, optimizer, **{**given, **more})


def test_an_optimizer_of_another_model_is_refused() -> None:
    optimizer = torch.optim.SGD(nn.Linear(2, 1).parameters(), lr=0.1)
    with pytest.raises(ValueError, match="parameters of the model"):
        Job(nn.Linear(2, 1), optimizer, data=(torch.ones(8, 2),), batch_size=4, environment={})

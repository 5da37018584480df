"""Scripts as people write them train on workers that come and go as they train alone."""

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from script_scene import Forked, check_same, data, trained_alone
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from train_scene import let_end, lines

from dovetail.train import Job
from dovetail.train.rehearsal import Rehearsal

Tell = Callable[[Job], None]


class Mean(nn.Module):
    """A model with buffers of several kinds, one of them replaced in each forward pass."""

    seen: Tensor
    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)).double()
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))
        self.register_buffer("mean", torch.zeros(4, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        self.seen += 1
        self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
        out: Tensor = self.layers(x)
        return out


def by_hand(tell: Tell) -> tuple[Job, list[Tensor]]:
    """The learning rate is set in the loop, gradients are cleared as before, a mean is kept."""
    model = Mean()
    optimizer = torch.optim.NAdam(model.parameters(), lr=0.01)
    mean = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
    )
    optimizer.register_step_post_hook(lambda *_: mean.update_parameters(model))
    job = Job(
        model, optimizer, data=data(), batch_size=16, epochs=40, micro_batch=9, keep={"mean": mean}
    )  # fmt: skip
    for x, y in job.batches():
        for group in optimizer.param_groups:
            group["lr"] = 0.01 / (1 + job.steps_done / 20)
        optimizer.zero_grad()
        job.backward(cross_entropy(model(x), y))
        if job.step():
            tell(job)
        if job.steps_done == 60:
            break
    return job, [*model.layers.parameters(), *mean.module.layers.parameters()]


def by_pass(tell: Tell) -> tuple[Job, list[Tensor]]:
    """After each pass the model is tried, the learning rate falls, and at last it is enough."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.0), nn.Linear(6, 2)).double()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
    job = Job(model, optimizer, data=data(), batch_size=16, epochs=99, keep={"plateau": plateau})
    for epoch in job.epochs():
        for x, y in job.batches():
            job.backward(cross_entropy(model(x), y))
            if job.step():
                tell(job)
        with torch.no_grad():
            found = cross_entropy(model(data()[0]), data()[1]).item()
        plateau.step(round(found, 1))
        if epoch == 5:
            break
    return job, list(model.parameters())


@pytest.mark.parametrize("script", [by_hand, by_pass])
def test_workers_that_come_and_go_train_as_one_alone(tmp_path: Path, script: Any) -> None:
    alone, together = trained_alone(tmp_path, script)
    with Rehearsal(partial(Forked, script, together)) as stage:

        def trains(number: int) -> None:
            log = together / f"{number}.jsonl"
            stage.until(lambda: len(lines(log)) >= 3)

        stage.start(0, 1, 2)
        stage.entered(stage.regroup(0))
        trains(0)
        stage.entered(stage.regroup(0, 1))
        trains(1)
        os.kill(stage.workers[0].process.pid, signal.SIGKILL)
        stage.until(lambda: stage.workers[0].process.poll() is not None)
        stage.abandon()
        stage.entered(stage.regroup(1, 2, steps=2))
        let_end(together)
        assert stage.ended(1, 2) == [0, 0]
    check_same(alone, together)

"""A loop that changes its model in the body: who did not run that gets the same model too."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from script_scene import Forked, check_same, data, trained_alone
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from train_scene import let_end, lines

from dovetail.train import Job
from dovetail.train.rehearsal import Rehearsal
from dovetail.train.state.state import TrainingState


def clamps(tell: Callable[[Job], None]) -> tuple[Job, list[Tensor]]:
    """Keeps all parameters small, by way of what torch takes no note of."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)).double()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    job = Job(model, optimizer, data=data(), batch_size=16, epochs=6)
    for x, y in job.batches():
        job.backward(cross_entropy(model(x), y))
        if job.step():
            for p in model.parameters():
                p.data.clamp_(-0.3, 0.3)
            tell(job)
    return job, list(model.parameters())


def test_who_joins_or_has_no_samples_has_the_model_of_the_others(tmp_path: Path) -> None:
    alone, together = trained_alone(tmp_path, clamps)
    with Rehearsal(partial(Forked, clamps, together)) as stage:

        def trains(number: int, steps: int) -> None:
            stage.until(lambda: len(lines(together / f"{number}.jsonl")) >= steps)

        stage.start(0, 1)
        stage.entered(stage.regroup(0))
        trains(0, 3)
        stage.entered(stage.regroup(0, 1, samples=(16, 0)))
        trains(0, 12)
        stage.entered(stage.regroup(0, 1))
        trains(1, 3)
        let_end(together)
        assert stage.ended(0, 1) == [0, 0]
    check_same(alone, together)


def test_buffers_are_no_difference_between_models() -> None:
    """The forward pass makes them, on each worker from its own samples; they are levelled apart."""
    model = nn.BatchNorm1d(3)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(4, 3)).sum().backward()
    optimizer.step()
    compared = {t.data_ptr() for t in TrainingState(model, optimizer).trained()}
    assert {p.data_ptr() for p in model.parameters()} < compared
    assert compared.isdisjoint(b.data_ptr() for b in model.buffers())

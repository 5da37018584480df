"""Which parameters are trained is part of the state: scripts freeze and unfreeze as they go."""

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

THAWS = 1
"""The pass before which the first layer is unfrozen, once."""
IN_THE_PASS_AFTER = 22


def thaws(
    tell: Callable[[Job], None], folder: Path | None = None, until: int = 1 << 30
) -> tuple[Job, list[Tensor]]:
    """Trains the last layer alone, and from the second pass on all."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)).double()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    job = Job(model, optimizer, data=data(), batch_size=16, epochs=6, folder=folder)
    model[0].requires_grad_(False)
    for epoch in job.epochs():
        if epoch == THAWS:
            model[0].requires_grad_(True)
        for x, y in job.batches():
            job.backward(cross_entropy(model(x), y))
            if job.step():
                tell(job)
            if job.steps_done == until:
                job.stop()
    return job, list(model.parameters())


def test_a_job_that_resumes_goes_on_training_what_it_trained(tmp_path: Path) -> None:
    whole, _ = thaws(lambda job: None, tmp_path / "whole")
    thaws(lambda job: None, tmp_path / "parts", until=IN_THE_PASS_AFTER)
    resumed, _ = thaws(lambda job: None, tmp_path / "parts")
    assert resumed.digest() == whole.digest()


def test_a_worker_that_joins_trains_what_the_others_do(tmp_path: Path) -> None:
    """It has not seen the pass before which the others unfroze a layer."""
    alone, together = trained_alone(tmp_path, thaws)
    with Rehearsal(partial(Forked, thaws, together)) as stage:
        stage.start(0, 1)
        stage.entered(stage.regroup(0))
        stage.until(lambda: len(lines(together / "0.jsonl")) >= IN_THE_PASS_AFTER)
        stage.entered(stage.regroup(0, 1))
        stage.until(lambda: len(lines(together / "1.jsonl")) >= 3)
        let_end(together)
        assert stage.ended(0, 1) == [0, 0]
    check_same(alone, together)


@pytest.mark.parametrize("at_first", [True, False])
def test_a_script_that_freezes_otherwise_before_it_begins_is_obeyed(
    tmp_path: Path, *, at_first: bool
) -> None:
    """A second stage that goes on from the first one's checkpoint trains what it says."""
    for frozen, epochs in ((at_first, 1), (not at_first, 2)):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)).double()
        model[0].requires_grad_(not frozen)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        job = Job(model, optimizer, data=data(), batch_size=16, epochs=epochs, folder=tmp_path)
        before = model[0].weight.detach().clone()
        for x, y in job.batches():
            job.backward(cross_entropy(model(x), y))
            job.step()
        assert model[0].weight.requires_grad is not frozen
        if frozen and at_first:
            assert torch.equal(model[0].weight.detach(), before)
    assert job.steps_done == 2 * -(-len(data()[0]) // 16)


def test_a_scaler_steps_over_an_iteration_that_is_left_out() -> None:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(48, 4), torch.zeros(48, dtype=torch.long)
    job = Job(
        model, optimizer, data=(x, y), batch_size=16, scaler=torch.amp.GradScaler("cpu"),
        environment={},
    )  # fmt: skip
    losses = []
    for number, (a, b) in enumerate(job.batches()):
        job.backward(cross_entropy(model(a), b), weight=0.0 if number == 1 else len(b))
        job.step()
        losses.append(job.loss)
    assert job.steps_done == 3 and losses[1] == losses[0] != losses[2]

"""A joiner's state is right though it comes to be, or is changed, while it is sent."""

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
from train_scene import let_end, send_slowly

from dovetail.train import Job
from dovetail.train.rehearsal import Rehearsal

Tell = Callable[[Job], None]
PASSES, PER_PASS = 10, 15
LATE = 4 * PER_PASS
"""When it happens: state sent by 8 bytes an iteration is under way for 240, if not sent again."""


def parts() -> tuple[nn.ModuleDict, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.ModuleDict({"first": nn.Linear(4, 40), "head": nn.Linear(40, 2)}).double()
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)


def unfreezes(tell: Tell) -> tuple[Job, list[Tensor]]:
    """A parameter is trained for the first time: its momentum begins with its decay."""
    send_slowly(8)
    model, optimizer = parts()
    job = Job(model, optimizer, data=data(), batch_size=10, epochs=PASSES)
    for x, y in job.batches():
        model["first"].requires_grad_(job.steps_done >= LATE)
        job.backward(cross_entropy(model["head"](model["first"](x).tanh()), y))
        job.step()
        tell(job)
    return job, list(model.parameters())


def shrinks(tell: Tell) -> tuple[Job, list[Tensor]]:
    """After a pass the script changes what was sent already."""
    send_slowly(8)
    model, optimizer = parts()
    job = Job(model, optimizer, data=data(), batch_size=10, epochs=PASSES)
    for epoch in job.epochs():
        for x, y in job.batches():
            job.backward(cross_entropy(model["head"](model["first"](x).tanh()), y))
            job.step()
            tell(job)
        if epoch == LATE // PER_PASS - 1:
            with torch.no_grad():
                model["first"].weight.mul_(0.5)
    return job, list(model.parameters())


@pytest.mark.parametrize("script", [unfreezes, shrinks])
def test_state_that_changes_while_it_is_sent_is_sent_again(tmp_path: Path, script: Any) -> None:
    alone, together = trained_alone(tmp_path, script)
    with Rehearsal(partial(Forked, script, together)) as stage:
        stage.start(0, 1)
        stage.entered(stage.regroup(0))
        assert stage.entered(stage.regroup(0, 1))[0].step < LATE
        let_end(together)
        assert stage.ended(0, 1) == [0, 0]
    check_same(alone, together)

"""What a script draws before and after a pass is the same on all workers."""

import random

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from dovetail.train import Job
from dovetail.train.data.samples import BatchSplit


def drawn(pieces: int, noise: int) -> list[float]:
    """Returns what a worker draws that computes in so many pieces, and draws `noise` in between."""
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    job = Job(model, optimizer, data=(torch.ones(12, 2),), batch_size=4, epochs=2, environment={})
    enter = job._membership.enter_next

    def entered(since_s: float) -> None:
        enter(since_s)
        job._membership.batch_split = BatchSplit(4, steps=pieces)

    job._membership.enter_next = entered  # type: ignore[method-assign]
    found = []
    for _epoch in job.epochs():
        found += [random.random(), float(np.random.random()), float(torch.rand(()))]
        torch.rand(noise)
        for (x,) in job.batches():
            job.backward(model(x).mean())
            job.step()
        found += [random.random(), float(np.random.random()), float(torch.rand(()))]
        torch.rand(noise)
    return found


def test_who_had_other_samples_draws_the_same_before_and_after_a_pass() -> None:
    whole = drawn(1, 0)
    assert len(set(whole)) == 12
    assert drawn(4, 3) == whole

"""A job small enough to be trained in a test's own process, and how a policy splits its batches."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dovetail.train import Job
from dovetail.train.data.samples import BatchSplit


def data(count: int) -> tuple[Tensor, Tensor]:
    """Returns points and on which side of a plane each lies."""
    x = torch.randn(count, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return x, (x.sum(1) > 0).long()


def parts() -> tuple[nn.Module, torch.optim.Optimizer]:
    """Returns a model and an optimizer that has state, the same each time."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)).double()
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def in_pieces(job: Job, steps: int, size: int) -> None:
    """Has the job compute its batches in so many micro-batches."""
    enter = job._membership.enter_next

    def entered(since_s: float) -> None:
        enter(since_s)
        job._membership.batch_split = BatchSplit(size, steps=steps)

    job._membership.enter_next = entered  # type: ignore[method-assign]

"""A loss that is a sum over samples is told of: shared out, its gradient has another size."""

from collections.abc import Callable

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn
from torch.nn import functional as f

from dovetail.train import Job
from dovetail.train.guards import is_sum

N = 6
Loss = Callable[[Tensor, nn.Module], Tensor]


def labels() -> Tensor:
    return torch.arange(N) % 3


SUMS: list[Loss] = [
    lambda out, _: f.cross_entropy(out, labels(), reduction="sum"),
    lambda out, _: f.mse_loss(out, torch.ones(N, 3), reduction="sum") - out.mean(),
    lambda out, _: f.binary_cross_entropy(out.sigmoid(), torch.ones(N, 3), reduction="sum"),
    lambda out, _: f.cross_entropy(out, labels(), reduction="none").sum(),
]
MEANS: list[Loss] = [
    lambda out, _: f.cross_entropy(out, labels()),
    lambda out, _: f.cross_entropy(out, labels(), reduction="sum") / N,
    lambda out, _: f.cross_entropy(out, labels(), label_smoothing=0.1),
    lambda out, _: (out**2).sum(1).mean() + 0.1 * (out - 1).abs().mean(),
    lambda out, model: f.mse_loss(out, torch.ones(N, 3)) + (model.weight**2).sum(),  # type: ignore[operator]
    lambda out, _: f.mse_loss(out, torch.ones(N, 3)) + nn.Parameter(torch.ones(N, 2)).abs().sum(),
    lambda out, _: out.detach().sum(),
]


@pytest.mark.parametrize(("losses", "sums"), [(SUMS, True), (MEANS, False)])
def test_what_a_loss_was_computed_by_tells_whether_it_is_a_sum(
    losses: list[Loss], sums: bool
) -> None:
    model = nn.Linear(4, 3)
    out = model(torch.randn(N, 4, generator=torch.Generator().manual_seed(0)))
    assert [is_sum(loss(out, model), N) for loss in losses] == [sums] * len(losses)


def test_it_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    job = Job(model, optimizer, data=(torch.ones(12, 2),), batch_size=4, environment={})
    for (x,) in job.batches():
        job.backward(model(x).sum())
        job.step()
    assert capsys.readouterr().err.count("looks like a sum over samples") == 1

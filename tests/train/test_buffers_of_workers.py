"""Buffers that a forward pass changes stay those of one model, whoever comes, goes and dies."""

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from script_scene import Forked, data, read
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from train_scene import let_end, lines

from dovetail.train import Job
from dovetail.train.rehearsal import Rehearsal

Tell = Callable[[Job], None]
DIES_AT = 6


class Net(nn.Module):
    """Counts its forward passes, and learns a scale of its input from the first two."""

    seen: Tensor
    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 2).double()
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))
        self.register_buffer("scale", torch.ones(3, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        if self.seen < 2:
            self.scale = 0.5 * self.scale
        self.seen += 1
        out: Tensor = self.layer(x)
        return out


def script(tell: Tell, *, dies: bool = False) -> tuple[Job, list[Tensor]]:
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    job = Job(net, optimizer, data=data(), batch_size=10, epochs=4)
    number = os.environ["DOVETAIL_WORKER"].rpartition("/")[2]
    for x, y in job.batches():
        loss = cross_entropy(net(x), y)
        if dies and number == "0" and job.steps_done == DIES_AT:
            os.kill(os.getpid(), signal.SIGKILL)
        job.backward(loss)
        job.step()
        tell(job)
    return job, [net.seen, net.scale]


def test_who_joins_late_need_not_have_seen_which_buffers_change(tmp_path: Path) -> None:
    with Rehearsal(partial(Forked, script, tmp_path)) as stage:
        stage.start(0, 1, 2)
        stage.entered(stage.regroup(0, 1))
        log = tmp_path / "0.jsonl"
        stage.until(lambda: len(lines(log)) >= 6)
        stage.entered(stage.regroup(0, 1, 2))
        let_end(tmp_path)
        assert stage.ended(0, 1, 2) == [0, 0, 0]
    _, ends = read(tmp_path)
    assert len({digest for digest, _ in ends}) == 1
    assert [numbers[1:] for _, numbers in ends] == [[0.25] * 3] * 3


def test_an_iteration_that_is_done_again_changes_no_buffer_twice(tmp_path: Path) -> None:
    with Rehearsal(partial(Forked, partial(script, dies=True), tmp_path)) as stage:
        stage.start(0, 1)
        stage.entered(stage.regroup(0, 1))
        stage.until(lambda: stage.workers[0].process.poll() is not None)
        stage.abandon()
        stage.entered(stage.regroup(1))
        let_end(tmp_path)
        assert stage.ended(1) == [0]
    _, ((_, numbers),) = read(tmp_path)
    assert numbers == [60, *[0.25] * 3]

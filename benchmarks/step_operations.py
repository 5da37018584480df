"""How many operations a training step asks of its device, with the batch norms of a ResNet-50.

    python -m benchmarks.step_operations

On a GPU each operation is a kernel or a copy to launch, one on a list of tensors (`_foreach_`)
as well. Counted on the CPU: the ordinary loop, a `Job` alone, and each of two workers.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.elastic import on_two_workers
from dovetail.train import Job

NORMS = 53
"""So many has a ResNet-50."""
STEPS, SAMPLES = 24, 8
TIMED_STEPS = 200
VIEWS = ("detach", "view", "split", "slice", "select", "alias", "as_strided", "t", "expand")
"""What asks nothing of a device."""


class Operations(TorchDispatchMode):
    """Counts the operations that torch is asked for, but for views."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.removeprefix("aten::")
        if name.partition("_with")[0] not in VIEWS:
            self.asked[name] += 1
        return func(*args, **(kwargs or {}))


def net() -> nn.Module:
    """Returns a narrow stack of linear layers, each normalized."""
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)) for _ in range(NORMS)]
    return nn.Sequential(*layers)


def data(steps: int) -> tuple[Tensor, Tensor]:
    """Returns as many samples as so many steps take."""
    x = torch.randn(steps * SAMPLES, 4, generator=torch.Generator().manual_seed(1))
    return x, (x.sum(1) > 0).long()


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    """Returns an optimizer that steps by operations on lists, as on a GPU."""
    return torch.optim.SGD(model.parameters(), lr=0.01, foreach=True)


def job_of(model: nn.Module, steps: int = STEPS) -> Job:
    """Returns a job that trains a model for so many steps."""
    return Job(model, optimizer_of(model), data=data(steps), batch_size=SAMPLES, steps=steps)


def plain_operations() -> Counter[str]:
    """Returns what a step of the ordinary loop asks for."""
    model, (x, y) = net(), data(1)
    optimizer = optimizer_of(model)
    with Operations() as operations:
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
    return operations.asked


def job_operations(job: Job, model: nn.Module) -> list[Counter[str]]:
    """Returns what each step of a job asks for."""
    found = []
    with Operations() as operations:
        for x, y in job.batches():
            job.backward(cross_entropy(model(x), y))
            job.step()
            found.append(Counter(operations.asked))
            operations.asked.clear()
    return found


def _worker(folder: Path) -> None:
    torch.set_num_threads(1)
    model = net()
    job = job_of(model)
    asked = job_operations(job, model)
    number = os.environ["DOVETAIL_WORKER"].rpartition("/")[2]
    said = {"asked": asked, "digest": job.digest()}
    (folder / f"{number}.json").write_text(json.dumps(said))


def workers_operations(folder: Path) -> tuple[list[list[Counter[str]]], list[str]]:
    """Returns what each step of two workers asks for, by worker, and checksums of their states."""
    on_two_workers(_worker, folder)
    counts = [json.loads((folder / f"{number}.json").read_text()) for number in (0, 1)]
    steps = [[Counter(step) for step in one["asked"]] for one in counts]
    return steps, [one["digest"] for one in counts]


def plain_step_s() -> float:
    """Returns the median seconds of a step of the ordinary loop."""
    model, (x, y) = net(), data(1)
    optimizer, times_s = optimizer_of(model), []
    for _ in range(TIMED_STEPS):
        began_s = time.perf_counter()
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
        times_s.append(time.perf_counter() - began_s)
    return statistics.median(times_s)


def job_step_s() -> float:
    """Returns the median seconds of a step of a job alone."""
    model = net()
    job, times_s = job_of(model, TIMED_STEPS), []
    began_s = time.perf_counter()
    for x, y in job.batches():
        job.backward(cross_entropy(model(x), y))
        job.step()
        times_s.append(time.perf_counter() - began_s)
        began_s = time.perf_counter()
    return statistics.median(times_s)


def main() -> None:
    """Prints operations and times."""
    torch.set_num_threads(1)
    model = net()
    alone = job_operations(job_of(model), model)[-2].total()
    with tempfile.TemporaryDirectory() as folder:
        workers, _ = workers_operations(Path(folder))
    said = {
        "plain": plain_operations().total(),
        "alone": alone,
        "of two workers": [steps[-2].total() for steps in workers],
        "plain_ms": round(1e3 * plain_step_s(), 2),
        "alone_ms": round(1e3 * job_step_s(), 2),
    }
    sys.stdout.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    main()

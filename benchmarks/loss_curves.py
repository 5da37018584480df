"""How far the loss curve of an elastic job is from that of an ordinary loop, in 32 bit.

    python -m benchmarks.loss_curves

A small network learns the digits of scikit-learn for 40 steps: in an ordinary loop, in one that
computes each batch in two halves and adds their gradients up (no Dovetail in it), in a `Job` alone
and in a `Job` on two workers. Printed are the losses of the last step and the largest distances.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.elastic import on_two_workers
from dovetail.train import Job
from dovetail.train.data.samples import permutation

STEPS, BATCH, SAMPLES = 40, 32, 1500
OPTIMIZERS: dict[str, Callable[[nn.Module], torch.optim.Optimizer]] = {
    "SGD": lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
    "AdamW": lambda model: torch.optim.AdamW(model.parameters(), lr=3e-3),
    "Adadelta": lambda model: torch.optim.Adadelta(model.parameters(), lr=1.0),
    "Adadelta, large steps": lambda model: torch.optim.Adadelta(model.parameters(), lr=3.0),
}
LARGE = "large steps"
"""Where pictures are left as they are, from 0 to 16: training is less stable."""


def data(name: str) -> tuple[Tensor, Tensor]:
    """Returns pictures and labels."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1)
    if not name.endswith(LARGE):
        images = images / 16
    return images[:SAMPLES], torch.tensor(digits.target)[:SAMPLES]


def net() -> nn.Module:
    """Returns the network, the same each time."""
    torch.manual_seed(0)
    layers = (nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Flatten())
    return nn.Sequential(*layers, nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 10))


def plainly(name: str, pieces: int) -> list[float]:
    """Returns the losses of a loop without Dovetail that computes each batch in pieces."""
    model, (x, y) = net(), data(name)
    optimizer = OPTIMIZERS[name](model)
    order, losses = torch.from_numpy(permutation(0, 0, SAMPLES)), []
    for at in order.split(BATCH)[:STEPS]:
        optimizer.zero_grad()
        total = 0.0
        for part in at.chunk(pieces):
            loss = cross_entropy(model(x[part]), y[part]) * (len(part) / len(at))
            loss.backward()
            total += loss.item()
        optimizer.step()
        losses.append(total)
    return losses


def as_a_job(name: str) -> list[float]:
    """Returns the losses of this worker's job."""
    model = net()
    job = Job(model, OPTIMIZERS[name](model), data=data(name), batch_size=BATCH, steps=STEPS)
    losses = []
    for x, y in job.batches():
        job.backward(cross_entropy(model(x), y))
        job.step()
        losses.append(job.loss)
    return losses


def _worker(name: str, folder: Path) -> None:
    torch.set_num_threads(1)
    number = os.environ["DOVETAIL_WORKER"].rpartition("/")[2]
    (folder / f"{number}.json").write_text(json.dumps(as_a_job(name)))


def of_two_workers(name: str) -> list[float]:
    """Returns the losses of a job of two workers."""
    with tempfile.TemporaryDirectory() as folder:
        on_two_workers(_worker, name, Path(folder))
        losses: list[float] = json.loads(Path(folder, "0.json").read_text())
    return losses


def furthest(one: list[float], other: list[float]) -> float:
    """Returns the largest relative distance of two curves."""
    return max(abs(a - b) / abs(b) for a, b in zip(one, other, strict=True))


def compare(name: str) -> dict[str, float | str]:
    """Returns losses and distances for an optimizer."""
    torch.set_num_threads(1)
    plain, halves = plainly(name, 1), plainly(name, 2)
    alone, two = as_a_job(name), of_two_workers(name)
    return {
        "optimizer": name,
        "last loss, plain": plain[-1],
        "alone to plain": furthest(alone, plain),
        "two workers to plain": furthest(two, plain),
        "two workers to plain halves": furthest(two, halves),
        "plain halves to plain": furthest(halves, plain),
    }


def main() -> None:
    """Prints a line of JSON for each optimizer."""
    for name in OPTIMIZERS:
        sys.stdout.write(json.dumps(compare(name)) + "\n")


if __name__ == "__main__":
    main()

"""A job drawn at random: its worker, the same in an ordinary loop, and what its workers must agree
on with that, step by step.

Each worker writes down every sample that it uses, and every step that it takes part in.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from train_scene import send_slowly

from dovetail.train import Job
from dovetail.train.data.samples import permutation

SEED = 5
LOSS_RTOL, PARAMETERS_ATOL = 1e-7, 1e-8
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.02, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "nadam": lambda p: torch.optim.NAdam(p, lr=0.01, weight_decay=0.01),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05, weight_decay=0.01),
    "rmsprop": lambda p: torch.optim.RMSprop(
        p, lr=0.005, momentum=0.5, centered=True, weight_decay=0.01
    ),
    "asgd": lambda p: torch.optim.ASGD(p, lr=0.05, t0=5),
    "radam": lambda p: torch.optim.RAdam(p, lr=0.01),
    "adafactor": lambda p: torch.optim.Adafactor(p, lr=0.01),
    "rate in a tensor": lambda p: torch.optim.AdamW(
        p, lr=torch.tensor(0.01, dtype=torch.float64), foreach=False
    ),
}


def no_schedule(_: torch.optim.Optimizer) -> None:
    return None


def cosine(o: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    return torch.optim.lr_scheduler.CosineAnnealingLR(o, 60)


def in_sequence(o: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    warm = torch.optim.lr_scheduler.LinearLR(o, 0.2, 1.0, 10)
    falls = torch.optim.lr_scheduler.MultiStepLR(o, [5, 30])
    return torch.optim.lr_scheduler.SequentialLR(o, [warm, falls], [10])


SCHEDULES = {"none": no_schedule, "cosine": cosine, "in sequence": in_sequence}


@dataclass(frozen=True)
class Shuffled:
    """What is trained: some parameters late or frozen at first, one part in each third step only.

    State travels in slices of `slice_bytes`, one an iteration, if not 0; `by_pass` ends each pass
    with something of the script's own.
    """

    optimizer: str = "adamw"
    schedule: str = "none"
    width: int = 4
    samples: int = 120
    batch_size: int = 16
    steps: int = 150
    clip_norm: float = 0.0
    micro_batch: int = 0
    slice_bytes: int = 0
    late: int = 0
    thaws: int = 0
    by_pass: bool = False
    pace_s: float = 0.01
    checkpoint_s: float = 1e9
    loaders: int = 0

    @classmethod
    def drawn(cls, draw: Random, steps: int) -> Shuffled:
        """Returns a job of about so many steps."""
        return cls(
            draw.choice(list(OPTIMIZERS)),
            draw.choice(list(SCHEDULES)),
            draw.choice([4, 40]),
            draw.choice([120, 203, 64, 161]),
            draw.choice([16, 20, 32]),
            steps,
            draw.choice([0, 0, 0.1]),
            draw.choice([0, 0, 5]),
            draw.choice([0, 0, 64, 400]),
            draw.choice([0, 12, 25]),
            draw.choice([0, 0, 15]),
            draw.random() < 0.4,
            checkpoint_s=draw.choice([1e9, 0.1]),
            loaders=draw.choice([0, 0, 0, 1]),
        )

    @property
    def epochs(self) -> int:
        return -(-self.steps * self.batch_size // self.samples)

    def data(self) -> tuple[Tensor, Tensor, Tensor]:
        draw = torch.Generator().manual_seed(1)
        x = torch.randn(self.samples, 6, generator=draw, dtype=torch.float64)
        return torch.arange(self.samples), x, (x.sum(1) > 0).long()

    def batches(self) -> Iterator[Tensor]:
        """Yields the samples of each step."""
        for epoch in range(self.epochs):
            order = torch.from_numpy(permutation(SEED, epoch, self.samples))
            yield from order.split(self.batch_size)


class Net(nn.Module):
    once: Tensor

    def __init__(self, job: Shuffled) -> None:
        super().__init__()
        self.job = job
        w = job.width
        self.base = nn.Sequential(nn.Linear(6, w), nn.Tanh(), nn.Linear(w, 8), nn.Tanh())
        self.head, self.late, self.odd = nn.Linear(8, 2), nn.Linear(8, 2), nn.Linear(8, 2)
        self.register_buffer("once", torch.zeros(5))
        self.register_buffer("cache", torch.zeros(2), persistent=False)
        self.double()

    def forward(self, x: Tensor, step: int) -> Tensor:
        for p in self.base[0].parameters():
            p.requires_grad_(step >= self.job.thaws)
        h = self.base(x)
        if step < 3:
            self.once = self.once * 0 + step + 1
        out: Tensor = self.head(h)
        if step >= self.job.late:
            out = out + self.late(h)
        return out + self.odd(h) if step % 3 == 1 else out

    def flat(self) -> Tensor:
        return torch.cat([p.detach().flatten() for p in self.parameters()])


class Trained:
    """Model, optimizer and what changes the learning rate, made anew as by a script that seeds."""

    def __init__(self, job: Shuffled) -> None:
        torch.manual_seed(SEED)
        self.net = Net(job)
        self.optimizer = OPTIMIZERS[job.optimizer](self.net.parameters())
        self.scheduler = SCHEDULES[job.schedule](self.optimizer)
        self.plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(
            self.optimizer, factor=0.7, patience=0
        )
        self.by_pass = job.by_pass
        _, self._x, self._y = job.data()

    @torch.no_grad()
    def after_pass(self) -> None:
        """Does what the script does after each pass."""
        if self.by_pass:
            found = cross_entropy(self.net.head(self.net.base(self._x)), self._y).item()
            self.plateau.step(round(found, 2))


def plainly(job: Shuffled) -> tuple[list[float], Tensor]:
    """Returns the losses and the parameters of an ordinary loop."""
    t, (_, x, y) = Trained(job), job.data()
    losses: list[float] = []
    per_pass = -(-job.samples // job.batch_size)
    for at in job.batches():
        t.optimizer.zero_grad()
        loss = cross_entropy(t.net(x[at], len(losses)), y[at])
        loss.backward()
        if job.clip_norm:
            nn.utils.clip_grad_norm_(t.net.parameters(), job.clip_norm)
        t.optimizer.step()
        if t.scheduler is not None:
            t.scheduler.step()
        losses.append(loss.item())
        if len(losses) % per_pass == 0:
            t.after_pass()
    return losses, t.net.flat()


def worker(job: Shuffled, log: Path, environment: Mapping[str, str]) -> None:
    """The process of a worker."""
    os.environ.update(environment)
    torch.set_num_threads(1)
    number = environment["DOVETAIL_WORKER"].rpartition("/")[2]
    if job.slice_bytes:
        send_slowly(job.slice_bytes)
    t = Trained(job)
    live = Job(
        t.net,
        t.optimizer,
        data=job.data(),
        batch_size=job.batch_size,
        epochs=job.epochs,
        seed=SEED,
        scheduler=t.scheduler,
        clip_norm=job.clip_norm or None,
        micro_batch=job.micro_batch,
        checkpoint_s=job.checkpoint_s,
        loaders=job.loaders,
        keep={"plateau": t.plateau} if job.by_pass else None,
    )
    with (log / f"{number}.jsonl").open("w", buffering=1) as out:
        _train(job, live, t, lambda **what: out.write(json.dumps(what) + "\n"))


def _train(job: Shuffled, live: Job, t: Trained, tell: Any) -> None:
    members, gradients = live._membership, live._gradients
    commit = gradients.commit

    def told() -> None:
        commit()
        digest = None if members.is_catching_up else live._parts.digest()
        step, loss = live._progress.step, gradients.loss()
        tell(made=step, generation=members.generation, loss=loss, digest=digest)

    gradients.commit = told  # type: ignore[method-assign]

    def body(ids: Tensor, x: Tensor, y: Tensor) -> None:
        step = live.steps_done
        tell(step=step, generation=members.generation, ids=ids.tolist())
        time.sleep(job.pace_s)
        live.backward(cross_entropy(t.net(x, step), y))
        live.step()

    if job.by_pass:
        for _ in live.epochs():
            for batch in live.batches():
                body(*batch)
            t.after_pass()
    else:
        for batch in live.batches():
            body(*batch)
    tell(end=live.digest(), parameters=t.net.flat().tolist(), once=t.net.once.tolist())


def told(log: Path) -> Iterator[dict[str, Any]]:
    """Yields what all workers wrote; a last line that was cut off by SIGKILL is left out."""
    for path in sorted(log.glob("*.jsonl")):
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                yield json.loads(line)


def wrong(job: Shuffled, log: Path) -> list[str]:
    """Returns what of the training that workers wrote down is not as in an ordinary loop."""
    losses, parameters = plainly(job)
    used: dict[tuple[int, int], Counter[int]] = defaultdict(Counter)
    states: dict[tuple[int, int], set[str]] = defaultdict(set)
    found, ends = [], []
    for said in told(log):
        if "ids" in said:
            used[said["generation"], said["step"]].update(said["ids"])
        elif "made" in said:
            key = said["generation"], said["made"]
            states[key] |= {said["digest"]} - {None}
            loss = losses[said["made"]]
            if not abs(said["loss"] - loss) <= LOSS_RTOL * max(1.0, abs(loss)):
                found.append(f"loss of step {key[1]} in {key[0]}: {said['loss']}, not {loss}")
        else:
            ends.append(said)
    batches = [Counter(at.tolist()) for at in job.batches()]
    for key in sorted(states):
        if used[key] != batches[key[1]]:
            found.append(f"step {key[1]} in {key[0]}: not the samples of its batch")
        if len(states[key]) != 1:
            found.append(f"step {key[1]} in {key[0]}: states {states[key]}")
    if {step for _, step in states} != set(range(len(losses))):
        found.append(f"{len({step for _, step in states})} steps, not {len(losses)}")
    if len({end["end"] for end in ends}) != 1:
        found.append(f"ends {[end['end'] for end in ends]}")
    for end in ends:
        off = (torch.tensor(end["parameters"], dtype=torch.float64) - parameters).abs().max()
        if not off <= PARAMETERS_ATOL or end["once"] != [3.0] * 5:
            found.append(f"parameters are off by {off}, once is {end['once']}")
    return found

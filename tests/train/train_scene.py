"""A small job as the tests train it: the worker's side, and the same without Dovetail at all."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from dovetail.train import Job
from dovetail.train.data.samples import permutation
from dovetail.train.membership.membership import IterationOutcome
from dovetail.train.rehearsal import Rehearsal
from dovetail.train.state.state import TrainingState
from dovetail.train.sync import state_transfer as transfer
from dovetail.train.sync.process_group import GroupBroken

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["torch._dynamo", "dovetail.train.rehearsal", "train_scene"])
MAY_END = "may end"
SLOWEST_S = 20.0
"""The last step before the end takes so long, until the test lets training end."""


@dataclass(frozen=True)
class Scene:
    """What is trained. `pace_s` is slept in each micro-batch, so that orders come in between.

    Worker 1 fails in iteration `breaks_at`, when the gradients are there and others may step.
    State travels in slices of `slice_bytes`, one an iteration, as that of a huge model does.
    Training does not come to its end before the test lets it: soon it gets slower and slower.
    """

    samples: int = 200
    batch_size: int = 16
    epochs: int = 3
    seed: int = 5
    width: int = 12
    pace_s: float = 0.0
    checkpoint_s: float = 1e9
    loaders: int = 0
    breaks_at: int = -1
    slice_bytes: int = 0
    micro_batch: int = 0
    log: str = ""

    def data(self) -> tuple[torch.Tensor, ...]:
        draw = torch.Generator().manual_seed(1)
        x = torch.randn(self.samples, 6, generator=draw, dtype=torch.float64)
        return torch.arange(self.samples), x, (x.sum(1) > 0).long()

    def parts(self, init: int = 3) -> TrainingState:
        torch.manual_seed(init)
        model = nn.Sequential(nn.Linear(6, self.width), nn.Tanh(), nn.Linear(self.width, 2))
        model.double()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
        return TrainingState(model, optimizer, {"scheduler": scheduler})

    def plainly(self, steps: int = 1 << 30) -> tuple[list[float], TrainingState]:
        """Returns the losses and the end of an ordinary loop, for as many steps as asked."""
        parts, (_, x, y) = self.parts(), self.data()
        losses: list[float] = []
        for epoch in range(self.epochs):
            order = torch.from_numpy(permutation(self.seed, epoch, self.samples))
            for at in order.split(self.batch_size):
                if len(losses) == steps:
                    return losses, parts
                parts.optimizer.zero_grad()
                loss = cross_entropy(parts.model(x[at]), y[at])
                loss.backward()
                parts.optimizer.step()
                parts.others["scheduler"].step()
                losses.append(loss.item())
        return losses, parts


def job_of(scene: Scene, parts: TrainingState, **more: Any) -> Job:
    return Job(
        parts.model,
        parts.optimizer,
        data=scene.data(),
        batch_size=scene.batch_size,
        epochs=scene.epochs,
        seed=scene.seed,
        scheduler=parts.others["scheduler"],
        checkpoint_s=scene.checkpoint_s,
        loaders=scene.loaders,
        micro_batch=scene.micro_batch,
        **more,
    )


def train(
    job: Job,
    model: nn.Module,
    heard: Callable[[dict[str, Any]], object],
    pace: Callable[[int], None] = lambda step: None,
) -> None:
    """Trains; each iteration that was complete is heard of, with this worker's samples in it."""
    mine: list[int] = []
    pieces = 0
    for ids, x, y in job.batches():
        before, begun = job.steps_done, job.samples_done
        mine += ids.tolist()
        pieces += 1
        pace(before)
        job.backward(cross_entropy(model(x), y))
        job.step()
        if job.steps_done > before:
            told = {"step": before, "begun": begun, "mine": mine, "loss": job.loss}
            told["pieces"] = pieces
            heard({**told, "generation": job._membership.generation})
        if not job._mine:
            mine, pieces = [], 0


def worker(scene: Scene, environment: dict[str, str]) -> None:
    """The process of a worker; begins with parameters of its own, which must not matter."""
    os.environ.update(environment)
    torch.set_num_threads(1)
    number = int(environment["DOVETAIL_WORKER"].rpartition("/")[2])
    parts = scene.parts(init=3 if number == 0 else 100 + number)
    if scene.slice_bytes:
        send_slowly(scene.slice_bytes)
    job = job_of(scene, parts)
    if number == 1 and scene.breaks_at >= 0:
        agree = job._membership.agree

        def broken() -> IterationOutcome:
            verdict = agree()
            if job.steps_done == scene.breaks_at and job._membership.generation == 1:
                raise GroupBroken("pretended")
            return verdict

        job._membership.agree = broken  # type: ignore[method-assign]
    steps = job._order.total // scene.batch_size
    pace = Pace(Path(scene.log), scene.pace_s, steps // 4, steps)
    with (Path(scene.log) / f"{number}.jsonl").open("w", buffering=1) as log:
        train(job, parts.model, lambda told: log.write(json.dumps(told) + "\n"), pace)
        end = torch.cat([p.detach().flatten() for p in parts.model.parameters()])
        log.write(json.dumps({"end": job.digest(), "parameters": end.tolist()}) + "\n")


def send_slowly(slice_bytes: int) -> None:
    """Lets each iteration have time for one slice of the state.

    What is sent before the first iteration, or at once for another reason, is sent whole.
    """
    begin, send = transfer.StateSender.begin, transfer.StateSender._send

    def begins(giving: transfer.StateSender) -> None:
        giving.slow = not giving._at_once  # type: ignore[attr-defined]
        begin(giving)

    def one_slice(giving: transfer.StateSender) -> None:
        if getattr(giving, "slow", False):
            giving._stop.set()
        send(giving)

    transfer.StateSender.begin = begins  # type: ignore[method-assign]
    transfer.StateSender._send = one_slice  # type: ignore[method-assign]
    transfer.slices_of = partial(transfer.slices_of, slice_bytes=slice_bytes)  # type: ignore[assignment]


class Forked:
    """A worker forked from a process that has imported everything: it starts in milliseconds."""

    def __init__(self, scene: Scene, environment: dict[str, str]) -> None:
        self._process = FORKS.Process(target=worker, args=(scene, environment))
        self._process.start()

    @property
    def pid(self) -> int:
        pid = self._process.pid
        assert pid is not None
        return pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()


class Pace:
    """How fast workers train: from a step on slower and slower, until the test lets them end.

    So a test that does not get to run for a while finds training still under way: each step takes
    a small part of all the time before it, and the last one `SLOWEST_S`.
    """

    def __init__(self, log: Path, pace_s: float, slow_from: int, end: int) -> None:
        self._may_end, self._pace_s = log / MAY_END, max(pace_s, 0.001)
        self._slow_from, self._slow = slow_from, end - slow_from

    def __call__(self, step: int) -> None:
        over = min(max(step - self._slow_from, 0) / self._slow, 1.0)
        go_on_s = time.monotonic() + self._pace_s ** (1 - over) * SLOWEST_S**over
        while not self._may_end.exists() and (left_s := go_on_s - time.monotonic()) > 0:
            time.sleep(min(left_s, 0.005))


def stands_still(process: int) -> bool:
    """Tells whether SIGSTOP has reached a process: its threads stop one after the other."""
    states = []
    for task in Path(f"/proc/{process}/task").iterdir():
        with suppress(OSError):  # it has just ended
            states.append((task / "stat").read_text().rpartition(")")[2].split()[0])
    return set(states) == {"T"}


def let_end(log: Path) -> None:
    """Lets training go on to its end without delay."""
    (log / MAY_END).touch()


def rehearse(scene: Scene, log: Path, **more: Any) -> Rehearsal:
    """Returns a rehearsal of a scene whose workers write to a folder."""
    log.mkdir(exist_ok=True)
    return Rehearsal(partial(Forked, replace(scene, log=str(log))), **more)


@dataclass(frozen=True)
class Trained:
    """What the workers of a job wrote down together."""

    losses: dict[int, float]
    begun: dict[int, set[int]]
    used: list[int]
    ends: list[str]
    parameters: torch.Tensor


def lines(path: Path) -> list[Any]:
    """Returns what a worker wrote, as far as a line is whole: it may be writing, or was killed."""
    if not path.exists():
        return []
    *whole, _ = path.read_text().split("\n")
    return [json.loads(line) for line in whole]


def steps_of(folder: Path, number: int, generation: int = 0) -> int:
    """Returns how many steps a worker has made on samples of its own, from a generation on."""
    told = lines(folder / f"{number}.jsonl")
    return sum(t.get("generation", -1) >= generation for t in told)


def read(folder: Path) -> Trained:
    losses: dict[int, float] = {}
    begun: dict[int, set[int]] = {}
    used: list[int] = []
    ends, parameters = [], torch.empty(0)
    for path in sorted(folder.glob("*.jsonl")):
        for told in lines(path):
            if "end" in told:
                ends.append(told["end"])
                parameters = torch.tensor(told["parameters"], dtype=torch.float64)
            else:
                losses[told["step"]] = told["loss"]
                begun.setdefault(told["step"], set()).add(told["begun"])
                used += told["mine"]
    return Trained(losses, begun, used, ends, parameters)


def assert_untouched(scene: Scene, got: Trained, *, all_told: bool = True) -> None:
    """Training was that of an ordinary loop, within what the order of adding up allows.

    Where workers die not all of it may be told: who died had no time to, and who learned the state
    meanwhile made the step without samples, and so without the loop. That each step was made once,
    and on its samples, show the parameters.
    """
    losses, parts = scene.plainly()
    steps = sorted(got.losses)
    assert set(steps) <= set(range(len(losses)))
    assert len(steps) >= (len(losses) if all_told else 0.9 * len(losses))
    assert all(len(begun) == 1 for begun in got.begun.values())
    told = torch.tensor([got.losses[i] for i in steps])
    expected = torch.tensor([losses[i] for i in steps])
    torch.testing.assert_close(told, expected, rtol=1e-5, atol=1e-6)
    plain = torch.cat([p.detach().flatten() for p in parts.model.parameters()])
    torch.testing.assert_close(got.parameters, plain, rtol=1e-8, atol=1e-10)
    assert len(set(got.ends)) == 1
    if all_told:
        assert sorted(got.used) == sorted(list(range(scene.samples)) * scene.epochs)

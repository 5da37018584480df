"""Workers of a whole script each, and what they wrote down."""

from __future__ import annotations

import json
import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from train_scene import FORKS, Pace, lines

from dovetail.train import Job

SLOW_FROM, SLOWEST_AT = 10, 60
"""Steps from which and up to which a script gets slower, if not all are let end before."""


def data() -> tuple[Tensor, Tensor]:
    x = torch.randn(150, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return x, (x.sum(1) > 0).long()


def worker(script: Any, log: Path, environment: dict[str, str]) -> None:
    os.environ.update(environment)
    torch.set_num_threads(1)
    number = environment.get("DOVETAIL_WORKER", "1/alone").rpartition("/")[2]
    pace = Pace(log, 0.01, SLOW_FROM, SLOWEST_AT)  # so that workers come and go in between
    with (log / f"{number}.jsonl").open("w", buffering=1) as out:

        def tell(job: Job) -> None:
            out.write(json.dumps([job.steps_done, job.loss]) + "\n")
            if environment:
                pace(job.steps_done)

        job, end = script(tell)
        numbers = torch.cat([t.detach().flatten() for t in end]).tolist()
        out.write(json.dumps([job.digest(), numbers]) + "\n")


class Forked:
    def __init__(self, script: Any, log: Path, environment: dict[str, str]) -> None:
        self.process: multiprocessing.process.BaseProcess
        self.process = FORKS.Process(target=worker, args=(script, log, environment))
        self.process.start()

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def poll(self) -> int | None:
        return self.process.exitcode

    def kill(self) -> None:
        self.process.kill()


def read(log: Path) -> tuple[dict[int, float], list[tuple[str, list[float]]]]:
    losses, ends = {}, []
    for path in log.glob("*.jsonl"):
        for what, value in lines(path):
            if isinstance(what, str):
                ends.append((what, value))
            else:
                losses[what] = value
    return losses, ends


def trained_alone(folder: Path, script: Any) -> tuple[Path, Path]:
    """Runs a script alone; returns where it wrote, and where workers of it may together."""
    alone, together = folder / "alone", folder / "together"
    alone.mkdir()
    together.mkdir()
    Forked(script, alone, {}).process.join()
    return alone, together


def check_same(alone: Path, together: Path) -> None:
    """Checks that two who trained to the end did each step as the one alone, to the same state."""
    plain, ((_, end),) = read(alone)
    losses, ends = read(together)
    assert sorted(losses) == sorted(plain)
    assert [losses[i] for i in sorted(losses)] == pytest.approx([plain[i] for i in sorted(plain)])
    assert len({digest for digest, _ in ends}) == 1
    assert len(ends) == 2
    assert ends[0][1] == pytest.approx(end, rel=1e-8, abs=1e-10)

"""Workers of a whole script each, and what they wrote down."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from train_scene import FORKS

from dovetail.train import Job


def data() -> tuple[Tensor, Tensor]:
    x = torch.randn(150, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return x, (x.sum(1) > 0).long()


def worker(script: Any, log: Path, environment: dict[str, str]) -> None:
    os.environ.update(environment)
    torch.set_num_threads(1)
    number = environment.get("DOVETAIL_WORKER", "1/alone").rpartition("/")[2]
    with (log / f"{number}.jsonl").open("w", buffering=1) as out:

        def tell(job: Job) -> None:
            print(json.dumps([job.steps_done, job.loss]), file=out)
            time.sleep(0.01)  # so that workers come and go in between

        job, end = script(tell)
        numbers = torch.cat([t.detach().flatten() for t in end]).tolist()
        print(json.dumps([job.digest(), numbers]), file=out)


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
        for line in path.read_text().splitlines():
            what, value = json.loads(line)
            if isinstance(what, str):
                ends.append((what, value))
            else:
                losses[what] = value
    return losses, ends

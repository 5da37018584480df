"""The job that `benchmarks.gpu` measures: square layers of as many parameters as asked for.

It writes down when each step ended, and at its end how fast it was, what it held of the device,
and a checksum of its state.
"""

import argparse
import json
import os
import time
from pathlib import Path

import torch
from torch import nn

from dovetail.train import Job
from dovetail.train.process.device import DeviceMemory

WARM_UP = 3


def model_of(parameter_bytes: float, width: int) -> nn.Sequential:
    layers = max(1, round(parameter_bytes / 4 / (width * width + width)))
    return nn.Sequential(
        *(nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(layers))
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--megabytes", type=float, default=20.0)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--steps", type=int, default=0, help="0: until --seconds are over")
    parser.add_argument("--seconds", type=float, default=0.0, help="0: until all data are used")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--log", type=Path)
    options = parser.parse_args()
    torch.manual_seed(0)
    model = model_of(options.megabytes * 1e6, options.width).to(options.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    data = (torch.randn(64 * options.batch_size, options.width),)
    job = Job(
        model,
        optimizer,
        data=data,
        batch_size=options.batch_size,
        epochs=100_000,
        folder=options.folder,
    )
    name = os.environ.get("DOVETAIL_WORKER", "/0").rpartition("/")[2]
    log = options.log / f"{name}.jsonl" if options.log else Path(os.devnull)
    with log.open("w", buffering=1) as file:
        train(job, model, options, lambda **said: file.write(json.dumps(said) + "\n"))


def train(job: Job, model: nn.Module, options: argparse.Namespace, note) -> None:
    first = last = -1
    warm: tuple[float, int] | None = None
    started_s = time.time()
    for (x,) in job.batches():
        if first < 0:  # the state is there from here on, a checkpoint's or the others'
            first = last = job.steps_done
            note(digest_at_first=job.digest())
        job.backward(model(x).square().mean())
        job.step()
        if job.steps_done == last:
            continue
        last, ended_s = job.steps_done, time.time()
        note(step=last, samples=job.samples_done, from_s=started_s, to_s=ended_s)
        started_s = ended_s
        if last == first + WARM_UP:
            warm = ended_s, job.samples_done
        over = options.seconds and warm and ended_s - warm[0] > options.seconds
        if over or (options.steps and last >= first + options.steps):
            job.stop()
    if warm and started_s > warm[0]:
        rate = (job.samples_done - warm[1]) / (started_s - warm[0])
        note(rate=rate, held_bytes=DeviceMemory(job.device).held_bytes(), digest=job.digest())


if __name__ == "__main__":
    main()

"""What a resize costs scripts with checkpoints of their own, which are restarted for it.

    python -m benchmarks.restarts
    python -m benchmarks.restarts --only "hugging-face;lightning" --python VENV/bin/python

Each script trains on the CPU slots of a cluster of its own: on four, on two while another job has
the others, and on four again. Printed are the seconds from the order to the first step on the new
number of workers, the steps that were made twice, and the last losses beside those of a run that
is never resized. transformers and lightning are no dependencies of ours: `--python` names an
interpreter that has them beside torch.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from dovetail.live.client.client import Client
from dovetail.live.store.folder import Folder
from dovetail.wire.spec import JobSpec

ROOT = Path(__file__).parents[1]
EXAMPLES, SCRIPTS = ROOT / "examples/train", ROOT / "benchmarks/restart_scripts"
TORCHRUN = ("-m", "torch.distributed.run")
LOOK_S, OVERDUE_S, WARM = 0.05, 900.0, 30
PRICE_S = 0.1
"""So low that no resize waits until it pays: here the resize itself is measured."""
STEP = re.compile(r"^step (\d+) on (\d+): loss ([\d.]+)$", re.MULTILINE)


@dataclass(frozen=True)
class Case:
    """A script and how it is started; `args` follow the folder or file of its checkpoints."""

    name: str
    script: Path
    starter: tuple[str, ...] = TORCHRUN
    steps: int = 300
    step_s: float = 0.05
    extra: bool = False

    def command(self, python: str, store: str) -> tuple[str, ...]:
        """Returns its command."""
        ours = (str(self.steps), store) if not self.extra else (store, str(self.steps))
        return (python, *self.starter, str(self.script), *ours, str(self.step_s))


CASES = (
    Case("ddp, python", EXAMPLES / "ddp_checkpoints.py", ()),
    Case("ddp, torchrun", EXAMPLES / "ddp_checkpoints.py"),
    Case("fsdp2", EXAMPLES / "fsdp_checkpoints.py"),
    Case("hugging-face", SCRIPTS / "hugging_face.py", extra=True),
    Case("lightning", SCRIPTS / "lightning_fit.py", extra=True),
)


@dataclass
class Run:
    """What one run printed, step by step with the time at which it was read."""

    steps: list[tuple[float, int, int, float]] = field(default_factory=list)
    read: int = 0

    def take(self, text: str) -> None:
        """Takes the output so far."""
        found = STEP.findall(text)
        now = time.monotonic()
        for step, workers, loss in found[self.read :]:
            self.steps.append((now, int(step), int(workers), float(loss)))
        self.read = len(found)

    @property
    def repeated(self) -> int:
        """Returns the steps that were made more than once."""
        return len(self.steps) - len({step for _, step, _, _ in self.steps})

    def last_loss(self) -> float:
        """Returns the mean loss of the last ten steps."""
        return sum(loss for *_, loss in self.steps[-10:]) / 10


class Cluster:
    """Four CPU slots, and what runs there."""

    def __init__(self, home: Path) -> None:
        self.home = home
        dovetail(home, "up", "--engine", "local:4", "--policy", "max-min")
        self.client = Client(home)

    def submit(self, case: Case, python: str) -> int:
        """Submits a script that is resized by restarts."""
        command = case.command(python, str(self.home / "saved"))
        spec = JobSpec(
            case.name, command, str(self.home), gpus=1, min_gpus=1, max_gpus=4,
            restart_s=PRICE_S, grace_s=60.0, environment=(("OMP_NUM_THREADS", "1"),),
        )  # fmt: skip
        return self.client.submit(spec)[0]

    def squeeze(self) -> int:
        """Lets another job take two slots."""
        spec = JobSpec("other", ("sleep", "3600"), "/", gpus=2, min_gpus=2, max_gpus=2)
        return self.client.submit(spec)[0]

    def follow(self, job: int, run: Run, so: Callable[[], bool]) -> float:
        """Reads a job's output until something is so; returns when."""
        path = Folder(self.home).jobs / str(job) / "output.log"
        deadline = time.monotonic() + OVERDUE_S
        while not so():
            if time.monotonic() > deadline or self.client.states(job)[0].state == "FAILED":
                raise SystemExit(f"{path}:\n{path.read_text()[-3000:]}")
            time.sleep(LOOK_S)
            run.take(path.read_text() if path.exists() else "")
        return time.monotonic()


def dovetail(home: Path, command: str, *words: str) -> None:
    """Runs a command of ours on a cluster."""
    line = [sys.executable, "-m", "dovetail", command, "--home", str(home), *words]
    subprocess.run(line, check=True, capture_output=True)


@contextmanager
def cluster() -> Iterator[Cluster]:
    """Gives a cluster; all of it is gone afterwards."""
    home = Path(tempfile.mkdtemp(prefix="dvb", dir="/tmp"))
    up = Cluster(home)
    try:
        yield up
    finally:
        alive = [row.job for row in up.client.jobs().jobs]
        if alive:
            up.client.cancel(*alive)
        dovetail(home, "down", "--drain")
        shutil.rmtree(home, ignore_errors=True)


def measure(case: Case, python: str) -> str:
    """Returns the row of a script."""
    with cluster() as slots:
        run = Run()
        job = slots.submit(case, python)

        def trains(workers: int, after_s: float) -> Callable[[], bool]:
            """Returns the question whether so many workers have made a step since a time."""
            return lambda: any(t > after_s and w == workers for t, _, w, _ in run.steps)

        began_s = time.monotonic()
        slots.follow(job, run, lambda: sum(w == 4 for _, _, w, _ in run.steps) > WARM)
        other, order_s = slots.squeeze(), time.monotonic()
        shrink_s = slots.follow(job, run, trains(2, began_s)) - order_s
        slots.follow(job, run, lambda: sum(w == 2 for _, _, w, _ in run.steps) > WARM)
        slots.client.cancel(other)
        order_s = time.monotonic()
        grow_s = slots.follow(job, run, trains(4, order_s)) - order_s
        slots.follow(job, run, lambda: run.steps[-1][1] >= case.steps)
        slots.client.wait(job)
        plain = Run()
        if case.starter:
            alone = subprocess.run(
                [python, *TORCHRUN, "--standalone", "--nproc-per-node", "4",
                 *case.command(python, str(slots.home / "alone.saved"))[1 + len(case.starter) :]],
                capture_output=True, text=True, check=True, cwd=slots.home,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )  # fmt: skip
            plain.take(alone.stdout)
    fixed = f"{plain.last_loss():10.4f}" if plain.steps else f"{'-':>10}"
    return (
        f"{case.name:<14} {shrink_s:10.1f} {grow_s:10.1f} {run.repeated:10} "
        f"{run.last_loss():10.4f} {fixed}"
    )


def main() -> None:
    """Prints a row for each script."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="ddp, python;ddp, torchrun;fsdp2")
    parser.add_argument("--python", default=sys.executable)
    options = parser.parse_args()
    print(
        f"{'script':<14} {'shrink s':>10} {'grow s':>10} {'twice':>10} {'loss':>10} {'fixed':>10}"
    )
    for case in CASES:
        if case.name in options.only.split(";"):
            print(measure(case, options.python), flush=True)


if __name__ == "__main__":
    main()

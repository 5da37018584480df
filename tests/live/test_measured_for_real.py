"""Real PyTorch jobs on CPU slots under `dovetail up`: what they report is believed.

The whole way: command line, controller, agents, workers, reports, belief, policy. Slow: processes
that import PyTorch, on a machine whose speed nobody promises; so ratios are judged, not times.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dovetail.live.client.client import Client
from dovetail.live.jobs.lifecycle import State
from dovetail.live.store.folder import Folder
from dovetail.live.store.queries import StoreReader
from dovetail.wire.spec import JobSpec

pytestmark = pytest.mark.slow
pytest.importorskip("torch")

SCRIPT = """
import contextlib, fcntl, sys, time
import torch
from torch import nn
from dovetail.train import Job

steps, device = int(sys.argv[1]), sys.argv[2]
torch.manual_seed(0)
data = (torch.randn(2048, 64), torch.randint(0, 10, (2048,)))
model = nn.Linear(64, 10)
sgd = torch.optim.SGD(model.parameters(), 0.01)
job = Job(model, sgd, data=data, batch_size=256, epochs=steps // 8)
begun = False

@contextlib.contextmanager
def on_device():
    # Serves one process at a time, however busy the machine is.
    with open(device or "/dev/null", "a") as file:
        if device:
            fcntl.flock(file, fcntl.LOCK_EX)
            time.sleep(0.02)
        yield

for x, y in job.batches():
    if not begun:
        begun = True
        print("begins at", job.steps_done, flush=True)
    with on_device():
        loss = nn.functional.cross_entropy(model(x), y)
    job.backward(loss)
    job.step()
print("steps", job.steps_done, flush=True)
"""
WITHIN_S = 120.0


class Live:
    """A cluster of CPU slots on this machine."""

    def __init__(self, home: Path, *words: str) -> None:
        self.home = home
        dovetail(home, "up", *words)
        self.client = Client(home)
        self._script = home / "train.py"
        self._script.write_text(SCRIPT)

    def submit(self, model: str, steps: int, device: str = "", **more: Any) -> int:
        """Submits a job that trains so many steps, on a device of its own if it is named."""
        command = (sys.executable, str(self._script), str(steps), device)
        spec = JobSpec(model, command, str(self.home), trains=True, model=model, **more)
        return self.client.submit(spec)[0]

    def facts(self, job: int, kind: str) -> list[dict[str, Any]]:
        """Returns the facts of a kind about a job."""
        said = [json.loads(event.line) for event in self.client.history(job)]
        return [fact for fact in said if fact["e"] == kind]

    def learned(self) -> list[list[Any]]:
        """Returns what the cluster has on record of what it learned."""
        with StoreReader(Folder(self.home).store) as reader:
            said = reader.meta("measured")
        return json.loads(said)["rows"] if said else []

    def until(self, so: Callable[[], object], what: str) -> None:
        """Waits for something."""
        deadline = time.monotonic() + WITHIN_S
        while not so():
            assert time.monotonic() < deadline, f"{what}: {self.client.jobs(ended=True)}"
            time.sleep(0.2)

    def ends_well(self, *jobs: int) -> None:
        """Waits for the end of jobs, which must have completed."""
        ended = self.client.wait(*jobs, timeout_s=WITHIN_S)
        assert [(s.state, s.exit_code) for s in ended] == [(State.COMPLETED, 0)] * len(jobs)


def dovetail(home: Path, command: str, *words: str) -> None:
    """Runs a command of ours on a cluster."""
    line = [sys.executable, "-m", "dovetail", command, "--home", str(home), *words]
    subprocess.run(line, check=True, capture_output=True, timeout=120)


@pytest.fixture
def live() -> Iterator[Callable[..., Live]]:
    """Returns what brings a cluster up; all of it is gone afterwards."""
    home = Path(tempfile.mkdtemp(prefix="dvh", dir="/tmp"))
    up: list[Live] = []

    def bring(*words: str) -> Live:
        up.append(Live(home, *words))
        return up[-1]

    yield bring
    for one in up:
        alive = [row.job for row in one.client.jobs().jobs]
        if alive:
            one.client.cancel(*alive)
        dovetail(home, "down", "--drain")
    shutil.rmtree(home, ignore_errors=True)


def test_two_jobs_that_halve_each_other_are_parted_and_both_finish(
    live: Callable[..., Live],
) -> None:
    cluster = live("--engine", "local:1", "--policy", "sjf-bsbf", "--interference", "1.05")
    device = str(cluster.home / "device")
    host = cluster.submit("a", 1600, device, shareable=True, duration_s=60.0)
    cluster.until(lambda: any(row[0] == "rate" for row in cluster.learned()), "the host alone")
    guest = cluster.submit("b", 1200, device, shareable=True, duration_s=50.0)
    cluster.until(lambda: cluster.facts(guest, "stopped"), "the pairing undone")
    (stopped,) = cluster.facts(guest, "stopped")
    assert stopped["why"] == "pairing undone"
    (ratio,) = [row[4] for row in cluster.learned() if row[0] == "ratio" and row[1] == "a"]
    assert ratio > 1.5, "one device for two"
    assert not cluster.facts(host, "stopped")
    cluster.client.cancel(host)
    cluster.ends_well(guest)
    text = "".join(piece.text for piece in cluster.client.logs(guest))
    first, second = (int(line.split()[-1]) for line in text.splitlines() if "begins" in line)
    assert (first, second > 10) == (0, True), "what it did beside the other is not done again"
    assert "steps 1200" in text


def test_an_elastic_job_is_measured_while_it_trains_and_its_share_readjusted(
    live: Callable[..., Live],
) -> None:
    cluster = live("--engine", "local:2", "--policy", "afs-p")
    job = cluster.submit("net", 100_000, min_gpus=1, gpus=1, max_gpus=2)

    def counts() -> list[int]:
        return sorted(row[3] for row in cluster.learned() if row[0] == "rate")

    cluster.until(lambda: counts() == [1, 2], "both numbers of slots measured")
    shares = [sum(g for _, g in f["on"]) for f in cluster.facts(job, "started")]
    assert shares[:2] == [2, 1], "grown first, then tried on less"
    rates = {row[3]: row[4] for row in cluster.learned() if row[0] == "rate"}
    gains = rates[2] > rates[1]
    best = 2 if gains else 1
    if not 0.9 < rates[2] / rates[1] < 1.1:
        cluster.until(
            lambda: cluster.client.show(job).row.held_gpus == best, f"{best} slots: {rates}"
        )

"""Real programs with checkpoints of their own, resized by restarts on CPU slots of this machine."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dovetail.live.client.client import Client
from dovetail.live.engines.task_environment import NAMES
from dovetail.live.jobs.lifecycle import State
from dovetail.live.store.folder import Folder
from dovetail.wire.spec import JobSpec
from patience import PATIENCE_S, until

EXAMPLES = Path(__file__).parents[2] / "examples/train"
TORCHRUN = (sys.executable, "-m", "torch.distributed.run")
PRICE_S, STEPS = 0.1, 600
SHARDED_STEPS = 120
"""Each has dozens of collectives: on a busy machine some seconds."""
CLOCK = """
import os, signal, sys, time
from pathlib import Path
stop = []
signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
file, steps, mode = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
done = int(file.read_text()) if file.exists() else 0
print("starts", os.environ["RANK"], os.environ["WORLD_SIZE"], done, flush=True)
while done < steps and not (stop and mode != "deaf"):
    time.sleep(0.02)
    done += 1
if stop and mode == "fails":
    sys.exit(3)
if os.environ["RANK"] == "0":
    file.with_suffix(".new").write_text(str(done))
    file.with_suffix(".new").rename(file)
"""


class Slots:
    """A cluster of four CPU slots."""

    def __init__(self, home: Path) -> None:
        self.home = home
        dovetail(home, "up", "--engine", "local:4", "--policy", "max-min")
        self.client = Client(home)
        (home / "clock.py").write_text(CLOCK)

    def submit(self, *command: object, least: int = 1, **more: Any) -> int:
        """Submits a job of up to four slots."""
        words = tuple(map(str, command))
        spec = JobSpec("job", words, str(self.home), gpus=least, min_gpus=least, max_gpus=4, **more)
        return self.client.submit(spec)[0]

    def restarted(self, *command: object, least: int = 1, **more: Any) -> int:
        """Submits a job that is resized by restarts."""
        return self.submit(*command, least=least, restart_s=PRICE_S, **more)

    def squeeze(self, slots: int) -> int:
        """Lets another job take so many slots until it is cancelled."""
        spec = JobSpec("other", ("sleep", "3600"), "/", gpus=slots, min_gpus=slots, max_gpus=slots)
        return self.client.submit(spec)[0]

    def output(self, job: int) -> str:
        """Returns what a job has printed."""
        path = Folder(self.home).jobs / str(job) / "output.log"
        return path.read_text() if path.exists() else ""

    def until(self, job: int, words: str) -> None:
        """Waits until a job has printed what a pattern says."""
        until(
            lambda: re.search(words, self.output(job), re.MULTILINE),
            lambda: f"no {words!r} in:\n{self.output(job)}",
        )

    def ends_well(self, job: int) -> None:
        """Waits for the end of a job, which must have completed without a retry."""
        (end,) = self.client.wait(job, timeout_s=PATIENCE_S)
        assert (end.state, end.exit_code) == (State.COMPLETED, 0), self.output(job)
        assert self.client.show(job).row.retries == 0


def dovetail(home: Path, command: str, *words: str) -> None:
    """Runs a command of ours on a cluster."""
    line = [sys.executable, "-m", "dovetail", command, "--home", str(home), *words]
    subprocess.run(line, check=True, capture_output=True, timeout=PATIENCE_S)


@pytest.fixture
def slots() -> Iterator[Slots]:
    """Gives a cluster; all of it is gone afterwards."""
    home = Path(tempfile.mkdtemp(prefix="dvr", dir="/tmp"))
    cluster = Slots(home)
    yield cluster
    alive = [row.job for row in cluster.client.jobs().jobs]
    if alive:
        cluster.client.cancel(*alive)
    dovetail(home, "down", "--drain")
    shutil.rmtree(home, ignore_errors=True)


def losses(text: str) -> dict[int, tuple[int, float]]:
    """Returns the number of workers and the loss of each step, the last time it was made."""
    lines = re.findall(r"^step (\d+) on (\d+): loss ([\d.]+)$", text, re.MULTILINE)
    return {int(step): (int(workers), float(loss)) for step, workers, loss in lines}


def test_a_program_shrinks_grows_and_goes_on_and_a_deaf_one_is_killed(slots: Slots) -> None:
    clock = (sys.executable, "clock.py")
    job = slots.restarted(*clock, "job.txt", 150, "fails", grace_s=5.0)
    slots.until(job, "^starts 3 4 0$")
    other = slots.squeeze(2)
    # Its error after SIGTERM is no failure: it goes on from what it has saved.
    slots.until(job, "^starts 1 2 0$")
    slots.client.cancel(other)
    slots.ends_well(job)
    assert slots.client.show(job).restarts >= 1
    deaf = slots.restarted(*clock, "deaf.txt", 100_000, "deaf", grace_s=0.3)
    slots.until(deaf, "^starts 3 4 0$")
    slots.squeeze(2)
    slots.until(deaf, "^starts 1 2 0$")
    assert slots.client.show(deaf).grace_kills == 1
    assert any("killed" in fact for fact in slots.client.why(deaf).evidence)


def resized(slots: Slots, job: int) -> None:
    """Lets a job go from four workers to two and back, and to its end."""
    slots.until(job, r"^step \d+ on 4:")
    other = slots.squeeze(2)
    slots.until(job, r"^step \d+ on 2:")
    slots.client.cancel(other)
    slots.until(job, r"(?s)on 2:.*^step \d+ on 4:")
    slots.ends_well(job)


@pytest.mark.slow
@pytest.mark.parametrize("starter", [(sys.executable,), (*TORCHRUN, "--nproc_per_node", "3")])
def test_a_ddp_script_goes_from_four_workers_to_two_and_back(
    slots: Slots, starter: tuple[str, ...]
) -> None:
    pytest.importorskip("torch")
    script = (EXAMPLES / "ddp_checkpoints.py", STEPS)
    job = slots.restarted(*starter, *script, "a.pt", 0.05, grace_s=60.0)
    resized(slots, job)
    found = losses(slots.output(job))
    assert sorted(found) == list(range(1, STEPS + 1))
    # It saves on SIGTERM: no step is made twice.
    assert slots.output(job).count("step ") == STEPS or starter != (sys.executable,)
    alone = subprocess.run(
        [*TORCHRUN, *map(str, script), str(slots.home / "b.pt")],
        capture_output=True, text=True, timeout=PATIENCE_S, check=True,
    ).stdout  # fmt: skip
    worst = max(abs(loss - found[step][1]) for step, (_, loss) in losses(alone).items())
    assert worst < 1e-3


@pytest.mark.slow
def test_fsdp2_goes_from_two_workers_to_four_and_back(slots: Slots) -> None:
    pytest.importorskip("torch")
    other = slots.squeeze(2)
    script = (EXAMPLES / "fsdp_checkpoints.py", SHARDED_STEPS, "checkpoints", 0.05)
    job = slots.restarted(*TORCHRUN, *script, least=2, grace_s=60.0)
    slots.until(job, r"^step \d+ on 2:")
    slots.client.cancel(other)
    slots.until(job, r"^step \d+ on 4:")
    slots.squeeze(2)
    slots.until(job, r"(?s)on 4:.*^step \d+ on 2:")
    slots.ends_well(job)
    found = losses(slots.output(job))
    assert sorted(found) == list(range(1, SHARDED_STEPS + 1))
    assert set(re.findall(r"^step \d+ on (\d+):", slots.output(job), re.MULTILINE)) == {"2", "4"}
    # Each restart repeats at most what came after the newest checkpoint, to the same losses.
    made = re.findall(r"^step (\d+) on \d+: loss ([\d.]+)$", slots.output(job), re.MULTILINE)
    assert SHARDED_STEPS <= len(made) <= SHARDED_STEPS + 2 * 10
    assert all(abs(float(loss) - found[int(step)][1]) < 1e-3 for step, loss in made)


@pytest.mark.slow
def test_each_process_has_the_variables_that_torchrun_sets(slots: Slots) -> None:
    pytest.importorskip("torch")
    tell = "import json, os; print('told', json.dumps(dict(os.environ)), flush=True)"
    script = slots.home / "tell.py"
    script.write_text(tell)
    told = []
    for starter in ((sys.executable,), TORCHRUN):
        job = slots.restarted(*starter, script)
        slots.ends_well(job)
        lines = re.findall(r"^told (.*)$", slots.output(job), re.MULTILINE)
        told.append(sorted((json.loads(line) for line in lines), key=lambda v: v["RANK"]))
    ours, theirs = told
    assert len(ours) == len(theirs) == 4
    for one, other in zip(ours, theirs, strict=True):
        names = {n for n in other if n in NAMES or n.startswith(("TORCHELASTIC_", "TORCH_NCCL_"))}
        # Only torchrun has a file for errors, signals of its own, and a store.
        alike = names - {"TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_SIGNALS_TO_HANDLE"}
        assert alike <= one.keys()
        apart = {name for name in alike if one[name] != other[name]}
        assert apart <= {
            *("MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_MAX_RESTARTS"),
            "TORCHELASTIC_USE_AGENT_STORE",
        }
        assert other["TORCHELASTIC_RUN_ID"].isdecimal()
        assert "NODE_RANK" not in other

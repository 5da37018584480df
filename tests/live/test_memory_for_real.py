"""Real jobs that share a CPU slot under `dovetail up`: the kernel bounds each to its part.

The whole way: command line, controller, agent, control groups, workers. Slow: real processes.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail.live.client.client import Client
from dovetail.live.engines.cgroup import MEMORY, ROOT, ControlGroups
from dovetail.live.engines.devices import machine_memory_bytes
from dovetail.live.jobs.lifecycle import State
from dovetail.wire.spec import JobSpec
from patience import PATIENCE_S, until

pytestmark = pytest.mark.slow

PLAIN = """
import os, pathlib, sys, time
home, name = pathlib.Path(sys.argv[1]), sys.argv[2]
(home / f"{name}.saw").write_text((home / "limit").read_text() if (home / "limit").exists() else "")
(home / "written").write_text(str(os.getpid()))
(home / "written").rename(home / f"{name}.pid")
while not (home / f"{name}.go").exists():
    time.sleep(0.01)
"""
TRAINS = """
import os, pathlib, sys, time
import torch
from torch import nn
from dovetail.train import Job

home, name = pathlib.Path(sys.argv[1]), sys.argv[2]
torch.manual_seed(0)
model = nn.Linear(4, 1)
sgd = torch.optim.SGD(model.parameters(), 0.01)
job = Job(model, sgd, data=(torch.randn(64, 4),), batch_size=8, steps=1_000_000)
for (x,) in job.batches():
    job.backward(model(x).mean())
    job.step()
    time.sleep(0.01)
    if job.steps_done == 1:
        (home / "written").write_text(str(os.getpid()))
        (home / "written").rename(home / f"{name}.pid")
    if (home / f"{name}.go").exists():
        job.stop()
"""


def limit_of(process: int) -> Path:
    """Returns the file in which the kernel has the bound of a process's memory."""
    for line in Path(f"/proc/{process}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return ROOT / "memory" / path.lstrip("/") / "memory.limit_in_bytes"
    return ROOT / path.lstrip("/") / "memory.max"


@pytest.fixture
def home() -> Iterator[Path]:
    """Returns the folder of a cluster of one slot, which is down afterwards."""
    groups = ControlGroups.below_own(f"dovetail-test-{os.getpid()}")
    groups.close()
    if MEMORY not in groups.enforces:
        pytest.skip("no control group of memory can be made here")
    path = Path(tempfile.mkdtemp(prefix="dvm", dir="/tmp"))
    dovetail(path, "up", "--engine", "local:1", "--policy", "sjf-ffs")
    try:
        yield path
    finally:
        for name in ("host", "guest"):
            (path / f"{name}.go").touch()
        dovetail(path, "down", "--drain")
        shutil.rmtree(path, ignore_errors=True)


def dovetail(home: Path, command: str, *words: str) -> None:
    """Runs a command of ours on a cluster."""
    line = [sys.executable, "-m", "dovetail", command, "--home", str(home), *words]
    subprocess.run(line, check=True, capture_output=True, timeout=PATIENCE_S)


def submit(home: Path, name: str, text: str) -> int:
    """Submits a job that runs until it is told to go on."""
    script = home / f"{name}.py"
    script.write_text(text)
    command = (sys.executable, str(script), str(home), name)
    spec = JobSpec(name, command, str(home), trains=text is TRAINS, shareable=True, model=name)
    return Client(home, patience_s=PATIENCE_S).submit(spec)[0]


def process_of(home: Path, name: str) -> int:
    """Returns the process of a job, once it runs."""
    file = home / f"{name}.pid"
    until(file.exists)
    return int(file.read_text())


@pytest.mark.parametrize("text", [PLAIN, TRAINS], ids=["plain", "trains"])
def test_a_host_is_bounded_before_its_guest_begins_and_free_again_when_it_is_gone(
    home: Path, text: str
) -> None:
    if text is TRAINS:
        pytest.importorskip("torch")
    host = submit(home, "host", text)
    limit = limit_of(process_of(home, "host"))
    assert int(limit.read_text()) > machine_memory_bytes(), "alone it has no bound"
    (home / "limit").symlink_to(limit)
    guest = submit(home, "guest", PLAIN)
    process_of(home, "guest")
    bound = int((home / "guest.saw").read_text())
    assert bound < machine_memory_bytes(), "it was within it before its guest had begun"
    own = int(limit_of(process_of(home, "guest")).read_text())
    assert bound + own <= machine_memory_bytes()
    (home / "guest.go").touch()
    until(lambda: int(limit.read_text()) > machine_memory_bytes())
    (home / "host.go").touch()
    ended = Client(home, patience_s=PATIENCE_S).wait(host, guest, timeout_s=PATIENCE_S)
    assert [(s.state, s.exit_code) for s in ended] == [(State.COMPLETED, 0)] * 2

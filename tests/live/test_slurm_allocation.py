"""A cluster in allocations of a real Slurm, by the batch script of the examples: an elastic job
over three machines lives through all that befalls them, and goes on in the next allocation.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from dovetail.core.errors import DovetailError
from dovetail.live.client.client import Client
from dovetail.wire.spec import JobSpec
from patience import PATIENCE_S, until
from tests import slurm_machines
from tests.slurm_cluster import Node, Site
from tests.slurm_machines import SlurmMachines

pytest.importorskip("torch")
pytest.importorskip("cryptography")

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "cluster.sbatch"
SITE = Site(
    nodes=tuple(Node(f"n{number}", 4) for number in (1, 2, 3)),
    partitions=("gpu Nodes=n[1-3] Default=YES State=UP MaxTime=INFINITE",),
    # Folders on the nodes' disks go by the number of the job, and these nodes share a disk.
    settings=(f"FirstJobId={os.getpid()}",),
)
ALL = {"n1", "n2", "n3"}
SCRIPT = """
import os, socket, sys, time
import torch
from torch import nn
from dovetail.train import Job

place, steps = sys.argv[1], int(sys.argv[2])
assert not [name for name in os.environ if name.startswith("SLURM_STEP")]
torch.manual_seed(0)
data = (torch.randn(96, 4), torch.randint(0, 2, (96,)))
model = nn.Linear(4, 2)
job = Job(model, torch.optim.SGD(model.parameters(), 0.1), data=data, batch_size=12, epochs=9999)
host, pause_s = socket.gethostname(), float(os.environ.get("PAUSE_S", "0.02"))
for x, y in job.batches():
    loss = nn.functional.cross_entropy(model(x), y)
    job.backward(loss)
    job.step()
    with torch.no_grad():
        whole = nn.functional.cross_entropy(model(data[0]), data[1]).item()
    with open(f"{place}.steps", "a") as file:
        now = time.monotonic()
        file.write(f"{job.steps_done} {12 // len(x)} {host} {os.getpid()} {whole:.9g} {now}\\n")
    if job.steps_done >= steps or os.path.exists(f"{place}.go"):
        break
    time.sleep(pause_s * len(x))  # so that more workers are faster
"""


@dataclass(frozen=True)
class Step:
    """A line that a worker wrote after a step: with how many workers, where, and the loss."""

    number: int
    workers: int
    host: str
    process: int
    loss: float
    at_s: float


class AllocatedCluster:
    """A cluster in a job of Slurm, as the example starts it; all it leaves is in `root`."""

    def __init__(self, slurm: SlurmMachines, root: Path) -> None:
        self.slurm, self.root, self.shared = slurm, root, root / "shared"
        self.job = 0
        (root / "train.py").write_text(SCRIPT)

    @property
    def home(self) -> Path:
        """The cluster's folder, on the disk of the first node."""
        return Path(f"/tmp/dovetail-home-{self.job}-0")

    @property
    def client(self) -> Client:
        """Returns a client of the controller."""
        return Client(self.home, patience_s=PATIENCE_S)

    def submit(self, *options: str) -> int:
        """Submits the batch script; returns the number of the allocation."""
        where = [f"--output={self.root}/out.%j", f"--chdir={self.root}", "--parsable"]
        where.append(f"--export=ALL,DOVETAIL_SHARED={self.shared}")
        up = ("--policy", "max-min", "--engine", "slurm:1")
        return int(self.slurm.run("sbatch", *where, *options, str(EXAMPLE), *up))

    def said(self) -> str:
        """Returns what controllers and agents wrote."""
        logs = [*sorted(self.root.glob("out.*")), *sorted((self.home / "nodes").glob("*.log"))]
        return "\n".join(f"== {f.name}\n{f.read_text()[-4000:]}" for f in logs)

    def until(self, true: Callable[[], object], what: str) -> None:
        """Waits until something is true."""
        until(true, lambda: f"never: {what}\n{self.said()}")

    def states(self) -> dict[str, str]:
        """Returns the state of each node, none while no controller answers."""
        with suppress(DovetailError):
            return {row.name: row.state for row in Client(self.home, patience_s=1).nodes().nodes}
        return {}

    def is_up(self, nodes: set[str]) -> bool:
        """Returns whether a controller answers that has these nodes, and these alone, up."""
        return {name for name, state in self.states().items() if state == "up"} == nodes

    def train(self, name: str) -> int:
        """Submits an elastic job of up to three workers."""
        command = (sys.executable, str(self.root / "train.py"), str(self.root / name), "1000000")
        spec = JobSpec(
            name,
            command,
            str(self.root),
            trains=True,
            gpus=3,
            min_gpus=1,
            max_gpus=3,
            duration_s=3600.0,
        )
        return self.client.submit(spec)[0]

    def steps(self, name: str) -> list[Step]:
        """Returns what the workers of a job wrote."""
        path = self.root / f"{name}.steps"
        found = []
        for line in path.read_text().splitlines() if path.exists() else ():
            fields = line.split()
            if len(fields) == 6:
                number, workers, host, process, loss, at_s = fields
                found.append(
                    Step(int(number), int(workers), host, int(process), float(loss), float(at_s))
                )
        return found

    def trains_on(self, name: str, hosts: set[str]) -> set[tuple[str, int]]:
        """Waits for steps by a worker on each of these hosts and no other; returns who they are."""
        before = len(self.steps(name))
        last: list[set[tuple[str, int]]] = []

        def together() -> bool:
            by_step: dict[int, list[Step]] = {}
            for step in self.steps(name)[before:]:
                by_step.setdefault(step.number, []).append(step)
            last[:] = [
                {(step.host, step.process) for step in group}
                for group in by_step.values()
                if {step.host for step in group} == hosts and len(group) == group[0].workers
            ]
            return bool(last)

        self.until(together, f"{name} trains on {hosts}")
        return last[-1]

    def kill(self, *words: str) -> None:
        """Kills the processes of which the command has all these words."""
        found = processes(*words)
        assert found, words
        for process in found:
            os.kill(process, signal.SIGKILL)

    def longest_gap_s(self, name: str, since: int) -> float:
        """Returns the longest time between two lines, from the last of so many on."""
        times = [step.at_s for step in self.steps(name)[since - 1 :]]
        return max(b - a for a, b in pairwise(times))


def processes(*words: str) -> list[int]:
    """Returns the processes of Python of which the command has all these words."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            command = (entry / "cmdline").read_bytes().decode().split("\0")
            if "python" in command[0] and all(any(w in c for c in command) for w in words):
                found.append(int(entry.name))
    return found


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[AllocatedCluster]:
    if why := slurm_machines.reason_to_skip():
        pytest.skip(why)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    root = Path(tempfile.mkdtemp(dir="/tmp", prefix="ds"))
    with SlurmMachines(SITE) as slurm:
        yield AllocatedCluster(slurm, root)
    shutil.rmtree(root, ignore_errors=True)


def minutes(job: str) -> int:
    """Returns the whole minutes in the elapsed time of a job, as squeue has it."""
    hours, minute, _ = re.fullmatch(r"(?:(\d+):)?(\d+):(\d+)", job.strip()).groups()  # type: ignore[union-attr]
    return int(hours or 0) * 60 + int(minute)


@pytest.mark.slow
def test_an_elastic_job_outlives_all_that_befalls_an_allocation_of_three_nodes(
    cluster: AllocatedCluster,
) -> None:
    slurm = cluster.slurm
    cluster.job = first = slurm_job = cluster.submit("--time=60", "--signal=B:TERM@60")
    # It waits for the end of the first; it does not get the node that has the cluster's folder.
    second = cluster.submit("--nodes=2", "--exclude=n1")
    cluster.until(lambda: cluster.is_up(ALL), "all nodes are up")
    assert slurm.state(second) == "PENDING"
    job = cluster.train("elastic")
    cluster.trains_on("elastic", ALL)

    # The network of a node is cut: the others train on, and it comes back into the same job.
    line = len(cluster.steps("elastic"))
    slurm.machines.cut("n3")
    cluster.trains_on("elastic", {"n1", "n2"})
    print(f"n3 cut: no step for {cluster.longest_gap_s('elastic', line):.1f} s")
    slurm.machines.heal("n3")
    healed_s = time.monotonic()
    before = cluster.trains_on("elastic", ALL)
    print(f"n3 back: a step with it after {time.monotonic() - healed_s:.1f} s")

    # The controller is killed: the next one takes the same processes over.
    killed = cluster.client.ping().pid
    cluster.kill("up", "--foreground", "slurm:1")
    cluster.until(lambda: cluster.is_up(ALL), "another controller answers")
    assert cluster.client.ping().pid != killed
    assert cluster.trains_on("elastic", ALL) == before, cluster.said()

    # An agent is killed: its step ends, and another one starts an agent again.
    cluster.kill("agent", "--join", f"-{first}-n2")
    cluster.until(
        lambda: bool(processes("agent", "--join", f"-{first}-n2")), "n2 has an agent again"
    )
    cluster.until(lambda: cluster.is_up(ALL), "it has joined")
    cluster.trains_on("elastic", ALL)
    assert cluster.client.show(job).row.state == "RUNNING"

    # The time limit comes: the job saves, and goes on in the next allocation where it was.
    limit = minutes(slurm.run("squeue", "-h", "-j", str(first), "-o", "%M")) + 2
    slurm.run("scontrol", "update", f"JobId={first}", f"TimeLimit={limit}")
    slurm.wait_for_state(first, "COMPLETED", seconds=PATIENCE_S)
    assert not processes("-" + str(slurm_job) + "-"), "workers, agents or a controller are left"
    assert "SIGTERM: jobs save" in (cluster.root / f"out.{first}").read_text()
    line, saved = len(cluster.steps("elastic")), cluster.steps("elastic")[-1].number
    cluster.job = second
    cluster.until(lambda: cluster.is_up({"n2", "n3"}), "the next allocation is up")
    cluster.trains_on("elastic", {"n2", "n3"})
    assert cluster.steps("elastic")[line].number == saved + 1, "not a step is lost"
    (cluster.root / "elastic.go").touch()
    (end,) = cluster.client.wait(job, timeout_s=PATIENCE_S)
    assert end.state == "COMPLETED", cluster.said()

    # scancel: nothing is left.
    cluster.train("endless")
    cluster.trains_on("endless", {"n2", "n3"})
    slurm.scancel(second)
    slurm.wait_for_state(second, "CANCELLED", seconds=PATIENCE_S)
    cluster.until(lambda: not processes(str(cluster.root)), "its workers have ended")
    cluster.until(lambda: not processes(f"-{second}-"), "its agents have ended")
    cluster.until(
        lambda: not processes("up", "--foreground", "slurm:1"), "its controller has ended"
    )

    # What it learned is what it would have learned on one node that nothing befell.
    steps = cluster.steps("elastic")
    alone = [sys.executable, "train.py", "alone", str(max(step.number for step in steps))]
    environment = {**os.environ, "PAUSE_S": "0"}
    subprocess.run(alone, cwd=cluster.root, env=environment, check=True, timeout=PATIENCE_S)
    undisturbed = {step.number: step.loss for step in cluster.steps("alone")}
    assert {step.number for step in steps} == set(undisturbed), "each step was made"
    assert all(step.loss == pytest.approx(undisturbed[step.number], rel=1e-4) for step in steps)

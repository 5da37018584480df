"""An elastic job over three nodes at addresses of their own, of which each part is killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from doc_pages import ROOT, blocks, command_lines
from dovetail.live.client.client import Client
from joined_cluster import JoinedCluster
from patience import PATIENCE_S, is_there
from ssh_machines import DOVETAIL, SshMachines

pytest.importorskip("torch")
pytest.importorskip("cryptography")

HOSTS = {"n2": "127.0.0.2", "n3": "127.0.0.3", "n4": "127.0.0.4"}
POLICY = "max-min"
"""Gives a job all GPUs, whatever it gains: on a busy machine another policy may measure no gain."""
UP = dict.fromkeys(HOSTS, "up")


class SshCluster(JoinedCluster):
    """Its agents are started by ssh, from an sshd that listens on the address of each node."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, dict.fromkeys(HOSTS, 1), HOSTS)
        self.machines = SshMachines(root / "ssh", list(HOSTS.values()))
        self.engine = f"ssh:{self.file}"
        self.environment["PATH"] = self.machines.path
        self.file.write_text("".join(self._entry(name) for name in HOSTS))

    def _entry(self, name: str) -> str:
        where = f'address = "{HOSTS[name]}"\nhost = "{HOSTS[name]}"\nport = {self.machines.port}\n'
        what = f'folder = "{self.root / name}"\ncommand = "{DOVETAIL}"\nslots = 1\n'
        return f'[[node]]\nname = "{name}"\n{where}{what}'

    def agent(self, name: str) -> int:
        """Returns the process of the agent of a node."""
        return int((self.root / name / "agent.lock").read_text() or "0")

    def close(self) -> None:
        super().close()
        self.machines.close()


@pytest.fixture
def root() -> Iterator[Path]:
    root = Path(tempfile.mkdtemp(dir="/tmp", prefix="dj"))
    yield root
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def cluster(root: Path) -> Iterator[JoinedCluster]:
    cluster = JoinedCluster(root, dict.fromkeys(HOSTS, 1), HOSTS)
    yield cluster
    cluster.close()


@pytest.fixture
def ssh_cluster(root: Path) -> Iterator[SshCluster]:
    cluster = SshCluster(root)
    yield cluster
    cluster.close()


def test_a_job_over_three_nodes_learns_the_same_whatever_is_killed(cluster: JoinedCluster) -> None:
    cluster.start("--policy", POLICY)
    for name in HOSTS:
        cluster.join(name)
    cluster.until(cluster.answers, "a controller answers")
    cluster.until(lambda: cluster.states() == UP, "all nodes are up")
    job = cluster.train("elastic", "1..3")
    first = cluster.trains_on("elastic", 3, "it trains on all nodes")

    # An agent: its worker trains on, and the next agent takes it over.
    cluster.signal("n2", signal.SIGKILL)
    cluster.join("n2")
    cluster.until(lambda: "found 1 running workers" in cluster.said(), "it is found")
    assert all(map(is_there, first))

    # A node with all that runs there: the others train on, and it comes back into the same job.
    cluster.signal_machine("n3", signal.SIGKILL)
    two = cluster.trains_on("elastic", 2, "it trains on two nodes")
    # A busy machine may have been silent for 10 s, and then has another worker.
    assert two & first, "in the same job"
    cluster.agents["n3"].wait()
    cluster.join("n3")
    three = cluster.trains_on("elastic", 3, "it trains on all nodes again")
    assert two & three, "it was not started anew"

    # The controller: the next one has the same processes.
    cluster.kill()
    cluster.start("--policy", POLICY)
    cluster.until(cluster.answers, "another controller answers")
    assert cluster.trains_on("elastic", 3, "it trains on") == three

    cluster.go_on("elastic")
    (end,) = cluster.client.wait(job, timeout_s=PATIENCE_S)
    assert end.state == "COMPLETED", cluster.said()
    curve = cluster.curve("elastic")
    assert sorted(curve) == list(range(1, max(curve) + 1)), "every step is done"
    assert cluster.undisturbed(max(curve)) == pytest.approx(curve, rel=1e-4)


def test_agents_that_ssh_started_outlive_it_and_are_started_again(ssh_cluster: SshCluster) -> None:
    cluster = ssh_cluster
    cluster.start("--policy", POLICY)
    cluster.until(cluster.answers, "a controller answers")
    cluster.until(lambda: cluster.states() == UP, "all nodes are up")
    job = cluster.train("elastic", "1..3")
    three = cluster.trains_on("elastic", 3, "it trains on all nodes")
    before = cluster.agent("n2")
    os.kill(before, signal.SIGKILL)
    cluster.until(
        lambda: cluster.agent("n2") != before and cluster.states() == UP, "an agent is started"
    )
    assert three & cluster.trains_on("elastic", 3, "it trains on all nodes again")
    cluster.go_on("elastic")
    (end,) = cluster.client.wait(job, timeout_s=PATIENCE_S)
    assert end.state == "COMPLETED", cluster.said()
    agents = [cluster.agent(name) for name in HOSTS]
    cluster.client.down()
    assert cluster.controller is not None
    assert cluster.controller.wait(PATIENCE_S) == 0
    assert not any(map(is_there, agents)), "no job runs: agents end with the controller"
    assert not any((cluster.root / name / "join").exists() for name in HOSTS)


def test_the_two_commands_of_the_readme_start_two_nodes(root: Path) -> None:
    shown = next(b.text for b in blocks(ROOT / "README.md") if "agent --join" in b.text)
    first, second = command_lines(shown)
    cluster = JoinedCluster(root, {"n1": 1, "n2": 1})
    cluster.home = root / ".dovetail"
    cluster.client = Client(cluster.home, patience_s=PATIENCE_S)
    user = {**os.environ, "HOME": str(root), "PATH": f"{DOVETAIL.parent}:{os.environ['PATH']}"}
    user.pop("DOVETAIL_HOME", None)
    try:
        up = subprocess.Popen(first, shell=True, cwd=ROOT, env=user, stdout=subprocess.DEVNULL)
        cluster.until((cluster.home / "join" / "n2").exists, "there are join words")
        subprocess.run(second, shell=True, cwd=root, env=user, check=True)
        assert up.wait(PATIENCE_S) == 0
        assert cluster.states() == {"n1": "up", "n2": "up"}
        cluster.client.down()
    finally:
        cluster.close()


@pytest.mark.slow
def test_an_agent_that_hangs_alone_is_reconciled_when_it_goes_on(cluster: JoinedCluster) -> None:
    cluster.start("--policy", POLICY)
    for name in HOSTS:
        cluster.join(name)
    cluster.until(cluster.answers, "a controller answers")
    cluster.until(lambda: cluster.states() == UP, "all nodes are up")
    job = cluster.train("elastic", "1..3")
    cluster.trains_on("elastic", 3, "it trains on all nodes")
    cluster.signal("n2", signal.SIGSTOP)
    cluster.until(lambda: cluster.states()["n2"] == "down", "a silent node is down")
    cluster.until(lambda: cluster.client.show(job).row.held_gpus < 3, "the plan has two nodes")
    steps = len(cluster.steps("elastic"))
    cluster.until(lambda: len(cluster.steps("elastic")) > steps, "it trains on")
    cluster.signal("n2", signal.SIGCONT)
    cluster.until(lambda: cluster.states() == UP, "it is heard again")
    cluster.until(lambda: cluster.client.show(job).row.held_gpus == 3, "the plan has it")
    cluster.trains_on("elastic", 3, "so has the job")
    cluster.go_on("elastic")
    (end,) = cluster.client.wait(job, timeout_s=PATIENCE_S)
    assert end.state == "COMPLETED", cluster.said()
    curve = cluster.curve("elastic")
    assert sorted(curve) == list(range(1, max(curve) + 1)), "every step is done"

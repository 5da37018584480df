"""The Ray engine on a real Ray: agents outlive raylets, and are started anew by them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from dovetail.core.errors import DovetailError
from patience import is_there
from ray_machines import HEAD, RayCluster, RayMachines

pytest.importorskip("torch")
pytest.importorskip("cryptography")
pytest.importorskip("ray", reason="needs pip install 'dovetail[ray]'")
pytestmark = pytest.mark.slow


@pytest.fixture
def root() -> Iterator[Path]:
    root = Path(tempfile.mkdtemp(dir="/tmp", prefix="dr"))
    yield root
    shutil.rmtree(root, ignore_errors=True)


def test_a_job_trains_on_over_deaths_of_raylet_controller_and_agent(root: Path) -> None:
    cluster = RayCluster(root, {"n1": 1, "n2": 2})
    try:
        _train_over_deaths(cluster)
    finally:
        cluster.close()


def _train_over_deaths(cluster: RayCluster) -> None:
    ray = cluster.ray
    cluster.start("--policy", "fifo")
    cluster.until(cluster.answers, "a controller answers")
    cluster.until(lambda: cluster.states() == {"n1": "up", "n2": "up"}, "both nodes are up")
    job = cluster.train("elastic", "3")
    first = cluster.trains_on("elastic", 3, "it trains on both nodes")
    worker = min(first)
    environment = Path(f"/proc/{worker}/environ").read_bytes()
    assert b"RAY_" not in environment, "a job finds nothing of Ray's in its environment"
    assert Path(f"/proc/{worker}/oom_score_adj").read_text() != "1000\n"

    # A dead raylet takes its actor with it, and nothing of ours.
    (actor,) = ray.processes("n2", "ray::AgentStart")
    agent = cluster.agent("n2")
    os.kill(ray.raylet("n2"), signal.SIGKILL)
    cluster.until(lambda: not is_there(actor), "the actor ends with its raylet")
    assert cluster.trains_on("elastic", 3, "it trains on") == first, "the same processes"
    assert is_there(agent)

    # A controller that does not find the node in Ray still adopts what runs there.
    cluster.kill()
    cluster.start("--policy", "fifo")
    cluster.until(cluster.answers, "another controller answers")
    cluster.until(lambda: cluster.states() == {"n1": "up", "n2": "up"}, "both nodes are back")
    assert cluster.trains_on("elastic", 3, "it trains on") == first, "the same processes"

    # An agent that dies is started anew where there is a raylet, and takes its workers over.
    ray.start("n2", 2)
    os.kill(agent, signal.SIGKILL)
    cluster.until(lambda: cluster.agent("n2") not in (0, agent), "a new agent runs")
    cluster.until(lambda: "found 2 running workers" in cluster.said(), "it finds the workers")
    cluster.until(lambda: cluster.states() == {"n1": "up", "n2": "up"}, "both nodes are up")
    assert cluster.trains_on("elastic", 3, "it trains on") == first, "the same processes"

    # A node that joins Ray later is one of ours.
    cluster.slots["n3"] = 1
    ray.start("n3", 1)
    cluster.until(lambda: _is_up(cluster, "n3"), "the new node is up")

    cluster.go_on("elastic")
    (end,) = cluster.client.wait(job, timeout_s=240.0)
    assert end.state == "COMPLETED", cluster.said()
    cluster.client.down()
    cluster.until(lambda: not any(map(cluster.agent, cluster.slots)), "agents end with a cluster")
    cluster.until(
        lambda: not any(ray.processes(name, "ray::AgentStart") for name in cluster.slots),
        "so do the actors",
    )
    assert not list(cluster.root.glob("n*/.dovetail-agents/*/*/join")), "and the join words go"


def _is_up(cluster: RayCluster, name: str) -> bool:
    with suppress(DovetailError):  # raised while the controller takes the new node in
        return cluster.states().get(name) == "up"
    return False


def test_a_ray_without_authentication_is_refused(root: Path) -> None:
    ray = RayMachines(root, authenticated=False)
    try:
        command = [sys.executable, "-m", "dovetail", "up", "--home", str(root / "home")]
        done = subprocess.run(
            [*command, "--engine", f"ray:{ray.address}"],
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        ray.end(HEAD)
    assert done.returncode == 2, done.stderr
    assert "this Ray has no token authentication" in done.stderr
    assert "RAY_AUTH_MODE=token" in done.stderr
    assert not (root / "home" / "join").exists(), "no join word was written"

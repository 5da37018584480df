"""Nodes that join a controller over TLS: real agents, killed and silenced while a job trains."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail.cli.main import run
from dovetail.live.client.client import Client
from joined_cluster import JoinedCluster
from patience import PATIENCE_S, is_there, until

pytest.importorskip("torch")
pytest.importorskip("cryptography")


@pytest.fixture
def cluster() -> Iterator[JoinedCluster]:
    root = Path(tempfile.mkdtemp(dir="/tmp", prefix="dj"))
    cluster = JoinedCluster(root, {"n1": 1, "n2": 2})
    yield cluster
    cluster.close()
    shutil.rmtree(root, ignore_errors=True)


@pytest.mark.slow
def test_an_elastic_job_trains_over_nodes_that_are_killed_and_hang(
    cluster: JoinedCluster,
) -> None:
    cluster.start("--policy", "max-min")
    cluster.join("n1")
    cluster.join("n2")
    cluster.until(cluster.answers, "a controller answers")
    cluster.until(lambda: cluster.states() == {"n1": "up", "n2": "up"}, "both nodes are up")
    job = cluster.train("elastic", "1..3")
    first = cluster.trains_on("elastic", 3, "it trains on both nodes")

    # An agent that dies leaves its workers; the next one of its folder takes them over.
    cluster.signal("n2", signal.SIGKILL)
    cluster.join("n2")
    cluster.until(lambda: "found 2 running workers" in cluster.said(), "they are found")
    # So does a controller.
    cluster.kill()
    assert all(map(is_there, first))
    cluster.start("--policy", "max-min")
    cluster.until(cluster.answers, "another controller answers")
    assert cluster.trains_on("elastic", 3, "it trains on") == first, "the same processes"

    # A machine that hangs for 10 s is down: the job goes on without it, and with it once it is
    # heard again.
    cluster.signal_machine("n2", signal.SIGSTOP)
    cluster.until(lambda: cluster.states()["n2"] == "down", "the silent node is down")
    cluster.trains_on("elastic", 1, "it trains on one node")
    cluster.signal_machine("n2", signal.SIGCONT)
    cluster.trains_on("elastic", 3, "the node is back in the same job")

    remote = Client(cluster.home / "client", patience_s=PATIENCE_S)
    assert remote.show(job).row.state == "RUNNING", "clients come in through the gate as well"
    cluster.go_on("elastic")
    (end,) = cluster.client.wait(job, timeout_s=PATIENCE_S)
    assert end.state == "COMPLETED", cluster.said()


def test_a_node_that_joins_later_is_used_and_jobs_run_on(
    cluster: JoinedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.start("--policy", "max-min")
    cluster.join("n1")
    cluster.until(cluster.answers, "a controller answers without n2")
    assert cluster.states() == {"n1": "up"}
    job = cluster.train("elastic", "1..3")
    (process,) = cluster.trains_on("elastic", 1, "it trains on the one node")
    cluster.join("n2")
    assert process in cluster.trains_on("elastic", 3, "it grows onto the node that joined")
    assert cluster.states() == {"n1": "up", "n2": "up"}
    home = ["--home", str(cluster.home)]
    assert run(["drain", "n2", "--reason", "fan", *home]) == 0
    assert "node n2 accepts no new jobs" in capsys.readouterr().out
    until(lambda: cluster.states()["n2"] == "draining")
    assert run(["show", str(job), *home]) == 0
    assert "n1:0 n2:0-1" in capsys.readouterr().out
    os.kill(process, signal.SIGKILL)
    cluster.go_on("elastic")
    (end,) = cluster.client.wait(job, timeout_s=PATIENCE_S)
    assert end.state == "COMPLETED", cluster.said()

"""Storms of real processes: agents, controller, machines and lines fail, and nothing is done twice.

The rules of `test_leases.py`, whose stories are in virtual time, hold here by what the jobs wrote.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from joined_cluster import pids_in
from parted_cluster import PartedCluster, Storm
from patience import PATIENCE_S, until

pytest.importorskip("torch")
pytest.importorskip("cryptography")

ROUNDS = 50
JOBS = {"p0": ("plain", 500, 1), "p1": ("plain", 700, 1), "e0": ("elastic", 500, 3)}
"""Of each job the kind, its steps, and the most workers it may have."""
SMALL = 1e-4


@pytest.fixture
def cluster() -> Iterator[PartedCluster]:
    root = Path(tempfile.mkdtemp(dir="/tmp", prefix="dj"))
    cluster = PartedCluster(root, {"n1": 1, "n2": 1, "n3": 2})
    yield cluster
    cluster.close()
    shutil.rmtree(root, ignore_errors=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_no_storm_makes_two_copies_or_loses_work(cluster: PartedCluster, seed: int) -> None:
    cluster.begin()
    for name in cluster.slots:
        cluster.join(name)
    cluster.until(cluster.answers, "a controller answers")
    cluster.until(lambda: set(cluster.states().values()) == {"up"}, "all nodes are up")
    jobs = {name: cluster.submit(name, *how) for name, how in JOBS.items()}

    storm = Storm(cluster, seed)
    for _ in range(ROUNDS):
        storm.round()
        for name in JOBS:
            assert not (found := cluster.two_copies(name)), "\n".join((found, *storm.told))
    storm.put_right()

    cluster.until(cluster.answers, "a controller answers")
    ends = cluster.client.wait(*jobs.values(), timeout_s=PATIENCE_S)
    told = "\n".join((cluster.said(), *storm.told))
    assert [end.state for end in ends] == ["COMPLETED"] * len(JOBS), told
    for name, (kind, size, _) in JOBS.items():
        assert not (found := cluster.two_copies(name)), "\n".join((found, *storm.told))
        if kind == "elastic":
            assert weights(cluster, name) == pytest.approx(undisturbed(cluster, size), abs=SMALL)
        else:
            assert (cluster.root / f"{name}.done").read_text() == str(size)


def weights(cluster: PartedCluster, name: str) -> dict[int, float]:
    """Returns the weights of a job after each step, as the last worker wrote them."""
    return {int(step): float(value) for _, _, step, value in cluster.log(name)}


def undisturbed(cluster: PartedCluster, steps: int) -> dict[int, float]:
    """Returns the weights of a training that nothing disturbs."""
    command = cluster.command("undisturbed", "elastic", steps, 0.0)
    subprocess.run(command, check=True, timeout=PATIENCE_S, cwd=cluster.root)
    return weights(cluster, "undisturbed")


def test_two_copies_are_seen_in_what_they_write(tmp_path: Path) -> None:
    cluster = PartedCluster(tmp_path, {})
    for rows, is_wrong in (
        (("7", "7", "8", "8"), False),
        (("7", "8", "7"), True),
        (("1 7 1 0.5", "2 8 1 0.5", "1 7 2 0.5", "2 8 2 0.5"), False),
        (("1 7 1 0.5", "2 8 1 0.5", "1 7 2 0.5", "2 8 2 0.5", "1 7 3 0.5"), True),
        (("1 7 1 0", "2 8 1 0", "1 7 2 0", "3 7 3 0", "4 8 4 0", "3 7 4 0"), False),
    ):
        (tmp_path / "job.log").write_text("\n".join((*rows, "")))
        assert bool(cluster.two_copies("job")) == is_wrong, rows


def test_a_machine_is_all_its_processes(tmp_path: Path) -> None:
    command = "import os; os.system('sleep 60; true')"
    keeper = subprocess.Popen([sys.executable, "-c", command, str(tmp_path)])
    try:
        # The shell and its child name no folder.
        until(lambda: len(pids_in(tmp_path)) == 3, lambda: str(pids_in(tmp_path)))
    finally:
        for process in pids_in(tmp_path):
            os.kill(process, signal.SIGKILL)
        keeper.wait()

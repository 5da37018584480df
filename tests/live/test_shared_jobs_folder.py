"""A declared folder that all nodes share, and a controller that is restored from a backup."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail.cli.main import run
from dovetail.live.client.client import Client
from joined_cluster import JoinedCluster
from patience import PATIENCE_S

pytest.importorskip("torch")
pytest.importorskip("cryptography")
pytestmark = pytest.mark.slow
UNSHARED = ("unshare", "--mount", "sh", "-c", 'mount --bind "$0" "$1" && shift && exec "$@"')
"""Runs a command to which a folder is another one."""


@pytest.fixture
def cluster() -> Iterator[JoinedCluster]:
    root = Path(tempfile.mkdtemp(dir="/tmp", prefix="ds"))
    made = JoinedCluster(root, {"n1": 1, "n2": 1})
    for name in ("jobs", "other"):
        (root / name).mkdir(mode=0o700)
    yield made
    made.close()
    shutil.rmtree(root, ignore_errors=True)


def test_an_agent_with_another_folder_is_refused_and_a_restored_controller_finds_the_others(
    cluster: JoinedCluster,
) -> None:
    root = cluster.root
    shared, other = root / "jobs", root / "other"
    if subprocess.run([*UNSHARED, other, shared, "true"], capture_output=True).returncode:
        pytest.skip("no mount of its own is possible here")
    cluster.start("--policy", "afs-l", "--jobs", str(shared))
    cluster.join("n1")
    cluster.until(cluster.answers, "a controller answers")
    cluster.join("n2", None, *UNSHARED, str(other), str(shared))
    cluster.until(lambda: "an old copy; mount" in (root / "n2.log").read_text(), "it says why")
    assert f"n2: the shared folder {shared}" in (root / "said").read_text()
    assert cluster.states() == {"n1": "up"}

    job = cluster.train("elastic", "1")
    first = cluster.trains_on("elastic", 1, "it trains")
    assert (shared / str(job) / "output.log").exists()
    words = root / "words"
    shutil.copytree(cluster.home / "join", words)
    backup = root / "b.db"
    assert run(["backup", str(backup), "--home", str(cluster.home)]) == 0
    cluster.kill()
    # The agent goes by the word that it was given: the machine of the controller is gone.
    shutil.rmtree(cluster.home / "join")
    shutil.rmtree(cluster.home / "gate")
    cluster.home = root / "restored"
    cluster.client = Client(cluster.home, patience_s=PATIENCE_S)
    assert run(["restore", str(backup), "--home", str(cluster.home)]) == 0
    shutil.copytree(words, root / "home" / "join")
    cluster.start("--policy", "afs-l")
    cluster.until(cluster.answers, "the restored controller answers")
    cluster.until(lambda: cluster.states() == {"n1": "up"}, "the agent comes back")
    assert cluster.trains_on("elastic", 1, "it trains on") == first, "the same process"
    cluster.go_on("elastic")
    (end,) = cluster.client.wait(job, timeout_s=PATIENCE_S)
    assert end.state == "COMPLETED", cluster.said()

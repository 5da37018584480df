"""A cluster whose store is lost goes on from a backup: real controller, agents and programs."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from test_live_commands import Cluster, cluster, work

from dovetail.live.store.restored import ROUND
from patience import FOR_EVER_S, is_there

assert cluster, work  # fixtures


def process_of(cluster: Cluster, job: int) -> int:
    """Returns the process of a job, which writes its number into its output."""
    out: list[str] = []

    def said() -> bool:
        out[:] = cluster("logs", job).out.split()
        return bool(out)

    cluster.until(said, f"job {job} says nothing")
    return int(out[0])


def test_a_cluster_whose_store_is_lost_goes_on_from_its_backup(
    cluster: Cluster, work: Path
) -> None:
    sleeper = f"echo $$; exec sleep {FOR_EVER_S}"
    controller = cluster.up("--engine", "local:3", "--policy", "sjf")
    known = cluster.submit("--gpus", 1, "--", "sh", "-c", sleeper)
    process = process_of(cluster, known)
    waits = cluster.submit("--hold", "--", "true")
    said = cluster("backup", work / "b.db", "--json").json
    assert (said["jobs"], said["files"]) == (2, ["up.json"])
    unknown = cluster.submit("--gpus", 1, "--", "sh", "-c", sleeper)
    stranger = process_of(cluster, unknown)
    os.kill(controller, signal.SIGKILL)
    cluster.until(lambda: not is_there(controller), "the controller lives")
    assert "store already" in cluster.refused("restore", work / "b.db")
    for path in cluster.home.glob("store.db*"):
        path.unlink()

    assert "2 jobs" in cluster("restore", work / "b.db").out
    started = cluster("up", "--json")
    cluster.processes.append(int(started.json["pid"]))
    assert "--policy sjf" in started.err, "with the options of the last start"
    cluster.until_state(known, "RUNNING")
    cluster.until(lambda: not is_there(stranger), "a job that no record has runs on")
    assert is_there(process) and process_of(cluster, known) == process
    assert cluster.row(waits)["reason"] == "JobHeldUser"
    later = cluster.submit("--gpus", 1, "--", "true")
    assert later % ROUND == 0
    cluster.until_state(later, "COMPLETED")
    assert "no such job" in cluster.refused("show", unknown)

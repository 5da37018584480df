"""A small, busy Slurm with one job of each kind that a shadow must understand.

`dump` writes what Slurm says of it; the samples in `samples/` were written so by Slurm 22.05.8.
"""

from __future__ import annotations

import gzip
from pathlib import Path

from tests.slurm_cluster import SlurmCluster

SAMPLES = Path(__file__).parent / "samples"
NAMES = ("squeue", "sinfo", "sacct")
LONG = "sleep 600"


def set_scene(cluster: SlurmCluster) -> dict[str, int]:
    """Submits the jobs of the scene; returns their numbers by what they are."""
    jobs: dict[str, int] = {}

    def submit(name: str, user: str, account: str, *options: str) -> None:
        common = [f"--account={account}", f"--job-name={name}", "--time=10"]
        jobs[name] = cluster.submit([*common, *options], LONG, user)

    def runs(name: str) -> None:
        cluster.wait_until(lambda: state(name) == "RUNNING", f"{name} runs")

    def state(name: str) -> str:
        return cluster.run("squeue", "-h", "-j", str(jobs[name]), "-o", "%T").strip()

    cluster.run("scontrol", "update", "nodename=n6", "state=drain", "reason=broken")
    submit("whole", "games", "physics", "--gres=gpu:4", "--comment=dovetail:gpus=1..4")
    submit("fixed", "man", "physics", "--gres=gpu:a100:3", "--no-requeue")
    submit("gang", "mail", "biology", "--nodes=2", "--ntasks=2", "--gres=gpu:4")
    submit("paused", "lp", "physics", "--gres=gpu:1")
    for name in ("whole", "fixed", "gang", "paused"):
        runs(name)
    cluster.run("scontrol", "suspend", str(jobs["paused"]))
    submit("tasks", "news", "biology", "--partition=v100", "--gres=gpu:2", "--array=0-5%3")
    cluster.wait_until(lambda: state("tasks").count("RUNNING") == 2, "two tasks run")
    submit("big", "uucp", "arts", "--nodes=2", "--ntasks=2", "--gres=gpu:4")
    submit("small", "proxy", "arts", "--gres=gpu:2", "--time=2")
    submit("held", "proxy", "arts", "--gres=gpu:1", "--hold")
    submit("later", "proxy", "arts", "--gres=gpu:1", f"--dependency=afterok:{jobs['whole']}")
    submit("begins", "proxy", "arts", "--gres=gpu:1", "--begin=now+1hour")
    submit("plain", "games", "physics", "--partition=v100", "--begin=now+1hour")
    submit("parts", "mail", "biology", "--gres=gpu:2", ":", "--gres=gpu:2")
    cluster.wait_until(lambda: state("small") == "PENDING", "small waits")
    # A look of the scheduler gives every waiting job its reason.
    cluster.wait_until(lambda: " None" not in reasons(cluster), "waiting jobs have reasons")
    return jobs


def reasons(cluster: SlurmCluster) -> str:
    """Returns the reasons of waiting jobs, each after a blank."""
    return cluster.run("squeue", "-h", "-t", "PD", "-o", " %r")


def dump(cluster: SlurmCluster, folder: Path) -> None:
    """Writes what Slurm says of the cluster into compressed files of a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        more = ["-a", "-D", "-S", "now-1hour"] if name == "sacct" else []
        text = cluster.run(name, "--json", *more)
        (folder / f"{name}.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


def sample(name: str) -> str:
    """Returns one recorded answer."""
    return gzip.decompress((SAMPLES / f"{name}.json.gz").read_bytes()).decode()

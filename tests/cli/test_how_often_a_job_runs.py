"""How often the program of each kind of job runs, and what it finds: real programs, all the way."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from test_live_commands import Cluster, cluster, work

from dovetail.live.store.queries import StoreReader

__all__ = ["cluster", "work"]

PROGRAM = """#!/usr/bin/env python3
import json, os
line = json.dumps({**os.environ, "cores": sorted(os.sched_getaffinity(0))}) + "\\n"
os.write(1, line.encode())  # one write, so that lines of two processes do not mix
"""
TRAINS = """
import torch
from torch import nn
from dovetail.train import Job

print("it starts", flush=True)
data = (torch.randn(512, 4), torch.randn(512, 1))
model = nn.Linear(4, 1)
job = Job(model, torch.optim.SGD(model.parameters(), 0.01), data=data, batch_size=8, epochs=10**6)
for x, y in job.batches():
    job.backward(nn.functional.mse_loss(model(x), y))
    job.step()
"""
TORCHRUN = {
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
    "ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT",
    "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS",
    "TORCHELASTIC_USE_AGENT_STORE", "TORCH_NCCL_ASYNC_ERROR_HANDLING",
}  # fmt: skip
"""What `LocalElasticAgent` of torch 2.13 sets, apart from OMP_NUM_THREADS."""
SLURMS = {
    "SLURM_NTASKS",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_JOB_NAME",
    "SLURM_NTASKS_PER_NODE",
}


def runs(cluster: Cluster, *words: object) -> list[dict[str, Any]]:
    """Returns the environment of each process of a job that is over."""
    job = cluster.submit("--wait", *words)
    assert cluster.state(job) == "COMPLETED"
    found = [json.loads(line) for line in cluster("logs", job).out.splitlines()]
    return sorted(found, key=lambda e: int(e.get("RANK", 0)))


def script(folder: Path, *lines: str) -> Path:
    path = folder / "batch.py"
    first, rest = PROGRAM.split("\n", 1)
    path.write_text("\n".join((first, *lines, rest)))
    return path


def test_each_kind_of_job_runs_as_often_as_it_asked_and_finds_its_variables(
    cluster: Cluster, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What the cluster's own surroundings say of another launcher is no job's business.
    monkeypatch.setenv("RANK", "7")
    monkeypatch.setenv("SLURM_NTASKS", "7")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    cluster.up("--engine", "local:2")
    (work / "x.py").write_text(PROGRAM)
    plain = ("--", "python3", "x.py")

    (one,) = runs(cluster, *plain)
    assert not (TORCHRUN | SLURMS) & one.keys()
    assert one["SLURM_JOB_ID"] == one["DOVETAIL_JOB"] and one["OMP_NUM_THREADS"] == "1"

    (both,) = runs(cluster, "--gpus", "2", *plain)
    assert not (TORCHRUN | SLURMS) & both.keys()
    assert set(one["cores"]) <= set(both["cores"])
    assert both["OMP_NUM_THREADS"] == str(len(both["cores"]))

    first, second = runs(cluster, "--ntasks", "2", *plain)
    assert first.keys() >= TORCHRUN and not first.keys() & SLURMS
    assert [first["RANK"], second["RANK"]] == [first["LOCAL_RANK"], second["LOCAL_RANK"]]
    assert [first["RANK"], second["RANK"], second["WORLD_SIZE"]] == ["0", "1", "2"]
    assert second["GROUP_WORLD_SIZE"] == "1" and second["LOCAL_WORLD_SIZE"] == "2"
    assert second["TORCHELASTIC_RESTART_COUNT"] == "0"
    assert second["TORCHELASTIC_RUN_ID"] == second["DOVETAIL_JOB"]
    assert first["MASTER_PORT"] == second["MASTER_PORT"]

    (batch,) = runs(cluster, script(work, "#SBATCH --gres=gpu:2 --job-name=once"))
    assert not TORCHRUN & batch.keys() and "SLURM_NTASKS" not in batch
    assert (batch["SLURM_JOB_NAME"], batch["SLURM_PROCID"]) == ("once", "0")
    assert batch["SLURM_GPUS_ON_NODE"] == "2" and batch["cores"] == both["cores"]

    tasks = runs(cluster, script(work, "#SBATCH --ntasks=2"))
    assert [t["SLURM_PROCID"] for t in tasks] == ["0", "1"]
    assert all(t["SLURM_NTASKS"] == "2" and t.keys() >= TORCHRUN | SLURMS for t in tasks)

    (asks,) = runs(cluster, "--set", "slurm_variables=yes", "--ntasks", "1", *plain)
    assert (asks["SLURM_NTASKS"], asks["SLURM_JOB_NAME"]) == ("1", "python3")
    assert "RANK" not in asks


def test_an_ordinary_program_with_a_range_of_gpus_runs_once_and_its_job_says_so(
    cluster: Cluster, work: Path
) -> None:
    cluster.up("--engine", "local:2", "--policy", "afs-p")
    (work / "x.py").write_text(PROGRAM)
    job = cluster.submit("--gpus", "1..2", "--wait", "--", "python3", "x.py")
    assert len(cluster("logs", job).out.splitlines()) == 1
    said = "it asked for 1..2 GPUs but never made a dovetail.train.Job; it ran on 1"
    assert said in cluster("why", job).out and said in cluster("show", job).out
    assert "NoTrainJob" in cluster("ls", "--all").out
    both = cluster("submit", "--gpus", "1..2", "--wait", "--", "python3", "x.py").out
    assert both.endswith(f"job {job + 1}: {said}\n")
    # Its time counts from the start of its program, though that never makes a training job.
    limited = cluster.submit("--gpus", "1..2", "--time", "2s", "--", "sleep", "1000")
    cluster.until_state(limited, "TIMEOUT")


def test_the_one_process_of_a_job_on_two_nodes_runs_on_the_first_and_its_job_says_so(
    cluster: Cluster, work: Path
) -> None:
    cluster.up("--engine", "local:2x1")
    (work / "wait.sh").write_text("#!/bin/sh\necho ran\nwhile [ ! -e go ]; do sleep 0.05; done\n")
    job = cluster.submit("wait.sh", "--gpus", "2")
    cluster.until_state(job, "RUNNING")
    why = cluster("why", job).out
    assert "its one process is on node 0, and cannot reach its GPUs on other nodes" in why
    (work / "go").touch()
    cluster.until_state(job, "COMPLETED")
    assert cluster("logs", job).out == "ran\n"


def test_jobs_accepted_before_ntasks_was_stored_run_on_each_gpu(
    cluster: Cluster, work: Path
) -> None:
    cluster.up("--engine", "local:2")
    (work / "x.py").write_text(PROGRAM)
    job = cluster.submit("--hold", "--gpus", "2", "--", "python3", "x.py")
    cluster("down", "--drain")
    _forget_ntasks(cluster.folder.store, job)
    cluster.up("--engine", "local:2")
    cluster("release", job)
    cluster.until_state(job, "COMPLETED")
    found = [json.loads(line) for line in cluster("logs", job).out.splitlines()]
    assert sorted(e["RANK"] for e in found) == ["0", "1"]
    assert all(e.keys() >= SLURMS and e["WORLD_SIZE"] == "2" for e in found)


def _forget_ntasks(store: Path, job: int) -> None:
    """Stores a job as releases did that did not know `ntasks`."""
    import sqlite3

    with sqlite3.connect(store) as database:
        sql = "SELECT spec FROM jobs WHERE number = ?"
        said = json.loads(database.execute(sql, (job,)).fetchone()[0])
        del said["ntasks"]
        sql = "UPDATE jobs SET spec = ? WHERE number = ?"
        database.execute(sql, (json.dumps(said), job))


@pytest.mark.slow
def test_the_other_workers_of_a_training_program_start_once_it_made_its_job(
    cluster: Cluster, work: Path
) -> None:
    pytest.importorskip("torch")
    cluster.up("--engine", "local:2", "--policy", "afs-p")
    (work / "t.py").write_text(TRAINS)
    job = cluster.submit("--gpus", "1..2", "--", sys.executable, "t.py")

    def both_train() -> bool:
        with StoreReader(cluster.folder.store) as reader:
            stored = reader.job(job)
        return stored is not None and stored.record.spoke and len(stored.record.group) == 2

    cluster.until(both_train, "they never trained together")
    cluster.until(
        lambda: cluster("logs", job).out.count("it starts") == 2, "the second never started"
    )
    cluster("cancel", job)
    cluster.until_state(job, "CANCELLED")

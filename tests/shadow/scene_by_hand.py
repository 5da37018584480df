"""Small snapshots, made by hand."""

from __future__ import annotations

from dovetail.shadow.snapshot import SlurmJob, SlurmNode, Snapshot

NOW_S = 1_000_000.0


def node(name: str, gpus: int = 4, **changes: object) -> SlurmNode:
    """Returns a node that is up, in the partition `main`."""
    given: dict[str, object] = {
        "gpu_type": "",
        "state": "up",
        "partitions": ("main",),
        "cpus": 0.0,
        "memory_bytes": 0.0,
        "used": None,
        **changes,
    }
    return SlurmNode(name=name, gpus=gpus, **given)  # type: ignore[arg-type]


def job(number: int, gpus: int, **changes: object) -> SlurmJob:
    """Returns a job that waits since a minute and asks for a limit of ten minutes."""
    given: dict[str, object] = {
        "submit_s": NOW_S - 60.0 + number,
        "partition": "main",
        "user": "ann",
        "priority": 100.0,
        "limit_s": 600.0,
        **changes,
    }
    return SlurmJob(job_id=str(number), slurm_id=str(number), gpus=gpus, **given)  # type: ignore[arg-type]


def running(number: int, since_s: float = 30.0, **held: int) -> SlurmJob:
    """Returns a job that runs on GPUs by node."""
    return job(
        number, sum(held.values()), start_s=NOW_S - since_s, held=tuple(sorted(held.items()))
    )


def scene(nodes: list[SlurmNode], *jobs: SlurmJob) -> Snapshot:
    """Returns a snapshot at `NOW_S`."""
    return Snapshot("lab", NOW_S, tuple(nodes), jobs)

"""Jobs whose command runs once on each of their GPUs, as tests of gangs need them."""

from __future__ import annotations

from dataclasses import fields

from dovetail.wire.spec import JobSpec


def one_task_per_gpu(gpus: int) -> dict[str, int]:
    """Returns the fields of a spec by which a plain command runs as so many workers."""
    tasks = {"ntasks": gpus} if any(f.name == "ntasks" for f in fields(JobSpec)) else {}
    return {"gpus": gpus, "min_gpus": gpus, "max_gpus": gpus, **tasks}

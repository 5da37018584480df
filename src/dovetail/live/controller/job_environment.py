"""The variables that tell a job who it is, under the names that scripts for Slurm look for."""

from __future__ import annotations

from dovetail.wire.spec import JobSpec


def environment_of(spec: JobSpec, number: int) -> tuple[tuple[str, str], ...]:
    """Returns a job's number, name and array index as variables, then its own, which go before."""
    told = {"SLURM_JOB_ID": str(number), "SLURM_JOB_NAME": spec.name}
    if spec.array >= 0:
        told |= {
            "SLURM_ARRAY_JOB_ID": str(spec.array_of),
            "SLURM_ARRAY_TASK_ID": str(spec.array),
        }
    return tuple((told | dict(spec.environment)).items())

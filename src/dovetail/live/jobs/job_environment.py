"""The variables that tell a job who it is, under the names that scripts for Slurm look for."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.wire.spec import JobSpec

RESTARTS = "SLURM_RESTART_COUNT"
"""Told from the first restart on; scripts look for it to go on from what they saved."""


def environment_of(spec: JobSpec, number: int) -> tuple[tuple[str, str], ...]:
    """Returns a job's number and array index as variables, then its own, which go before.

    Its name only if it wants Slurm's variables: programs take it for a sign of Slurm. Which of its
    workers one is, its agent says (`live/engines/task_environment.py`).
    """
    told = {
        "SLURM_JOB_ID": str(number),
        "SLURM_JOBID": str(number),
        "SLURM_JOB_NAME": spec.name if spec.slurm_variables else "",
        "SLURM_JOB_USER": spec.user,
        "SLURM_JOB_PARTITION": spec.queue,
        "SLURM_SUBMIT_DIR": spec.workdir,
        "SLURM_CPUS_PER_TASK": str(int(spec.cpus // spec.tasks) or ""),
    }
    if spec.array >= 0:
        told |= {
            "SLURM_ARRAY_JOB_ID": str(spec.array_of),
            "SLURM_ARRAY_TASK_ID": str(spec.array),
        }
    return tuple(({k: v for k, v in told.items() if v} | dict(spec.environment)).items())


def restarted(
    environment: Sequence[tuple[str, str]], spec: JobSpec, times: int
) -> tuple[tuple[str, str], ...]:
    """Returns the variables of a job whose program is started anew for the so many-th time."""
    said = dict(environment)
    if times and RESTARTS not in dict(spec.environment):
        said[RESTARTS] = str(times)
    return tuple(said.items())


def environment_of_array(indices: Sequence[int]) -> dict[str, str]:
    """Returns what every task of an array is told of the others, as variables."""
    first, last = min(indices), max(indices)
    step = (last - first) // (len(indices) - 1) if len(indices) > 1 else 1
    even = sorted(indices) == list(range(first, last + 1, max(step, 1)))
    return {
        "SLURM_ARRAY_TASK_COUNT": str(len(indices)),
        "SLURM_ARRAY_TASK_MIN": str(first),
        "SLURM_ARRAY_TASK_MAX": str(last),
        "SLURM_ARRAY_TASK_STEP": str(step if even else 1),
    }

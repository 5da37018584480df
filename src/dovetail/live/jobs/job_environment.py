"""The environment variables of a job, under the names that scripts for Slurm look for."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.wire.spec import JobSpec

RESTARTS = "SLURM_RESTART_COUNT"
"""Set from the first restart on; scripts read it to resume from what they saved."""


def environment_of(spec: JobSpec, number: int) -> tuple[tuple[str, str], ...]:
    """Returns variables with the number and array index of a job, and its own, which win.

    Its name is set only if it wants Slurm's variables: programs take a set name as a sign of Slurm.
    Rank and size are set by the agent of a worker (`live/engines/task_environment.py`).
    """
    variables = {
        "SLURM_JOB_ID": str(number),
        "SLURM_JOBID": str(number),
        "SLURM_JOB_NAME": spec.name if spec.slurm_variables else "",
        "SLURM_JOB_USER": spec.user,
        "SLURM_JOB_PARTITION": spec.queue,
        "SLURM_SUBMIT_DIR": spec.workdir,
        "SLURM_CPUS_PER_TASK": str(int(spec.cpus // spec.tasks) or ""),
    }
    if spec.array >= 0:
        variables |= {
            "SLURM_ARRAY_JOB_ID": str(spec.array_of),
            "SLURM_ARRAY_TASK_ID": str(spec.array),
        }
    return tuple(({k: v for k, v in variables.items() if v} | dict(spec.environment)).items())


def with_restarts(
    environment: Sequence[tuple[str, str]], spec: JobSpec, times: int
) -> tuple[tuple[str, str], ...]:
    """Returns the variables of a job whose program has been restarted so many times."""
    variables = dict(environment)
    if times and RESTARTS not in dict(spec.environment):
        variables[RESTARTS] = str(times)
    return tuple(variables.items())


def environment_of_array(indices: Sequence[int]) -> dict[str, str]:
    """Returns the variables that describe an array to each of its tasks."""
    first, last = min(indices), max(indices)
    step = (last - first) // (len(indices) - 1) if len(indices) > 1 else 1
    even = sorted(indices) == list(range(first, last + 1, max(step, 1)))
    return {
        "SLURM_ARRAY_TASK_COUNT": str(len(indices)),
        "SLURM_ARRAY_TASK_MIN": str(first),
        "SLURM_ARRAY_TASK_MAX": str(last),
        "SLURM_ARRAY_TASK_STEP": str(step if even else 1),
    }

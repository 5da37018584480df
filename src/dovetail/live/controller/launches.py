"""How the workers of a job are launched: its command, its script, or a synthetic program."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dovetail.live.emulation.synthetic import synthetic_spec
from dovetail.live.jobs.job_environment import environment_of
from dovetail.live.jobs.output_path import output_of
from dovetail.wire.agent import StartWorker
from dovetail.wire.spec import EACH_GPU, JobSpec
from dovetail.wire.torchrun import without_sizes

SHELL = ("/bin/sh",)
"""The interpreter of a script whose first line has none."""


def launcher_in(
    folder: Path,
    *,
    ships: bool = False,
    owned_by_users: bool = False,
    uid_of: Callable[[str], int] = lambda user: -1,
) -> Callable[[int, JobSpec], StartWorker]:
    """Returns the function that makes launches; `folder` has a folder for each job by number.

    With `ships` nodes have folders of their own instead, and files travel.

    A script is the file `script` there, run by the interpreter of its first line. Its text travels
    if folders are owned by users. `uid_of` is the uid of a user here, -1 where nobody asks.
    """

    def launch(number: int, spec: JobSpec) -> StartWorker:
        own = folder / str(number)
        return StartWorker(
            number,
            worker=-1,
            generation=-1,
            gpu=-1,
            command=command_of(spec, own),
            folder=str(own),
            output=str(output_of(spec, number, own)),
            workdir=spec.workdir,
            environment=environment_of(spec, number),
            trains=spec.trains or spec.paced,
            grace_s=spec.grace_s,
            user=spec.user,
            distributed=spec.ntasks == EACH_GPU or spec.tasks > 1 or spec.restarts,
            per_node=spec.starts_per_node,
            slurm_variables=spec.slurm_variables,
            slurm_ntasks=spec.tasks if spec.ntasks else 0,
            container_image=spec.container_image,
            container_mounts=spec.container_mounts,
            retries=spec.retries,
            ships=ships,
            script=spec.script if owned_by_users else "",
            uid=uid_of(spec.user),
            terminal=spec.terminal,
        )

    return launch


def command_of(spec: JobSpec, folder: Path) -> tuple[str, ...]:
    """Returns the command line of a worker; it is executed without a shell."""
    if spec.paced:
        return synthetic_spec(spec).command()
    if not spec.script:
        return without_sizes(spec.command) if spec.starts_per_node else spec.command
    return (*interpreter_of(spec.script), str(folder / "script"), *spec.command)


def interpreter_of(script: str) -> tuple[str, ...]:
    """Returns the words of the first line of a script; like Linux, at most one argument."""
    first = script.splitlines()[0] if script else ""
    words = tuple(first[2:].strip().split(None, 1)) if first.startswith("#!") else ()
    return words or SHELL

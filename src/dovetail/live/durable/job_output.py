"""Where the output of a job may go: nowhere in the folder of its cluster."""

from __future__ import annotations

from pathlib import Path

from dovetail.core.errors import InputError
from dovetail.live.private_file import is_below
from dovetail.wire.spec import JobSpec


def check_output(where: str, spec: JobSpec, home: Path) -> None:
    """Raises InputError where the output of a job would go into the folder of its cluster.

    There it could end up in the token, the store or another job's files. Without a choice of its
    own a job writes into a folder of its own there.
    """
    if spec.output and is_below(Path(spec.output), home):
        raise InputError(
            where,
            f"output: {spec.output} is inside the folder of the cluster ({home})",
            "choose a file elsewhere, or none: `dovetail logs` shows the output",
        )

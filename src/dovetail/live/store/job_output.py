"""Where the output of a job may go: to a file, and nowhere in the folder of its cluster."""

from __future__ import annotations

import stat
from pathlib import Path

from dovetail.core.errors import InputError
from dovetail.live.system.private_file import is_below
from dovetail.wire.spec import JobSpec


def check_output(where: str, spec: JobSpec, home: Path) -> None:
    """Raises InputError where the output of a job would go into the folder of its cluster.

    There it could end up in the token, the store or another job's files. Without a choice of its
    own a job writes into a folder of its own there. A FIFO, socket or folder is refused too.
    """
    if spec.output and not _may_be_written(Path(spec.workdir) / spec.output):
        raise InputError(
            where, f"output: {spec.output} is no file", "choose a file, or none: `dovetail logs`"
        )
    if spec.output and is_below(Path(spec.output), home):
        raise InputError(
            where,
            f"output: {spec.output} is inside the folder of the cluster ({home})",
            "choose a file elsewhere, or none: `dovetail logs` shows the output",
        )


def _may_be_written(path: Path) -> bool:
    """True for a file, a device such as /dev/null, and what is not there or cannot be seen yet."""
    try:
        kind = path.stat().st_mode
    except OSError:
        return True
    return stat.S_ISREG(kind) or stat.S_ISCHR(kind)

"""Checks the output file of a job, which must not be in the folder of the cluster."""

from __future__ import annotations

import stat
from pathlib import Path

from dovetail.core.errors import InputError
from dovetail.live.join.shared_folder import shared_folder
from dovetail.live.system.private_file import is_below
from dovetail.wire.spec import JobSpec


def check_output(where: str, spec: JobSpec, home: Path) -> None:
    """Raises InputError for an output in the folder of the cluster, or one that is no file.

    In that folder it could overwrite the token, the store or the files of another job.
    """
    if spec.output and not _may_be_written(Path(spec.workdir) / spec.output):
        raise InputError(
            where, f"output: {spec.output} is no file", "choose a file, or none: `dovetail logs`"
        )
    shared = shared_folder(home)
    places = (home,) if shared is None else (home, shared.path)
    if spec.output and any(is_below(Path(spec.output), place) for place in places):
        raise InputError(
            where,
            f"output: {spec.output} is inside the folder of the cluster ({home})",
            "choose a file elsewhere, or none: `dovetail logs` shows the output",
        )


def _may_be_written(path: Path) -> bool:
    """True for a file, a device such as /dev/null, and a path that does not exist."""
    try:
        kind = path.stat().st_mode
    except OSError:
        return True
    return stat.S_ISREG(kind) or stat.S_ISCHR(kind)

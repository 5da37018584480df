"""Lineages: the subfolders of a job's folder that keep the checkpoints of its copies apart.

A copy of a job that nobody can reach may still write a checkpoint. So a fresh start that leaves one
behind gets the next lineage, begun from the newest checkpoints there are; older ones are not read
again. The first lineage is the job's folder itself, as in all releases without lineages. A lineage
appears whole: its folder has another name until the record that gives it to the job is durable.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

CHECKPOINTS = "checkpoint-*.pt"
"""The checkpoints of `dovetail.train` in a folder: the newest has the greatest name."""
BEGUN_FROM = 2
"""How many are taken over: if the newest turns out to be damaged, the one before is used."""


def lineage_folder(own: Path, lineage: int) -> Path:
    """Returns where a lineage of a job has its checkpoints; `own` is the folder of the job."""
    return own / f"lineage-{lineage}" if lineage else own


def newest_lineage(own: Path) -> int:
    """Returns the newest lineage of a job that was begun, 0 if its folder is the only one."""
    names = (folder.name for folder in own.glob("lineage-*"))
    numbers = (name.removeprefix("lineage-") for name in names)
    return max((int(number) for number in numbers if number.isdecimal()), default=0)


def draft_lineage(own: Path, lineage: int) -> None:
    """Prepares a lineage from the newest checkpoints of the one before. Raises OSError."""
    draft = _draft(own, lineage)
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(mode=0o700, parents=True)
    _take_over(lineage_folder(own, lineage - 1), draft)


def begin_lineage(own: Path, lineage: int) -> None:
    """Gives a prepared lineage its name. Raises OSError."""
    _draft(own, lineage).rename(lineage_folder(own, lineage))


def take_up_lineage(own: Path, lineage: int) -> None:
    """Begins a lineage from the newest one on disk, unless another node has. Raises OSError.

    For folders that the controller may not write: each agent that starts a worker does this, and
    the first one's is taken. Of earlier lineages the last one stays, to which a copy may write.
    """
    if not lineage or lineage_folder(own, lineage).is_dir():
        return
    before = max((n for n in range(lineage) if lineage_folder(own, n).is_dir()), default=0)
    draft = own / f"lineage-{lineage}.{secrets.token_hex(6)}"
    draft.mkdir(mode=0o700)
    try:
        _take_over(lineage_folder(own, before), draft)
        draft.rename(lineage_folder(own, lineage))
    except OSError as error:
        shutil.rmtree(draft, ignore_errors=True)
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise
    drop_lineages(own, before, ())


def drop_lineages(own: Path, lineage: int, kept: Collection[int]) -> None:
    """Removes the checkpoints of all lineages before one, but for those to which some may write."""
    for old in range(lineage):
        folder = lineage_folder(own, old)
        if old in kept:
            continue
        if old:
            shutil.rmtree(folder, ignore_errors=True)
            continue
        for checkpoint in folder.glob(CHECKPOINTS):
            checkpoint.unlink(missing_ok=True)


def _take_over(before: Path, draft: Path) -> None:
    for checkpoint in sorted(before.glob(CHECKPOINTS), reverse=True)[:BEGUN_FROM]:
        # A checkpoint is written whole and never changed: another name for it is a copy.
        with suppress(FileNotFoundError):
            _link(checkpoint, draft / checkpoint.name)


def _draft(own: Path, lineage: int) -> Path:
    return own / f"lineage-{lineage}.new"


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        # This file system has no hard links.
        shutil.copyfile(source, target)

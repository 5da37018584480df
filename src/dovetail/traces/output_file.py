"""Output files of commands: whole or not there, with a sentence when they cannot be written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import IO

from dovetail.core.errors import InputError
from dovetail.files.whole_file import write_whole


def write_output(path: Path, fill: Callable[[IO[bytes]], object]) -> None:
    """Writes `path` by filling a draft beside it.

    Raises InputError when the disk is full or the folder is not writable; then nothing is left.
    """
    try:
        write_whole(path, fill)
    except OSError as error:
        what = f"cannot be written: {error.strerror or error}"
        raise InputError(str(path), what) from None

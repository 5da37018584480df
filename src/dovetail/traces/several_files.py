"""Several traces as the files of one folder, which appears whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from dovetail.core.errors import InputError
from dovetail.core.trace import Trace
from dovetail.traces.canonical import write_trace


def write_apart(parts: Mapping[str, Trace], folder: Path) -> dict[Path, Trace]:
    """Writes NAME.csv for each part into a new folder; returns the traces by their paths.

    Raises InputError when the folder is there already or cannot be written.
    """
    if folder.exists():
        raise InputError(str(folder), "is there already", "name a folder that is not")
    made: dict[Path, Trace] = {}
    try:
        with TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as temporary:
            inside = Path(temporary) / folder.name
            inside.mkdir()
            for name, part in parts.items():
                path = folder / f"{_as_file(name)}.csv"
                if path in made:
                    path = path.with_stem(f"{path.stem}-{len(made)}")
                write_trace(part, inside / path.name)
                made[path] = part
            inside.rename(folder)
    except OSError as error:
        raise InputError(str(folder), f"cannot be written: {error.strerror or error}") from None
    return made


def _as_file(name: str) -> str:
    """Returns a virtual cluster's name as a file name."""
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name).lstrip(".") or "none"

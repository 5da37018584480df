"""Writes several traces to a new folder, atomically."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from dovetail.core.errors import InputError
from dovetail.core.trace import Trace
from dovetail.traces.canonical import write_trace


def write_apart(parts: Mapping[str, Trace], folder: Path) -> dict[Path, Trace]:
    """Writes NAME.csv for each part into a new folder; returns the traces by their paths.

    Raises InputError if the folder exists or cannot be written.
    """
    if folder.exists():
        raise InputError(str(folder), "already exists", "specify a new folder")
    written: dict[Path, Trace] = {}
    try:
        with TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as temporary:
            inside = Path(temporary) / folder.name
            inside.mkdir()
            for name, part in parts.items():
                path = folder / f"{_as_file(name)}.csv"
                if path in written:
                    path = path.with_stem(f"{path.stem}-{len(written)}")
                write_trace(part, inside / path.name)
                written[path] = part
            inside.rename(folder)
    except OSError as error:
        raise InputError(str(folder), f"cannot be written: {error.strerror or error}") from None
    return written


def _as_file(name: str) -> str:
    """Returns the file name of a virtual cluster."""
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name).lstrip(".") or "none"

"""Resolves the paths of a job spec, which must lie in the directory of the submission.

Symbolic links are resolved first. Paths from the command line are trusted and may lie anywhere.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import cast

from dovetail.core.errors import InputError
from dovetail.jobspec.draft import FieldValue
from dovetail.wire.spec import Mount


def folder_within(root: Path, directory: Path, entry: FieldValue | None) -> Path:
    """Returns the working directory, by default `root`. Raises InputError."""
    if entry is None:
        return root.resolve()
    path = _resolved(root, directory, root, entry, "workdir")
    if not path.is_dir():
        raise InputError(
            entry.where, f"{entry.called or 'workdir'}: '{entry.value}' is not a directory"
        )
    return path


def file_within(root: Path, entry: FieldValue) -> Path:
    """Returns the script file of a spec. Raises InputError."""
    path = _resolved(root, root, root, entry, "script")
    if not path.is_file():
        raise InputError(
            entry.where, f"{entry.called or 'script'}: there is no file '{entry.value}'"
        )
    return path


def image_of(root: Path, directory: Path, entry: FieldValue | None) -> str:
    """Returns the image of a container: a name, or a path, which may begin with `.`."""
    return "" if entry is None else _from_dot(directory if entry.trusted else root, entry.text)


def mounts_of(root: Path, directory: Path, entry: FieldValue | None) -> tuple[Mount, ...]:
    """Returns the mounts of a container; a source that begins with `.` starts where a file is."""
    if entry is None:
        return ()
    start = directory if entry.trusted else root
    return tuple(
        replace(
            mount,
            source=_from_dot(start, mount.source),
            destination=_from_dot(start, mount.destination),
        )
        for mount in cast("tuple[Mount, ...]", entry.value)
    )


def _from_dot(start: Path, text: str) -> str:
    return os.path.normpath(start.resolve() / text) if text.startswith(".") else text


def output_within(
    root: Path, directory: Path, workdir: Path, name: str, entry: FieldValue | None
) -> str:
    """Returns the path of the output file, empty if unset; %x is replaced by the job's name.

    A relative path starts at the working directory. Raises InputError, also if its folder does not
    exist.
    """
    if entry is None:
        return ""
    text = _named(entry.text, name)
    if text == os.devnull:
        return text
    path = Path(text)
    folder = replace(entry, value=str(path.parent))
    called = entry.called or "output"
    if "%" in folder.text:
        raise InputError(
            entry.where, f"{called}: only the file name may contain a %, not its folder"
        )
    inside = _resolved(root, directory, workdir, folder, "output")
    if not inside.is_dir():
        raise InputError(entry.where, f"{called}: there is no folder '{folder.value}'")
    if not path.name or path.name == ".." or text.endswith("/"):
        raise InputError(entry.where, f"{called}: '{entry.value}' is not a file name")
    whole = inside / path.name
    if not entry.trusted and not _is_within(root, whole.resolve()):
        raise _refused(entry, "output", f"is outside {root}")
    return str(whole)


def _named(text: str, name: str) -> str:
    parts = text.split("%%")
    return "%%".join(part.replace("%x", name.replace("%", "%%")) for part in parts)


def _resolved(root: Path, directory: Path, base: Path, entry: FieldValue, field: str) -> Path:
    path = Path(entry.text)
    if entry.trusted:
        return (directory / path).resolve()
    if ".." in path.parts:
        raise _refused(entry, field, "contains '..'")
    resolved = (base / path).resolve()
    if not _is_within(root, resolved):
        raise _refused(entry, field, f"is outside {root}")
    return resolved


def _is_within(root: Path, resolved: Path) -> bool:
    return resolved.is_relative_to(root.resolve())


def _refused(entry: FieldValue, field: str, why: str) -> InputError:
    return InputError(
        entry.where,
        f"{entry.called or field}: '{entry.value}' {why}",
        f"only the command line may do that, as in --set {field}=PATH",
    )

"""The paths a job spec may name: inside the directory of its submission, links followed.

What the submitter says on the command line is trusted and may be anywhere.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from dovetail.core.errors import InputError
from dovetail.jobspec.draft import FieldValue


def folder_within(root: Path, directory: Path, given: FieldValue | None) -> Path:
    """Returns the working directory: `root` unless another was given. Raises InputError."""
    if given is None:
        return root.resolve()
    path = _resolved(root, directory, root, given, "workdir")
    if not path.is_dir():
        raise InputError(
            given.where, f"{given.called or 'workdir'}: '{given.value}' is no directory"
        )
    return path


def file_within(root: Path, given: FieldValue) -> Path:
    """Returns the file that a spec names as its script. Raises InputError."""
    path = _resolved(root, root, root, given, "script")
    if not path.is_file():
        raise InputError(
            given.where, f"{given.called or 'script'}: there is no file '{given.value}'"
        )
    return path


def output_within(
    root: Path, directory: Path, workdir: Path, name: str, given: FieldValue | None
) -> str:
    """Returns the path of the log, empty if none was given; %x becomes the name of the job.

    A relative one counts from the working directory. Its folder must be there. Raises InputError.
    """
    if given is None:
        return ""
    said = _named(given.value, name)
    if said == os.devnull:
        return said
    path = Path(said)
    folder = replace(given, value=str(path.parent))
    called = given.called or "output"
    if "%" in folder.value:
        raise InputError(
            given.where, f"{called}: only the file name may hold a %, no folder above it"
        )
    inside = _resolved(root, directory, workdir, folder, "output")
    if not inside.is_dir():
        raise InputError(given.where, f"{called}: there is no folder '{folder.value}'")
    if not path.name or path.name == ".." or said.endswith("/"):
        raise InputError(given.where, f"{called}: '{given.value}' names no file")
    whole = inside / path.name
    if not given.trusted and not _is_within(root, whole.resolve()):
        raise _refused(given, "output", f"leads out of {root}")
    return str(whole)


def _named(said: str, name: str) -> str:
    parts = said.split("%%")
    return "%%".join(part.replace("%x", name.replace("%", "%%")) for part in parts)


def _resolved(root: Path, directory: Path, base: Path, given: FieldValue, field: str) -> Path:
    path = Path(given.value)
    if given.trusted:
        return (directory / path).resolve()
    if ".." in path.parts:
        raise _refused(given, field, "climbs up with '..'")
    resolved = (base / path).resolve()
    if not _is_within(root, resolved):
        raise _refused(given, field, f"leads out of {root}")
    return resolved


def _is_within(root: Path, resolved: Path) -> bool:
    return resolved.is_relative_to(root.resolve())


def _refused(given: FieldValue, field: str, why: str) -> InputError:
    return InputError(
        given.where,
        f"{given.called or field}: '{given.value}' {why}",
        f"a file cannot do that; say it on the command line, as in --set {field}=PATH",
    )

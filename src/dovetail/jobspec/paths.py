"""Resolves the paths of a job spec, which must lie in the directory of the submission.

Symbolic links are resolved first. Paths from the command line are trusted and may lie anywhere.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from dovetail.core.errors import InputError
from dovetail.jobspec.draft import FieldValue


def folder_within(root: Path, directory: Path, given: FieldValue | None) -> Path:
    """Returns the working directory, by default `root`. Raises InputError."""
    if given is None:
        return root.resolve()
    path = _resolved(root, directory, root, given, "workdir")
    if not path.is_dir():
        raise InputError(
            given.where, f"{given.called or 'workdir'}: '{given.value}' is not a directory"
        )
    return path


def file_within(root: Path, given: FieldValue) -> Path:
    """Returns the script file of a spec. Raises InputError."""
    path = _resolved(root, root, root, given, "script")
    if not path.is_file():
        raise InputError(
            given.where, f"{given.called or 'script'}: there is no file '{given.value}'"
        )
    return path


def output_within(
    root: Path, directory: Path, workdir: Path, name: str, given: FieldValue | None
) -> str:
    """Returns the path of the output file, empty if unset; %x is replaced by the job's name.

    A relative path starts at the working directory. Raises InputError, also if its folder does not
    exist.
    """
    if given is None:
        return ""
    text = _named(given.text, name)
    if text == os.devnull:
        return text
    path = Path(text)
    folder = replace(given, value=str(path.parent))
    called = given.called or "output"
    if "%" in folder.text:
        raise InputError(
            given.where, f"{called}: only the file name may contain a %, not its folder"
        )
    inside = _resolved(root, directory, workdir, folder, "output")
    if not inside.is_dir():
        raise InputError(given.where, f"{called}: there is no folder '{folder.value}'")
    if not path.name or path.name == ".." or text.endswith("/"):
        raise InputError(given.where, f"{called}: '{given.value}' is not a file name")
    whole = inside / path.name
    if not given.trusted and not _is_within(root, whole.resolve()):
        raise _refused(given, "output", f"is outside {root}")
    return str(whole)


def _named(text: str, name: str) -> str:
    parts = text.split("%%")
    return "%%".join(part.replace("%x", name.replace("%", "%%")) for part in parts)


def _resolved(root: Path, directory: Path, base: Path, given: FieldValue, field: str) -> Path:
    path = Path(given.text)
    if given.trusted:
        return (directory / path).resolve()
    if ".." in path.parts:
        raise _refused(given, field, "contains '..'")
    resolved = (base / path).resolve()
    if not _is_within(root, resolved):
        raise _refused(given, field, f"is outside {root}")
    return resolved


def _is_within(root: Path, resolved: Path) -> bool:
    return resolved.is_relative_to(root.resolve())


def _refused(given: FieldValue, field: str, why: str) -> InputError:
    return InputError(
        given.where,
        f"{given.called or field}: '{given.value}' {why}",
        f"only the command line may do that, as in --set {field}=PATH",
    )

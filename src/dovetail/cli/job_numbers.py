"""Parses job numbers of a command line: `12`, `12_3`, and Slurm's `12,14` and `12_[1-3,7]`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dovetail.core.errors import InputError

_TASKS = re.compile(r"(\d+)_\[([^\]]*)\]", re.ASCII)
_SEPARATOR = re.compile(r",(?![^\[]*\])")
"""A comma outside brackets."""


def jobs_of(words: Iterable[str]) -> tuple[str, ...]:
    """Returns the jobs in order, without duplicates, each array task on its own.

    Raises InputError.
    """
    jobs: dict[str, None] = {}
    for word in words:
        for name in _SEPARATOR.split(word):
            jobs |= dict.fromkeys(_tasks(name))
    return tuple(jobs)


def _tasks(name: str) -> list[str]:
    match = _TASKS.fullmatch(name)
    if match is None:
        return [name]
    from dovetail.jobspec.values import indices

    try:
        return [f"{match[1]}_{index}" for index in indices(match[2])]
    except ValueError as error:
        raise InputError(f"job '{name[:60]}'", str(error)) from None

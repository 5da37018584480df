"""The jobs that a command line names: `12`, `12_3`, and as for Slurm `12,14` and `12_[1-3,7]`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dovetail.core.errors import InputError

_SOME = re.compile(r"(\d+)_\[([^\]]*)\]", re.ASCII)
_APART = re.compile(r",(?![^\[]*\])")
"""A comma that stands in no brackets."""


def jobs_of(words: Iterable[str]) -> tuple[str, ...]:
    """Returns the jobs named, each once and in order, tasks one by one. Raises InputError."""
    found: dict[str, None] = {}
    for word in words:
        for name in _APART.split(word):
            found |= dict.fromkeys(_tasks(name))
    return tuple(found)


def _tasks(name: str) -> list[str]:
    some = _SOME.fullmatch(name)
    if some is None:
        return [name]
    from dovetail.jobspec.values import indices

    try:
        return [f"{some[1]}_{index}" for index in indices(some[2])]
    except ValueError as error:
        raise InputError(f"job '{name[:60]}'", str(error)) from None

"""Parses jobs and states of a command line: `12`, `12_3`, Slurm's `12_[1-3,7]` and `PD,R`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dovetail.core.errors import InputError

_TASKS = re.compile(r"(\d+)_\[([^\]]*)\]", re.ASCII)
_SEPARATOR = re.compile(r",(?![^\[]*\])")
"""A comma outside brackets."""
ABBREVIATIONS = {
    "PD": "PENDING",
    "CF": "CONFIGURING",
    "R": "RUNNING",
    "CG": "COMPLETING",
    "CD": "COMPLETED",
    "F": "FAILED",
    "CA": "CANCELLED",
    "TO": "TIMEOUT",
    "NF": "NODE_FAIL",
    "OOM": "OUT_OF_MEMORY",
    "DL": "DEADLINE",
}
"""The abbreviations of `squeue`."""


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


def states_of(words: Iterable[str]) -> tuple[str, ...]:
    """Returns the full names of states, from words that may list several, separated by commas."""
    states = [state.strip().upper() for word in words for state in word.split(",")]
    return tuple(ABBREVIATIONS.get(state, state) for state in states if state)

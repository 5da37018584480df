"""Parses job states of a command line: full names, or the abbreviations of `squeue`."""

from __future__ import annotations

from collections.abc import Iterable

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


def states_of(words: Iterable[str]) -> tuple[str, ...]:
    """Returns the full names of states, from words that may list several, separated by commas."""
    states = [state.strip().upper() for word in words for state in word.split(",")]
    return tuple(ABBREVIATIONS.get(state, state) for state in states if state)

"""The states that a command line names: in full, or by the letters that `squeue` shows."""

from __future__ import annotations

from collections.abc import Iterable

LETTERS = {
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
    """Returns the states named, with commas between them or each apart."""
    said = [state.strip().upper() for word in words for state in word.split(",")]
    return tuple(LETTERS.get(state, state) for state in said if state)

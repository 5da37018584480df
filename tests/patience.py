"""How tests wait for other processes and threads: for a condition, and never for a time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep

PATIENCE_S = 100.0
"""Bounds the wait for what will happen: reached only where it never does, on any machine."""
FOR_EVER_S = "3600"
"""How long a program sleeps that a test ends before: longer than any wait."""
UNHURRIED_S = 3600.0
"""A limit for what looks at the clock itself, as solvers do, and is to come to its end."""
MUCH_CPU_S = 60.0
"""What no computation takes that is made in a second or two, on a machine however slow."""


def until(
    true: Callable[[], object], told: Callable[[], str] = lambda: "it did not happen"
) -> None:
    """Returns when something is true; `told` says what is to be read if it never is."""
    give_up_s = monotonic() + PATIENCE_S
    while not true():
        assert monotonic() < give_up_s, told()
        sleep(0.01)


def is_there(process: int) -> bool:
    """Tells whether a process lives; one that nobody has waited for yet does not."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"

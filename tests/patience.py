"""How tests wait for other processes and threads: for a condition, and never for a time."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep

UNSHARED_S = 100.0
"""Bounds the wait for what will happen, on a machine where nothing else does."""


def crowd() -> float:
    """Returns how many processes want each core of this machine, one at least."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


PATIENCE_S = UNSHARED_S * crowd()
"""The same bound on this machine as busy as it is: reached only where it never happens."""
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
    waited_s, before_s = 0.0, monotonic()
    while not true():
        assert waited_s < UNSHARED_S, told()
        sleep(0.01)
        now = monotonic()
        # Others may come meanwhile: who gets a tenth of a core takes ten times as long.
        waited_s += (now - before_s) / crowd()
        before_s = now


def is_there(process: int) -> bool:
    """Tells whether a process lives; one that nobody has waited for yet does not."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"

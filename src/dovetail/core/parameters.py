"""Checks of parameters that several policies have. All raise ValueError."""

from __future__ import annotations

LEAST_PERIOD_S = 1.0
"""The shortest period of a policy that acts by the clock; with a shorter one no run would end."""
MOST_SEED = 2**32 - 1
"""Random draws mix the seed with other numbers in 64 bits."""


def check_seed(seed: int) -> None:
    """Checks that every generator accepts a seed."""
    if not 0 <= seed <= MOST_SEED:
        raise ValueError(f"seed is a whole number from 0 to {MOST_SEED}, not {seed}")


def check_period(name: str, seconds: float) -> None:
    """Checks that a period is finite and not shorter than `LEAST_PERIOD_S`."""
    if not LEAST_PERIOD_S <= seconds < float("inf"):
        least = f"{LEAST_PERIOD_S:g}"
        raise ValueError(f"{name} is a number of seconds from {least} on, not {seconds:g}")

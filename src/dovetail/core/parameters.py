"""What parameters of several policies must keep, whoever has them. All raise ValueError."""

from __future__ import annotations

LEAST_PERIOD_S = 1.0
"""Policies that act by the clock look again so often at most; shorter, a run would not end."""
MOST_SEED = 2**32 - 1
"""What is drawn from a seed mixes it with other numbers in 64 bits."""


def check_seed(seed: int) -> None:
    """Wants a seed that every generator can take."""
    if not 0 <= seed <= MOST_SEED:
        raise ValueError(f"seed is a whole number from 0 to {MOST_SEED}, not {seed}")


def check_period(name: str, seconds: float) -> None:
    """Wants a span of time after which a policy looks again to be finite and no mere instant."""
    if not LEAST_PERIOD_S <= seconds < float("inf"):
        least = f"{LEAST_PERIOD_S:g}"
        raise ValueError(f"{name} is a number of seconds from {least} on, not {seconds:g}")

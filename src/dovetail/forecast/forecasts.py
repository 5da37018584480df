"""The simple forecasts: the truth, the user's limit, the truth blurred, and nothing.

Each answers once per job, on arrival, and says what it knows, so that a policy that needs
lengths fails at once when there are none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dovetail.core.beliefs import Forecast
from dovetail.core.errors import InputError, nearest
from dovetail.core.job import Floats
from dovetail.core.trace import Trace

LENGTH = frozenset({"length"})
FORECASTS = ("known", "limit", "predicted", "noisy", "unknown")
PLAIN = ("known", "limit", "unknown")
"""Those that have no method and no spread."""


class Settled:
    """A forecast that does not learn from jobs that end."""

    def ended(self, job: int, ran_s: float, how: str, now: float) -> None:
        """Learns nothing."""


class Known(Settled):
    """The true length of every job."""

    knows: ClassVar[frozenset[str]] = LENGTH

    def __init__(self, duration_s: Floats) -> None:
        self._duration_s: list[float] = duration_s.tolist()

    def length_s(self, job: int, now: float) -> float:
        """Returns the true length."""
        return self._duration_s[job]


class Limit(Settled):
    """The user's time limit, as Slurm uses it. A job without one counts as `unlimited_s`."""

    knows: ClassVar[frozenset[str]] = LENGTH

    def __init__(self, time_limit_s: Floats, unlimited_s: float) -> None:
        limits = np.where(np.isfinite(time_limit_s), time_limit_s, unlimited_s)
        self._limit_s: list[float] = limits.tolist()

    def length_s(self, job: int, now: float) -> float:
        """Returns the limit the user gave."""
        return self._limit_s[job]


class Noisy(Settled):
    """The true length times a seeded log-normal factor of median 1 and spread `sigma`."""

    knows: ClassVar[frozenset[str]] = LENGTH

    def __init__(self, duration_s: Floats, sigma: float, seed: int) -> None:
        if not 0 <= sigma <= 10:
            raise InputError("--forecast", f"sigma must be between 0 and 10, not {sigma}")
        factors = np.exp(sigma * np.random.default_rng(seed).standard_normal(len(duration_s)))
        self._length_s: list[float] = (duration_s * factors).tolist()

    def length_s(self, job: int, now: float) -> float:
        """Returns the blurred length."""
        return self._length_s[job]


@dataclass(frozen=True)
class Unknown(Settled):
    """No idea of lengths; a policy that needs them refuses to run."""

    knows: ClassVar[frozenset[str]] = frozenset()

    def length_s(self, job: int, now: float) -> float:
        """Returns an infinite length."""
        return float("inf")


def parse_forecast(text: str, trace: Trace, seed: int) -> Forecast:
    """Returns the forecast of a form like `known`, `noisy:0.5` or `predicted:forest`, all fresh.

    Raises InputError.
    """
    name, _, argument = text.partition(":")
    if argument and name in PLAIN:
        raise InputError("--forecast", f"'{name}' takes no '{argument}'", f"as in {name}")
    if name == "known":
        return Known(trace.duration_s)
    if name == "unknown":
        return Unknown()
    if name == "limit":
        limits = trace.jobs.time_limit_s
        if len(trace) and not np.isfinite(limits).any():
            raise InputError(
                "--forecast limit", "no job of the trace has a time limit", "use --forecast known"
            )
        finite = limits[np.isfinite(limits)]
        return Limit(limits, float(finite.max()) if len(finite) else 0.0)
    if name == "noisy":
        try:
            sigma = float(argument)
        except ValueError:
            raise InputError("--forecast noisy", "it wants a spread", "as in noisy:0.5") from None
        return Noisy(trace.duration_s, sigma, seed)
    if name == "predicted":
        from dovetail.forecast.predicted import DEFAULT, Predicted

        return Predicted(trace.jobs, argument or DEFAULT, seed)
    raise InputError("--forecast", f"unknown '{name}'", nearest(name, FORECASTS))

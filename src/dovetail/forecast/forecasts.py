"""The simple forecasts: the true length, the user's limit, a blurred length, and none.

Each is called once per job, on arrival, and declares its knowledge, so that a policy that needs
lengths fails at once without them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dovetail.core.beliefs import DoneOf, Forecast
from dovetail.core.errors import InputError, nearest
from dovetail.core.job import Floats, JobTable
from dovetail.core.length_distribution import LengthDistribution
from dovetail.core.trace import Trace

LENGTH = frozenset({"length"})
FORECASTS = ("available", "known", "limit", "predicted", "noisy", "unknown")
"""The forecasts of a simulation; `available` stands for one of the others, by policy and trace."""
PLAIN = ("available", "known", "limit", "unknown")
"""Forecasts without an argument."""
LIVE = ("declared", "limit", "predicted", "unknown")
"""Forecasts of a live run."""
EXPECTED = "expected"
"""The word behind a forecast by which what is left of a job is the mean of a distribution."""
UNLIMITED_S = 365 * 86400.0
"""The length of a job if no job has a limit: a year, as in Slurm's backfill."""


class FixedForecast:
    """A forecast that does not learn from jobs that end."""

    learns: ClassVar[bool] = False

    def admit(self, jobs: JobTable) -> None:
        """Does nothing: new jobs need no state."""

    def distribution(self, job: int, now: float, done_s: DoneOf) -> LengthDistribution | None:
        """Returns none: the length is one number."""
        return None

    def ended(self, job: int, ran_s: float, how: str, now: float) -> None:
        """Learns nothing."""


class Known(FixedForecast):
    """The true length of every job."""

    knows: ClassVar[frozenset[str]] = LENGTH

    def __init__(self, duration_s: Floats) -> None:
        self._length_s: list[float] = duration_s.tolist()

    def length_s(self, job: int, now: float) -> float:
        """Returns the length of a job."""
        return self._length_s[job]


class TimeLimitForecast(FixedForecast):
    """The user's time limit, as Slurm uses it. A job without one counts as `unlimited_s`."""

    knows: ClassVar[frozenset[str]] = LENGTH

    def __init__(self, jobs: JobTable, unlimited_s: float = UNLIMITED_S) -> None:
        self._jobs, self._unlimited_s = jobs, unlimited_s

    def length_s(self, job: int, now: float) -> float:
        """Returns the limit the user gave."""
        limit_s = float(self._jobs.time_limit_s[job])
        return limit_s if limit_s < float("inf") else self._unlimited_s


class Declared(TimeLimitForecast):
    """The length that the owner of a job declares; without one, the limit.

    `declared_s` returns it by the job's id, 0 if none is declared.
    """

    def __init__(
        self, jobs: JobTable, declared_s: Callable[[str], float], unlimited_s: float = UNLIMITED_S
    ) -> None:
        super().__init__(jobs, unlimited_s)
        self._declared_s = declared_s

    def length_s(self, job: int, now: float) -> float:
        """Returns the declared length."""
        return self._declared_s(self._jobs.job_id[job]) or super().length_s(job, now)


class Noisy(Known):
    """The true length times a seeded log-normal factor of median 1 and spread `sigma`."""

    def __init__(self, duration_s: Floats, sigma: float, seed: int) -> None:
        if not 0 <= sigma <= 10:
            raise InputError("--forecast", f"sigma must be between 0 and 10, not {sigma}")
        factors = np.exp(sigma * np.random.default_rng(seed).standard_normal(len(duration_s)))
        super().__init__(duration_s * factors)


@dataclass(frozen=True)
class Unknown(FixedForecast):
    """No lengths; a policy that needs them refuses to run."""

    knows: ClassVar[frozenset[str]] = frozenset()

    def length_s(self, job: int, now: float) -> float:
        """Returns an infinite length."""
        return float("inf")


def source_of(text: str) -> str:
    """Returns where the lengths of a forecast are from: its first word."""
    return text.partition(",")[0].partition(":")[0]


def is_expected(text: str) -> bool:
    """Returns whether a forecast states distributions. Raises InputError for another word."""
    base, comma, word = text.partition(",")
    if comma and word != EXPECTED:
        mend = f"as in {base},{EXPECTED}"
        raise InputError("--forecast", f"unknown word '{word}' behind '{base}'", mend)
    return bool(comma)


def parse_forecast(text: str, trace: Trace, seed: int) -> Forecast:
    """Returns the forecast of a form like `known`, `noisy:0.5` or `predicted:forest`, all fresh.

    With `,expected` it states distributions. Raises InputError.
    """
    if not is_expected(text):
        return _parse_numbers(text, trace, seed)
    return _stating(_parse_numbers(text.partition(",")[0], trace, seed), trace.jobs)


def _stating(forecast: Forecast, jobs: JobTable) -> Forecast:
    """Returns a forecast that states distributions; of known lengths they are these."""
    from dovetail.forecast.expected import Expected

    if type(forecast) is Known or not forecast.knows:
        return forecast
    return Expected(forecast, jobs)


def _parse_numbers(text: str, trace: Trace, seed: int) -> Forecast:
    name, _, argument = text.partition(":")
    if argument and name in PLAIN:
        raise InputError("--forecast", f"'{name}' takes no '{argument}'", f"as in {name}")
    if name == "known":
        return Known(trace.duration_s)
    if name == "limit":
        limits = trace.jobs.time_limit_s
        if len(trace) and not np.isfinite(limits).any():
            raise InputError(
                "--forecast limit", "no job of the trace has a time limit", "use --forecast known"
            )
        finite = limits[np.isfinite(limits)]
        return TimeLimitForecast(trace.jobs, float(finite.max()) if len(finite) else 0.0)
    if name == "noisy":
        try:
            sigma = float(argument)
        except ValueError:
            raise InputError("--forecast noisy", "it wants a spread", "as in noisy:0.5") from None
        return Noisy(trace.duration_s, sigma, seed)
    return _unknown_or_predicted(name, argument, trace.jobs, seed, FORECASTS)


def parse_live_forecast(
    text: str, jobs: JobTable, declared_s: Callable[[str], float], seed: int
) -> Forecast:
    """Returns the forecast of a live run, whose table grows.

    Forms: `declared` (by `declared_s`, see `Declared`), `limit`, `predicted[:METHOD]`, `unknown`;
    with `,expected` it states distributions. Raises InputError.
    """
    if is_expected(text):
        numbers = parse_live_forecast(text.partition(",")[0], jobs, declared_s, seed)
        return _stating(numbers, jobs)
    name, _, argument = text.partition(":")
    if argument and name in LIVE and name != "predicted":
        raise InputError("--forecast", f"'{name}' takes no '{argument}'", f"as in {name}")
    if name == "declared":
        return Declared(jobs, declared_s)
    if name == "limit":
        return TimeLimitForecast(jobs)
    return _unknown_or_predicted(name, argument, jobs, seed, LIVE)


def _unknown_or_predicted(
    name: str, argument: str, jobs: JobTable, seed: int, names: tuple[str, ...]
) -> Forecast:
    if name == "unknown":
        return Unknown()
    if name == "predicted":
        from dovetail.forecast.predicted import DEFAULT, Predicted

        return Predicted(jobs, argument or DEFAULT, seed)
    raise InputError("--forecast", f"unknown '{name}'", nearest(name, names))

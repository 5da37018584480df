"""The job lengths that a shadow gives a policy: limits, none, or predictions from a log.

Predictions are those of `--forecast predicted` in a simulation, learned from the jobs of the log
that had ended. Of requests only what both sides know counts: not CPUs, memory and GPU types.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from dovetail.core.beliefs import DoneOf, Forecast
from dovetail.core.errors import InputError
from dovetail.core.job import Floats, Ints, JobTable, Labels
from dovetail.core.length_distribution import LengthDistribution
from dovetail.core.trace import ENDS, Trace
from dovetail.forecast.expected import Expected
from dovetail.forecast.forecasts import LENGTH, is_expected, parse_live_forecast
from dovetail.forecast.predicted import DEFAULT, Predicted
from dovetail.shadow.tables import Tables

FORECASTS = ("limit", "predicted", "unknown")


class LearnedLengths:
    """Predictions for the rows of a snapshot, from a log of earlier jobs and those that end."""

    knows: ClassVar[frozenset[str]] = LENGTH
    learns: ClassVar[bool] = True

    def __init__(
        self, history: Trace, tables: Tables, method: str = DEFAULT, *, expected: bool = False
    ) -> None:
        """Learns from the jobs that ended by now. Raises InputError for a log without dates."""
        origin = history.imported
        if origin is None or origin.epoch_s is None:
            mend = "give a log with dates, or what trace import made of it"
            raise InputError("--history", "it does not say when its jobs ran", mend)
        # The clock is that of the log, whose hours and weekdays are those of the site.
        self._shift_s = tables.origin_s - origin.epoch_s
        submit_s = np.concatenate((history.jobs.submit_s, tables.jobs.submit_s + self._shift_s))
        order = np.argsort(submit_s, kind="stable")
        row_of = np.empty(len(order), np.int64)
        row_of[order] = np.arange(len(order))
        self._rows = row_of[len(history) :].tolist()
        jobs = _together(history.jobs, tables.jobs, submit_s, order)
        predicted = Predicted(jobs, method)
        self._job_of = {row: job for job, row in enumerate(self._rows)}
        self._forecast: Forecast = Expected(predicted, jobs) if expected else predicted
        self._learn(history, row_of.tolist(), tables.now_s + self._shift_s)

    def _learn(self, history: Trace, row_of: list[int], now_s: float) -> None:
        """Lives through the log: predicts each job on submission, and learns from it at its end."""
        end_s = _ends(history)
        times = np.concatenate((end_s, history.jobs.submit_s))
        order = np.lexsort((np.arange(len(times)), times))
        n = len(history)
        for at in order[times[order] <= now_s].tolist():
            job, when_s = at % n, float(times[at])
            if at < n:
                how = ENDS[history.end[job]]
                self._forecast.ended(row_of[job], float(history.duration_s[job]), how, when_s)
            else:
                self._forecast.length_s(row_of[job], when_s)

    def admit(self, jobs: JobTable) -> None:
        """Does nothing: a snapshot has all its jobs."""

    def length_s(self, job: int, now: float) -> float:
        """Returns the predicted run time of a job of the snapshot."""
        return self._forecast.length_s(self._rows[job], now + self._shift_s)

    def distribution(self, job: int, now: float, done_s: DoneOf) -> LengthDistribution | None:
        """Returns the distribution of the length of a job of the snapshot, if that is asked for."""
        job_of = self._job_of

        def of_rows(rows: Sequence[int]) -> list[float]:
            done = iter(done_s([job_of[row] for row in rows if row in job_of]))
            # A job of the log that has no end in it is not in the snapshot: nothing is known.
            return [next(done) if row in job_of else 0.0 for row in rows]

        return self._forecast.distribution(self._rows[job], now + self._shift_s, of_rows)

    def ended(self, job: int, ran_s: float, how: str, now: float) -> None:
        """Learns from a job of the snapshot that is over."""
        self._forecast.ended(self._rows[job], ran_s, how, now + self._shift_s)


def forecast_of(text: str, tables: Tables, history: Trace | None) -> Forecast:
    """Returns the forecast of a shadow; `history` has the jobs to learn from. Raises InputError."""
    expected = is_expected(text)
    name, _, method = text.partition(",")[0].partition(":")
    if name not in FORECASTS:
        known = ", ".join(FORECASTS)
        raise InputError("--forecast", f"a shadow cannot tell '{text}'", f"choose one of {known}")
    if name != "predicted":
        return parse_live_forecast(text, tables.jobs, lambda job: 0.0, 0)
    if history is None:
        raise InputError(
            "--forecast predicted",
            "there are no earlier jobs to learn from",
            "give the log of sacct, or what trace import made of it: --history month.csv",
        )
    return LearnedLengths(history, tables, method or DEFAULT, expected=expected)


def _ends(history: Trace) -> Floats:
    """Returns when each job ended, by the record where there is one."""
    alone_s = history.jobs.submit_s + history.duration_s
    if history.recorded is None:
        return alone_s
    return np.where(np.isfinite(history.recorded.end_s), history.recorded.end_s, alone_s)


def _together(earlier: JobTable, listed: JobTable, submit_s: Floats, order: Ints) -> JobTable:
    """Returns one table of what both sides know of requests, in order of submission."""

    def labels(name: str) -> Labels:
        texts = [*getattr(earlier, name).texts(), *getattr(listed, name).texts()]
        return Labels.of([texts[row] for row in order.tolist()])

    ids = [*(f"earlier:{name}" for name in earlier.job_id), *listed.job_id]
    gpus = np.concatenate((np.maximum(earlier.gpus, 1), listed.gpus))
    limit_s = np.concatenate((earlier.time_limit_s, listed.time_limit_s))
    return JobTable.build(
        [ids[row] for row in order.tolist()],
        submit_s[order],
        gpus[order],
        time_limit_s=limit_s[order],
        **{name: labels(name) for name in ("user", "queue", "recurrence")},
    )

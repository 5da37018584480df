"""The accuracy of predictions on a trace: errors on later jobs, by evidence.

Two protocols. "held out", as in the A-SRPT paper: learn from the first share of the jobs, then
predict the rest without learning; jobs that had not ended when the first later one came are not
used. "online", as in a run: each job is predicted on its submission from the jobs ended by then.
Jobs start on submission and run as long as they did, since a trace has no queue. Both protocols
measure the same jobs: the later ones. The users' time limits are scored beside the predictions, on
those of the later jobs that have one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from dovetail.core.errors import InputError
from dovetail.core.job import Floats, Ints
from dovetail.core.trace import ENDS, Trace
from dovetail.forecast.available import MOST, limited_share
from dovetail.forecast.bands import EVIDENCE
from dovetail.forecast.predicted import DEFAULT, Predicted
from dovetail.forecast.running_statistics import Moments

PROTOCOLS = ("held out", "online")
LIMIT, NO_LEARNING = "limit", "no learning"
"""The method that is the users' time limits, and its protocol."""
NEAR = 0.1
"""A prediction within this share of the truth counts as near."""


@dataclass(frozen=True, slots=True)
class Errors:
    """Errors of predictions over some jobs, in seconds; None where there are no jobs or bands."""

    jobs: int
    mean_s: float | None = None
    median_s: float | None = None
    near: float | None = None
    rank_correlation: float | None = None
    in_band: float | None = None


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The errors of one method on a trace, and the seconds of learning and predicting.

    `with_limit` are those of the jobs that have a time limit.
    """

    method: str
    protocol: str
    seconds: float
    errors: Errors
    by_evidence: dict[str, Errors]
    with_limit: Errors

    def to_dict(self) -> dict[str, object]:
        """Returns plain values."""
        return asdict(self)


@dataclass(frozen=True)
class Predictions:
    """The prediction of each job on its submission; NaN and -1 if there is none."""

    guess_s: Floats
    low_s: Floats
    high_s: Floats
    evidence: Ints

    @staticmethod
    def none(n: int) -> Predictions:
        """Returns no predictions for n jobs."""
        return Predictions(
            np.full(n, np.nan), np.full(n, np.nan), np.full(n, np.nan), np.full(n, -1)
        )

    def add(self, forecast: Predicted, job: int, now: float) -> None:
        """Adds the prediction of a job."""
        self.evidence[job] = forecast.evidence(job)
        self.guess_s[job] = forecast.length_s(job, now)
        self.low_s[job], self.high_s[job] = forecast.band_s(job, now)


def predict_online(trace: Trace, forecast: Predicted) -> Predictions:
    """Returns the predictions of all jobs, each from those that had ended before."""
    predictions = Predictions.none(len(trace))
    for now, job, over in _each(moments_of(trace)):
        if over:
            _learn(forecast, trace, job, now)
        else:
            predictions.add(forecast, job, now)
    return predictions


def predict_held_out(trace: Trace, forecast: Predicted, first: int) -> Predictions:
    """Returns the predictions of all but the first jobs, from those that ended before them."""
    predictions = Predictions.none(len(trace))
    cut_s = float(trace.jobs.submit_s[first])
    for now, job, over in _each(moments_of(trace.take(np.arange(first)), cut_s)):
        if over:
            _learn(forecast, trace, job, now)
        else:
            forecast.length_s(job, now)
    forecast.freeze(cut_s)
    for job in range(first, len(trace)):
        predictions.add(forecast, job, cut_s)
    return predictions


def evaluate(
    trace: Trace, method: str, protocol: str, *, share: float = 0.8, seed: int = 0
) -> Accuracy:
    """Returns the errors of a method on the jobs after the first share. Raises InputError."""
    first = _first_later(trace, share)
    began = perf_counter()
    forecast = Predicted(trace.jobs, method, seed)
    if protocol == "online":
        predictions = predict_online(trace, forecast)
    else:
        predictions = predict_held_out(trace, forecast, first)
    seconds = perf_counter() - began
    later = np.arange(len(trace)) >= first
    return Accuracy(
        method,
        protocol,
        seconds,
        errors(predictions, trace.duration_s, later),
        {
            name: errors(predictions, trace.duration_s, later & (predictions.evidence == level))
            for level, name in enumerate(EVIDENCE)
        },
        errors(predictions, trace.duration_s, later & np.isfinite(trace.jobs.time_limit_s)),
    )


def has_later_limits(trace: Trace, share: float = 0.8) -> bool:
    """True if a job after the first share has a time limit. Raises InputError."""
    return bool(np.isfinite(trace.jobs.time_limit_s[_first_later(trace, share) :]).any())


def evaluate_limits(trace: Trace, share: float = 0.8) -> Accuracy:
    """Returns the errors of the users' limits on the later jobs with one. Raises InputError."""
    limit_s, first = trace.jobs.time_limit_s, _first_later(trace, share)
    if not has_later_limits(trace, share):
        raise InputError(
            f"--methods {LIMIT}", "no job to be predicted has a time limit", "leave it out"
        )
    rows = np.isfinite(limit_s) & (np.arange(len(trace)) >= first)
    guesses = replace(Predictions.none(len(trace)), guess_s=limit_s)
    found = replace(errors(guesses, trace.duration_s, rows), in_band=None)
    return Accuracy(LIMIT, NO_LEARNING, 0.0, found, {}, found)


def notes(trace: Trace, found: Sequence[Accuracy], share: float = 0.8) -> list[str]:
    """Returns which method a run uses, which jobs the limits are scored on, and who ranks better.

    Limits and predictions are compared on the same jobs, online as in a run.
    """
    limited = limited_share(trace.jobs)
    text = f"By default (--forecast available) a run uses {DEFAULT}, online"
    if limited >= MOST:
        text += f", and {LIMIT} for policies that reserve GPUs: {limited:.0%} of jobs have one"
    texts = [f"{text}."]
    limits = next((one.errors for one in found if one.method == LIMIT), None)
    if limits is None:
        return texts
    whole = len(trace) - _first_later(trace, share)
    if whole > limits.jobs:
        texts.append(
            f"Of the {whole:,} jobs to predict, {whole - limits.jobs:,} have no limit: the row of "
            f"{LIMIT} leaves them out."
        )
    for one in found:
        ours, theirs = one.with_limit.rank_correlation or 0.0, limits.rank_correlation or 0.0
        default = (one.method, one.protocol) == (DEFAULT, "online")
        if default and round(theirs, 2) > round(ours, 2):
            texts.append(
                "On this log the users' limits rank jobs better than the predictions (rank "
                f"correlation {theirs:.2f}, {DEFAULT} {ours:.2f} on the same jobs): try "
                f"--forecast {LIMIT}."
            )
    return texts


def _first_later(trace: Trace, share: float) -> int:
    """Returns the first job to predict. Raises InputError."""
    if not 0 < share < 1:
        raise InputError("--train", f"it must lie between 0 and 1, not {share:g}")
    first = int(len(trace) * share)
    if not 0 < first < len(trace):
        raise InputError(
            trace.name or "trace",
            f"{len(trace)} jobs are too few to learn from some and predict others",
            "take a longer trace, or another --train",
        )
    return first


def errors(predictions: Predictions, ran_s: Floats, rows: NDArray[np.bool_]) -> Errors:
    """Returns the errors of the predictions in some rows."""
    n = int(rows.sum())
    if not n:
        return Errors(0)
    guess_s, truth_s = predictions.guess_s[rows], ran_s[rows]
    off_s = np.abs(guess_s - truth_s)
    inside = (predictions.low_s[rows] <= truth_s) & (truth_s <= predictions.high_s[rows])
    return Errors(
        n,
        float(off_s.mean()),
        float(np.median(off_s)),
        float((off_s <= NEAR * truth_s).mean()),
        _rank_correlation(guess_s, truth_s),
        float(inside.mean()),
    )


def _rank_correlation(guess_s: Floats, truth_s: Floats) -> float:
    """Returns Spearman's rank correlation; 0 if all predictions are equal."""
    from scipy.stats import rankdata

    left, right = rankdata(guess_s), rankdata(truth_s)
    if np.ptp(left) == 0 or np.ptp(right) == 0:
        return 0.0
    return float(np.corrcoef(left, right)[0, 1])


def _learn(forecast: Predicted, trace: Trace, job: int, now: float) -> None:
    forecast.ended(job, float(trace.duration_s[job]), ENDS[trace.end[job]], now)


def moments_of(trace: Trace, until_s: float = np.inf) -> Moments:
    """Returns all submissions and ends up to an instant in order; at one time ends come first."""
    submit_s, n = trace.jobs.submit_s, len(trace)
    time_s = np.concatenate((submit_s + trace.duration_s, submit_s))
    order = np.lexsort((np.arange(2 * n), time_s))
    order = order[time_s[order] <= until_s]
    return time_s[order], order % n, order < n


def _each(moments: Moments) -> Iterator[tuple[float, int, bool]]:
    return zip(*(column.tolist() for column in moments), strict=True)

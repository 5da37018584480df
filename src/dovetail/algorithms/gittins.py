"""The Gittins index of an empirical distribution of total service, as a table of pieces.

With `N(a)` the samples that end by age `a` and `T(a) = integral of the survivors up to a`, the
index at age `a` is the largest slope from the point `(T(a), N(a))` to a later sample's point:

    G(a) = max over delta of P(S - a <= delta | S > a) / E[min(S - a, delta) | S > a]

So it is a tangent to the upper hull of the later points, and one backward sweep finds every
tangent. Service may be seconds or GPU-seconds; the index is per unit of it.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dovetail.algorithms.arrays import Floats


@dataclass(frozen=True)
class GittinsTable:
    """The index as pieces `ends / (gap - slope * (age - start))`, zero after the last sample.

    A piece holds from its `start` to the next one's. `ends` is the number of samples that end
    within the best (or the fixed) delta, `gap` the service spent on all survivors until then.
    """

    start: Floats
    ends: Floats
    gap: Floats
    slope: Floats

    def at(self, age: npt.ArrayLike) -> Floats:
        """Returns the index at each age (service already received), larger first."""
        ages = np.maximum(np.asarray(age, dtype=np.float64), 0.0)
        piece = np.searchsorted(self.start, ages, side="right") - 1
        spent = self.gap[piece] - self.slope[piece] * (ages - self.start[piece])
        # A rounding error just before an atom must not turn a huge index negative.
        return self.ends[piece] / np.maximum(spent, np.finfo(np.float64).tiny)

    def at_one(self, age: float) -> float:
        """Returns the index at one age; the scalar twin of `at`, without numpy's overhead."""
        starts, ends, gaps, slopes = self._lists
        piece = bisect_right(starts, max(age, 0.0)) - 1
        spent = gaps[piece] - slopes[piece] * (max(age, 0.0) - starts[piece])
        return ends[piece] / max(spent, float(np.finfo(np.float64).tiny))

    @cached_property
    def _lists(self) -> tuple[list[float], list[float], list[float], list[float]]:
        """The columns as plain lists, which scalar look-ups read ten times faster."""
        return (
            self.start.tolist(),
            self.ends.tolist(),
            self.gap.tolist(),
            self.slope.tolist(),
        )


def gittins_table(service: npt.ArrayLike, delta: float | None = None) -> GittinsTable:
    """Returns the index of the distribution of `service` samples (in its unit).

    Without `delta` the index is exact: the best delta at every age. With it, that one delta
    serves every age, as in the Tiresias artifact (3250 GPU-s). Samples of zero are ignored.
    """
    samples = np.asarray(service, dtype=np.float64)
    if not np.isfinite(samples).all() or bool((samples < 0).any()):
        raise ValueError("service samples must be finite and not negative")
    if delta is not None and not (np.isfinite(delta) and delta > 0):
        raise ValueError(f"delta must be positive, got {delta}")
    value, count = np.unique(samples[samples > 0], return_counts=True)
    if value.size == 0:
        raise ValueError("the Gittins index needs at least one positive sample")
    curve = _Curve.of(value, count.astype(np.float64))
    return _exact(curve) if delta is None else _fixed(curve, delta)


def quantile_index(quantiles: Floats, tail: Floats, age: Floats, step: float) -> Floats:
    """Returns the index of each job at its age under a distribution of its own.

    `quantiles` [jobs, n] bound n equally likely parts, uniform within; the last one, beyond all,
    has a Pareto tail in which `tail` times the age is left on average. A falling index is held
    from one quantile to the next, and in the tail while the age grows by the factor `step`: else
    two jobs would stop each other in turns. A job of one point, `quantiles` all equal, has the
    reciprocal of what is left, as in SRPT.
    """
    last = quantiles[:, -1]
    passed = np.where(quantiles <= age[:, None], quantiles, 0.0).max(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        index = np.maximum(_within(quantiles, tail, age), _within(quantiles, tail, passed))
        steps = np.floor(np.log(age / last) / np.log(step) + 1e-9)
        in_tail = 1.0 / (tail * last * step**steps)
    return np.asarray(np.where(age < last, index, in_tail))


def _within(quantiles: Floats, tail: Floats, age: Floats) -> Floats:
    """Returns the largest ratio of ends to service spent up to each quantile, and to the end."""
    n = quantiles.shape[1]
    low, high = quantiles[:, :-1], quantiles[:, 1:]
    ahead = high - np.clip(age[:, None], low, high)
    ends = np.where(high > low, ahead / (high - low), high > age[:, None])
    spent = ahead * (np.arange(n - 1, 0, -1) + ends / 2.0)
    ones = np.ones((len(age), 1))
    ends = np.concatenate((ends, ones), axis=1).cumsum(axis=1)
    spent = np.concatenate((spent, (tail * quantiles[:, -1])[:, None]), axis=1).cumsum(axis=1)
    spent += n * np.maximum(quantiles[:, :1] - age[:, None], 0.0)
    return np.asarray(np.nanmax(ends / spent, axis=1))


@dataclass(frozen=True, slots=True)
class _Curve:
    """Knots of `N` and `T` at age zero and at every distinct sample; survivors after each."""

    age: Floats
    ended: Floats
    spent: Floats
    alive: Floats

    @staticmethod
    def of(value: Floats, count: Floats) -> _Curve:
        """Returns the curve of distinct ascending samples and how often each occurs."""
        age = np.concatenate(([0.0], value))
        ended = np.concatenate(([0.0], np.cumsum(count)))
        alive = ended[-1] - ended
        spent = np.concatenate(([0.0], np.cumsum(alive[:-1] * np.diff(age))))
        return _Curve(age, ended, spent, alive)

    def ended_at(self, age: Floats) -> Floats:
        """Returns `N` at each age."""
        return self.ended[np.searchsorted(self.age, age, side="right") - 1]

    def spent_at(self, age: Floats) -> Floats:
        """Returns `T` at each age; flat after the last sample."""
        return np.interp(age, self.age, self.spent)


def _exact(curve: _Curve) -> GittinsTable:
    """Returns the table of best deltas by a right-to-left hull of the points `(T, N)`.

    Adding knot k drops the hull points under its tangent. Those are exactly the best ends for
    ages inside the piece after knot k, later ones first: the tangent from a point that moves
    right at constant height walks back along them. Each point is dropped once: O(n).
    """
    age, ended, spent, alive = (
        column.tolist() for column in (curve.age, curve.ended, curve.spent, curve.alive)
    )
    last = len(age) - 1
    hull = [last]
    pieces: list[tuple[float, int, int]] = []
    for k in range(last - 1, -1, -1):
        inside: list[tuple[float, int, int]] = []
        while len(hull) > 1:
            near, far = hull[-1], hull[-2]
            # Where the line through the two hull points comes down to the height of knot k.
            run = (spent[far] - spent[near]) / (ended[far] - ended[near])
            switch = spent[near] - run * (ended[near] - ended[k])
            if switch <= spent[k]:
                break
            inside.append((age[k] + (switch - spent[k]) / alive[k], k, near))
            hull.pop()
        pieces.extend(inside)
        pieces.append((age[k], k, hull[-1]))
        hull.append(k)
    pieces.reverse()
    return _table(curve, pieces)


def _table(curve: _Curve, pieces: list[tuple[float, int, int]]) -> GittinsTable:
    """Returns the table of pieces `(start, knot before it, knot of the best end)`."""
    start = np.array([p[0] for p in pieces])
    knot = np.array([p[1] for p in pieces])
    best = np.array([p[2] for p in pieces])
    alive = curve.alive[knot]
    gap = curve.spent[best] - curve.spent[knot] - alive * (start - curve.age[knot])
    return _closed(start, curve.ended[best] - curve.ended[knot], gap, alive, curve.age[-1])


def _fixed(curve: _Curve, delta: float) -> GittinsTable:
    """Returns the table for one delta: it bends where a sample enters or leaves the window."""
    bends = np.concatenate((curve.age, curve.age - delta))
    start = np.unique(bends[(bends >= 0) & (bends < curve.age[-1])])
    # `x - delta + delta` may fall short of x: count from the middle of each piece instead.
    middle = (start + np.append(start[1:], curve.age[-1])) / 2
    ends = curve.ended_at(middle + delta) - curve.ended_at(middle)
    gap = curve.spent_at(start + delta) - curve.spent_at(start)
    return _closed(start, ends, gap, ends, curve.age[-1])


def _closed(start: Floats, ends: Floats, gap: Floats, slope: Floats, last: float) -> GittinsTable:
    """Returns the table with a final piece of index zero: no sample is longer than `last`."""
    return GittinsTable(
        np.append(start, last), np.append(ends, 0.0), np.append(gap, 1.0), np.append(slope, 0.0)
    )

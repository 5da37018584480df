"""Exact thinning: a step function or a distribution of any length, at the width of a picture.

Nothing is sampled. A bin of a step function keeps its exact time-weighted mean, least and
greatest value; a distribution keeps its exact value at every edge it is drawn at.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class StepSeries:
    """A step function in bins: `edges` has one entry more than the other three."""

    edges: Floats
    mean: Floats
    least: Floats
    greatest: Floats

    def __len__(self) -> int:
        return len(self.mean)


def binned_steps(t_s: Floats, values: Floats, end_s: float, bins: int) -> StepSeries:
    """Returns the step function that takes `values[i]` from `t_s[i]` to the next, up to `end_s`.

    `t_s` must not decrease; rows that last no time do not show. At most `bins` bins come back;
    a shorter function comes back as it is, one bin a step.
    """
    start, stop, values = step_ends(t_s, values, end_s)
    if len(start) == 0:
        none = np.empty(0)
        return StepSeries(none, none, none, none)
    if len(start) <= bins and np.array_equal(stop[:-1], start[1:]):
        return StepSeries(np.append(start, stop[-1]), values, values, values)
    return over_edges(start, stop, values, np.linspace(start[0], stop[-1], bins + 1))


def step_ends(t_s: Floats, values: Floats, end_s: float) -> tuple[Floats, Floats, Floats]:
    """Returns start, end and value of each step that lasts and has a value."""
    start, stop = t_s, np.append(t_s[1:], end_s)
    lasts = (stop > start) & np.isfinite(values)
    return start[lasts], stop[lasts], values[lasts]


def over_edges(start: Floats, stop: Floats, values: Floats, edges: Floats) -> StepSeries:
    """Returns the steps in the bins between `edges`; NaN where no step is."""
    first = np.clip(np.searchsorted(edges, start, "right") - 1, 0, len(edges) - 2)
    last = np.clip(np.searchsorted(edges, stop, "left") - 1, 0, len(edges) - 2)
    n = len(edges) - 1
    # A step can cover many bins, but only its two ends fall inside one: what lies between is
    # a run of whole bins, of which there are at most `n` over all steps together.
    counts = last - first + 1
    row = np.repeat(np.arange(len(start)), counts)
    column = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts) + first[row]
    overlap = np.minimum(stop[row], edges[column + 1]) - np.maximum(start[row], edges[column])
    overlap = np.maximum(overlap, 0.0)
    covered = np.bincount(column, overlap, n)
    area = np.bincount(column, overlap * values[row], n)
    least, greatest = np.full(n, np.inf), np.full(n, -np.inf)
    np.minimum.at(least, column, values[row])
    np.maximum.at(greatest, column, values[row])
    mean = np.divide(area, covered, out=np.full(n, np.nan), where=covered > 0)
    bare = ~np.isfinite(least)
    least[bare], greatest[bare] = np.nan, np.nan
    return StepSeries(edges, np.clip(mean, least, greatest), least, greatest)


def binned_share(values: Floats, points: int, log: bool) -> tuple[Floats, Floats]:
    """Returns `x` and the exact share of finite `values` that are at most `x`.

    Every distinct value shows while there are at most `points` of them; else `points` edges,
    evenly spread (in the logarithm when `log`), end at the greatest value.
    """
    ordered = np.sort(values[np.isfinite(values)])
    if len(ordered) == 0:
        return np.empty(0), np.empty(0)
    x = np.unique(ordered)
    if len(x) > points:
        spread = np.geomspace if log and x[0] > 0 else np.linspace
        x = np.append(spread(x[0], x[-1], points)[:-1], x[-1])
    return x, np.searchsorted(ordered, x, "right") / len(ordered)


def held_by_bin(
    rows: Ints, amount: Floats, start_s: Floats, end_s: Floats, edges: Floats, height: int
) -> Floats:
    """Returns, per row (0..height-1) and time bin, the mean amount held; exact, O(spans + bins).

    The integral of a span up to an edge is a ramp that begins at its start less one that begins
    at its end; a ramp needs one partial bin and one lasting change of slope.
    """
    n = len(edges) - 1
    widths = np.diff(edges)
    partial, slope = np.zeros(height * n), np.zeros(height * (n + 1))
    for at_s, sign in ((start_s, 1.0), (end_s, -1.0)):
        at = np.clip(at_s, edges[0], edges[-1])
        column = np.clip(np.searchsorted(edges, at, "right") - 1, 0, n - 1)
        weight = sign * amount
        inside = weight * (edges[column + 1] - at)
        partial += np.bincount(rows * n + column, inside, height * n)
        slope += np.bincount(rows * (n + 1) + column + 1, weight, height * (n + 1))
    full = np.cumsum(slope.reshape(height, n + 1), axis=1)[:, :n]
    held: Floats = partial.reshape(height, n) / widths + full
    return np.maximum(held, 0.0)

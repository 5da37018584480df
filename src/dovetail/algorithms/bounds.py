"""How good any schedule can be: lower bounds on the mean JCT and the makespan.

Every bound is the optimum of an easier problem. What a policy may do decides what is easier:
jobs that keep their GPU count, jobs that may change it, GPUs that may be shared. `Powers` says
for which policies a bound holds; `JobDemand` must be computed for the same powers. Proofs and
measured looseness: docs/concepts/bounds.md.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.algorithms.arrays import Floats
from dovetail.algorithms.demand import JobDemand
from dovetail.algorithms.priced_bound import priced_flow_s
from dovetail.algorithms.single_machine import mean_busy_times, srpt_completions
from dovetail.algorithms.speed import SpeedTimeline
from dovetail.core.units import RELATIVE_TOLERANCE

if TYPE_CHECKING:
    from dovetail.algorithms.interval_lp import IntervalSolution


SPAN, SQUASHED, MEAN_BUSY = "span", "squashed area", "mean busy time"
INTERVAL, PRICED = "interval programme", "certified prices"
PROGRAMME_JOBS = 1500
"""Most jobs the interval programme takes itself; of a longer trace every k-th sets the prices."""
PROGRAMME_INTERVALS = 100
"""Most intervals of the programme's grid: 200 take twice as long for 1 % more."""
PROGRAMME_COLUMNS = 90_000
"""Segments times intervals of the programme: more jobs or segments get a coarser grid."""
FEWEST_INTERVALS = 60
FINE_JOBS = 400
"""More elastic jobs keep all their segments, on a grid that counts instants."""
STEEPNESS = 0.8
"""Segments whose slopes are closer than this are one in the programme: a third as many columns for
a bound that is 1 % lower; the prices are certified with all of them."""
THINNING_MAX = 12
"""Thinned further, a copy of the cluster is narrower than its jobs and its prices mislead."""
PRICED_JOBS = 200_000
"""Most jobs priced one by one (seconds of Python per 100,000)."""


@dataclass(frozen=True, slots=True)
class Powers:
    """Powers of policies over jobs. A bound is valid for all policies with no further powers.

    Sharing puts two jobs on one GPU, interleaving as many as there are stages to take turns on;
    limits restrict what jobs that share may have of a GPU.
    """

    elastic: bool = False
    sharing: bool = False
    interleaving: bool = False
    limits: bool = False

    @property
    def words(self) -> str:
        """Returns the powers as a phrase for tables."""
        width = "elastic" if self.elastic else "rigid"
        sharing = "sharing with limits" if self.limits else "sharing"
        words = ((sharing, self.sharing), ("interleaving", self.interleaving))
        crowd = " or ".join(word for word, has in words if has) or "exclusive"
        return f"{crowd}, {width}"


class Looseness(NamedTuple):
    """A bound over the mean JCT of the best schedule: of half of the instances more, and least."""

    median: float
    least: float


LOOSENESS = {
    Powers(): Looseness(0.91, 0.70),
    Powers(elastic=True): Looseness(0.96, 0.88),
    Powers(sharing=True): Looseness(0.86, 0.66),
    Powers(sharing=True, limits=True): Looseness(0.87, 0.66),
    Powers(interleaving=True): Looseness(0.88, 0.60),
    Powers(sharing=True, interleaving=True): Looseness(0.86, 0.66),
    Powers(elastic=True, sharing=True): Looseness(0.80, 0.61),
    Powers(elastic=True, interleaving=True): Looseness(0.71, 0.49),
    Powers(elastic=True, sharing=True, interleaving=True): Looseness(0.80, 0.49),
}
"""Of 60 crowds of four jobs, where it was measured (`python -m benchmarks.bound_looseness`)."""


@dataclass(frozen=True, slots=True)
class Bound:
    """One lower bound on the mean JCT, by name."""

    name: str
    mean_jct_s: float


@dataclass(frozen=True, slots=True)
class LowerBounds:
    """All bounds of one trace on one cluster, and the powers for which they are valid."""

    powers: Powers
    jobs: int
    bounds: tuple[Bound, ...]
    makespan_s: float

    @property
    def best(self) -> Bound:
        """Returns the largest bound, which is the tightest; on a tie the simplest."""
        return max(self.bounds, key=lambda bound: bound.mean_jct_s)

    @property
    def mean_jct_s(self) -> float:
        """Returns the least mean JCT that any policy with these powers can reach."""
        return self.best.mean_jct_s

    @property
    def looseness(self) -> str:
        """Returns how far below the best schedule such bounds lie; empty if not measured."""
        known = LOOSENESS.get(self.powers)
        if known is None:
            return ""
        return (
            f"of the best schedule of four jobs {known.median:.0%} in the median, "
            f"{known.least:.0%} at worst"
        )


def lower_bounds(
    demand: JobDemand,
    capacity: SpeedTimeline,
    powers: Powers,
    *,
    programme_jobs: int = PROGRAMME_JOBS,
    intervals: int = PROGRAMME_INTERVALS,
) -> LowerBounds:
    """Returns every bound that the size of the trace affords.

    `demand` is computed for `powers`; `capacity` is in GPUs. Up to `programme_jobs` jobs the
    interval programme is a bound itself; for longer traces thinned copies set prices, which all
    jobs then certify (up to `PRICED_JOBS`). `programme_jobs=0` leaves both out.
    """
    if not demand.jobs:
        raise ValueError("there is no bound on the mean JCT of no jobs")
    sums = [
        (SPAN, float(demand.shortest_s.sum())),
        (SQUASHED, squashed_area_flow_s(demand, capacity)),
        (MEAN_BUSY, mean_busy_flow_s(demand, capacity)),
    ]
    if programme_jobs and demand.jobs <= PRICED_JOBS and np.isfinite(sums[1][1]):
        # Times that span twenty orders of magnitude are beyond the solver, not the other bounds.
        with suppress(ArithmeticError):
            sums += _programmed(demand, capacity, intervals, programme_jobs)
    bounds = tuple(Bound(name, flow_s / demand.jobs) for name, flow_s in sums)
    return LowerBounds(powers, demand.jobs, bounds, least_makespan_s(demand, capacity))


def _programmed(
    demand: JobDemand, capacity: SpeedTimeline, intervals: int, programme_jobs: int
) -> list[tuple[str, float]]:
    """Returns the bounds of the interval programme: its optimum, and that of its prices."""
    if demand.jobs > programme_jobs:
        priced = _thinned_prices_flow_s(demand, capacity, intervals, programme_jobs)
        return [(PRICED, priced)]
    solution = _programme(demand, capacity, intervals, 1)
    priced = priced_flow_s(demand, capacity, solution.prices)
    return [(INTERVAL, solution.flow_s), (PRICED, priced)]


def squashed_area_flow_s(demand: JobDemand, capacity: SpeedTimeline) -> float:
    """Returns the sum of flows if all GPUs were one machine that any job may have to itself."""
    ends = _squashed(srpt_completions, demand, capacity)
    return float((ends - demand.release_s).sum())


def mean_busy_flow_s(demand: JobDemand, capacity: SpeedTimeline) -> float:
    """Returns the least sum of mean busy times, less releases, plus half the shortest times.

    A job that never goes faster than 1/h makes its progress h/2 before its end, on average.
    """
    busy = _squashed(mean_busy_times, demand, capacity)
    return float((busy - demand.release_s + demand.shortest_s / 2).sum())


def least_makespan_s(demand: JobDemand, capacity: SpeedTimeline) -> float:
    """Returns the least time from the first release to the last end.

    Work that a job cannot finish by instant t remains after t, so for every t the end is no
    earlier than t plus the time the cluster needs for all remaining work. Only releases and ends
    of shortest runs need to be tried: between them the remaining work is linear.
    """
    if not demand.jobs:
        return 0.0
    works = demand.area_gpu_s > 0
    release, shortest = demand.release_s[works], demand.shortest_s[works]
    width = demand.area_gpu_s[works] / shortest
    instant = np.concatenate((release, release + shortest))
    order = np.argsort(instant, kind="stable")
    instant = instant[order]
    busy = np.cumsum(np.concatenate((width, -width))[order])
    before = np.concatenate(([0.0], np.cumsum(busy[:-1] * np.diff(instant))))
    left = np.maximum(demand.area_gpu_s.sum() - before, 0.0)
    # The last instant's remainder is zero; a rounding error of it must not count.
    left[left < RELATIVE_TOLERANCE * demand.area_gpu_s.sum()] = 0.0
    ends = capacity.time_of(capacity.work_by(instant) + left)
    last = np.max(np.concatenate((ends, demand.release_s + demand.shortest_s)))
    return float(last - demand.release_s.min())


def _squashed(
    rule: Callable[[npt.ArrayLike, npt.ArrayLike, SpeedTimeline | None], Floats],
    demand: JobDemand,
    capacity: SpeedTimeline,
) -> Floats:
    """Returns a single-machine rule's times; a constant capacity needs no change of clock."""
    release, area = demand.release_s, demand.area_gpu_s
    steady = capacity.speed.size == 1 and float(capacity.speed[0]) > 0
    if steady and bool((release >= capacity.start_s[0]).all()):
        return rule(release, area / capacity.speed[0], None)
    return rule(release, area, capacity)


def _thinned_prices_flow_s(
    demand: JobDemand, capacity: SpeedTimeline, intervals: int, programme_jobs: int
) -> float:
    """Returns the sum of flows certified window by window of the trace, by release.

    Jobs of one window that have the cluster to themselves are never worse off than among all
    jobs, so the bounds of the windows add up. Each window certifies at least its span.
    """
    order = np.argsort(demand.release_s, kind="stable")
    total_s = 0.0
    for jobs in np.array_split(order, -(-demand.jobs // (programme_jobs * THINNING_MAX))):
        window = demand.subset(jobs)
        solution = _programme(window, capacity, intervals, -(-window.jobs // programme_jobs))
        certified_s = priced_flow_s(window, capacity, solution.prices)
        total_s += max(certified_s, float(window.shortest_s.sum()))
    return total_s


def _programme(
    demand: JobDemand, capacity: SpeedTimeline, intervals: int, every: int
) -> IntervalSolution:
    """Returns the interval programme of every k-th job on a k-th of the capacity."""
    # NOTE: scipy.optimize takes 0.5 s to import, longer than most runs that want no bound.
    from dovetail.algorithms.interval_lp import counting_grid, interval_grid, solve_intervals

    jobs = np.argsort(demand.release_s, kind="stable")[every // 2 :: every]
    thinned = demand.subset(jobs)
    slower = SpeedTimeline(capacity.start_s, capacity.speed / every)
    ends_s = _squashed(srpt_completions, thinned, slower)
    span_s = [demand.release_s.min(), float((demand.release_s + demand.shortest_s).max())]
    if thinned.jobs > FINE_JOBS and thinned.segments.width_gpus.size > thinned.jobs:
        # Of many elastic jobs the bound is up to 6 % larger so (the trace ed69ec of AFS).
        grid_s = counting_grid(np.concatenate((ends_s, span_s)), min(intervals, FEWEST_INTERVALS))
        return solve_intervals(thinned, slower, grid_s)
    thinned = thinned.merged(STEEPNESS)
    afforded = PROGRAMME_COLUMNS // max(1, thinned.segments.width_gpus.size)
    finest = min(intervals, max(FEWEST_INTERVALS, afforded))
    grid_s = interval_grid(np.concatenate((ends_s, thinned.release_s, span_s)), finest)
    return solve_intervals(thinned, slower, grid_s)

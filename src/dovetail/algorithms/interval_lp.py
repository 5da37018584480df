"""The interval programme: a linear programme over intervals of time, with capacity per interval.

Within an interval only sums count, so a coarser grid gives a weaker bound, but still a bound. The
dual prices of its capacity rows certify a second, continuous-time bound that is never weaker
(`priced_bound`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog
from scipy.sparse import csr_array, vstack

from dovetail.algorithms.arrays import Floats, Ints
from dovetail.algorithms.demand import JobDemand
from dovetail.algorithms.priced_bound import Prices
from dovetail.algorithms.speed import SpeedTimeline


@dataclass(frozen=True, slots=True)
class IntervalSolution:
    """The programme's optimum (a bound on the sum of flows) and its prices of capacity."""

    flow_s: float
    prices: Prices


@dataclass(frozen=True, slots=True)
class _Uses:
    """The columns: a job, an interval it may use, from when, its rate there and its most GPU-s."""

    job: Ints
    interval: Ints
    from_s: Floats
    rate_per_gpu_s: Floats
    most_gpu_s: Floats


def interval_grid(instants_s: npt.ArrayLike, intervals: int) -> Floats:
    """Returns at most `intervals + 1` edges over the span of instants at which progress is made.

    Forgetting the order inside an interval costs its length times the progress in it, so for a
    given number of intervals the best density goes with the root of that of the progress: of one
    job between two instants.
    """
    instants = np.unique(np.asarray(instants_s, dtype=np.float64))
    if intervals < 1 or not instants.size:
        raise ValueError("a grid needs an interval and some instants")
    low, high = float(instants[0]), float(instants[-1])
    if low == high:
        return np.array([low, low + 1.0])
    density = np.concatenate(([0.0], np.cumsum(np.sqrt(np.diff(instants)))))
    inner = np.interp(np.linspace(0, density[-1], intervals + 1), density, instants)
    return np.unique(np.concatenate(([low, high], inner[1:-1])))


def counting_grid(instants_s: npt.ArrayLike, intervals: int) -> Floats:
    """Returns a grid as `interval_grid`, its density that of the root of the number of instants.

    Of thousands of instants most of which are alone it takes no notice of how far apart they are.
    """
    instants = np.asarray(instants_s, dtype=np.float64)
    low, high = float(instants.min()), float(instants.max())
    if low == high:
        return np.array([low, low + 1.0])
    counts, bins = np.histogram(instants, bins=64 * intervals)
    density = np.concatenate(([0.0], np.cumsum(np.sqrt(counts))))
    inner = np.interp(np.linspace(0, density[-1], intervals + 1), density, bins)
    return np.unique(np.concatenate(([low, high], inner[1:-1])))


def solve_intervals(demand: JobDemand, capacity: SpeedTimeline, edge_s: Floats) -> IntervalSolution:
    """Returns the optimum over the grid; before its first edge and after its last all is free.

    Minimises the sum of F_j, with F_j >= h_j and F_j >= mean time of progress - r_j + h_j / 2,
    where progress in an interval counts as made at its start (or at the release, if later).
    """
    uses = _uses(demand, edge_s)
    supply = np.diff(capacity.work_by(edge_s))
    columns, jobs = uses.job.size, demand.jobs
    works = np.diff(demand.segments.first) > 0
    # The variables: GPU-seconds of every use, then each job's flow beyond its shortest time.
    solution = linprog(  # type: ignore[call-overload]  # its stubs know no sparse rows
        np.concatenate((np.zeros(columns), np.ones(jobs))),
        A_ub=vstack((_capacity_rows(uses, supply.size, jobs), _flow_rows(uses, demand))),
        b_ub=np.concatenate((supply, demand.shortest_s / 2)),
        A_eq=_progress_rows(uses, jobs)[works],
        b_eq=np.ones(int(works.sum())),
        bounds=np.column_stack(
            (np.zeros(columns + jobs), np.append(uses.most_gpu_s, np.full(jobs, np.inf)))
        ),
        method="highs",
    )
    if not solution.success:
        raise ArithmeticError(f"the interval programme was not solved: {solution.message}")
    paid = np.maximum(-solution.ineqlin.marginals[: supply.size], 0.0)
    return IntervalSolution(float(solution.fun + demand.shortest_s.sum()), Prices(edge_s, paid))


def _uses(demand: JobDemand, edge_s: Floats) -> _Uses:
    """Returns a column for every segment and every interval that its job may use.

    Interval 0 lies before the first edge, the last one after the last.
    """
    opening = np.concatenate(([-np.inf], edge_s))
    closing = np.concatenate((edge_s, [np.inf]))
    owner = np.repeat(np.arange(demand.jobs), np.diff(demand.segments.first))
    earliest = np.searchsorted(edge_s, demand.release_s, side="right")[owner]
    counts = opening.size - earliest
    segment = np.repeat(np.arange(owner.size), counts)
    begin = np.repeat(np.cumsum(counts) - counts, counts)
    interval = np.arange(segment.size) - begin + np.repeat(earliest, counts)
    job = owner[segment]
    from_s = np.maximum(opening[interval], demand.release_s[job])
    most = demand.segments.width_gpus[segment] * (closing[interval] - from_s)
    return _Uses(job, interval, from_s, demand.segments.rate_per_gpu_s[segment], most)


def _capacity_rows(uses: _Uses, intervals: int, jobs: int) -> csr_array:
    """Returns, per priced interval, the GPU-seconds used in it."""
    held = np.flatnonzero((uses.interval > 0) & (uses.interval <= intervals))
    return csr_array(
        (np.ones(held.size), (uses.interval[held] - 1, held)),
        shape=(intervals, uses.job.size + jobs),
    )


def _progress_rows(uses: _Uses, jobs: int) -> csr_array:
    """Returns, per job, the progress it makes in all."""
    column = np.arange(uses.job.size)
    return csr_array((uses.rate_per_gpu_s, (uses.job, column)), shape=(jobs, uses.job.size + jobs))


def _flow_rows(uses: _Uses, demand: JobDemand) -> csr_array:
    """Returns, per job, the mean delay of its progress less its flow beyond the shortest."""
    delay = uses.rate_per_gpu_s * (uses.from_s - demand.release_s[uses.job])
    row = np.concatenate((uses.job, np.arange(demand.jobs)))
    columns = uses.job.size + demand.jobs
    values = np.concatenate((delay, -np.ones(demand.jobs)))
    return csr_array((values, (row, np.arange(columns))), shape=(demand.jobs, columns))

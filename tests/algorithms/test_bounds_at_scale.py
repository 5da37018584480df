"""What each bound costs at 100,000 jobs: docs/concepts/bounds.md (`pytest -m slow -s`)."""

from collections.abc import Callable
from time import process_time

import numpy as np
import pytest

from dovetail.algorithms.bounds import (
    Powers,
    least_makespan_s,
    lower_bounds,
    mean_busy_flow_s,
    squashed_area_flow_s,
)
from dovetail.algorithms.demand import JobDemand, rigid_demand
from dovetail.algorithms.gpu_charges import Pairs, charges
from dovetail.algorithms.speed import SpeedTimeline

JOBS, GPUS = 100_000, 256
CAPACITY = SpeedTimeline.constant(GPUS)


def crowd() -> JobDemand:
    """Returns seeded jobs of 1 to 16 GPUs at load 1.05: a queue that grows into thousands."""
    rng = np.random.default_rng(5)
    gpus = 2 ** rng.integers(0, 5, JOBS)
    duration = rng.lognormal(7, 1.5, JOBS)
    gap_s = float((gpus * duration).mean()) / (1.05 * GPUS)
    return rigid_demand(np.cumsum(rng.exponential(gap_s, JOBS)), duration, gpus)


def timed(name: str, act: Callable[[], object], seconds_max: float) -> None:
    began = process_time()
    act()
    took_s = process_time() - began
    print(f"{name}: {took_s:.2f} s")
    assert took_s < seconds_max, name


@pytest.mark.slow
def test_every_bound_of_a_hundred_thousand_jobs_takes_seconds() -> None:
    demand = crowd()
    draw, kinds = np.random.default_rng(6), 64
    first, second = np.triu_indices(kinds)
    ways = Pairs(first, second, *draw.uniform(0.3, 1.0, (2, first.size)))
    timed("squashed area", lambda: squashed_area_flow_s(demand, CAPACITY), 2)
    timed("mean busy time", lambda: mean_busy_flow_s(demand, CAPACITY), 2)
    timed("makespan", lambda: least_makespan_s(demand, CAPACITY), 2)
    timed("all, no prices", lambda: lower_bounds(demand, CAPACITY, Powers(), programme_jobs=0), 5)
    timed("all, with prices", lambda: lower_bounds(demand, CAPACITY, Powers()), 120)
    timed("charges", lambda: charges(draw.lognormal(7, 1.5, kinds), ways), 10)
    for bound in lower_bounds(demand, CAPACITY, Powers()).bounds:
        print(f"{bound.name}: {bound.mean_jct_s:.0f} s")

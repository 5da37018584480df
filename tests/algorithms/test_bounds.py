"""Lower bounds: worked by hand, never above the exact optimum, and how far below it."""

from functools import cache
from itertools import product
from time import process_time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.algorithms.bounds import (
    INTERVAL,
    MEAN_BUSY,
    PRICED,
    SPAN,
    SQUASHED,
    Powers,
    least_makespan_s,
    lower_bounds,
)
from dovetail.algorithms.demand import JobDemand, ScalingCurve, elastic_demand, rigid_demand
from dovetail.algorithms.speed import SpeedTimeline
from exact_schedule import least_rigid_flow_s
from patience import MUCH_CPU_S

RIGID = Powers()
TWO_GPUS, THREE_GPUS = SpeedTimeline.constant(2), SpeedTimeline.constant(3)
JOBS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(1, 4), st.integers(1, 3)), min_size=1, max_size=4
)
CURVES = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 8), st.tuples(*[st.integers(0, 2)] * 2)),
    min_size=1,
    max_size=3,
)


def by_name(demand: JobDemand, capacity: SpeedTimeline, powers: Powers = RIGID) -> dict[str, float]:
    return {b.name: b.mean_jct_s for b in lower_bounds(demand, capacity, powers).bounds}


def test_every_bound_of_three_jobs_worked_by_hand() -> None:
    # Two GPUs; 4 s on one, 2 s on two, and from second 1 on 2 s on one: areas 4, 4, 2.
    # Squashed: sizes 2, 2, 1; ends 2, 5, 3; flows 2 + 5 + 2. Mean busy: smallest first runs
    # 0-1 a, 1-2 c, 2-3 a, 3-5 b: means 1.5, 4, 1.5, less 0, 0, 1, plus 2, 1, 1: 10.
    demand = rigid_demand([0, 0, 1], [4, 2, 2], [1, 2, 1])
    found = by_name(demand, TWO_GPUS)
    assert found[SPAN] == pytest.approx(8 / 3)
    assert found[SQUASHED] == pytest.approx(9 / 3)
    assert found[MEAN_BUSY] == pytest.approx(10 / 3)
    assert found[PRICED] >= found[INTERVAL] - 1e-6
    assert least_makespan_s(demand, TWO_GPUS) == 5


def test_the_makespan_sees_what_cannot_have_been_done_before_a_late_job() -> None:
    # All work is 8 GPU-s on 2 GPUs, the late wide job ends at 5 at best; but at second 3 one
    # second of the long job must be left, so 3 + (1 + 4) / 2.
    demand = rigid_demand([0, 3], [4, 2], [1, 2])
    assert least_makespan_s(demand, TWO_GPUS) == 5.5


def test_the_makespan_counts_from_the_first_release() -> None:
    assert least_makespan_s(rigid_demand([100, 100], [4, 4], [2, 2]), TWO_GPUS) == 8


def test_one_job_is_bounded_by_its_own_length() -> None:
    found = lower_bounds(rigid_demand([7], [5], [2]), THREE_GPUS, RIGID)
    assert found.mean_jct_s == pytest.approx(5)
    assert found.makespan_s == pytest.approx(5)


def test_an_outage_delays_the_bound() -> None:
    # Two GPUs until 2, none until 10: the second wide job can only run from 10 to 12.
    outage = SpeedTimeline.of([0, 2, 10], [2, 0, 2])
    demand = rigid_demand([0, 0], [2, 2], [2, 2])
    found = by_name(demand, outage)
    assert found[SQUASHED] == (2 + 12) / 2
    assert found[MEAN_BUSY] == (1 + 1 + 11 + 1) / 2
    assert least_makespan_s(demand, outage) == 12


def test_a_cluster_that_dies_bounds_nothing_from_above() -> None:
    dead = SpeedTimeline.of([0, 2], [2, 0])
    found = lower_bounds(rigid_demand([0, 0], [2, 2], [2, 2]), dead, RIGID)
    assert found.mean_jct_s == np.inf
    assert found.makespan_s == np.inf


@settings(max_examples=120)
@given(JOBS)
def test_no_bound_exceeds_the_best_rigid_schedule(jobs: list[tuple[int, int, int]]) -> None:
    release, duration, gpus = zip(*jobs, strict=True)
    best = least_rigid_flow_s(release, duration, gpus, 3) / len(jobs)
    demand = rigid_demand(release, duration, gpus)
    for settings_of in ({}, {"intervals": 2}, {"programme_jobs": 2}, {"programme_jobs": 1}):
        for bound in lower_bounds(demand, THREE_GPUS, RIGID, **settings_of).bounds:
            assert bound.mean_jct_s <= best + 1e-6, bound


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4)), min_size=1, max_size=4))
def test_the_bound_is_exact_where_every_job_fills_the_cluster(
    jobs: list[tuple[int, int]],
) -> None:
    release, duration = zip(*jobs, strict=True)
    best = least_rigid_flow_s(release, duration, [3] * len(jobs), 3) / len(jobs)
    found = by_name(rigid_demand(release, duration, [3] * len(jobs)), THREE_GPUS)
    assert found[SQUASHED] == pytest.approx(best)


def least_makespan_by_search(jobs: list[tuple[int, int, int]], pool: int) -> int:
    @cache
    def least(now: int, left: tuple[int, ...]) -> int:
        if not any(left):
            return now
        present = [j for j, x in enumerate(left) if x and jobs[j][0] <= now]
        choices = [
            chosen
            for chosen in product((0, 1), repeat=len(present))
            if sum(jobs[j][2] for j, on in zip(present, chosen, strict=True) if on) <= pool
        ]
        ends = []
        for chosen in choices:
            if present and not any(chosen):
                continue
            after = list(left)
            for j, on in zip(present, chosen, strict=True):
                after[j] -= on
            ends.append(least(now + 1, tuple(after)))
        return min(ends)

    first = min(release for release, _, _ in jobs)
    return least(first, tuple(duration for _, duration, _ in jobs)) - first


@settings(max_examples=80)
@given(JOBS)
def test_no_rigid_schedule_ends_before_the_makespan_bound(
    jobs: list[tuple[int, int, int]],
) -> None:
    demand = rigid_demand(*zip(*jobs, strict=True))
    bound = least_makespan_s(demand, THREE_GPUS)
    assert bound <= least_makespan_by_search(jobs, 3) + 1e-9
    simple = max(float((demand.release_s + demand.shortest_s).max()) - demand.release_s.min(), 0)
    assert bound >= max(simple, demand.area_gpu_s.sum() / 3) - 1e-9


def least_elastic_flow(jobs: list[tuple[int, int, list[int]]], pool: int) -> float:
    """Tries every share of GPUs in every whole second; a job may end inside a second."""

    @cache
    def least(now: int, left: tuple[int, ...]) -> float:
        if not any(left):
            return 0.0
        present = [j for j, x in enumerate(left) if x and jobs[j][0] <= now]
        if not present:
            return least(now + 1, left)
        flows = []
        for shares in product(range(pool + 1), repeat=len(present)):
            if not 0 < sum(shares) <= pool:
                continue
            after, spent = list(left), 0.0
            for j, share in zip(present, shares, strict=True):
                speed = jobs[j][2][share]
                spent += min(1.0, left[j] / speed) if speed else 1.0
                after[j] = max(0, left[j] - speed)
            if tuple(after) != left:
                flows.append(spent + least(now + 1, tuple(after)))
        return min(flows)

    return least(0, tuple(work for _, work, _ in jobs))


@settings(max_examples=60)
@given(CURVES)
def test_no_bound_exceeds_the_best_elastic_schedule(
    drawn: list[tuple[int, int, tuple[int, ...]]],
) -> None:
    curves = [[0, 2, 2 + a, 2 + a + b] for _, _, (a, b) in drawn]
    release, work = [job[0] for job in drawn], [job[1] for job in drawn]
    best = least_elastic_flow(list(zip(release, work, curves, strict=True)), 3) / len(drawn)
    demand = elastic_demand(
        release,
        work,
        range(len(drawn)),
        [ScalingCurve.of([1, 2, 3], curve[1:]) for curve in curves],
    )
    found = by_name(demand, THREE_GPUS, Powers(elastic=True))
    assert max(found.values()) <= best + 1e-6, found


def test_an_elastic_bound_lies_below_the_rigid_one() -> None:
    # 8 units, 2 GPUs asked: 1.6 a second, 5 s, 10 GPU-s. Elastic: 2.4 a second on 3, or 8 GPU-s.
    curve = ScalingCurve.of([1, 2, 3], [1, 1.6, 2.4])
    rigid = rigid_demand([0, 0, 0], [5, 5, 5], [2, 2, 2])
    elastic = elastic_demand([0, 0, 0], [8, 8, 8], [0, 0, 0], [curve])
    strict = lower_bounds(rigid, THREE_GPUS, RIGID)
    loose = lower_bounds(elastic, THREE_GPUS, Powers(elastic=True))
    assert loose.mean_jct_s < strict.mean_jct_s
    assert loose.makespan_s == pytest.approx(8)


def test_looseness_on_tiny_instances_is_as_documented() -> None:
    """The table of docs/concepts/bounds.md: mean of bound / optimum over 150 seeded instances."""
    rng = np.random.default_rng(11)
    ratios: dict[str, list[float]] = {"best": []}
    for _ in range(150):
        jobs = int(rng.integers(3, 5))
        release, duration = rng.integers(0, 5, jobs), rng.integers(1, 6, jobs)
        gpus = rng.integers(1, 4, jobs)
        best = least_rigid_flow_s(release.tolist(), duration.tolist(), gpus.tolist(), 3) / jobs
        found = by_name(rigid_demand(release, duration, gpus), THREE_GPUS)
        for name, value in found.items():
            ratios.setdefault(name, []).append(value / best)
        ratios["best"].append(max(found.values()) / best)
    for name, values in ratios.items():
        print(f"{name}: mean {np.mean(values):.3f}, least {np.min(values):.3f}")
    assert {name: float(np.mean(values)) for name, values in ratios.items()} == pytest.approx(
        {
            SPAN: 0.777,
            SQUASHED: 0.660,
            MEAN_BUSY: 0.783,
            INTERVAL: 0.887,
            PRICED: 0.895,
            "best": 0.896,
        },
        abs=0.01,
    )


def test_powers_are_spelled_for_tables() -> None:
    assert RIGID.words == "exclusive, rigid"
    assert Powers(elastic=True, sharing=True).words == "sharing, elastic"
    assert Powers(sharing=True, limits=True).words == "sharing with limits, rigid"
    assert Powers(interleaving=True).words == "interleaving, rigid"
    assert Powers(sharing=True, interleaving=True).words == "sharing or interleaving, rigid"


def test_the_best_bound_is_named() -> None:
    found = lower_bounds(rigid_demand([0, 0], [2, 2], [3, 3]), THREE_GPUS, RIGID)
    assert found.best.name == SQUASHED
    assert (found.mean_jct_s, found.jobs, found.powers) == (3, 2, RIGID)


def crowd(jobs: int, load: float) -> JobDemand:
    """Returns a seeded crowd for 256 GPUs at a given load."""
    rng = np.random.default_rng(5)
    gpus = 2 ** rng.integers(0, 5, jobs)
    duration = rng.lognormal(7, 1.5, jobs)
    gap = float((gpus * duration).mean()) / (load * 256)
    return rigid_demand(np.cumsum(rng.exponential(gap, jobs)), duration, gpus)


def test_a_long_trace_is_bounded_in_seconds() -> None:
    demand = crowd(20_000, 1.1)
    began = process_time()
    found = lower_bounds(demand, SpeedTimeline.constant(256), RIGID, programme_jobs=400)
    assert process_time() - began < MUCH_CPU_S
    assert found.best.name in (MEAN_BUSY, PRICED)


def test_a_trace_of_several_windows_is_bounded_by_each_of_them() -> None:
    # Twelve times the programme's jobs make a window. Jobs a day apart do not meet, so the
    # windows lose nothing: in each pair one job waits for the other.
    days = np.repeat(np.arange(60) * 86_400.0, 2)
    demand = rigid_demand(days, np.full(120, 600.0), np.full(120, 3))
    found = lower_bounds(demand, THREE_GPUS, RIGID, programme_jobs=4, intervals=400)
    assert found.best.name == SQUASHED
    assert found.mean_jct_s == pytest.approx(900)
    priced = {bound.name: bound.mean_jct_s for bound in found.bounds}[PRICED]
    assert 600 <= priced <= 900 + 1e-6


def test_no_jobs_have_no_mean() -> None:
    with pytest.raises(ValueError, match="no jobs"):
        lower_bounds(rigid_demand([], [], []), TWO_GPUS, RIGID)

"""Areas of interleaved jobs: weights over resources, by hand and against real interleavings."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.algorithms.bounds import Powers, least_makespan_s, lower_bounds
from dovetail.algorithms.interleaving import interleaved_demand, weighted_demand
from dovetail.algorithms.speed import SpeedTimeline

ONE_GPU = SpeedTimeline.constant(1)
STAGES = st.lists(st.tuples(*[st.integers(0, 4)] * 3), min_size=1, max_size=3).filter(
    lambda jobs: all(sum(stages) > 0 for stages in jobs)
)


def cycle_s(stages: list[tuple[int, ...]]) -> int:
    """Returns the shortest cycle of a group: job i is in stage (phase + offset i) in a phase."""
    resources = len(stages[0])
    return min(
        sum(
            max(job[(phase + k) % resources] for job, k in zip(stages, offsets, strict=True))
            for phase in range(resources)
        )
        for offsets in permutations(range(resources), len(stages))
    )


def test_two_complementary_jobs_are_bounded_by_their_common_resource() -> None:
    # Stages (3, 1) and (1, 2), 10 iterations each: resource one is busy 40 s, two 30 s; the
    # interleaved cycle is 4 s, so both end at 40 and no schedule ends before 40.
    demand = weighted_demand([0, 0], [40, 30], [[30, 10], [10, 20]], [1, 0])
    assert demand.area_gpu_s.tolist() == [30, 10]
    assert least_makespan_s(demand, ONE_GPU) == 40
    assert least_makespan_s(demand.shared(1), ONE_GPU) == cycle_s([(3, 1), (1, 2)]) * 10


def test_the_weights_go_to_the_bottleneck() -> None:
    # Every job is bound by resource two of three.
    busy = [[1, 9, 2], [2, 8, 1], [0, 7, 3]] * 4
    found = interleaved_demand([0] * 12, [12, 11, 10] * 4, busy, ONE_GPU)
    assert found.weights == (0, 1, 0)
    assert found.demand.area_gpu_s.tolist() == [9, 8, 7] * 4


def test_mixed_bottlenecks_are_bounded_best_by_mixed_weights() -> None:
    # Half the jobs are bound by one resource, half by the other: either alone sees only half.
    busy = [[10, 0], [0, 10]] * 10
    alike, alone = [[0.5, 0.5], [1.0, 0.0]]
    release, shortest = [0] * 20, [10] * 20
    found = interleaved_demand(release, shortest, busy, ONE_GPU)
    assert found.weights == pytest.approx(alike)
    mixed, single = (
        lower_bounds(weighted_demand(release, shortest, busy, y), ONE_GPU, Powers(sharing=True))
        for y in (alike, alone)
    )
    assert mixed.mean_jct_s > 1.5 * single.mean_jct_s


@settings(max_examples=60)
@given(STAGES, st.integers(1, 4))
def test_no_interleaved_group_beats_the_bound(
    stages: list[tuple[int, ...]], iterations: int
) -> None:
    jobs = len(stages)
    busy = np.array(stages) * iterations
    found = interleaved_demand([0] * jobs, busy.sum(axis=1), busy, ONE_GPU)
    bound = lower_bounds(found.demand, ONE_GPU, Powers(sharing=True), intervals=8)
    group_s = cycle_s(stages) * iterations
    assert bound.mean_jct_s <= group_s + 1e-6
    assert bound.makespan_s <= group_s + 1e-6


def test_weights_that_are_no_average_are_refused() -> None:
    for weights in ([0.5, 0.4], [1.5, -0.5], [1.0]):
        with pytest.raises(ValueError, match="weight"):
            weighted_demand([0], [1], [[1, 1]], weights)
    with pytest.raises(ValueError, match="row per job"):
        interleaved_demand([0, 1], [1, 1], [[1, 1]], ONE_GPU)

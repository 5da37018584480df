"""The two best orders on one machine: worked by hand, and against every slot-wise schedule."""

from functools import cache
from time import process_time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.algorithms.single_machine import mean_busy_times, srpt_completions
from dovetail.algorithms.speed import SpeedTimeline
from patience import MUCH_CPU_S

JOBS = st.lists(st.tuples(st.integers(0, 6), st.integers(1, 4)), min_size=1, max_size=4)


def least_sum_of_completions(jobs: list[tuple[int, int]], speed: tuple[int, ...]) -> int:
    """Tries every slot-wise schedule; `speed` is the work of each slot, one after it."""

    @cache
    def best(now: int, left: tuple[int, ...]) -> int:
        if not any(left):
            return 0
        slot = speed[now] if now < len(speed) else 1
        return sum(x > 0 for x in left) + min(after(now, left, slot))

    def after(now: int, left: tuple[int, ...], work: int) -> list[int]:
        present = [j for j, x in enumerate(left) if x and jobs[j][0] <= now]
        if not work or not present:
            return [best(now + 1, left)]
        return [
            cost
            for j in present
            for cost in after(now, (*left[:j], left[j] - 1, *left[j + 1 :]), work - 1)
        ]

    return best(0, tuple(size for _, size in jobs))


def least_sum_of_mean_busy_times(jobs: list[tuple[int, int]]) -> float:
    """Tries every slot-wise schedule; unit work in slot t has its middle at t + 1/2."""

    @cache
    def best(now: int, left: tuple[int, ...]) -> float:
        if not any(left):
            return 0.0
        costs = [
            (now + 0.5) / jobs[j][1] + best(now + 1, (*left[:j], x - 1, *left[j + 1 :]))
            for j, x in enumerate(left)
            if x and jobs[j][0] <= now
        ]
        return min(costs) if costs else best(now + 1, left)

    return best(0, tuple(size for _, size in jobs))


def test_virtual_srpt_worked_by_hand() -> None:
    # a runs 0-1; b 1-2; c 2-3; b 3-5; a 5-10 (one left against d's two at 9); d 10-12.
    assert srpt_completions([0, 1, 2, 9], [6, 3, 1, 2]).tolist() == [10, 5, 3, 12]


def test_jobs_may_come_in_any_order() -> None:
    assert srpt_completions([9, 2, 0, 1], [2, 1, 6, 3]).tolist() == [12, 3, 10, 5]


def test_ties_go_to_the_earlier_release_then_the_lower_index() -> None:
    assert srpt_completions([1, 0, 1], [2, 3, 2]).tolist() == [5, 3, 7]


def test_the_machine_idles_and_a_job_of_size_zero_ends_at_once() -> None:
    assert srpt_completions([5, 0, 7, 20], [4, 2, 0, 1]).tolist() == [9, 2, 7, 21]


def test_no_jobs_have_no_completions() -> None:
    assert srpt_completions([], []).tolist() == []
    assert mean_busy_times([], []).tolist() == []


def test_srpt_through_an_outage() -> None:
    # Speed 2 until 2, none until 5, then 1. A (8) has done 4 by 2; B (3) comes at 3, ends at 8.
    speed = SpeedTimeline.of([0, 2, 5], [2, 0, 1])
    assert srpt_completions([0, 3], [8, 3], speed).tolist() == [12, 8]


def test_nothing_ends_before_it_is_released_into_an_outage() -> None:
    speed = SpeedTimeline.of([0, 2, 5], [2, 0, 1])
    assert srpt_completions([3, 4], [0, 1], speed).tolist() == [3, 6]


def test_mean_busy_times_worked_by_hand() -> None:
    # L (4) runs 0-1 and 3-6: mean (0.5 + 3 * 4.5) / 4. S (2) runs 1-3: mean 2.
    assert mean_busy_times([0, 1], [4, 2]).tolist() == [3.5, 2.0]


def test_mean_busy_times_through_an_outage() -> None:
    # Size 6 at speed 2 until 2, none until 5, then 1: four units at mean 1, two at mean 6.
    speed = SpeedTimeline.of([0, 2, 5], [2, 0, 1])
    assert mean_busy_times([0], [6], speed) == pytest.approx([(4 * 1 + 2 * 6) / 6])


@settings(max_examples=150)
@given(JOBS)
def test_no_schedule_has_a_smaller_sum_of_completions(jobs: list[tuple[int, int]]) -> None:
    release, size = zip(*jobs, strict=True)
    # Time in the system is counted from zero, so the exact search gives completions.
    assert srpt_completions(release, size).sum() == least_sum_of_completions(jobs, ())


@settings(max_examples=150)
@given(JOBS, st.lists(st.integers(0, 1), max_size=8))
def test_srpt_stays_best_when_the_machine_pauses(
    jobs: list[tuple[int, int]], slots: list[int]
) -> None:
    release, size = zip(*jobs, strict=True)
    speed = SpeedTimeline.of(range(len(slots) + 1), [*slots, 1])
    best = least_sum_of_completions(jobs, tuple(slots))
    assert srpt_completions(release, size, speed).sum() == pytest.approx(best)


@settings(max_examples=150)
@given(JOBS)
def test_no_schedule_has_a_smaller_sum_of_mean_busy_times(jobs: list[tuple[int, int]]) -> None:
    release, size = zip(*jobs, strict=True)
    least = least_sum_of_mean_busy_times(jobs)
    assert mean_busy_times(release, size).sum() == pytest.approx(least)


@given(JOBS, st.sampled_from([0.5, 2.0, 64.0]))
def test_a_faster_machine_is_the_same_machine_with_smaller_jobs(
    jobs: list[tuple[int, int]], speed: float
) -> None:
    release, size = zip(*jobs, strict=True)
    timeline = SpeedTimeline.constant(speed)
    smaller = np.array(size) / speed
    for order in (srpt_completions, mean_busy_times):
        assert order(release, size, timeline) == pytest.approx(order(release, smaller))


def test_a_hundred_thousand_jobs_take_seconds() -> None:
    rng = np.random.default_rng(1)
    release = np.cumsum(rng.exponential(1.0, 100_000))
    size = rng.exponential(1.1, 100_000)
    began = process_time()
    completions = srpt_completions(release, size)
    busy = mean_busy_times(release, size)
    assert process_time() - began < MUCH_CPU_S
    assert completions.max() == pytest.approx(release[0] + size.sum(), rel=0.1)
    assert busy.sum() < completions.sum()


@pytest.mark.parametrize(
    ("release", "size"), [([0], [1, 2]), ([0], [-1]), ([np.nan], [1]), ([0], [np.inf])]
)
def test_senseless_jobs_are_refused(release: list[float], size: list[float]) -> None:
    with pytest.raises(ValueError, match="size"):
        srpt_completions(release, size)

"""Squeeze and swell by hand: which workers one step of Algorithm 1 changes, and that steps end."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import Row, Stage
from dovetail.core.beliefs import Neighbour, Physics, WorkerTime
from dovetail.core.job import JobTable
from dovetail.core.placement import Placement
from dovetail.mechanisms.calibration.primitives import Bench, WorkerLimits, free_competition
from dovetail.mechanisms.sharing.stars import Star
from dovetail.physics.linear import LinearBatches, LinearSharing, LinearStructure, linear_physics
from dovetail.physics.sharing.interference import Injected

CENTRE = Placement(((0, 4),), ((0, 1, 2, 3),))
BESIDE = {1: Placement(((0, 2),), ((0, 1),)), 2: Placement(((0, 1),), ((3,),))}


class CrowdedBatches(LinearBatches):
    """A worker takes `slow` times as long beside job 1 as alone, and 24 samples in all."""

    def __init__(self, jobs: JobTable, slow: float) -> None:
        super().__init__(jobs, Injected())
        self.slow = slow

    def samples(self, job: int) -> int:
        return 24

    def workers(
        self, job: int, placement: Placement, neighbours: Sequence[Neighbour]
    ) -> tuple[WorkerTime, ...]:
        hurt = {g for other, p in neighbours if other == 1 for g in p.named()}
        return tuple(
            WorkerTime(0.2, 0.1 * (self.slow if gpu in hurt else 1.0)) for gpu in placement.named()
        )


class UsedSharing(LinearSharing):
    """Every job keeps so much of its GPUs busy."""

    def __init__(self, jobs: JobTable, used: float) -> None:
        super().__init__(LinearStructure(jobs), Injected())
        self.used = used

    def utilization(self, job: int) -> float:
        return self.used


@dataclass(frozen=True)
class Crowd:
    """What a worker loses beside job 1, and how busy jobs keep their GPUs."""

    slow: float = 3.0
    used: float = 1.0

    def __call__(self, jobs: JobTable) -> Physics:
        batches, sharing = CrowdedBatches(jobs, self.slow), UsedSharing(jobs, self.used)
        return replace(linear_physics(jobs), batches=batches, sharing=sharing)


Crowded, Even, Light = Crowd(), Crowd(slow=1.0), Crowd(slow=1.0, used=0.55)


def bench(physics: Crowd, *, limits: bool = True, samples: bool = True) -> Bench:
    rows = [Row(4, 9, shareable=True), Row(2, 9, shareable=True), Row(1, 9, shareable=True)]
    stage = Stage(rows, "lucid", "1x4")
    view = Stage(rows, "lucid", "1x4", physics=physics(stage.trace.jobs)).view
    return Bench(view, Star(0, (1, 2)), (CENTRE, BESIDE[1], BESIDE[2]), limits, samples)


START = free_competition((CENTRE, BESIDE[1], BESIDE[2]))


def test_without_stragglers_the_whole_low_side_is_squeezed() -> None:
    after = bench(Even).step(START, (1, 2))
    assert after == (WorkerLimits((100,) * 4), WorkerLimits((90, 90)), WorkerLimits((90,)))


def test_who_shares_with_nobody_is_not_squeezed() -> None:
    # Worker 2 of the centre is alone on its GPU; to slow it would help nobody.
    after = bench(Even, samples=False).step(START, (0,))
    assert after is not None and after[0] == WorkerLimits((90, 90, 100, 90))


def test_the_first_squeeze_goes_below_what_the_job_uses() -> None:
    after = bench(Light).step(START, (2,))
    assert after is not None and after[2] == WorkerLimits((50,))


def test_stragglers_of_a_low_centre_pass_samples_on() -> None:
    # Workers 0 and 1 take 3 times as long for a sample; 2 is the median's neighbour.
    a_bench = bench(Crowded)
    assert a_bench.slow(START, 0) == {0, 1}
    after = a_bench.step(START, (0,))
    assert after is not None
    assert after[0].limits == (100,) * 4
    assert sum(after[0].samples) == 24
    # .2 + .3 * 3 = 1.1 and .2 + .1 * 9 = 1.1: nobody waits.
    assert after[0].samples == (3, 3, 9, 9)
    assert a_bench.slow(after, 0) == set()


def test_only_who_shares_with_stragglers_of_a_high_centre_is_squeezed() -> None:
    after = bench(Crowded, samples=False).step(START, (1, 2))
    assert after == (WorkerLimits((100,) * 4), WorkerLimits((90, 90)), WorkerLimits((100,)))


def test_without_limits_only_samples_move() -> None:
    a_bench = bench(Crowded, limits=False)
    after = a_bench.step(START, (1, 2))
    assert after is not None and after[0].samples == (3, 3, 9, 9)
    assert a_bench.step(after, (1, 2)) is None


def test_with_neither_there_is_nothing_to_do() -> None:
    assert bench(Crowded, limits=False, samples=False).step(START, (1, 2)) is None


def test_nobody_is_squeezed_below_ten_points() -> None:
    setting, a_bench = START, bench(Even, samples=False)
    steps = 0
    while (after := a_bench.step(setting, (1, 2))) is not None:
        setting, steps = after, steps + 1
    assert steps == 9
    assert setting[1].limits == (10, 10)


@settings(max_examples=40, deadline=None)
@given(
    st.sets(st.integers(0, 2), min_size=1),
    st.booleans(),
    st.booleans(),
    st.floats(0.5, 4.0),
    st.floats(0.05, 1.0),
)
def test_the_steps_end(
    low: set[int], limits: bool, samples: bool, slow: float, used: float
) -> None:
    physics = Crowd(slow, used)
    a_bench, setting, steps = bench(physics, limits=limits, samples=samples), START, 0
    while (after := a_bench.step(setting, sorted(low))) is not None:
        assert all(new <= old for a, b in zip(after, setting, strict=True)
                   for new, old in zip(a.limits, b.limits, strict=True))  # fmt: skip
        assert all(not m.samples or sum(m.samples) == 24 for m in after)
        setting, steps = after, steps + 1
        assert steps <= 60


def test_limits_of_a_hundred_points_are_no_fractions() -> None:
    assert WorkerLimits((100, 100)).on(BESIDE[1]) == BESIDE[1]
    assert WorkerLimits((100, 40)).on(BESIDE[1]).fractions == pytest.approx((1.0, 0.4))

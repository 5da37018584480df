"""What limits, samples and a worker's own neighbour do: laws by hand, and what must always hold."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from physics_scene import a_model, assumed

from builders import Row, trace_of
from dovetail.algorithms.sample_split import split
from dovetail.core.beliefs import Neighbour, Physics, SizedJob
from dovetail.core.cluster import Cluster, NodeGroup
from dovetail.core.placement import Placement
from dovetail.physics.beliefs.blur import Blur
from dovetail.physics.beliefs.noisy import noisy_physics
from dovetail.physics.linear import linear_physics
from dovetail.physics.memory import MemoryLaw
from dovetail.physics.placed import placed_physics
from dovetail.physics.sharing.contention import shipped_contention
from dovetail.physics.sharing.interference import Injected, MeasuredInterference
from dovetail.physics.sharing.limits import (
    LEAST,
    alone_slowdown,
    shared_slowdown,
    utilization,
)
from dovetail.physics.sharing.service_demand import GPU, UNKNOWN_DEMAND, load, on_one_gpu
from dovetail.physics.sharing.worker_slowdowns import FORWARD_SHARE
from dovetail.physics.speed.network import Network, RingLink
from dovetail.physics.zoo.models import Catalogue, lookup, shipped
from dovetail.physics.zoo.profile import ModelProfile
from dovetail.physics.zoo.profile_file import ProfileSet

MODELS = ["pollux/bert", "pollux/imagenet", "pollux/ncf", "muri/vgg16", "afs/transformer", ""]
BIG, SMALL = 0, len(MODELS)
"""Jobs 0 to 5 want 4 GPUs, jobs 6 to 11 two: one of each model."""
JOBS = trace_of(*[Row(4, 9, model=m) for m in MODELS], *[Row(2, 9, model=m) for m in MODELS]).jobs
MEASURED = placed_physics(
    JOBS, Cluster.uniform(2, 4), shipped(), interference=MeasuredInterference()
)
WHOLE = Placement(((0, 4),), ((0, 1, 2, 3),))
NO_NETWORK = Network(RingLink(0.0, 1e30), RingLink(0.0, 1e30))

shares = st.floats(0.05, 1.0)
tenths = st.integers(1, 10).map(lambda x: x / 10)
ratios = st.floats(1.0, 6.0)


def pair_on(*gpus: int, **more: object) -> Placement:
    return Placement(((0, len(gpus)),), (gpus,), **more)  # type: ignore[arg-type]


def test_utilisation_is_the_part_of_the_gpu_stage_in_which_kernels_run() -> None:
    bert, ncf = lookup("pollux/bert"), lookup("pollux/ncf")
    law = shipped_contention().law.value
    assert utilization(on_one_gpu(bert, 8)) == pytest.approx(law.fill(load(bert, 8)))
    # Two thirds of its iteration are outside the GPU.
    inside = on_one_gpu(ncf, ncf.batch.value.size)
    assert utilization(inside) == pytest.approx(inside.shares[GPU] * law.fill(inside.load))
    assert utilization(inside) < 0.4
    assert utilization(UNKNOWN_DEMAND) == shipped_contention().median_utilization
    assert utilization(replace(inside, stage_s=(0.0, 0.0, 0.0, 0.0))) == LEAST


def test_a_limit_slows_from_the_utilisation_down() -> None:
    assert [alone_slowdown(0.8, limit) for limit in (1.0, 0.8, 0.4)] == [1.0, 1.0, 2.0]


def test_two_that_could_fill_the_gpu_contest_what_their_limits_share() -> None:
    # The loss is 1/3 where all of the GPU is contested; half of it is: 1 - 1/6 and 1/2 - 1/6.
    assert 1 / shared_slowdown(1.0, 1.0, 1.0, 0.5, 1.5) == pytest.approx(5 / 6)
    assert 1 / shared_slowdown(1.0, 0.5, 1.0, 1.0, 1.5) == pytest.approx(1 / 3)
    assert 1 / shared_slowdown(1.0, 0.5, 1.0, 0.5, 1.5) == pytest.approx(1 / 2)


def test_what_contention_for_the_gpu_cannot_explain_goes_with_the_neighbour() -> None:
    # They fit the GPU side by side, and yet are twice as slow: half the neighbour, half the loss.
    assert 1 / shared_slowdown(0.5, 1.0, 0.5, 0.25, 2.0) == pytest.approx(0.75)
    assert 1 / shared_slowdown(0.5, 0.25, 0.5, 1.0, 2.0) == pytest.approx(0.25)
    # 0.2 contested costs 0.2 / 0.8 at most; the rest of 1 - 1/2 is 1 - 0.5 / 0.75 of what is left.
    assert 1 / shared_slowdown(0.8, 1.0, 0.4, 0.2, 2.0) == pytest.approx(1 - 1 / 3 / 2)


@given(shares, tenths, shares, tenths, ratios, ratios)
@settings(max_examples=300)
def test_what_every_pair_of_limits_keeps(
    mine: float, limit: float, other: float, other_limit: float, xi: float, other_xi: float
) -> None:
    slow = shared_slowdown(mine, limit, other, other_limit, xi)
    theirs = shared_slowdown(other, other_limit, mine, limit, other_xi)
    less, least = other_limit - 0.05, 1 + 1e-9
    assert shared_slowdown(mine, 1.0, other, 1.0, xi) == xi
    assert shared_slowdown(mine, limit, other, less, xi) <= slow * least, "a squeeze helps"
    assert shared_slowdown(other, less, mine, limit, other_xi) >= theirs / least, "and hurts"
    assert slow >= alone_slowdown(mine, limit) / least, "never beyond alone"
    whole = max(1.0, mine / xi + other / other_xi)
    assert mine / slow + other / theirs <= whole * least, "the GPU gives no more than it has"


@pytest.mark.parametrize("job", range(len(MODELS)))
def test_alone_a_worker_runs_at_its_limit_over_its_utilisation(job: int) -> None:
    used = MEASURED.sharing.utilization(job)
    assert 0 < used < 1
    for limit in (1.0, used, used / 2, used / 10):
        held = replace(WHOLE, fractions=(1.0, 1.0, limit, 1.0))
        assert MEASURED.rate(job, held, ()) == pytest.approx(limit / used if limit < used else 1)


@given(st.integers(0, 5), st.integers(6, 11), st.lists(tenths, min_size=4, max_size=4), tenths)
@settings(max_examples=80)
def test_a_squeezed_job_slows_and_its_neighbour_does_not(
    big: int, small: int, limits: list[float], other_limit: float
) -> None:
    def both(fraction: float) -> tuple[float, float]:
        there = pair_on(1, 2, fractions=(fraction, fraction))
        return (
            MEASURED.rate(big, held, [(small, there)]),
            MEASURED.rate(small, there, [(big, held)]),
        )

    held = replace(WHOLE, fractions=tuple(limits))
    free, squeezed = both(other_limit), both(other_limit - 0.05)
    assert squeezed[0] >= free[0] * (1 - 1e-9)
    assert squeezed[1] <= free[1] * (1 + 1e-9)
    assert squeezed[0] <= MEASURED.rate(big, held, ()) * (1 + 1e-9)


@pytest.mark.parametrize("big", range(len(MODELS)))
def test_whole_limits_are_free_competition(big: int) -> None:
    for small in range(SMALL, 2 * SMALL):
        plain, whole = pair_on(0, 1), pair_on(0, 1, fractions=(1.0, 1.0))
        ratio, other_ratio = MEASURED.sharing.interference(SizedJob(big, 1), SizedJob(small, 1))
        for there in (plain, whole):
            assert MEASURED.rate(big, WHOLE, [(small, there)]) == 1 / ratio
            assert MEASURED.rate(small, there, [(big, WHOLE)]) == 1 / other_ratio


def test_each_worker_has_its_own_neighbour_and_the_slowest_decides() -> None:
    one, two = (SMALL, pair_on(0, 2, fractions=(0.6, 0.6))), (SMALL + 1, pair_on(1, 3))
    gentle, rough = (MEASURED.rate(0, WHOLE, [n]) for n in (one, two))
    assert rough < gentle < 1
    assert MEASURED.rate(0, WHOLE, [one, two]) == rough
    plain = MEASURED.batches.workers(0, WHOLE, ())[0]
    slow = [t.fixed_s / plain.fixed_s for t in MEASURED.batches.workers(0, WHOLE, [one, two])]
    assert slow == pytest.approx([1 / gentle, 1 / rough, 1 / gentle, 1 / rough])


def test_where_gpus_are_not_named_all_workers_meet_the_largest_limit() -> None:
    there = Placement(((0, 2),), fractions=(0.1, 0.7))
    named = pair_on(0, 1, fractions=(0.7, 0.7))
    assert MEASURED.rate(0, WHOLE, [(SMALL, there)]) == MEASURED.rate(0, WHOLE, [(SMALL, named)])


def scene(profile: ModelProfile, *rows: Row, **more: object) -> Physics:
    known = Catalogue([ProfileSet("scene", "", "", (), (profile,))])
    cluster = more.pop("cluster", Cluster.uniform(2, 4))
    return placed_physics(trace_of(*rows).jobs, cluster, known, **more)  # type: ignore[arg-type]


ROWS = [Row(4, 9, model="plain"), Row(2, 9, model="plain")]
"""64 samples over 4 GPUs: 10 ms + 16 * 1 ms an even worker; 1.6 times as long is a load of 1.6."""


def test_forward_times_are_a_third_of_the_computing() -> None:
    physics = scene(a_model(), *ROWS)
    assert physics.batches.samples(0) == 64
    held = replace(WHOLE, fractions=(1.0, 1.0, 1.0, physics.sharing.utilization(0) / 2))
    times = physics.batches.workers(0, held, ())
    assert FORWARD_SHARE == 1 / 3
    assert times[0] == pytest.approx((0.01 / 3, 0.001 / 3))
    assert times[3] == pytest.approx((0.02 / 3, 0.002 / 3))


@given(st.lists(tenths, min_size=4, max_size=4), st.data())
@settings(max_examples=60)
def test_forward_times_reproduce_the_speed_where_nothing_is_exchanged(
    limits: list[float], data: st.DataObject
) -> None:
    physics = scene(a_model(network=assumed(NO_NETWORK)), *ROWS, interference=Injected(1.6))
    held = replace(WHOLE, fractions=tuple(limits))
    company: list[Neighbour] = [(1, pair_on(1, 3, fractions=(0.5, 1.0)))]
    times = physics.batches.workers(0, held, company)
    cuts = sorted(data.draw(st.lists(st.integers(1, 63), min_size=3, max_size=3, unique=True)))
    samples = tuple(b - a for a, b in zip((0, *cuts), (*cuts, 64), strict=True))
    even = physics.batches.workers(0, WHOLE, ())[0]
    for given_samples in ((16, 16, 16, 16), samples):
        both = zip(times, given_samples, strict=True)
        slowest = max(t.fixed_s + t.per_sample_s * b for t, b in both)
        speed = physics.rate(0, replace(held, samples=given_samples), company)
        assert speed == pytest.approx((even.fixed_s + even.per_sample_s * 16) / slowest)
    assert physics.rate(0, held, company) == pytest.approx(
        physics.rate(0, replace(held, samples=(16,) * 4), company)
    )


def test_samples_leave_the_exchange_as_it_is() -> None:
    # Twice as slow on two GPUs: 26 ms of computing and 15 ms of exchange, all doubled. A split of
    # 6, 6, 26, 26 takes 36 ms of computing on every worker: over 2 that is 18 ms; 2 * (18 + 15).
    physics = scene(a_model(network=assumed(Network(RingLink(0.0, 1e10), RingLink(0.0, 1e9)))),
                    *ROWS, interference=Injected(2.0))  # fmt: skip
    company = [(1, pair_on(0, 1))]
    slow = [t.fixed_s for t in physics.batches.workers(0, WHOLE, company)]
    assert slow == pytest.approx([0.02 / 3, 0.02 / 3, 0.01 / 3, 0.01 / 3])
    uneven = replace(WHOLE, samples=(8, 8, 24, 24))
    assert physics.rate(0, WHOLE, company) == 0.5
    assert physics.rate(0, uneven, company) == pytest.approx((26 + 15) / (2 * (18 + 15)))


def test_a_split_by_forward_times_is_never_slower_than_an_even_one() -> None:
    for big in range(len(MODELS) - 1):
        batch, even = MEASURED.batches.samples(big), MEASURED.batches.samples(big) // 4
        for small in range(SMALL, 2 * SMALL):
            company = [(small, pair_on(2, 3))]
            best = split(MEASURED.batches.workers(big, WHOLE, company), batch)
            left = batch - 3 * even
            plain = MEASURED.rate(big, replace(WHOLE, samples=(left, even, even, even)), company)
            assert MEASURED.rate(big, replace(WHOLE, samples=best), company) >= plain * (1 - 1e-9)


def test_slower_devices_are_slow_workers() -> None:
    cluster = Cluster((NodeGroup("a", 1, 2, gpu_type="v100"), NodeGroup("b", 1, 2, gpu_type="k80")))
    physics = scene(a_model(network=assumed(NO_NETWORK)), *ROWS, cluster=cluster)
    across = Placement(((0, 2), (1, 2)), ((0, 1), (0, 1)))
    factor = 1 / physics.rate(0, across, ())
    times = physics.batches.workers(0, across, ())
    assert factor > 2
    assert [t.fixed_s / times[0].fixed_s for t in times] == pytest.approx([1, 1, factor, factor])
    assert physics.rate(0, replace(across, fractions=(0.9,) * 4), ()) == pytest.approx(1 / factor)
    # A slow neighbour on the fast node does not add to what the slow node costs already.
    slower = scene(a_model(), *ROWS, cluster=cluster, interference=Injected(1.2))
    assert slower.rate(0, across, [(1, pair_on(0, 1))]) == slower.rate(0, across, ())


def test_the_worker_with_the_most_samples_must_fit() -> None:
    physics = scene(a_model(memory=assumed(MemoryLaw(1e9, 1e7))), *ROWS)
    even, uneven = WHOLE, replace(WHOLE, samples=(4, 10, 10, 40))
    assert physics.memory.fits([(0, even)], 1.16e9)
    assert not physics.memory.fits([(0, uneven)], 1.39e9)
    assert physics.memory.fits([(0, uneven)], 1.4e9)


@pytest.mark.parametrize("batch", [0, 32])
def test_jobs_without_a_model_are_as_busy_as_the_median(batch: int) -> None:
    jobs = trace_of(Row(2, 9, batch_size=batch), Row(2, 9)).jobs
    linear = linear_physics(jobs, Injected(1.5))
    placed = placed_physics(jobs, Cluster.uniform(1, 2), shipped(), interference=Injected(1.5))
    median = shipped_contention().median_utilization
    there = pair_on(0, 1, fractions=(0.3, 0.3))
    beside = shared_slowdown(median, 0.3, median, 1.0, 1.5)
    for physics in (linear, placed):
        assert (physics.sharing.utilization(0), physics.batches.samples(0)) == (median, batch)
        assert physics.rate(0, pair_on(0, 1), [(1, pair_on(0, 1))]) == 1 / 1.5
        assert physics.rate(0, there, [(1, pair_on(0, 1))]) == pytest.approx(1 / beside)
        times = physics.batches.workers(0, there, [(1, pair_on(0, 1))])
        unit = (0.0, beside / 16) if batch else (beside, 0.0)
        assert times == (pytest.approx(unit),) * 2
        if batch:
            uneven = pair_on(0, 1, samples=(8, 24))
            assert physics.rate(0, uneven, ()) == pytest.approx(16 / 24)


def test_a_blurred_belief_errs_on_pairs_under_limits_and_times_workers_right() -> None:
    noisy: Physics = noisy_physics(MEASURED, JOBS, Blur(interference=0.3), 1)
    company = [(SMALL, pair_on(0, 1, fractions=(0.3, 0.3)))]
    assert noisy.rate(0, WHOLE, company) != MEASURED.rate(0, WHOLE, company)
    assert noisy.batches.workers(0, WHOLE, company) == MEASURED.batches.workers(0, WHOLE, company)
    assert noisy.batches.samples(0) == MEASURED.batches.samples(0) > 0

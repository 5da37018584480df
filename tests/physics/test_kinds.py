"""Answers by kind agree with the speed of single placements, for every physics."""

from math import ceil

import numpy as np
import pytest

from builders import Row, trace_of
from dovetail.core.beliefs import Physics, SizedJob
from dovetail.core.cluster import Cluster
from dovetail.core.placement import Placement
from dovetail.physics.beliefs.blur import Blur
from dovetail.physics.beliefs.noisy import noisy_physics
from dovetail.physics.linear import linear_physics
from dovetail.physics.placed import placed_physics
from dovetail.physics.sharing.interference import Injected, Interference
from dovetail.physics.sharing.service_demand import ServiceDemand
from dovetail.physics.speed.throughput import footprint_bytes
from dovetail.physics.zoo.models import lookup, shipped

CLUSTER = Cluster.uniform(4, 4)
ROWS = [
    Row(4, 100, model="pollux/bert"),
    Row(2, 100, model="pollux/bert"),
    Row(4, 100, model="pollux/bert", batch_size=768),
    Row(8, 100, model="pollux/cifar10"),
    Row(1, 100, model="afs/vgg16"),
    Row(3, 100),
    Row(4, 50, model="pollux/bert"),
    Row(4, 100, model="pollux/cifar10"),
]
TRACE = trace_of(*ROWS)


def physics(kind: str) -> Physics:
    shared = Injected(1.7)
    linear = linear_physics(TRACE.jobs, shared)
    if kind == "linear":
        return linear
    if kind == "noisy linear":
        return noisy_physics(linear, TRACE.jobs, Blur(0.3, 0.3), 1)
    placed = placed_physics(
        TRACE.jobs, CLUSTER, shipped(), interference=shared, by_count=kind == "counted"
    )
    return noisy_physics(placed, TRACE.jobs, Blur(0.3, 0.3), 1) if kind == "noisy" else placed


KINDS = pytest.mark.parametrize("kind", ["linear", "placed", "counted", "noisy", "noisy linear"])


def on(gpus: int, **more: object) -> Placement:
    """Returns a well placed gang on nodes of four GPUs."""
    spans = [(node, min(4, gpus - 4 * node)) for node in range(ceil(gpus / 4))]
    return Placement(tuple(spans), **more)  # type: ignore[arg-type]


def test_model_requested_gpus_and_batch_make_the_kind() -> None:
    kinds = physics("placed").kind_of.tolist()
    assert len(set(kinds)) == 7
    assert kinds[0] == kinds[6]


def test_belief_tells_models_apart_that_are_one_kind_in_truth() -> None:
    truth, belief = physics("linear"), physics("noisy linear")
    # Four GPUs each: bert, bert of another batch, bert again, cifar10.
    assert [truth.kind_of[j] for j in (0, 2, 6, 7)] == [truth.kind_of[0]] * 4
    assert belief.kind_of[0] == belief.kind_of[2] == belief.kind_of[6] != belief.kind_of[7]
    assert belief.rate(0, on(2), ()) != belief.rate(7, on(2), ())
    # What the truth tells apart stays apart, in the same order.
    assert physics("noisy").kind_of.tolist() == physics("placed").kind_of.tolist()


@KINDS
def test_jobs_of_a_kind_are_alike_in_every_answer(kind: str) -> None:
    one = physics(kind)
    jobs = range(len(ROWS))
    for a, b in [(a, b) for a in jobs for b in jobs if one.kind_of[a] == one.kind_of[b]]:
        assert one.structure.scale(a) == one.structure.scale(b)
        for other in jobs:
            first, second = (one.sharing.interference(SizedJob(x), SizedJob(other)) for x in (a, b))
            assert first == second
        for gpus in range(1, 9):
            assert one.rate(a, on(gpus), ()) == one.rate(b, on(gpus), ())


@KINDS
def test_rates_are_the_speeds_of_well_placed_gangs(kind: str) -> None:
    one = physics(kind)
    table = one.speed.rates(16)
    assert table.shape == (len(set(one.kind_of.tolist())), 17)
    assert (table[:, 0] == 0).all()
    for job in range(len(ROWS)):
        speeds = [one.rate(job, on(gpus), ()) for gpus in range(1, 17)]
        assert table[one.kind_of[job], 1:] == pytest.approx(speeds, rel=1e-12)
    assert one.speed.rates(16) is table
    with pytest.raises(ValueError, match="read-only"):
        table[0, 0] = 1


@KINDS
def test_rates_are_one_as_requested(kind: str) -> None:
    one = physics(kind)
    for job, row in enumerate(ROWS):
        assert one.speed.rates(16)[one.kind_of[job], row.gpus] == pytest.approx(1)


@KINDS
def test_accumulation_costs_what_the_speed_says(kind: str) -> None:
    one = physics(kind)
    for job, row in enumerate(ROWS):
        for steps in (1, 2, 4):
            true = one.rate(job, on(row.gpus, accumulation_steps=steps), ())
            assert one.batches.accumulated(job, steps) == pytest.approx(true)
            assert true <= 1 + 1e-12, "with equal ratios a smaller sub-batch is never faster"
    if "linear" not in kind:
        assert one.batches.accumulated(3, 4) < 0.99


@KINDS
def test_ratios_are_shared_over_alone(kind: str) -> None:
    one = physics(kind)
    a, b = 0, 6
    mine, theirs = one.sharing.interference(SizedJob(a, 1), SizedJob(b, 1))
    names = ((0, 1, 2, 3),)
    pair = [Placement(((0, 4),), names), Placement(((0, 4),), names)]
    alone, shared = one.rate(a, pair[0], ()), one.rate(a, pair[0], [(b, pair[1])])
    assert max(1, alone / shared) == pytest.approx(mine)
    assert mine >= 1 and theirs >= 1
    if "noisy" not in kind:
        assert mine == theirs == 1.7


def test_a_gang_goes_at_the_pace_of_its_worst_neighbour() -> None:
    class ByName(Interference):
        def ratio(self, mine: ServiceDemand, other: ServiceDemand) -> float:
            name = other.model.name if other.model else ""
            return {"bert": 1.2, "cifar10": 1.9}.get(name, 1.0)

    one = placed_physics(TRACE.jobs, CLUSTER, shipped(), interference=ByName())
    host = Placement(((0, 4),), ((0, 1, 2, 3),))
    near = [(1, Placement(((0, 2),), ((0, 1),))), (3, Placement(((0, 2),), ((2, 3),)))]
    assert one.rate(0, host, near) == pytest.approx(1 / 1.9)


def test_footprints_shrink_with_the_micro_batch() -> None:
    one = physics("placed")
    bert = lookup("pollux/bert")
    # 384 samples on 4 GPUs, 12 at most at once: 8 steps; 16 steps halve the activations.
    assert one.memory.footprint_bytes(0, 1) == footprint_bytes(bert, gpus=4, batch_per_gpu=96)
    assert one.memory.footprint_bytes(0, 8) == one.memory.footprint_bytes(0, 1)
    assert one.memory.footprint_bytes(0, 16) == bert.memory.value.used_bytes(6)
    assert one.memory.footprint_bytes(5, 1) == 0
    both = [(0, on(4, accumulation_steps=16)), (6, on(4, accumulation_steps=16))]
    need = 2 * bert.memory.value.used_bytes(6)
    assert one.memory.fits(both, need)
    assert not one.memory.fits(both, need - 1)


def test_the_job_s_own_batch_counts() -> None:
    one = physics("placed")
    # Twice the samples on as many GPUs: computing weighs more, so growing pays more.
    assert one.speed.rates(16)[one.kind_of[2], 16] > one.speed.rates(16)[one.kind_of[0], 16]
    assert np.all(one.speed.rates(16)[one.kind_of[2]] >= 0)

"""Rates of pairs and sets at any size, and turns at the GPUs held, are those of placements."""

from itertools import permutations

import numpy as np
import pytest

from builders import Row, trace_of
from dovetail.algorithms.stage_cycle import overlapped_s
from dovetail.core.beliefs import SizedJob
from dovetail.core.cluster import Cluster
from dovetail.core.placement import Interleave, Placement
from dovetail.physics.placed import placed_physics
from dovetail.physics.sharing.interference import MeasuredInterference
from dovetail.physics.sharing.service_demand import well_placed_demand
from dovetail.physics.zoo.models import lookup, shipped

MODELS = ("pollux/bert", "pollux/imagenet", "muri/vgg16", "muri/gpt2", "afs/transformer", "")
JOBS = trace_of(*(Row(4, 900, model=m, elastic=True, shareable=True) for m in MODELS)).jobs
KNOWN = placed_physics(JOBS, Cluster.uniform(4, 4), shipped(), interference=MeasuredInterference())


def placed(gpus: int, steps: int = 1) -> Placement:
    nodes = range(-(-gpus // 4))
    spans = tuple((node, min(4, gpus - 4 * node)) for node in nodes)
    ids = tuple(tuple(range(count)) for _, count in spans)
    return Placement(spans, ids, accumulation_steps=steps)


@pytest.mark.parametrize("gpus", [1, 2, 4, 8, 16])
def test_rates_of_pairs_are_those_of_placements_on_the_same_gpus(gpus: int) -> None:
    one = [SizedJob(job, 1, gpus) for job in range(len(MODELS))]
    two = [SizedJob(job, steps, gpus) for job in range(len(MODELS)) for steps in (1, 2)]
    mine, theirs = KNOWN.pair_rates(one, two)
    assert mine.shape == theirs.shape == (len(one), len(two))
    for i, first in enumerate(one):
        for j, second in enumerate(two):
            if first.job == second.job:
                continue
            a, b = placed(gpus), placed(gpus, second.steps)
            rates = (
                KNOWN.rate(first.job, a, [(second.job, b)]),
                KNOWN.rate(second.job, b, [(first.job, a)]),
            )
            assert (mine[i, j], theirs[i, j]) == pytest.approx(rates), (first, second)
    alone = np.array([[KNOWN.rate(side.job, placed(gpus))] for side in one])
    assert (mine <= alone * (1 + 1e-12)).all() and np.mean(mine < alone) > 0.9


def test_no_size_means_the_requested_one() -> None:
    sides, sized = [SizedJob(0), SizedJob(2, 2)], [SizedJob(0, 1, 4), SizedJob(2, 2, 4)]
    assert np.array(KNOWN.pair_rates(sides, sides)) == pytest.approx(
        np.array(KNOWN.pair_rates(sized, sized))
    )


@pytest.mark.parametrize("gpus", [1, 8])
def test_the_rates_of_a_set_of_two_are_those_of_the_pair(gpus: int) -> None:
    for i, j in permutations(range(len(MODELS)), 2):
        members = [SizedJob(i, 1, gpus), SizedJob(j, 1, gpus)]
        mine, theirs = KNOWN.pair_rates(members[:1], members[1:])
        assert KNOWN.set_rates(members) == pytest.approx([mine[0, 0], theirs[0, 0]])


def test_four_in_a_set_are_slower_than_two() -> None:
    four = KNOWN.set_rates([SizedJob(j, 1, 2) for j in (0, 1, 4, 0)])
    two = KNOWN.set_rates([SizedJob(j, 1, 2) for j in (0, 1)])
    assert (four[:2] < two).all() and (four > 0).all()


@pytest.mark.parametrize("gpus", [2, 8])
def test_a_resized_set_has_the_cycle_of_the_gpus_it_holds(gpus: int) -> None:
    pair = [MODELS.index("muri/vgg16"), MODELS.index("muri/gpt2")]
    demands = [well_placed_demand(lookup(MODELS[job]), gpus) for job in pair]
    seats = [
        (job, Placement(placed(gpus).spans, placed(gpus).gpu_ids, interleave=Interleave(0, phase)))
        for phase, job in enumerate(pair)
    ]
    # Of nodes of 4 GPUs; the profile's own have 8.
    stage_s, alone_s = zip(*(KNOWN.sharing.stages(*seat) for seat in seats), strict=True)
    cycle_s = max(1.31 * overlapped_s(stage_s, (0, 1)), *alone_s)
    rates = [KNOWN.rate(*seats[k], [seats[1 - k]]) for k in (0, 1)]
    alone = [KNOWN.rate(*seat) for seat in seats]
    assert rates == pytest.approx([r * s / cycle_s for r, s in zip(alone, alone_s, strict=True)])
    # The samples that four GPUs were to load, these load.
    for stages, demand in zip(stage_s, demands, strict=True):
        assert stages[0] == pytest.approx(demand.stage_s[0] * 4 / gpus)
    requested = KNOWN.sharing.interleaving.iteration_s[KNOWN.kind_of[pair]]
    assert not np.allclose(alone_s, requested)

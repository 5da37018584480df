"""Whoever is on a GPU, at whatever size, steps and spread: charges times speeds are at most 1.

The bounds for sharing and interleaving are proved from this alone (docs/concepts/bounds.md).
"""

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import Row, trace_of
from dovetail.algorithms.bounds import Powers
from dovetail.core.beliefs import Physics, SizedJob, on_nodes
from dovetail.core.cluster import Cluster
from dovetail.core.job import Floats
from dovetail.core.placement import Interleave, Placement
from dovetail.physics.zoo.models import zoo
from dovetail.study.gpu_charges import RIPPLE, job_charges, step_ranges
from dovetail.study.options import Options
from dovetail.study.run import build_physics
from dovetail.study.top_speeds import TopSpeeds
from property_size import examples

CLUSTER = Cluster.parse("3x4")
MODELS = sorted(zoo())
MEMBERS = st.lists(
    st.tuples(st.sampled_from(MODELS), st.sampled_from([1, 2, 3, 4, 6])), min_size=3, max_size=3
)
EQUAL = 1e-9


@cache
def scene(members: tuple[tuple[str, int], ...], powers: Powers) -> tuple[Physics, Floats]:
    """Returns the physics of jobs with so many GPUs each, and what they are charged.

    The charge is for a second at the speed alone as requested. A bound counts a job that is faster
    somewhere by its top speed.
    """
    trace = trace_of(*(Row(gpus, 900.0, model=m, shareable=True) for m, gpus in members))
    physics = build_physics(trace, Options(CLUSTER))
    area = trace.duration_s * trace.jobs.asked_gpus
    tops = TopSpeeds(CLUSTER, physics)
    top = [max(1.0, tops.of(job, gpus)) for job, (_, gpus) in enumerate(members)]
    return physics, job_charges(trace, CLUSTER, physics, powers, area) / top


def test_all_numbers_of_steps_are_in_one_range() -> None:
    for most in (1, 2, 3, 4, 5, 7, 8, 9, 100):
        ranges = step_ranges(most)
        assert [n for low, high in ranges for n in range(low, high + 1)] == [*range(1, most + 1)]


def test_in_a_range_of_steps_no_speed_is_higher_than_that_of_its_ends() -> None:
    draw, worst = np.random.default_rng(1), 0.0
    for _ in range(12):
        one, two = (MODELS[m] for m in draw.integers(0, len(MODELS), 2))
        physics, _ = scene(((one, 4), (two, 4), (one, 4)), Powers())
        most = [min(24, max(1, physics.batches.most_steps(job))) for job in (0, 1)]
        mine, theirs = ([SizedJob(j, k) for k in range(1, most[j] + 1)] for j in (0, 1))
        speed, _ = physics.pair_rates(mine, theirs)
        for low, high in step_ranges(most[0]):
            for other_low, other_high in step_ranges(most[1]):
                inside = speed[low - 1 : high, other_low - 1 : other_high].max()
                worst = max(worst, inside / speed[low - 1, other_high - 1] - 1)
    assert worst <= RIPPLE


@pytest.mark.parametrize("limits", [False, True])
@examples(25)
@given(members=MEMBERS, data=st.data())
def test_no_pair_in_any_steps_is_charged_more_than_a_gpu(
    limits: bool, members: list[tuple[str, int]], data: st.DataObject
) -> None:
    physics, charge = scene(tuple(members), Powers(sharing=True, limits=limits))
    placed: list[Placement] = []
    for job, (_, gpus) in enumerate(members[:2]):
        nodes = data.draw(st.integers(-(-gpus // 4), min(3, gpus)))
        steps = data.draw(st.integers(1, max(1, physics.batches.most_steps(job))))
        limit = data.draw(st.sampled_from([1.0, 0.7, 0.4])) if limits else 1.0
        plain = on_nodes(gpus, nodes, steps)
        fractions = (limit,) * gpus if limit < 1 else ()
        placed.append(Placement(plain.spans, accumulation_steps=steps, fractions=fractions))
    held = list(enumerate(placed))
    if not physics.memory.fits(held, CLUSTER.groups[0].gpu_memory_bytes):
        return
    rates = [physics.rate(0, placed[0], held[1:]), physics.rate(1, placed[1], held[:1])]
    assert charge[0] * rates[0] + charge[1] * rates[1] <= 1 + EQUAL


@examples(25)
@given(members=MEMBERS, data=st.data())
def test_no_chain_of_sets_is_charged_more_than_a_gpu(
    members: list[tuple[str, int]], data: st.DataObject
) -> None:
    physics, charge = scene(tuple(members), Powers(interleaving=True))
    all_gpus = [(node, gpu) for node in range(3) for gpu in range(4)]
    held: list[tuple[int, Placement]] = []
    for job, (_, gpus) in enumerate(members):
        some = sorted(data.draw(st.permutations(all_gpus[: max(6, gpus)]))[:gpus])
        nodes = sorted({node for node, _ in some})
        ids = tuple(tuple(gpu for at, gpu in some if at == node) for node in nodes)
        spans = tuple((node, len(of)) for node, of in zip(nodes, ids, strict=True))
        # As legal: distinct phases on each GPU, equal ones where two do not meet.
        taken = {p.interleave.phase for _, p in held if p.interleave and {*p.named()} & {*some}}
        phase = data.draw(st.sampled_from([n for n in range(4) if n not in taken]))
        held.append((job, Placement(spans, ids, interleave=Interleave(0, phase))))
    on = {gpu: [j for j, p in held if gpu in p.named()] for gpu in all_gpus}
    rates = np.array(
        [
            physics.rate(j, p, [(k, q) for k, q in held if k != j and {*p.named()} & {*q.named()}])
            for j, p in held
        ]
    )
    for jobs in on.values():
        assert (charge * rates)[jobs].sum() <= 1 + EQUAL

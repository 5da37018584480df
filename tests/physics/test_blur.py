"""Beliefs blurred axis by axis: what each touches, and nothing else."""

from math import exp

import numpy as np
import pytest

from builders import Row, trace_of
from dovetail.core.beliefs import Physics, SizedJob
from dovetail.core.cluster import Cluster
from dovetail.core.errors import InputError
from dovetail.core.placement import Interleave, Placement
from dovetail.physics.beliefs.blur import Blur, log_normal, normal, uniform
from dovetail.physics.beliefs.noisy import believed
from dovetail.physics.placed import placed_physics
from dovetail.physics.sharing.turns import InterleaveRule
from dovetail.physics.zoo.models import shipped

MODELS = ("muri/resnet18", "muri/gpt2", "muri/a2c", "muri/resnet18")
TRACE = trace_of(*(Row(4, 100, model=m, shareable=True) for m in MODELS))
TRUTH = placed_physics(
    TRACE.jobs, Cluster.uniform(4, 8), shipped(), interleaving=InterleaveRule("barrier")
)
GB = 1e9


def blurred(belief: str, seed: int = 1) -> Physics:
    return believed(TRUTH, TRACE.jobs, belief, seed)


def on(gpus: int, phase: int | None = None) -> Placement:
    seat = None if phase is None else Interleave(0, phase)
    return Placement(((0, gpus),), (tuple(range(gpus)),), interleave=seat)


def answers(physics: Physics) -> dict[str, list[float]]:
    """Returns what each axis is about, in the order of the jobs."""
    jobs = range(len(MODELS))
    seated = [(j, on(4, j)) for j in jobs]
    kinds = physics.sharing.interleaving.stage_s[physics.kind_of]
    return {
        "seen": [physics.rate(j, on(4), ()) for j in jobs],
        "scaling": [physics.rate(j, on(2), ()) for j in jobs]
        + physics.speed.rates(8)[physics.kind_of].reshape(-1).tolist()
        + [physics.structure.scale(j) for j in jobs],
        "interference": [physics.rate(j, on(4), [((j + 1) % 4, on(4))]) for j in jobs]
        + [
            x
            for j in jobs
            for x in physics.sharing.interference(SizedJob(j, 1), SizedJob((j + 1) % 4, 1))
        ],
        "stages": kinds.reshape(-1).tolist()
        + [physics.rate(j, on(4, j), [s for s in seated if s[0] != j]) for j in jobs],
        "memory": [physics.memory.footprint_bytes(j, 1) for j in jobs]
        + [physics.memory.fixed_bytes(j) for j in jobs]
        + [physics.memory.held_bytes(j, on(2)) for j in jobs],
    }


@pytest.mark.parametrize("axis", ["scaling", "interference", "stages", "memory"])
def test_an_axis_touches_its_own_answers_alone(axis: str) -> None:
    true, seen = answers(TRUTH), answers(blurred(f"{axis}:0.5"))
    for about, expected in true.items():
        assert (seen[about] == pytest.approx(expected, rel=1e-12)) == (about != axis), about
    assert answers(blurred(f"{axis}:0.5")) == seen
    assert answers(blurred(f"{axis}:0.5", seed=2))[axis] != seen[axis]


def test_believed_answers_about_counts_agree_with_each_other() -> None:
    off = blurred("scaling:0.5")
    for job in range(len(MODELS)):
        rates = off.speed.rates(8)[off.kind_of[job]]
        assert rates[2] == pytest.approx(off.rate(job, on(2), ()))
        assert off.structure.scale(job) == pytest.approx(rates[4] / rates[1])
        assert off.speed.best_batches(job, 0.0, 8).speed[1] == pytest.approx(rates)


def test_noisy_is_short_for_scaling_and_interference() -> None:
    short, long = blurred("noisy:0.3"), blurred("scaling:0.3,interference:0.3")
    assert answers(short) == answers(long)
    assert Blur.parse("noisy:0.3,stages:1") == Blur(0.3, 0.3, 1.0)


def test_no_error_on_any_axis_is_the_truth_itself() -> None:
    assert blurred("exact") is TRUTH
    assert blurred("scaling:0,stages:0,memory:0") is TRUTH


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("scalin:0.2", "scaling"),
        ("stages:1.5", "between 0 and 1"),
        ("memory:-1", "between 0 and 10"),
        ("memory:nan", "between 0 and 10"),
        ("stages", "as in stages:0.2"),
        ("noisy:0.1,scaling:0.1", "given twice"),
        ("exact,stages:1", "unknown 'exact'"),
        ("", "unknown"),
    ],
)
def test_a_belief_that_cannot_be_is_refused(text: str, hint: str) -> None:
    with pytest.raises(InputError, match=hint):
        Blur.parse(text)


def test_stages_are_off_by_at_most_the_noise_and_no_two_jobs_are_alike() -> None:
    off = blurred("stages:0.2")
    assert off.kind_of.tolist() == [0, 1, 2, 3] or len(set(off.kind_of.tolist())) == 4
    assert TRUTH.kind_of[0] == TRUTH.kind_of[3]
    true = TRUTH.sharing.interleaving.stage_s[TRUTH.kind_of]
    ratio = off.sharing.interleaving.stage_s[off.kind_of][true > 0] / true[true > 0]
    assert ((ratio > 0.8) & (ratio < 1.2)).all() and len(set(ratio.tolist())) == ratio.size
    iterations = off.sharing.interleaving.iteration_s[off.kind_of]
    assert (iterations == TRUTH.sharing.interleaving.iteration_s[TRUTH.kind_of]).all()


def test_the_belief_in_a_set_is_the_cycle_of_the_believed_stages() -> None:
    off = blurred("stages:0.5")
    rows = off.sharing.interleaving.stage_s[off.kind_of]
    cycle = sum(max(rows[1][j], rows[2][(j + 1) % 4]) for j in range(4)) * 1.31
    alone = off.sharing.interleaving.iteration_s[off.kind_of]
    expected = alone[1] / max(cycle, alone[1], alone[2])
    assert off.rate(1, on(4, 0), [(2, on(4, 1))]) == pytest.approx(expected)


def test_footprints_are_overestimated_and_what_is_believed_to_fit_fits() -> None:
    for seed in range(5):
        off = blurred("memory:1", seed)
        for phases in ((None, None), (0, 1)):
            pair = [(0, on(4, phases[0])), (1, on(4, phases[1]))]
            assert sum(off.memory.held_bytes(*one) for one in pair) >= sum(
                TRUTH.memory.held_bytes(*one) for one in pair
            )
            for room in np.linspace(1 * GB, 40 * GB, 40):
                assert TRUTH.memory.fits(pair, room) or not off.memory.fits(pair, room)


def test_a_pair_is_refused_by_the_footprints_that_the_policy_is_told() -> None:
    off = blurred("memory:0.7")
    pair = [(0, on(4)), (1, on(4))]
    told = off.memory.footprint_bytes(0, 1) + off.memory.footprint_bytes(1, 1)
    assert off.memory.fits(pair, told) and not off.memory.fits(pair, told - 1)


def test_draws_depend_on_the_key_alone_and_spread_as_they_should() -> None:
    draws = np.array([normal(f"k{i}") for i in range(4000)])
    assert abs(draws.mean()) < 0.05 and abs(draws.std() - 1) < 0.05
    flat = np.array([uniform(f"k{i}") for i in range(4000)])
    assert abs(flat.mean() - 0.5) < 0.02 and flat.min() > 0 and flat.max() < 1
    assert log_normal(0.5, "k1") == pytest.approx(exp(0.5 * normal("k1")))
    assert log_normal(0.0, "k1") == 1.0

"""All pairs of the zoo: free competition within the capacities, and turns as far behind as told."""

from itertools import combinations, combinations_with_replacement

import numpy as np
import pytest

from benchmarks.zoo_pairs import (
    GPUS,
    READINGS,
    PairSums,
    Reading,
    fluid_sums,
    held_shares,
    pair_sums,
)
from dovetail.physics.sharing.interference import MeasuredInterference
from dovetail.physics.sharing.service_demand import ServiceDemand, Size, service_demand
from dovetail.physics.sharing.turns import InterleaveRule, interleaving_of
from dovetail.physics.zoo.models import zoo
from dovetail.physics.zoo.profile import ModelProfile
from papers.muri.best_cycles import best_cycles

EQUAL = 1e-9
SETTLED = 1e-3
"""The fixed point of four is reached to 1e-4."""


@pytest.fixture(params=[(r, g) for r in READINGS for g in GPUS], scope="module",
                ids=lambda p: f"{p[0].words}-{p[1]}")  # fmt: skip
def sums(request: pytest.FixtureRequest) -> PairSums:
    reading, gpus = request.param
    return pair_sums(gpus, reading)


def test_the_most_that_two_can_get_by_hand() -> None:
    # Of one resource each uses all at full speed; of two each mostly its own.
    one = np.array([[1.0, 0.0], [0.8, 0.2], [0.5, 0.0]])
    two = np.array([[1.0, 0.0], [0.2, 0.8], [0.4, 0.0]])
    assert fluid_sums(one, two, np.ones(2)) == pytest.approx([1.0, 2.0, 2.0])
    # 0.75 s + 0.5 t <= 1: the one that uses less runs at full speed.
    assert fluid_sums(np.array([[0.75]]), np.array([[0.5]]), np.ones(1)) == pytest.approx(1 + 2 / 3)


def test_free_competition_never_exceeds_what_the_capacities_allow(sums: PairSums) -> None:
    assert (sums.free <= sums.fluid * (1 + EQUAL))[sums.by_law].all()
    # Somebody makes progress, and nobody is faster than alone.
    assert (sums.free > 0.5).all() and (sums.fluid <= 2 + EQUAL).all()


def test_turns_lose_by_lock_step_order_and_contention_and_by_nothing_else(sums: PairSums) -> None:
    lock_step, order = sums.fluid / sums.lock_step, sums.lock_step / sums.in_order
    contention = sums.in_order / sums.turns
    for factor in (lock_step, order, contention):
        assert (factor >= 1 - EQUAL).all()
    assert (contention <= 1.31 * (1 + EQUAL)).all()
    lost = (sums.free / sums.turns)[sums.by_law]
    assert (lost <= (lock_step * order * contention)[sums.by_law] * (1 + EQUAL)).all()
    # The bound is near: what free competition leaves unused is small for some pair.
    assert (lost / (lock_step * order * contention)[sums.by_law]).max() > 0.95


def test_which_way_wins_is_decided_by_the_reading_of_the_host() -> None:
    feeds_several, feeds_one = (pair_sums(16, reading, "muri") for reading in READINGS)
    assert (feeds_several.turns < feeds_several.free).all()
    assert 0.1 < np.mean(feeds_one.turns > feeds_one.free) < 0.5
    assert (feeds_one.free <= feeds_several.free + EQUAL).all()


def test_a_larger_host_never_slows_a_pair() -> None:
    before: PairSums | None = None
    for capacity in (1.0, 1.5, 2.0, 4.0):
        now = pair_sums(4, Reading("", capacity, "overlapped"))
        assert before is None or (now.free >= before.free - 1e-6).all()
        before = now


def sized(model: ModelProfile, draw: np.random.Generator) -> ServiceDemand:
    """Returns the demands of a model on GPUs of so many nodes, in so many steps."""
    gpus = int(draw.choice([1, 2, 3, 4, 8, 16]))
    batch = model.batch.value.on_each_of(gpus)
    steps = min(int(draw.choice([1, 2, 3, 8])), max(1, int(batch)))
    spans = (1,) * gpus if draw.uniform() < 0.3 else model.well_placed(gpus)
    return service_demand(model, Size(spans, batch, steps))


@pytest.mark.parametrize("reading", READINGS, ids=lambda reading: reading.words)
@pytest.mark.parametrize("members", [2, 3, 4])
def test_no_set_at_any_size_and_steps_gets_more_than_there_is(
    members: int, reading: Reading
) -> None:
    draw = np.random.default_rng(members)
    models = [profile for profile in zoo().values() if profile.stages is not None]
    pairs = list(combinations_with_replacement(models, 2))
    assert len(pairs) == 820
    few = draw.integers(0, len(models), (150, members)).tolist()
    sets = pairs if members == 2 else [[models[m] for m in some] for some in few]
    law = MeasuredInterference(host_capacity=reading.host_capacity)
    capacity = np.array([reading.host_capacity, reading.host_capacity, 1.0, 1.0])
    rule, most = InterleaveRule.parse(reading.cycle), 0.0
    for some in sets:
        demands = [sized(model, draw) for model in some]
        ratios, held = law.of_set(demands), held_shares(demands)
        assert (ratios >= 1).all()
        if not any(law.is_measured(a, b) for a, b in combinations(some, 2)):
            used = (held / ratios[:, None]).sum(axis=0) / capacity
            assert used.max() <= 1 + SETTLED, [model.full_name for model in some]
            most = max(most, float(used.max()))
        # What is possible in lock step turns have less than by order and contention alone.
        known = interleaving_of(demands, rule)
        in_order_s = best_cycles(known.stage_s, np.arange(members)[None], known.cycle)[0]
        busy_s = ((held * known.iteration_s[:, None]).sum(axis=0) / capacity).max()
        assert max(in_order_s, known.iteration_s.max()) >= busy_s * (1 - EQUAL)
    assert most > 0.9, "a capacity that nobody nears is not tested"

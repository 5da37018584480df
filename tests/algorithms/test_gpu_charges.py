"""What jobs on shared GPUs are charged: by hand, and never more than the GPUs supply."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.algorithms.gpu_charges import LEAST_CHARGE, Pairs, charges
from dovetail.physics.sharing.limits import shared_slowdown

SPEEDS = st.floats(0.05, 1.0)
PARTS = st.floats(0.05, 0.99)


def pairs_of(*ways: tuple[int, int, float, float]) -> Pairs:
    first, second, mine, theirs = zip(*ways, strict=True)
    return Pairs(np.array(first), np.array(second), np.array(mine), np.array(theirs))


def test_who_never_gains_is_charged_the_whole_gpu() -> None:
    found = charges(np.array([3.0, 1.0]), pairs_of((0, 1, 0.5, 0.4), (0, 0, 0.5, 0.5)))
    assert found.tolist() == [1, 1]


def test_a_guest_that_disturbs_nobody_is_charged_nothing() -> None:
    # Kind 1 runs at full speed beside each, and so do they: its area is the smaller one.
    found = charges(np.array([9.0, 1.0]), pairs_of((0, 1, 1.0, 1.0), (1, 1, 1.0, 1.0)))
    assert found == pytest.approx([1 - LEAST_CHARGE, LEAST_CHARGE])


def test_two_of_a_kind_share_what_they_gain() -> None:
    # 1.25 jobs' worth of work: each second of speed costs four fifths of a GPU.
    found = charges(np.array([1.0]), pairs_of((0, 0, 0.625, 0.625)))
    assert found == pytest.approx([0.8])


def test_turns_are_charged_by_the_resource_that_they_meet_on() -> None:
    # Both use the GPU for 0.6 of an iteration, the network for 0.3 and 0.1; half a seat each.
    use = np.array([[0.6, 0.3, 0.5], [0.6, 0.1, 0.5], [np.inf] * 3])
    found = charges(np.array([1.0, 1.0, 1.0]), Pairs.none(), [use])
    assert found == pytest.approx([0.6, 0.6, 1.0])
    larger = [use, np.array([[0.7, 0.3, 0.25], [0.55, 0.1, 0.25], [np.inf] * 3])]
    assert charges(np.ones(3), Pairs.none(), larger) == pytest.approx([0.6, 0.55, 1.0])


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), SPEEDS, SPEEDS), min_size=1),
    st.lists(st.floats(0.0, 1e4), min_size=5, max_size=5),
)
def test_no_way_to_share_is_charged_more_than_a_gpu(
    ways: list[tuple[int, int, float, float]], area: list[float]
) -> None:
    pairs = pairs_of(*ways)
    found = charges(np.array(area), pairs)
    assert bool((found > 0).all() and (found <= 1).all())
    assert bool((pairs.charged(found) <= 1 + 1e-9).all())
    # One charge for all, that of the best sum of speeds, is never better.
    alike = 1 / max(1.0, float((pairs.first_speed + pairs.second_speed).max()))
    assert found @ area >= alike * sum(area) - (LEAST_CHARGE + 1e-6) * sum(area)


@settings(max_examples=150)
@given(
    used=st.tuples(PARTS, PARTS),
    ratios=st.tuples(st.floats(1.0, 5.0), st.floats(1.0, 5.0)),
    limits=st.tuples(PARTS, PARTS),
    worth=st.tuples(SPEEDS, SPEEDS),
)
def test_no_limits_beat_free_competition_and_the_two_squeezes(
    used: tuple[float, float],
    ratios: tuple[float, float],
    limits: tuple[float, float],
    worth: tuple[float, float],
) -> None:
    def gained(one: float, other: float) -> float:
        speeds = (
            1 / shared_slowdown(used[0], one, used[1], other, ratios[0]),
            1 / shared_slowdown(used[1], other, used[0], one, ratios[1]),
        )
        return worth[0] * speeds[0] + worth[1] * speeds[1]

    best = max(
        gained(1.0, 1.0),
        gained(1.0, 1 - used[0]) if used[0] + used[1] > 1 else 0.0,
        gained(1 - used[1], 1.0) if used[0] + used[1] > 1 else 0.0,
        *worth,
    )
    assert gained(*limits) <= best + 1e-9

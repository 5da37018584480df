"""Pairs that do not pay are parted, if the belief was wrong; and only then."""

from collections.abc import Sequence

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from builders import Row, jobs_of
from dovetail.core.beliefs import SizedJob
from dovetail.core.placement import Interleave, Placement
from dovetail.core.reading import SpeedMeasurement
from dovetail.live.measuring.pair_guard import SURPRISE, PairGuard, PairMember, must_separate
from dovetail.physics.beliefs.learning import Learning
from dovetail.physics.beliefs.measurements import LEAST
from dovetail.physics.linear import linear_physics
from dovetail.physics.sharing.interference import Injected

ONE = Placement(((0, 1),), gpu_ids=((0,),))


def side(left_s: float | None, measured: float, believed: float = 1.05) -> PairMember:
    return PairMember(left_s, believed, measured)


def test_equally_long_jobs_part_above_a_ratio_of_one_and_a_half() -> None:
    for left_s in (None, 100.0):
        assert not must_separate(side(left_s, 1.45), side(left_s, 1.45))
        assert must_separate(side(left_s, 1.55), side(left_s, 1.55))


def test_a_short_guest_stays_even_where_both_are_twice_as_slow() -> None:
    assert not must_separate(side(100.0, 2.0), side(10.0, 2.0)), "after ten seconds it is over"
    assert must_separate(side(100.0, 2.0), side(90.0, 2.0))


def test_the_worked_examples_of_the_pair_rule() -> None:
    assert not must_separate(side(20.0, 1.3), side(30.0, 1.2))
    assert not must_separate(side(30.0, 1.8), side(8.0, 2.5))
    assert must_separate(side(30.0, 1.8), side(24.0, 2.5))


def test_who_was_believed_to_be_that_slow_was_paired_on_purpose() -> None:
    assert not must_separate(side(100.0, 2.0, believed=2.0), side(100.0, 2.0, believed=2.0))
    assert must_separate(side(100.0, 2.0, believed=2.0), side(100.0, 2.0, believed=1.2))
    assert not must_separate(side(None, 0.0), side(None, 0.0)), "nothing was measured"


def test_what_stopping_costs_counts_against_it() -> None:
    host, guest = side(100.0, 2.0), side(90.0, 2.0)
    together, apart = 180.0 + 190.0, 100.0 + 190.0
    assert must_separate(host, guest, cost_s=together - apart - 1)
    assert not must_separate(host, guest, cost_s=together - apart + 1)


def test_a_length_that_is_not_known_is_taken_to_be_the_others() -> None:
    assert must_separate(side(100.0, 2.0), side(None, 2.0))
    assert must_separate(side(None, 2.0), side(100.0, 2.0))


def finishes(host_s: float, guest_s: float, host: float, guest: float) -> float:
    """Returns the sum of completions of both, second by second of what happens."""
    if host_s * host <= guest_s * guest:
        ends = host_s * host
        return ends + ends + guest_s - ends / guest
    ends = guest_s * guest
    return ends + ends + host_s - ends / host


@settings(max_examples=200, deadline=None)
@given(st.floats(1.0, 1e4), st.floats(1.0, 1e4), st.floats(1.0, 4.0), st.floats(1.0, 4.0))
def test_parting_never_makes_the_pair_finish_later(
    host_s: float, guest_s: float, host: float, guest: float
) -> None:
    together = finishes(host_s, guest_s, host, guest)
    apart = 2 * host_s + guest_s
    assume(abs(together - apart) > 1e-6 * apart)
    found = must_separate(side(host_s, host, believed=1.0), side(guest_s, guest, believed=1.0))
    assert found == (together > apart and max(host, guest) > SURPRISE)


def paired(*placements: Placement, xi: float = 1.05) -> tuple[Learning, PairGuard]:
    jobs = jobs_of(Row(1, 9.0, model="a"), Row(1, 9.0, model="b"))
    learning = Learning(linear_physics(jobs, Injected(xi)), jobs)
    learn(learning, 0, (), 100.0)
    learn(learning, 1, (), 100.0)
    guard = PairGuard(learning)
    guard.note((0, placements[0]), (1, placements[1]))
    return learning, guard


def learn(
    learning: Learning, job: int, beside: Sequence[tuple[int, Placement]], rate: float
) -> None:
    for _ in range(LEAST):
        learning.observe(job, ONE, beside, SpeedMeasurement(rate))


def test_a_wrong_pair_is_parted_once_and_made_again_only_on_purpose() -> None:
    learning, guard = paired(ONE, ONE)
    pair = (0, ONE), (1, ONE)
    assert not guard.undo(*pair, None, None)
    learn(learning, 0, [(1, ONE)], 50.0)
    assert guard.undo(*pair, None, None)
    assert not guard.undo(*pair, None, None)
    assert learning.physics.sharing.interference(SizedJob(1, 1), SizedJob(0, 1)) == (2.0, 2.0)
    guard.note(*pair)
    assert not guard.undo(*pair, None, None), "this time it was known"


def test_a_pair_that_stays_keeps_what_was_believed_of_it_first() -> None:
    learning, guard = paired(ONE, ONE)
    learn(learning, 0, [(1, ONE)], 80.0)
    guard.note((1, ONE), (0, ONE))
    for _ in range(15):
        learning.observe(0, ONE, [(1, ONE)], SpeedMeasurement(50.0))
    assert guard.undo((0, ONE), (1, ONE), None, None)


def test_a_job_that_is_over_is_forgotten() -> None:
    learning, guard = paired(ONE, ONE)
    learn(learning, 0, [(1, ONE)], 50.0)
    guard.forget(1)
    assert not guard.undo((0, ONE), (1, ONE), None, None)


@pytest.mark.parametrize(
    "placement",
    [
        Placement(((0, 1),), gpu_ids=((0,),), fractions=(0.3,)),
        Placement(((0, 1),), gpu_ids=((0,),), interleave=Interleave(1, 0)),
    ],
)
def test_limits_and_turns_are_slow_on_purpose(placement: Placement) -> None:
    learning, guard = paired(ONE, placement)
    learn(learning, 0, [(1, ONE)], 50.0)
    assert not guard.undo((0, ONE), (1, placement), None, None)

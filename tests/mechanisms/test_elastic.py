"""What elastic policies have in common: bookings, shares that satisfy, best counts, beliefs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.algorithms.regulation import is_allowed
from dovetail.mechanisms.elastic.budget import Pool
from dovetail.mechanisms.elastic.estimation import _belief, units_up_to
from dovetail.mechanisms.elastic.shares import Contenders, best_counts, satisfied
from papers.afs.plain_shares import shares_by_length


@pytest.mark.parametrize("per_machine", [1, 2, 4, 8])
def test_a_booking_is_the_next_allowed_share_and_a_cap_the_one_beneath(per_machine: int) -> None:
    pool = Pool(64, per_machine, tuple(range(64 // per_machine)))
    counts = np.arange(41)
    allowed = [s for s in range(65) if is_allowed(s, per_machine)]
    assert pool.booked(counts).tolist() == [min(s for s in allowed if s >= c) for c in counts]
    assert pool.allowed(counts).tolist() == [max(s for s in allowed if s <= c) for c in counts]


def test_without_machines_every_count_is_allowed() -> None:
    counts = np.arange(9)
    assert Pool(8).booked(counts).tolist() == Pool(8).allowed(counts).tolist() == counts.tolist()


def made(rates: np.ndarray, kind: list[int], low: list[int], cap: list[int]) -> Contenders:
    jobs = np.arange(len(kind))
    columns = (np.array(c, np.int64) for c in (kind, low, cap))
    return Contenders(jobs, jobs * 0, *columns, rates, (), len(kind))


def test_the_best_count_is_the_fewest_gpus_of_the_peak_within_the_range() -> None:
    rates = np.array([[0, 1, 1.8, 1.7, 1.8], [0, 1, 2, 3, 4]])
    who = made(rates, [0, 0, 0, 1, 1], [1, 1, 3, 1, 1], [4, 1, 4, 4, 3])
    assert best_counts(who).tolist() == [2, 1, 3, 4, 3]


@settings(max_examples=80)
@given(seed=st.integers(0, 10_000), gpus=st.integers(0, 40))
def test_what_satisfies_everybody_is_what_the_plain_greedy_gives(seed: int, gpus: int) -> None:
    rng = np.random.default_rng(seed)
    kinds, n, most = 3, int(rng.integers(1, 7)), 8
    steps = rng.choice([-0.2, 0.0, 0.3, 0.7, 1.0], (kinds, most))
    rates = np.concatenate([np.zeros((kinds, 1)), np.maximum(0.1, 1 + np.cumsum(steps, 1))], 1)
    low = rng.integers(1, 4, n)
    cap = low + rng.integers(0, most - 3, n)
    who = made(rates, rng.integers(0, kinds, n).tolist(), low.tolist(), cap.tolist())
    plain = shares_by_length(rng.uniform(1, 9, n), rates, who.kind, who.cap, gpus, who.low)
    shares = satisfied(who, gpus)
    if shares is None:
        assert int(plain.sum()) == gpus or not plain.all()
    else:
        assert shares.tolist() == plain.tolist()


def test_allocatable_units_are_powers_of_two_and_then_whole_machines() -> None:
    assert units_up_to(17, 4).tolist() == [1, 2, 4, 8, 12, 16]
    assert units_up_to(3, 8).tolist() == [1, 2]
    assert units_up_to(9, 6).tolist() == [1, 2, 4, 6]
    assert units_up_to(3, 1).tolist() == [1, 2, 3]


def test_a_belief_joins_what_is_measured_and_goes_on_linearly_beyond() -> None:
    rates = np.array([0, 1, 1.8, 2.4, 2.8, 3.0, 3.1, 3.1, 3.0])
    units = units_up_to(8, 8)
    assert _belief(rates, units[:1]).tolist() == list(range(9))
    third = _belief(rates, units[:3])
    assert third.tolist() == pytest.approx([0, 1, 1.8, 2.3, 2.8, 3.5, 4.2, 4.9, 5.6])
    assert _belief(rates, units)[[1, 2, 4, 8]].tolist() == rates[[1, 2, 4, 8]].tolist()

"""Two jobs on the same GPUs: worked examples 1, 2 and 4, and the theorem against brute force."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dovetail.algorithms.pair_sharing import (
    overlapped_many_s,
    overlapped_s,
    pays,
    sequential_s,
    threshold_many,
)
from dovetail.physics.memory import MemoryLaw
from dovetail.physics.speed.compute import Compute, iteration_s
from plain_sharing import SubBatch, best_sub_batch, threshold

lengths = st.floats(0.01, 1e4)
ratios = st.floats(1.0, 6.0)


def completions(
    host_s: float, guest_s: float, host_ratio: float, guest_ratio: float, start_s: float
) -> float:
    """Plays two jobs step by step, the newcomer from `start_s` on; returns the sum of ends."""
    left = [host_s, guest_s]
    ends = [0.0, 0.0]
    now, started = 0.0, False
    while max(left) > 0.0:
        both = started and min(left) > 0.0
        rates = [0.0, 0.0]
        if left[0] > 0.0:
            rates[0] = 1.0 / host_ratio if both else 1.0
        if started and left[1] > 0.0:
            rates[1] = 1.0 / guest_ratio if both else 1.0
        steps = [left[i] / rates[i] for i in (0, 1) if rates[i] > 0.0]
        if not started:
            steps.append(start_s - now)
        step = min(steps)
        now += step
        for i in (0, 1):
            if left[i] > 0.0 and rates[i] > 0.0:
                gone = step * rates[i]
                left[i] = 0.0 if left[i] - gone <= 1e-12 * max(host_s, guest_s) else left[i] - gone
                ends[i] = now if left[i] == 0.0 else 0.0
        started = started or now >= start_s
    return sum(ends)


def test_example_1_the_host_ends_first() -> None:
    assert overlapped_s(20, 30, 1.3, 1.2) / 2 == pytest.approx(30.167, abs=5e-4)
    assert sequential_s(20, 30) / 2 == 35
    assert pays(overlapped_s(20, 30, 1.3, 1.2), sequential_s(20, 30))
    assert completions(20, 30, 1.3, 1.2, 0.0) == pytest.approx(26 + 34 + 1 / 3)
    assert completions(20, 30, 1.3, 1.2, 5.0) / 2 == pytest.approx(31.375)


def test_example_2_the_sign_test_misleads() -> None:
    assert pytest.approx(-2.2) == 2 * 2.5 + 1.8 - 2 * 1.8 * 2.5
    assert overlapped_s(30, 8, 1.8, 2.5) / 2 == pytest.approx(29.444, abs=5e-4)
    assert sequential_s(30, 8) / 2 == 34
    assert pays(overlapped_s(30, 8, 1.8, 2.5), sequential_s(30, 8))
    assert overlapped_s(30, 24, 1.8, 2.5) / 2 == pytest.approx(55.2)
    assert sequential_s(30, 24) / 2 == 42
    assert not pays(overlapped_s(30, 24, 1.8, 2.5), sequential_s(30, 24))


def test_example_3_and_4_the_sub_batch_that_fits_and_is_fastest() -> None:
    compute = Compute(0.02, 0.001)
    for steps, want in ((1, 0.11509), (2, 0.14101)):
        got = iteration_s(compute, batch=64, steps=steps, comm_s=0.06, overlap=1.5)
        assert got == pytest.approx(want, abs=5e-6)
    compute, memory = Compute(0.02, 0.002), MemoryLaw(2e9, 0.25e9)
    alone_s = 200 * iteration_s(compute, batch=32, steps=1, comm_s=0.03, overlap=2)
    assert alone_s == pytest.approx(17.839, abs=5e-4)
    options = []
    for steps in (1, 2, 4, 8, 16, 32):
        if memory.used_bytes(32 / steps) + 5e9 <= 11e9:
            cut_s = 200 * iteration_s(compute, batch=32, steps=steps, comm_s=0.03, overlap=2)
            options.append(SubBatch(steps, cut_s, 1.25, 1.3))
    assert [o.steps for o in options] == [2, 4, 8, 16, 32]
    choice = best_sub_batch(60, alone_s, options)
    assert (choice.shares, choice.steps) == (True, 2)
    assert choice.pair_s == pytest.approx(47.477, abs=5e-4)
    assert choice.benefit_s == pytest.approx(2 * (68.920 - 47.477), abs=2e-3)
    assert best_sub_batch(60, alone_s, options[1:]).pair_s == pytest.approx(54.158, abs=5e-4)
    waits = best_sub_batch(60, alone_s, [])
    assert (waits.shares, waits.steps) == (False, 1)
    assert waits.pair_s == pytest.approx(68.920, abs=5e-4)


@given(lengths, lengths, ratios, ratios)
@example(20.0, 30.0, 1.3, 1.2)
@example(30.0, 8.0, 1.8, 2.5)
@example(1.0, 1.0, 1.0, 1.0)
def test_no_start_between_now_and_the_hosts_end_beats_both_ends(
    host_s: float, guest_s: float, host_ratio: float, guest_ratio: float
) -> None:
    now = overlapped_s(host_s, guest_s, host_ratio, guest_ratio)
    later = sequential_s(host_s, guest_s)
    scale = host_s + guest_s
    assert completions(host_s, guest_s, host_ratio, guest_ratio, 0.0) == pytest.approx(now)
    assert completions(host_s, guest_s, host_ratio, guest_ratio, host_s) == pytest.approx(later)
    for part in np.linspace(0.0, 1.0, 41).tolist():
        between = completions(host_s, guest_s, host_ratio, guest_ratio, part * host_s)
        assert between >= min(now, later) - 1e-9 * scale


@given(lengths, lengths, ratios, ratios, st.floats(1.0, 2.0), st.floats(0.0, 1.0))
def test_one_ratio_of_lengths_settles_whether_to_share(
    host_s: float, guest_s: float, host_ratio: float, guest_ratio: float, cut: float, part: float
) -> None:
    uncut = 1.0 + part * (cut - 1.0)
    reach = host_s * threshold(host_ratio, guest_ratio, cut, uncut)
    both = overlapped_s(host_s, guest_s * cut, host_ratio, guest_ratio)
    gains = pays(both, sequential_s(host_s, guest_s * uncut))
    if guest_s < reach * (1 - 1e-5):
        assert gains
    if guest_s > reach * (1 + 1e-5):
        assert not gains


@pytest.mark.parametrize("ratio", [1.5, 1.6, 1.75, 2.0, 3.0, 6.0])
def test_from_one_and_a_half_on_the_threshold_is_the_analytic_one(ratio: float) -> None:
    assert threshold(ratio, ratio) == pytest.approx(1 / (2 * (ratio - 1)), rel=1e-6)


@pytest.mark.parametrize("ratio", [1.0, 1.25, 1.4, 1.49])
def test_below_one_and_a_half_sharing_always_pays(ratio: float) -> None:
    assert threshold(ratio, ratio) > 1e6
    for guest_s in (0.1, 1.0, 10.0, 1e4):
        assert pays(overlapped_s(1.0, guest_s, ratio, ratio), sequential_s(1.0, guest_s))


def test_an_exact_tie_waits() -> None:
    assert overlapped_s(10, 20, 1.5, 1.5) == pytest.approx(sequential_s(10, 20))
    assert not best_sub_batch(10, 20, [SubBatch(1, 20, 1.5, 1.5)]).shares


def test_the_larger_sub_batch_wins_ties() -> None:
    options = [SubBatch(s, 5.0, 1.2, 1.2) for s in (2, 4, 8)]
    assert best_sub_batch(10, 5, options).steps == 2


@given(st.lists(st.tuples(lengths, lengths, ratios, ratios), min_size=1, max_size=20))
def test_many_pairs_at_once_are_single_pairs_to_the_last_bit(
    pairs: list[tuple[float, float, float, float]],
) -> None:
    many = overlapped_many_s(*(np.array(column) for column in zip(*pairs, strict=True)))
    assert many.tolist() == [overlapped_s(*pair) for pair in pairs]


def test_a_longer_guest_never_makes_sharing_better() -> None:
    for host_ratio, guest_ratio in ((1.2, 1.9), (2.0, 1.1), (1.7, 1.7)):
        gains = [
            overlapped_s(10.0, n, host_ratio, guest_ratio) - sequential_s(10.0, n)
            for n in np.linspace(0.1, 60, 200).tolist()
        ]
        assert all(a <= b + 1e-9 for a, b in pairwise(gains))


@given(st.lists(st.tuples(ratios, ratios, st.floats(1.0, 3.0), st.floats(1.0, 3.0)), min_size=1))
def test_many_thresholds_are_each_to_the_last_bit(rows: list[tuple[float, ...]]) -> None:
    rows += [(1.0, 1.0, 1.0, 1.0), (2.0, 2.0, 1.0, 1.0), (1.5, 1.5, 1.0, 1.0)]
    many = threshold_many(*np.array(rows).T)
    assert many.tolist() == [threshold(*row) for row in rows]

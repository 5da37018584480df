"""The cycle of an interleave set: equation 3, the overlapped one, and all orderings."""

from itertools import permutations
from math import factorial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.algorithms.stage_cycle import (
    BARRIER,
    CYCLES,
    OVERLAPPED,
    barrier_s,
    cycle_s,
    cycles,
    orderings,
    overlapped_s,
)
from papers.muri.best_cycles import best_cycles, best_ordering, efficiency

Rows = list[tuple[float, ...]]
times = st.floats(0.0, 1.0).map(lambda t: round(t, 4))


def rows_of(resources: int, least: int = 2) -> st.SearchStrategy[Rows]:
    row = st.tuples(*[times] * resources).filter(any)
    return st.lists(row, min_size=least, max_size=resources)


def test_two_jobs_on_two_resources_as_worked_by_hand() -> None:
    rows = [(3.0, 1.0), (1.0, 2.0)]
    assert best_ordering(rows) == (4.0, (0, 1))
    assert efficiency(rows, 4.0) == 7 / 8


def test_three_jobs_on_three_resources_as_worked_by_hand() -> None:
    rows = [(2.0, 1.0, 1.0), (1.0, 2.0, 1.0), (1.0, 1.0, 2.0)]
    assert barrier_s(rows, (0, 1, 2)) == 4.0
    assert barrier_s(rows, (0, 2, 1)) == 6.0
    assert best_ordering(rows) == (4.0, (0, 1, 2))
    assert efficiency(rows, 4.0) == 1.0


@pytest.mark.parametrize(("members", "count"), [(1, 1), (2, 3), (3, 6), (4, 6)])
def test_all_distinct_offsets_are_tried_once(members: int, count: int) -> None:
    tried = orderings(members, 4)
    assert len(tried) == len(set(tried)) == count
    assert count == factorial(3) // factorial(4 - members)
    assert all(o[0] == 0 and len(set(o)) == members for o in tried)


def test_more_jobs_than_resources_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot take turns"):
        orderings(4, 3)
    assert len(orderings(4, 3, OVERLAPPED)) == 24
    with pytest.raises(ValueError, match="cannot take turns"):
        orderings(5, 4, OVERLAPPED)


@settings(max_examples=60, deadline=None)
@given(rows_of(4), st.integers(0, 3))
def test_rotating_all_offsets_changes_nothing(rows: Rows, turn: int) -> None:
    for offsets in orderings(len(rows), 4):
        turned = [(o + turn) % 4 for o in offsets]
        assert barrier_s(rows, turned) == pytest.approx(barrier_s(rows, offsets), rel=1e-12)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 4).flatmap(rows_of))
def test_no_barrier_cycle_beats_a_job_or_a_resource(rows: Rows) -> None:
    resources = len(rows[0])
    cycle, offsets = best_ordering(rows)
    assert cycle == barrier_s(rows, offsets)
    assert cycle >= max(max(map(sum, rows)), max(map(sum, zip(*rows, strict=True)))) - 1e-12
    assert 0 < efficiency(rows, cycle) <= min(1.0, len(rows) / resources) + 1e-12


@settings(max_examples=60, deadline=None)
@given(rows_of(4))
def test_gaps_are_never_worse_than_consecutive_positions(rows: Rows) -> None:
    letter = min(barrier_s(rows, p) for p in permutations(range(len(rows))))
    assert best_ordering(rows, consecutive=True)[0] == letter
    assert best_ordering(rows)[0] <= letter + 1e-12
    brute = min(barrier_s(rows, p) for p in permutations(range(4), len(rows)))
    assert best_ordering(rows)[0] == pytest.approx(brute, rel=1e-12)


def test_a_gap_lets_both_halves_of_the_resources_be_used_at_once() -> None:
    rows = [(1.0, 1.0, 0.0, 0.0), (0.0, 0.0, 1.0, 1.0)]
    assert best_ordering(rows, consecutive=True)[0] == 3.0
    assert best_ordering(rows) == (2.0, (0, 2))


def test_a_set_that_takes_no_time_has_no_efficiency() -> None:
    assert efficiency([(0.0, 0.0)], 0.0) == 0.0


# The artifact's cycle, as PEER_SEMANTICS 1 describes it, written out slot by slot.


def described(p: list[tuple[float, float, float]]) -> float:
    k = len(p)
    load, gpu, net = ([job[r] for job in p] for r in range(3))
    f = [0.0] * 9
    for i in range(8):
        terms = []
        if (i + 1) % 4 < k:
            terms.append(f[i] + net[(i + 1) % 4])
        if (i + 2) % 4 < k:
            terms.append(f[i] + gpu[(i + 2) % 4])
        if i > 0 and (i + 3) % 4 < k:
            terms.append(f[i - 1] + load[(i + 3) % 4])
        f[i + 1] = max(terms)
    for i in range(4, 8):
        if abs((f[i + 1] - f[i - 3]) - (f[i] - f[i - 4])) <= 1e-3 * (f[i] - f[i - 4]):
            return f[i + 1] - f[i - 3]
    return f[8] - f[4]


def artifact_s(rows: Rows) -> float:
    jobs = [(sum(row[:-2]), row[-2], row[-1]) for row in rows]
    tried = [described(list(p)) for p in permutations(jobs)]
    if len(jobs) == 2:
        (a0, a1, a2), (b0, b1, b2) = jobs
        tried.append(max(a0, b1 + b2) + max(b0, a1 + a2))
    return min(tried)


@pytest.mark.parametrize("members", [2, 3, 4])
@pytest.mark.parametrize("resources", [3, 4])
def test_overlapped_cycles_are_those_of_the_artifact(members: int, resources: int) -> None:
    rng = np.random.default_rng(members)
    for _ in range(150):
        scale = rng.choice([0.01, 1.0], size=(members, resources))
        rows: Rows = [tuple(row) for row in (rng.random((members, resources)) * scale).tolist()]
        assert best_ordering(rows, OVERLAPPED)[0] == pytest.approx(artifact_s(rows), rel=1e-12)


def test_some_overlapped_cycle_settles_late_and_some_at_once() -> None:
    # Loading spans two slots: 3 s of it and 1 s on the GPU take 3 s, not 4.
    late = [(0.9, 0.05, 0.3), (0.1, 0.6, 0.2), (0.4, 0.3, 0.35), (0.2, 0.9, 0.1)]
    assert best_ordering(late, OVERLAPPED)[0] == pytest.approx(artifact_s(late))
    assert best_ordering([(2.0, 0.5, 0.0), (0.0, 1.0, 1.0)], OVERLAPPED) == (2.5, (0, 2))


def test_an_empty_slot_is_where_a_member_was() -> None:
    a, c = (0.5, 0.4, 0.1), (0.3, 0.2, 0.8)
    # Of slots 0, 1, 2 the middle one leaves: a pair two slots apart is the artifact's extra case.
    apart = max(a[0], c[1] + c[2]) + max(c[0], a[1] + a[2])
    assert overlapped_s([a, c], (0, 2)) == pytest.approx(apart)
    # Slots 3 and 0 are neighbours too.
    assert overlapped_s([a, c], (3, 0)) == pytest.approx(overlapped_s([a, c], (0, 1)), rel=2e-3)
    assert overlapped_s([a], (2,)) == pytest.approx(sum(a))


@settings(max_examples=60, deadline=None)
@given(rows_of(4, least=2))
def test_no_member_takes_longer_in_a_smaller_barrier_set(rows: Rows) -> None:
    for offsets in orderings(len(rows), 4):
        whole = barrier_s(rows, offsets)
        for out in range(len(rows)):
            left = [row for i, row in enumerate(rows) if i != out]
            kept = [o for i, o in enumerate(offsets) if i != out]
            assert barrier_s(left, kept) <= whole + 1e-12


@pytest.mark.parametrize("cycle", CYCLES)
@pytest.mark.parametrize("resources", [3, 4])
def test_many_sets_at_once_have_the_cycles_of_each_alone(cycle: str, resources: int) -> None:
    rng = np.random.default_rng(7)
    stage_s = rng.random((12, resources)) * rng.choice([0.02, 1.0], size=(12, resources))
    for members in range(1, resources + 1):
        sets = rng.integers(0, 12, size=(60, members))
        rows = [[tuple(stage_s[kind].tolist()) for kind in one] for one in sets.tolist()]
        alone = [best_ordering(r, cycle)[0] for r in rows]
        assert best_cycles(stage_s, sets, cycle) == pytest.approx(alone, rel=1e-12)
        offsets = orderings(members, resources, cycle)[-1]
        one_way = [cycle_s(r, offsets, cycle) for r in rows]
        assert cycles(stage_s, sets, offsets, cycle) == pytest.approx(one_way, rel=1e-12)


def test_no_sets_have_no_cycles() -> None:
    assert best_cycles(np.ones((2, 4)), np.zeros((0, 2), np.int64), BARRIER).shape == (0,)

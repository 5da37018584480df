"""Regulation: worked examples, every choice tried on small clusters, promises on large ones."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.algorithms import regulation
from dovetail.algorithms.regulation import grown_by_moves, guarantee, is_allowed, regulate

FREE = 1_000


@pytest.mark.parametrize(
    ("shares", "sure", "regulated"),
    [
        ([9, 4, 3], [8, 4, 2], [8, 4, 4]),
        ([6, 5, 3, 2], [4, 4, 2, 2], [8, 4, 2, 2]),
    ],
)
def test_the_worked_examples(shares: list[int], sure: list[int], regulated: list[int]) -> None:
    assert guarantee(shares, 4).tolist() == sure
    assert regulate(shares, [FREE] * len(shares), 4, 4).tolist() == regulated


@pytest.mark.parametrize(
    ("gpus_per_machine", "allowed"),
    [(1, [0, 1, 2, 3, 4, 5]), (4, [0, 1, 2, 4, 8, 12, 16]), (8, [0, 1, 2, 4, 8, 16, 24])],
)
def test_allowed_shares(gpus_per_machine: int, allowed: list[int]) -> None:
    found = [s for s in range(-2, allowed[-1] + 1) if is_allowed(s, gpus_per_machine)]
    assert found == allowed


def test_of_equals_the_first_gets_more() -> None:
    assert regulate([5, 5, 5, 5], [FREE] * 4, 4, 5).tolist() == [8, 4, 4, 4]
    assert regulate([3, 3, 3, 3], [FREE] * 4, 4, 3).tolist() == [4, 4, 2, 2]


def test_nothing_stays_nothing_and_caps_leave_gpus_idle() -> None:
    assert regulate([0, 3, 0], [4, 3, 4], 4, 1).tolist() == [0, 2, 0]
    assert regulate([7, 1], [7, 1], 8, 1).tolist() == [4, 1]
    assert regulate([], [], 8, 1).tolist() == []


def test_an_odd_sum_gives_out_all_it_can() -> None:
    assert regulate([3, 3], [4, 4], 4, 2).tolist() == [4, 2]
    assert regulate([3], [4], 4, 1).tolist() == [2]  # 4 would be more than was given


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (([1], [1], 6, 1), "1, 2, 4, 8"),
        (([1], [1, 2], 4, 1), "every job"),
        (([3], [2], 4, 1), "cap"),
        (([-1], [2], 4, 1), "cap"),
        (([5], [8], 4, 1), "more than the machines"),
    ],
)
def test_what_makes_no_sense_is_refused(
    call: tuple[list[int], list[int], int, int], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        regulate(*call)


def best_of_all(shares: list[int], caps: list[int], machine: int) -> list[int]:
    """Tries every choice: most GPUs first, then least difference, then more for the first."""
    total = sum(shares)
    ranges = [
        [r for r in range(x, min(c, x + total) + 1) if is_allowed(r, machine)] if s else [0]
        for s, x, c in zip(shares, guarantee(shares, machine).tolist(), caps, strict=True)
    ]
    choices = [r for r in itertools.product(*ranges) if sum(r) <= total]

    def merit(choice: tuple[int, ...]) -> tuple[int, int, tuple[int, ...]]:
        differences = sum(abs(r - s) for r, s in zip(choice, shares, strict=True))
        return sum(choice), -differences, choice

    return list(max(choices, key=merit))


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 11), st.sampled_from([0, 0, 1, 3, 9, 40])), max_size=5),
    st.sampled_from([1, 2, 4, 8]),
)
def test_no_choice_of_all_is_better(jobs: list[tuple[int, int]], machine: int) -> None:
    shares, caps = [s for s, _ in jobs], [s + room for s, room in jobs]
    regulated = regulate(shares, caps, machine, -(-sum(shares) // machine))
    assert regulated.tolist() == best_of_all(shares, caps, machine)


def keeps_promises(
    shares: np.ndarray, caps: np.ndarray, machine: int, regulated: np.ndarray
) -> None:
    """Checks Proposition 2's conditions on every share and that no growth move is left."""
    assert all(is_allowed(r, machine) for r in regulated.tolist())
    assert (regulated >= guarantee(shares, machine)).all()
    assert (regulated <= caps).all()
    assert (regulated[shares == 0] == 0).all()
    idle = shares.sum() - regulated.sum()
    assert idle >= 0
    steps = np.minimum(regulated, machine)
    assert not ((regulated > 0) & (steps <= idle) & (regulated + steps <= caps)).any()


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([1, 2, 4, 8, 16]), st.booleans(), st.booleans())
def test_growth_moves_keep_proposition_2(
    seed: int, machine: int, capped: bool, through_front: bool
) -> None:
    rng = np.random.default_rng(seed)
    machines, jobs = int(rng.integers(1, 60)), int(rng.integers(1, 80))
    shares = rng.multinomial(machines * machine, rng.dirichlet(np.full(jobs, 0.5)))
    caps = shares + (rng.integers(0, 20, jobs) if capped else FREE)
    if through_front:
        regulated = regulate(shares, caps, machine, machines)
    else:
        regulated = grown_by_moves(shares, caps, machine)
    keeps_promises(shares, caps, machine, regulated)
    if not capped:
        assert regulated.sum() == machines * machine


def test_a_pool_too_large_to_search_is_regulated_by_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    shares = rng.multinomial(1_024, rng.dirichlet(np.full(300, 2.0)))
    caps = shares + FREE
    exact = regulate(shares, caps, 8, 128)
    monkeypatch.setattr(regulation, "EXACT_STATES_MAX", 1_000)
    moved = regulate(shares, caps, 8, 128)
    assert moved.tolist() == grown_by_moves(shares, caps, 8).tolist()
    keeps_promises(shares, caps, 8, moved)
    best, near = (int(np.abs(r - shares).sum()) for r in (exact, moved))
    assert best <= near <= 1.1 * best

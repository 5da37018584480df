"""Matchings by type weigh what the best matching of every node weighs, and no node twice."""

from collections.abc import Sequence
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.algorithms import matching
from dovetail.algorithms.matching import heaviest_by_type, heaviest_pairs, weight_of

Matrix = list[list[int]]


def best_by_trying(counts: Sequence[int], weights: Matrix) -> int:
    """Returns the greatest weight of a matching, every matching tried."""

    @cache
    def best(left: tuple[int, ...]) -> int:
        first = next((a for a, n in enumerate(left) if n), None)
        if first is None:
            return 0
        rest = [n - (a == first) for a, n in enumerate(left)]
        found = best(tuple(rest))
        for b, n in enumerate(rest):
            if n and weights[first][b] > 0:
                after = tuple(m - (c == b) for c, m in enumerate(rest))
                found = max(found, weights[first][b] + best(after))
        return found

    return best(tuple(counts))


@st.composite
def graphs(draw: st.DrawFn, most: int, types: int) -> tuple[list[int], Matrix]:
    """Draws counts and symmetric weights, some of them 0 and many of them alike."""
    k = draw(st.integers(1, types))
    counts = draw(st.lists(st.integers(0, most), min_size=k, max_size=k))
    weight = st.one_of(st.integers(0, 6), st.integers(1, 10**9))
    weights = [[0] * k for _ in range(k)]
    for a in range(k):
        for b in range(a, k):
            weights[a][b] = weights[b][a] = draw(weight)
    return counts, weights


def used(pairing: matching.Pairing, types: int) -> list[int]:
    """Returns the nodes of each type in pairs."""
    nodes = [0] * types
    for (a, b), n in pairing.items():
        assert a <= b and n > 0
        nodes[a] += n
        nodes[b] += n
    return nodes


@settings(max_examples=80, deadline=None)
@given(graphs(most=3, types=4))
def test_a_matching_by_type_weighs_what_the_best_of_all_matchings_weighs(
    graph: tuple[list[int], Matrix],
) -> None:
    counts, weights = graph
    pairing = heaviest_by_type(counts, weights)
    assert weight_of(pairing, weights) == best_by_trying(counts, weights)
    assert all(n <= count for n, count in zip(used(pairing, len(counts)), counts, strict=True))


@settings(max_examples=120, deadline=None)
@given(graphs(most=25, types=6))
def test_doubling_and_mending_gives_the_weight_of_matching_every_node(
    graph: tuple[list[int], Matrix],
) -> None:
    counts, weights = graph
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matching, "NODES_MAX", 4)
        pairing = heaviest_by_type(counts, weights)
    plain = matching._matched(counts, weights)
    assert weight_of(pairing, weights) == weight_of(plain, weights)
    assert all(n <= count for n, count in zip(used(pairing, len(counts)), counts, strict=True))


def test_an_odd_node_of_each_type_finds_the_odd_one_of_another() -> None:
    # Nodes of a type pair best among themselves; of 101 and 51 one each is left, and they pair.
    pairing = heaviest_by_type([101, 51], [[10, 9], [9, 10]])
    assert pairing == {(0, 0): 50, (0, 1): 1, (1, 1): 25}


def test_a_pair_of_weight_zero_is_no_pair() -> None:
    assert heaviest_by_type([2, 1], [[0, 5], [5, 0]]) == {(0, 1): 1}
    assert heaviest_by_type([60, 60], [[0, 0], [0, 0]]) == {}
    assert heaviest_by_type([], []) == {}


def test_pairs_are_of_the_heaviest_matching_and_not_of_the_heaviest_edge() -> None:
    edges = [(0, 1, 6), (1, 2, 10), (2, 3, 6)]
    assert heaviest_pairs(4, edges) == [(0, 1), (2, 3)]
    assert heaviest_pairs(3, []) == []

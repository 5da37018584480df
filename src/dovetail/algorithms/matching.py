"""Maximum-weight matching of nodes into pairs.

`heaviest_pairs` is the Blossom algorithm, through a library, on any graph. Where nodes come in
few types, all nodes of a type alike, `heaviest_by_type` finds a matching of the same weight
without looking at the nodes one by one. Weights are whole numbers, so that both are exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Edge = tuple[int, int, int]
"""Two nodes and the weight of pairing them."""
Pairing = dict[tuple[int, int], int]
"""How many pairs of two types, the lesser first, are matched; entries are above zero."""
Weights = Sequence[Sequence[int]]
"""The weight of pairing two types, symmetric; a type may pair with itself. 0 forbids a pair."""

PAIRS_KEPT, FREE_KEPT = 3, 2
"""Pairs of two types, and unmatched nodes of a type, that an augmenting path can need.

If a path enters (or leaves) one type twice by unmatched pairs, the part between can be cut out and
closed to a cycle, and one of the two parts still gains. So the shortest path that gains enters and
leaves each type in this way only once, and has two ends.
"""
NODES_MAX = 48
"""Up to this many nodes the Blossom algorithm on all of them is fastest."""


def heaviest_pairs(nodes: int, edges: Sequence[Edge]) -> list[tuple[int, int]]:
    """Returns the pairs of a matching of greatest weight, the lesser node first, in order.

    Every edge has a weight above zero, and no two edges the same ends.
    """
    if not edges:
        return []
    import rustworkx

    graph = rustworkx.PyGraph()
    graph.add_nodes_from(range(nodes))
    graph.add_edges_from(edges)
    pairs = rustworkx.max_weight_matching(graph, weight_fn=int)
    return sorted((i, j) if i < j else (j, i) for i, j in pairs)


def heaviest_by_type(counts: Sequence[int], weights: Weights) -> Pairing:
    """Returns how many pairs of which types a matching of greatest weight has.

    Half as many nodes are matched first and their pairs doubled. Then a few nodes of each type are
    matched anew, and the change is repeated as often as possible, until nothing gains.
    """
    if sum(counts) <= NODES_MAX or max(counts, default=0) <= 1:
        return _matched(counts, weights)
    half = heaviest_by_type([count // 2 for count in counts], weights)
    return _improved({pair: 2 * n for pair, n in half.items()}, counts, weights)


def weight_of(pairing: Pairing, weights: Weights) -> int:
    """Returns the weight of a matching."""
    return sum(n * weights[a][b] for (a, b), n in pairing.items())


def _improved(pairing: Pairing, counts: Sequence[int], weights: Weights) -> Pairing:
    """Returns a matching of greatest weight, starting from another matching."""
    while True:
        some = {pair: min(n, PAIRS_KEPT) for pair, n in pairing.items()}
        free = _free(pairing, counts)
        some_free = [min(n, FREE_KEPT) for n in free]
        nodes = list(some_free)
        for (a, b), n in some.items():
            nodes[a] += n
            nodes[b] += n
        better = _matched(nodes, weights)
        if weight_of(better, weights) <= weight_of(some, weights):
            return pairing
        change = {p: better.get(p, 0) - some.get(p, 0) for p in {**some, **better}}
        taken = [after - now for after, now in zip(_free(better, nodes), some_free, strict=True)]
        room = [pairing[p] // -by for p, by in change.items() if by < 0]
        room += [free[a] // -by for a, by in enumerate(taken) if by < 0]
        often = min(room)
        after = {p: pairing.get(p, 0) + often * by for p, by in change.items()}
        pairing = {p: n for p, n in {**pairing, **after}.items() if n}


def _free(pairing: Mapping[tuple[int, int], int], counts: Sequence[int]) -> list[int]:
    """Returns the nodes of each type that are in no pair."""
    free = list(counts)
    for (a, b), n in pairing.items():
        free[a] -= n
        free[b] -= n
    return free


def _matched(counts: Sequence[int], weights: Weights) -> Pairing:
    """Returns a matching of greatest weight by the Blossom algorithm on every node."""
    types = [a for a, count in enumerate(counts) for _ in range(count)]
    edges: list[Edge] = []
    for i, a in enumerate(types):
        row = weights[a]
        edges += [(i, j, row[b]) for j, b in enumerate(types[i + 1 :], i + 1) if row[b] > 0]
    pairing: Pairing = {}
    for i, j in heaviest_pairs(len(types), edges):
        pair = (types[i], types[j])
        pairing[pair] = pairing.get(pair, 0) + 1
    return pairing

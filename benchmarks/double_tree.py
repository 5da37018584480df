"""The graph of a pipelined job whose replicas reduce over two binary trees, as NCCL does.

Only to compare: Dovetail cuts the graph of rings (`dovetail.algorithms.job_graph`).
"""

from __future__ import annotations

from dovetail.algorithms.job_graph import GraphStage, JobGraph, graph_of, stage_weights


def tree_graph(stages: tuple[GraphStage, ...]) -> JobGraph:
    """Returns the graph of a job; each tree of a stage carries half of its data."""
    weights = stage_weights(stages)
    first = 0
    for stage in stages:
        k = stage.replicas
        for a, b in double_tree(k):
            pair = (first + min(a, b), first + max(a, b))
            weights[pair] = weights.get(pair, 0.0) + (k - 1) / k * stage.parameter_bytes
        first += k
    return graph_of(stages, weights)


def double_tree(k: int) -> tuple[tuple[int, int], ...]:
    """Returns the (child, parent) pairs of the two binary trees of NCCL over k ranks.

    In the first, the parent of r > 0 with lowest set bit q is `(r xor q) | 2q`, or `r xor q`
    where that is no rank. The second is its mirror for even k, its shift by one for odd k.
    """
    one = []
    for r in range(1, k):
        low = r & -r
        parent = (r ^ low) | (2 * low)
        one.append((r, parent if parent < k else r ^ low))
    other = [(k - 1 - a, k - 1 - b) if k % 2 == 0 else ((a + 1) % k, (b + 1) % k) for a, b in one]
    return (*one, *other)

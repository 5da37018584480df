"""Gradient-boosted trees for the absolute error: trained in milliseconds, asked in microseconds.

The trees are those of scikit-learn's `HistGradientBoostingRegressor(loss="absolute_error")` to the
last bit; a test compares them. Its loops over leaves are Python: a simulation trains a dozen times
on a few thousand jobs, and there they take nine tenths of the time. Under this loss all
gradients are 1 or -1, so every sum is exact and no order of additions can change a tree.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dovetail.algorithms.compiled import compiled
from dovetail.core.job import Floats, Ints

ROUNDS, LEAVES, RATE = 60, 31, 0.15
"""Number of trees, leaves of each, and learning rate."""
LEAST = 20
"""The fewest rows of a leaf."""
BINS = 255
"""The most values of a column that splits tell apart."""
SAMPLED = 200_000
"""The most rows that bins are drawn from."""
NODES = 2 * LEAVES - 1
LEAF = -1
FEATURE, BIN, CHILD = range(3)
COUNT, GRADIENT = range(2)


class Trees:
    """Trained trees. All nodes of all trees lie in one row; children are positions in it."""

    def __init__(
        self, root: Ints, feature: Ints, threshold: Floats, child: Ints, value: Floats, base: float
    ) -> None:
        self._nodes = (root, feature, threshold, child, value)
        self._base = base

    @staticmethod
    def trained(
        rows: NDArray[np.float64], target: Floats, seed: int, rounds: int = ROUNDS
    ) -> Trees:
        """Returns trees that predict a target from finite columns; `seed` draws rows for bins."""
        cuts = [_cuts(column) for column in _sampled(rows, seed).T]
        binned = np.stack(
            [
                np.searchsorted(c, column).astype(np.uint8)
                for c, column in zip(cuts, rows.T, strict=True)
            ]
        )
        bins = np.array([len(c) + 1 for c in cuts], np.int64)
        base = float(np.median(target))
        nodes, split = np.zeros(rounds, np.int64), np.zeros((rounds, NODES, 3), np.int64)
        value, answer = np.zeros((rounds, NODES)), np.full(len(target), base)
        _boosted(binned, bins, np.ascontiguousarray(target), answer, nodes, split, value)
        root = np.concatenate(([0], np.cumsum(nodes)[:-1])).astype(np.int64)
        in_tree = np.arange(NODES) < nodes[:, None]
        shift = np.repeat(root, nodes)
        split = split[in_tree]
        inner = split[:, CHILD] > 0
        feature = np.where(inner, split[:, FEATURE], LEAF)
        first = np.cumsum([0, *(len(c) for c in cuts)])
        at = first[split[:, FEATURE]] + split[:, BIN]
        threshold = np.concatenate([*cuts, [0.0]])[np.where(inner, at, -1)]
        left = split[:, CHILD] + shift
        child = np.stack((left, left + 1), axis=1)
        return Trees(root, feature, threshold, child, value[in_tree], base)

    def predict(self, row: Floats) -> float:
        """Returns the answer for one row of features."""
        return self._base + float(_sum(*self._nodes, row))


def _sampled(rows: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    if len(rows) <= SAMPLED:
        return rows
    own = np.random.RandomState(seed).randint(np.iinfo(np.uint32).max, dtype="u8")
    return rows[np.random.RandomState(own).choice(len(rows), SAMPLED, replace=True)]


def _cuts(column: Floats) -> Floats:
    """Returns the values between the bins of a column; a value equal to one is below it."""
    distinct = np.unique(column)
    if len(distinct) <= BINS:
        return np.asarray((distinct[:-1] + distinct[1:]) / 2.0)
    shares = np.linspace(0, 100, num=BINS + 1)[1:-1]
    return np.unique(np.percentile(np.sort(column), shares, method="averaged_inverted_cdf"))


def _count(
    binned: NDArray[np.uint8],
    bins: Ints,
    sign: NDArray[np.int32],
    rows: NDArray[np.int32],
    out: NDArray[np.int32],
) -> None:
    """Counts rows and gradients in each bin of each column."""
    for feature in range(len(binned)):
        for at in range(bins[feature]):
            out[feature, at, COUNT] = out[feature, at, GRADIENT] = 0
        for row in rows:
            at = binned[feature, row]
            out[feature, at, COUNT] += 1
            out[feature, at, GRADIENT] += sign[row]


def _subtract(whole: NDArray[np.int32], part: NDArray[np.int32], bins: Ints) -> None:
    """Takes the counts of a part of the rows away."""
    for feature in range(len(whole)):
        for at in range(bins[feature]):
            whole[feature, at, COUNT] -= part[feature, at, COUNT]
            whole[feature, at, GRADIENT] -= part[feature, at, GRADIENT]


def _best_split(
    histogram: NDArray[np.int32], bins: Ints, count: int, gradient: int, loss: float, out: Ints
) -> float:
    """Writes the best column and bin to split at; returns its gain, -1 without any."""
    best = -1.0
    for feature in range(len(bins)):
        left = left_gradient = 0
        for at in range(bins[feature] - 1):
            here = histogram[feature, at, COUNT]
            if not here:
                continue  # The same rows on either side as one bin before.
            left += here
            left_gradient += histogram[feature, at, GRADIENT]
            if count - left < LEAST:
                break
            if left < LEAST:
                continue
            right_gradient = gradient - left_gradient
            gain = loss - left_gradient * (-left_gradient / left)
            gain -= right_gradient * (-right_gradient / (count - left))
            if gain > best and gain > 0.0:
                best = gain
                out[FEATURE], out[BIN] = feature, at
    return best


def _push(heap: Ints, size: int, node: int, gain: Floats) -> None:
    """Adds a node to a heap in which the largest gain leads, as `heapq` does."""
    heap[size] = node
    _sift_up(heap, size, gain)


def _sift_up(heap: Ints, at: int, gain: Floats) -> None:
    node = heap[at]
    while at > 0:
        parent = (at - 1) >> 1
        if not gain[node] > gain[heap[parent]]:
            break
        heap[at] = heap[parent]
        at = parent
    heap[at] = node


def _pop(heap: Ints, size: int, gain: Floats) -> int:
    """Removes the node of the largest gain; ties as in `heapq`."""
    first = heap[0]
    last = heap[size - 1]
    at, end = 0, size - 1
    child = 1
    while child < end:
        if child + 1 < end and not gain[heap[child]] > gain[heap[child + 1]]:
            child += 1
        heap[at] = heap[child]
        at = child
        child = 2 * at + 1
    heap[at] = last
    _sift_up(heap, at, gain)
    return int(first)


def _parted(
    column: NDArray[np.uint8], most: int, rows: NDArray[np.int32], spare: NDArray[np.int32]
) -> int:
    """Puts the rows up to a bin first, both parts in their order; returns how many they are."""
    left = right = 0
    for row in rows:
        if column[row] <= most:
            rows[left] = row
            left += 1
        else:
            spare[right] = row
            right += 1
    for at in range(right):
        rows[left + at] = spare[at]
    return left


def _grow(
    binned: NDArray[np.uint8],
    bins: Ints,
    sign: NDArray[np.int32],
    rows: NDArray[np.int32],
    spare: NDArray[np.int32],
    histograms: NDArray[np.int32],
    span: Ints,
    split: Ints,
) -> int:
    """Grows one tree, the split of the largest gain first; returns the number of its nodes."""
    heap, slot = np.zeros(LEAVES, np.int64), np.zeros(NODES, np.int64)
    gain, gradient = np.zeros(NODES), np.zeros(NODES, np.int64)
    span[0, 0], span[0, 1] = 0, len(rows)
    for row in rows:
        gradient[0] += sign[row]
    nodes, leaves, waiting = 1, 0, 0
    if len(rows) >= 2 * LEAST:
        _count(binned, bins, sign, rows, histograms[0])
        gain[0] = _best_split(histograms[0], bins, len(rows), gradient[0], 0.0, split[0])
        waiting = 1 if gain[0] > 0.0 else 0
    while waiting:
        node = _pop(heap, waiting, gain)
        waiting -= 1
        low, high, of_node = span[node, 0], span[node, 1], histograms[slot[node]]
        left, nodes = nodes, nodes + 2
        split[node, CHILD] = left
        middle = low + _parted(
            binned[split[node, FEATURE]], split[node, BIN], rows[low:high], spare
        )
        for at in range(split[node, BIN] + 1):
            gradient[left] += of_node[split[node, FEATURE], at, GRADIENT]
        gradient[left + 1] = gradient[node] - gradient[left]
        span[left, 0], span[left, 1] = low, middle
        span[left + 1, 0], span[left + 1, 1] = middle, high
        if leaves + waiting + 2 == LEAVES:
            break
        if max(middle - low, high - middle) < 2 * LEAST:
            leaves += 2
            continue
        # The fewer rows are counted; the others are what is left of their parent's counts.
        small = left if middle - low < high - middle else left + 1
        slot[small], slot[2 * left + 1 - small] = small, slot[node]
        _count(binned, bins, sign, rows[span[small, 0] : span[small, 1]], histograms[small])
        _subtract(of_node, histograms[small], bins)
        for child in range(left, left + 2):
            count = span[child, 1] - span[child, 0]
            if count >= 2 * LEAST:
                loss = gradient[child] * (-gradient[child] / count)
                histogram = histograms[slot[child]]
                gain[child] = _best_split(
                    histogram, bins, count, gradient[child], loss, split[child]
                )
            if gain[child] > 0.0:
                _push(heap, waiting, child, gain)
                waiting += 1
            else:
                leaves += 1
    return nodes


def _boosted(
    binned: NDArray[np.uint8],
    bins: Ints,
    target: Floats,
    answer: Floats,
    nodes: Ints,
    split: Ints,
    value: Floats,
) -> None:
    """Fills in the number of nodes of each tree, their splits and their values.

    `answer` is what the trees before give for each row. Nodes without a child are leaves.
    """
    columns, count = binned.shape
    histograms = np.zeros((NODES, columns, BINS, 2), np.int32)
    span = np.zeros((NODES, 2), np.int64)
    sign, rows = np.zeros(count, np.int32), np.zeros(count, np.int32)
    spare, off = np.zeros(count, np.int32), np.zeros(count)
    for tree in range(len(nodes)):
        for row in range(count):
            sign[row] = 1 if answer[row] > target[row] else -1
            rows[row] = row
        nodes[tree] = _grow(binned, bins, sign, rows, spare, histograms, span, split[tree])
        for node in range(nodes[tree]):
            if split[tree, node, CHILD]:
                continue
            low, high = span[node, 0], span[node, 1]
            for at in range(low, high):
                off[at] = target[rows[at]] - answer[rows[at]]
            value[tree, node] = RATE * _median(off[low:high])
            for at in range(low, high):
                answer[rows[at]] += value[tree, node]


def _median(values: Floats) -> float:
    """Returns the median; changes the order of the values. NOTE: numba compiles sort in 1.2 s."""
    low, high, middle = 0, len(values) - 1, len(values) // 2
    while low < high:
        pivot, left, right = values[(low + high) // 2], low, high
        while left <= right:
            while values[left] < pivot:
                left += 1
            while values[right] > pivot:
                right -= 1
            if left <= right:
                values[left], values[right] = values[right], values[left]
                left, right = left + 1, right - 1
        if right < middle:
            low = left
        if left > middle:
            high = right
    median = values[middle]
    if len(values) % 2 == 0:
        below = values[0]
        for at in range(1, middle):
            below = max(below, values[at])
        median = (below + median) / 2.0
    return float(median)


def _sum(
    root: Ints, feature: Ints, threshold: Floats, child: Ints, value: Floats, row: Floats
) -> float:
    total = 0.0
    for start in root:
        at = start
        while feature[at] >= 0:
            at = child[at, 0] if row[feature[at]] <= threshold[at] else child[at, 1]
        total += value[at]
    return total


_count = compiled(_count)
_subtract = compiled(_subtract)
_best_split = compiled(_best_split)
_sift_up = compiled(_sift_up)
_push = compiled(_push)
_pop = compiled(_pop)
_parted = compiled(_parted)
_grow = compiled(_grow)
_median = compiled(_median)
_boosted = compiled(_boosted)
_sum = compiled(_sum)

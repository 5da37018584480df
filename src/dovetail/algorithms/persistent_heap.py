"""An immutable heap: every change returns a new heap.

A Braun tree: the left side of each node holds as many items as the right side or one more, so
no path is longer than log2(n) + 1. Both changes copy one path: O(log n). For the memory of
policies, which must be immutable, comparable and hashable.

Source: R. Hoogerwoord, "A logarithmic implementation of flexible arrays" (1992); as a heap in
L. C. Paulson, "ML for the Working Programmer", section 4.16.
"""

from __future__ import annotations

Item = tuple[float, int]
"""(key, number); the number breaks ties."""

Heap = tuple[Item, "Heap", "Heap"] | None
"""(smallest item, left, right); None is the empty heap."""


def push(heap: Heap, item: Item) -> Heap:
    """Returns the heap with one more item."""
    if heap is None:
        return item, None, None
    top, left, right = heap
    if item < top:
        return item, push(right, top), left
    return top, push(right, item), left


def pop(heap: Heap) -> Heap:
    """Returns the heap without its smallest item, which is `heap[0]`. The heap is not empty."""
    assert heap is not None
    _, left, right = heap
    if left is None:
        return None
    item, rest = _take_any(left)
    return _sink(item, right, rest)


def _take_any(heap: Heap) -> tuple[Item, Heap]:
    """Returns any item and the heap without it; each node loses it from its larger side."""
    assert heap is not None
    top, left, right = heap
    if left is None:
        return top, None
    item, rest = _take_any(left)
    return item, (top, right, rest)


def _sink(item: Item, left: Heap, right: Heap) -> Heap:
    """Returns the heap of an item and two sides, with the item moved down to its place."""
    if left is None:
        return item, None, None
    if right is None:
        top = left[0]
        return (item, left, None) if item < top else (top, (item, None, None), None)
    a, b = left[0], right[0]
    if item < a and item < b:
        return item, left, right
    if a < b:
        return a, _sink(item, left[1], left[2]), right
    return b, left, _sink(item, right[1], right[2])

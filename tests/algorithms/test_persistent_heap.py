"""A heap that is a value: same answers as a plain list, short paths, old versions untouched."""

import pickle
from math import log2

from hypothesis import given
from hypothesis import strategies as st

from dovetail.algorithms.persistent_heap import Heap, pop, push


def depth(heap: Heap) -> int:
    return 0 if heap is None else 1 + max(depth(heap[1]), depth(heap[2]))


def size(heap: Heap) -> int:
    """Returns how many items it holds, and fails where the two sides are out of balance."""
    if heap is None:
        return 0
    left, right = size(heap[1]), size(heap[2])
    assert right <= left <= right + 1
    return 1 + left + right


def drained(heap: Heap) -> list[tuple[float, int]]:
    items = []
    while heap is not None:
        items.append(heap[0])
        heap = pop(heap)
    return items


@given(st.lists(st.one_of(st.none(), st.integers(0, 5)), max_size=60))
def test_it_answers_as_a_sorted_list_does(steps: list[int | None]) -> None:
    heap: Heap = None
    plain: list[tuple[float, int]] = []
    for number, step in enumerate(steps):
        if step is not None:
            heap = push(heap, (float(step), number))
            plain = sorted([*plain, (float(step), number)])
        elif plain:
            assert heap is not None and heap[0] == plain[0]
            heap, plain = pop(heap), plain[1:]
        assert size(heap) == len(plain)
    assert drained(heap) == plain


def test_a_change_leaves_the_old_heap_as_it_was() -> None:
    old = push(push(push(None, (3.0, 0)), (1.0, 1)), (2.0, 2))
    before = drained(old)
    push(old, (0.0, 3))
    pop(old)
    assert drained(old) == before == [(1.0, 1), (2.0, 2), (3.0, 0)]


def test_no_path_grows_longer_than_the_logarithm_whatever_the_order() -> None:
    for keys in (range(5000), range(5000, 0, -1)):
        heap: Heap = None
        for number, key in enumerate(keys):
            heap = push(heap, (float(key), number))
        assert depth(heap) <= log2(5000) + 1
        # Deep values cannot be compared or written down; these can.
        assert pickle.loads(pickle.dumps(heap)) == heap

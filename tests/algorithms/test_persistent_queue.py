"""A queue that is a value: same answers as a plain list, old versions untouched."""

from hypothesis import given
from hypothesis import strategies as st

from dovetail.algorithms.persistent_queue import CHUNK, Queue, joined, left, put_first


def drained(queue: Queue) -> list[int]:
    jobs = []
    while queue.first is not None:
        jobs.append(queue.first)
        queue = left(queue)
    return jobs


@given(st.lists(st.sampled_from(["join", "join", "leave", "first"]), max_size=80))
def test_it_answers_as_a_list_does(steps: list[str]) -> None:
    queue, plain = Queue(), list[int]()
    for number, step in enumerate(steps):
        if step == "join":
            queue, plain = joined(queue, number), [*plain, number]
        elif step == "first":
            queue, plain = put_first(queue, (number, -number)), [number, -number, *plain]
        elif plain:
            queue, plain = left(queue), plain[1:]
        assert queue.first == (plain[0] if plain else None)
    assert drained(queue) == plain


def test_many_leave_in_the_order_they_came() -> None:
    queue = Queue()
    for job in range(5 * CHUNK + 3):
        queue = joined(queue, job)
    kept = queue
    for _ in range(CHUNK):
        queue = joined(left(queue), 7)
    assert drained(kept) == list(range(5 * CHUNK + 3))
    assert drained(queue) == [*range(CHUNK, 5 * CHUNK + 3), *[7] * CHUNK]

"""The waiting queue by hand; the property tests compare it with a plain list."""

import pytest

from dovetail.core.job import Shape
from dovetail.core.queue import WaitingQueue

SHAPES = [Shape(1), Shape(2), Shape(4)]
#        job:  0  1  2  3  4  5
SHAPE_OF = [0, 1, 2, 0, 1, 2]


def queue_of(*entries: tuple[int, float]) -> WaitingQueue:
    queue = WaitingQueue(SHAPE_OF, SHAPES)
    for job, key in entries:
        queue.add(job, key)
    return queue


def test_jobs_come_by_key_and_ties_by_index() -> None:
    queue = queue_of((3, 1.0), (1, 2.0), (0, 1.0), (2, 0.5))
    assert list(queue) == [2, 0, 3, 1]
    assert queue.first() == 2
    assert len(queue) == 4
    assert 3 in queue and 4 not in queue
    assert queue.key(1) == 2.0


def test_a_scan_gives_up_on_a_shape_and_leaves_the_queue_alone() -> None:
    queue = queue_of((0, 0.0), (1, 1.0), (3, 2.0), (4, 3.0), (2, 4.0))
    scan = queue.scan()
    assert scan.next() == 0
    assert scan.next() == 1
    assert scan.drop() == 1
    assert scan.next() == 3
    assert scan.next() == 2
    assert (scan.key(), scan.peek()) == (4.0, (4.0, 2))
    assert scan.next() is None
    assert scan.peek() is None
    assert list(queue) == [0, 1, 3, 4, 2]


def test_a_scan_can_leave_out_wide_shapes() -> None:
    scan = queue_of((0, 0.0), (1, 1.0), (2, 0.5), (4, 3.0)).scan(max_gpus=2)
    assert [scan.next(), scan.next(), scan.next(), scan.next()] == [0, 1, 4, None]


def test_dropping_the_last_shape_ends_the_scan() -> None:
    scan = queue_of((0, 0.0), (3, 1.0)).scan()
    assert scan.next() == 0
    scan.drop()
    assert scan.next() is None


def test_the_first_job_behind_another_that_is_short_enough() -> None:
    length_s = [5.0, 9.0, 1.0, 7.0, 3.0, float("inf")]
    queue = WaitingQueue([0, 0, 0, 0, 0, 0], [Shape(1)])
    queue.index_lengths(length_s)
    for job in range(6):
        queue.add(job, 0.0)
    assert queue.first_behind(0, 4.0, -1) == 2
    assert queue.first_behind(0, 4.0, 2) == 4
    assert queue.first_behind(0, 3.0, 3) == 4
    assert queue.first_behind(0, 2.9, 2) is None
    assert queue.first_behind(0, 4.0, 4) is None
    queue.remove(2)
    assert queue.first_behind(0, 4.0, -1) == 4
    assert queue.first_behind(0, float("inf"), 0) == 1


def test_a_job_of_infinite_forecast_is_behind_everybody_and_still_there() -> None:
    queue = WaitingQueue([0, 0], [Shape(1)])
    queue.index_lengths([float("inf"), 1.0])
    queue.add(0, 0.0)
    assert queue.first_behind(0, 1e9, -1) is None
    assert list(queue) == [0]


def test_lengths_are_asked_for_by_the_order_or_not_at_all() -> None:
    with pytest.raises(AssertionError, match="does not index lengths"):
        queue_of((0, 0.0)).first_behind(0, 1.0, -1)

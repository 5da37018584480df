"""The waiting queue beside a plain list."""

from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.core.job import Shape
from dovetail.core.queue import WaitingQueue

JOBS = 12
SHAPES = [Shape(1), Shape(2), Shape(4)]
SHAPE_OF = [j % 3 for j in range(JOBS)]
LENGTHS = st.lists(
    st.sampled_from([0.5, 1.0, 2.0, 2.0, 9.0, float("inf")]), min_size=JOBS, max_size=JOBS
)
WAITING = st.dictionaries(st.integers(0, JOBS - 1), st.sampled_from([-1.0, 0.0, 0.5, 2.0]))


@settings(max_examples=150)
@given(
    waiting=WAITING,
    gone=st.sets(st.integers(0, JOBS - 1)),
    drops=st.lists(st.booleans(), min_size=JOBS, max_size=JOBS),
    max_gpus=st.sampled_from([None, 0, 1, 2, 4]),
)
def test_a_queue_is_a_sorted_list_and_a_scan_walks_it(
    waiting: dict[int, float], gone: set[int], drops: list[bool], max_gpus: int | None
) -> None:
    queue = WaitingQueue(SHAPE_OF, SHAPES)
    for job, key in waiting.items():
        queue.add(job, key)
    for job in sorted(gone & set(waiting)):
        queue.remove(job)
    model = sorted((key, job) for job, key in waiting.items() if job not in gone)
    assert list(queue) == [job for _, job in model]
    assert len(queue) == len(model)
    assert queue.gpus == sum(SHAPES[SHAPE_OF[job]].gpus for _, job in model)
    assert queue.first() == (model[0][1] if model else None)
    assert queue.shapes_waiting() == sorted({SHAPE_OF[j] for _, j in model})
    for shape in range(3):
        assert list(queue.of_shape(shape)) == [j for _, j in model if SHAPE_OF[j] == shape]
    dropped: set[int] = set()
    scan = queue.scan(max_gpus)
    for (key, job), drop in zip(model, [*drops, *drops], strict=False):
        shape = SHAPE_OF[job]
        if shape in dropped or (max_gpus is not None and SHAPES[shape].gpus > max_gpus):
            continue
        assert scan.next() == job
        assert scan.key() == key
        assert scan.peek() == (key, job)
        if drop:
            assert scan.drop() == shape
            dropped.add(shape)
    assert scan.next() is None
    assert scan.peek() is None


@settings(max_examples=150)
@given(
    lengths=LENGTHS,
    waiting=WAITING,
    later=st.lists(st.tuples(st.booleans(), st.integers(0, JOBS - 1)), max_size=12),
    ask=st.sampled_from([0.1, 0.5, 1.0, 1.9, 2.0, 8.0, 1e12, float("inf")]),
    known=st.integers(0, JOBS),
)
def test_the_first_job_behind_another_is_found_as_by_walking(
    lengths: list[float],
    waiting: dict[int, float],
    later: list[tuple[bool, int]],
    ask: float,
    known: int,
) -> None:
    queue = WaitingQueue(SHAPE_OF[:known], SHAPES)
    queue.index_lengths(lengths)
    queue.admit([SHAPES[shape] for shape in SHAPE_OF[known:]])
    assert queue.shape_of == SHAPE_OF
    present = set(waiting)
    for job in waiting:
        queue.add(job, 0.0)
    for enters, job in later:
        if enters and job not in present:
            queue.add(job, 0.0)
            present.add(job)
        elif not enters and job in present:
            queue.remove(job)
            present.discard(job)
    for shape in range(3):
        for after in range(-1, JOBS):
            fitting = [
                j
                for j in sorted(present)
                if j > after and SHAPE_OF[j] == shape and lengths[j] <= ask < float("inf")
            ]
            if ask == float("inf"):
                fitting = [
                    j
                    for j in sorted(present)
                    if j > after and SHAPE_OF[j] == shape and lengths[j] < float("inf")
                ]
            expected = fitting[0] if fitting else None
            assert queue.first_behind(shape, ask, after) == expected


def test_trees_grow_while_jobs_wait_and_new_shapes_are_numbered_as_they_appear() -> None:
    lengths: list[float] = []
    queue = WaitingQueue([], [])
    queue.index_lengths(lengths)
    for job in range(100):
        lengths.append(float(job % 7))
        queue.admit([Shape(1 + job % 3, queue="q" if job % 2 else "")])
        queue.add(job, 0.0)
    assert [shape.gpus for shape in queue.shapes] == [1, 2, 3, 1, 2, 3]
    for shape in range(6):
        mine = [job for job in range(100) if queue.shape_of[job] == shape]
        for after in (-1, 20, 97):
            for longest in (0.0, 3.0, 9.0):
                fits = [j for j in mine if j > after and lengths[j] <= longest]
                assert queue.first_behind(shape, longest, after) == (fits[0] if fits else None)

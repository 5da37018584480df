"""Job tables, labels, shapes and traces: columns in, jobs out, nonsense refused."""

import numpy as np
import pytest

from builders import Row, jobs_of, trace_of
from dovetail.core.job import JobRequest, JobTable, Labels, Shape
from dovetail.core.shapes import shapes_of
from dovetail.core.trace import Trace


def test_a_row_becomes_a_job() -> None:
    table = jobs_of(Row(1, 5), Row(2, 5, submit_s=3, user="u", queue="q", elastic=True, max_gpus=4))
    assert table.job(1) == JobRequest("1", 3.0, 2, 2, 4, user="u", queue="q", elastic=True)
    assert table.job(0) == JobRequest("0", 0.0, 1, 1, 1)


def test_labels_code_texts_and_know_what_is_missing() -> None:
    labels = Labels.of(["b", "", "a", "b"])
    assert labels.names == ("a", "b")
    assert labels.codes.tolist() == [1, -1, 0, 1]
    assert labels.texts() == ["b", "", "a", "b"]
    assert labels.take(np.array([3, 1])).texts() == ["b", ""]
    assert Labels.none(2).texts() == ["", ""]


def test_jobs_that_fit_in_the_same_places_have_one_shape() -> None:
    table = jobs_of(
        Row(2, 5, queue="q"), Row(1, 5), Row(2, 9, user="x"), Row(2, 1, cpus=4), Row(1, 7)
    )
    shape_of, shapes = shapes_of(table, by_host=True, by=("queue",))
    assert shape_of[1] == shape_of[4]
    assert len({shape_of[0], shape_of[1], shape_of[2], shape_of[3]}) == 4
    assert shapes[shape_of[0]] == Shape(2, queue="q")
    assert shapes[shape_of[3]] == Shape(2, cpus=4.0)
    assert [s.gpus for s in shapes] == sorted(s.gpus for s in shapes)


def test_shapes_tell_apart_only_what_limits_jobs() -> None:
    table = jobs_of(Row(2, 5, queue="q"), Row(2, 9), Row(2, 1, cpus=4, memory_bytes=9), Row(1, 7))
    shape_of, shapes = shapes_of(table, by_host=False)
    assert shape_of == [1, 1, 1, 0]
    assert shapes == (Shape(1), Shape(2))
    assert len(shapes_of(table, by_host=True)[1]) == 3
    assert len(shapes_of(table, by_host=False, by=("queue",))[1]) == 3


def test_an_empty_table_has_no_shapes() -> None:
    table = JobTable.build([], np.array([]), np.array([], np.int64))
    assert shapes_of(table, by_host=True, by=("queue",)) == ([], ())


@pytest.mark.parametrize(
    ("submit", "gpus", "columns", "words"),
    [
        ([1.0, 0.0], [1, 1], {}, "sorted by submission"),
        ([0.0, 0.0], [1, 0], {}, "at least one GPU"),
        ([0.0], [1, 1], {}, "column submit_s has 1 rows, expected 2"),
        ([0.0, 0.0], [1, 1], {"max_gpus": np.array([1, 0])}, "min_gpus <= gpus <= max_gpus"),
        ([0.0, 0.0], [1, 1], {"min_gpus": np.array([1, 2])}, "min_gpus <= gpus <= max_gpus"),
        ([0.0, 0.0], [1, 1], {"cpus": np.array([1.0])}, "column cpus has 1 rows"),
    ],
)
def test_columns_that_make_no_sense_are_refused(
    submit: list[float], gpus: list[int], columns: dict[str, object], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        JobTable.build(["a", "b"], np.array(submit), np.array(gpus, np.int64), **columns)


def test_rows_can_be_taken_in_order() -> None:
    table = jobs_of(Row(1, 5, user="a"), Row(2, 5, user="b"), Row(3, 5, submit_s=1, user="a"))
    part = table.take(np.array([0, 2]))
    assert part.job_id == ("0", "2")
    assert part.job(1) == table.job(2)
    with pytest.raises(ValueError, match="sorted by submission"):
        table.take(np.array([2, 0]))


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_a_trace_needs_finite_positive_durations(bad: float) -> None:
    jobs = jobs_of(Row(1, 5))
    with pytest.raises(ValueError, match="finite and positive"):
        Trace.of(jobs, np.array([bad]))


def test_a_trace_keeps_its_columns_together() -> None:
    trace = trace_of(Row(1, 5), Row(1, 7, end="failed"), Row(1, 9, end="cancelled"))
    part = trace.take(np.array([1, 2]))
    assert part.duration_s.tolist() == [7, 9]
    assert part.end.tolist() == [1, 2]
    with pytest.raises(ValueError, match="one entry for each of the 3 jobs"):
        Trace(trace.jobs, trace.duration_s[:2], trace.iterations, trace.end)

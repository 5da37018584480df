"""A table to which jobs are appended is the table made of all of them at once."""

from dataclasses import fields, replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.core.growth import Growing
from dovetail.core.job import JobRequest, JobTable, Labels, PipelineStage
from dovetail.core.kinds import Kinds

GRAPH = (PipelineStage(1, 0.1, 0.2, 0.0, 8.0, 4.0), PipelineStage(1, 0.1, 0.2, 8.0, 0.0, 4.0))
TEXTS = st.sampled_from(["", "a", "b", "zoe"])


def empty() -> JobTable:
    return JobTable.build([], np.empty(0), np.empty(0, np.int64))


@st.composite
def jobs(draw: st.DrawFn) -> list[JobRequest]:
    made, t = [], 0.0
    for i in range(draw(st.integers(0, 12))):
        t += draw(st.sampled_from([0.0, 1.5]))
        gpus, elastic = draw(st.integers(1, 4)), draw(st.booleans())
        made.append(
            JobRequest(
                f"j{i}",
                t,
                gpus,
                1 if elastic else gpus,
                gpus + 3 if elastic else gpus,
                user=draw(TEXTS),
                model=draw(TEXTS),
                priority=draw(st.sampled_from([0.0, 2.5])),
                time_limit_s=draw(st.sampled_from([float("inf"), 60.0])),
                elastic=elastic,
                preemptible=draw(st.booleans()),
                graph=draw(st.sampled_from([(), GRAPH])),
            )
        )
    return made


@settings(max_examples=60)
@given(made=jobs(), cuts=st.lists(st.integers(0, 12), max_size=4))
def test_it_is_the_same_table_however_it_grew(made: list[JobRequest], cuts: list[int]) -> None:
    table = empty()
    edges = [0, *sorted(min(cut, len(made)) for cut in cuts), len(made)]
    for start, stop in pairwise(edges):
        assert table.append(made[start:stop]) == range(start, stop)
        assert [table.job(i) for i in range(len(table))] == made[:stop]
        assert table.all_preemptible == all(job.preemptible for job in made[:stop])
        assert table.widest_gpus == int(table.most_gpus.max(initial=0))
        movable = table.elastic & table.preemptible
        assert np.array_equal(table.least_gpus, np.where(movable, table.min_gpus, table.gpus))
        assert np.array_equal(table.most_gpus, np.where(movable, table.max_gpus, table.gpus))
    for column in fields(table):
        value = getattr(table, column.name)
        if isinstance(value, Labels):
            # Names count up in order of appearance.
            seen = list(dict.fromkeys(text for text in value.texts() if text))
            assert list(value.names) == seen
        elif column.name not in ("graphs", "numbered"):
            assert len(value) == len(made)


def test_what_was_read_before_keeps_its_rows_and_another_table_its_own() -> None:
    first = JobRequest("a", 0.0, 2, 2, 2, user="u")
    table = empty()
    table.append([first])
    copy, gpus = replace(table), table.gpus
    table.append([JobRequest(str(i), 1.0, 4, 4, 4) for i in range(200)])
    assert gpus.tolist() == [2]
    assert copy.gpus.tolist() == [2]
    assert len(copy.user.codes) == 1
    copy.append([JobRequest("b", 5.0, 1, 1, 1)])
    assert copy.gpus.tolist() == [2, 1]
    assert table.gpus[1] == 4


@pytest.mark.parametrize(
    ("job", "why"),
    [
        (JobRequest("late", 0.5, 1, 1, 1), "sorted by submission"),
        (JobRequest("when", float("nan"), 1, 1, 1), "sorted by submission"),
        (JobRequest("none", 2.0, 0, 0, 0), "1 <= min_gpus"),
        (JobRequest("wide", 2.0, 2, 3, 4), "1 <= min_gpus"),
    ],
)
def test_a_job_out_of_order_or_of_no_sensible_size_adds_nothing(job: JobRequest, why: str) -> None:
    table = empty()
    table.append([JobRequest("a", 1.0, 1, 1, 1)])
    with pytest.raises(ValueError, match=f"job {job.job_id}: .*{why}"):
        table.append([JobRequest("fine", 1.0, 1, 1, 1), job])
    assert list(table.job_id) == ["a"]
    assert len(table.gpus) == 1


def test_a_column_grows_in_constant_time_on_average() -> None:
    column: Growing[np.int64] = Growing(np.arange(3))
    buffers = set()
    for i in range(3, 5000):
        rows = column.extend([i])
        assert rows[-1] == i
        buffers.add(id(rows.base))
    assert column.rows.tolist() == list(range(5000))
    assert len(buffers) < 12


@settings(max_examples=60)
@given(
    rows=st.lists(st.tuples(st.integers(-1, 2), st.integers(0, 2)), max_size=12),
    cut=st.integers(0, 12),
)
def test_kinds_count_up_as_they_appear(rows: list[tuple[int, int]], cut: int) -> None:
    keys = np.array(rows, np.int64).reshape(-1, 2).T
    whole, growing = Kinds(keys), Kinds(keys[:, :cut])
    known = len(growing)
    assert growing.admit(keys[:, cut:]) == range(known, len(whole))
    order = list(dict.fromkeys(rows))
    for kinds in (whole, growing):
        assert kinds.of.tolist() == kinds.numbers == [order.index(row) for row in rows]
        assert kinds.example == [rows.index(row) for row in order]


def test_draws_about_live_jobs_go_by_their_number_and_not_by_their_row() -> None:
    """A row changes when a controller restarts without the jobs that are over."""
    rows = np.array([1, 0])
    whole, restarted = (
        JobTable.build([], np.empty(0), np.empty(0, np.int64), numbered=True) for _ in range(2)
    )
    jobs = [JobRequest(str(number), float(number), 1, 1, 1) for number in range(1, 5)]
    whole.append(jobs)
    restarted.append(jobs[2:])
    assert whole.draw_keys(np.arange(4)).tolist() == [0, 1, 2, 3]
    assert restarted.draw_keys(rows).tolist() == [3, 2]
    trace = JobTable.build(["9", "7"], np.zeros(2), np.ones(2, np.int64))
    assert trace.draw_keys(rows).tolist() == [1, 0]

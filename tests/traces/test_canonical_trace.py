"""The canonical file: what it means, what it refuses, and that nothing is lost in it."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dovetail.core.errors import InputError
from dovetail.core.job import LABELS, JobTable, Labels
from dovetail.core.trace import CANCELLED, COMPLETED, FAILED, TIMEOUT, Recorded, RecordedRuns, Trace
from dovetail.traces.canonical import read_trace, write_trace
from dovetail.traces.importing import import_trace
from property_size import examples

FULL = """\
job_id,submit_s,gpus,duration_s,iterations,model,batch_size,user,recurrence,queue,priority,\
deadline_s,time_limit_s,status,min_gpus,max_gpus,gpu_type,cpus,memory_gb,elastic,shareable,\
preemptible
7,10.5,4,3600,1000,bert,32,ann,nightly,prod,2,9000,7200,failed,1,8,v100,16,64,true,1,no
"""


def read(tmp_path: Path, text: str) -> Trace:
    path = tmp_path / "t.csv"
    path.write_text(text)
    return read_trace(path)


def test_every_column_reaches_its_job(tmp_path: Path) -> None:
    trace = read(tmp_path, FULL)
    job = trace.jobs.job(0)
    assert (job.job_id, job.submit_s, job.gpus, job.min_gpus, job.max_gpus) == ("7", 10.5, 4, 1, 8)
    assert (job.user, job.queue, job.recurrence, job.model) == ("ann", "prod", "nightly", "bert")
    assert (job.gpu_type, job.priority, job.batch_size, job.cpus) == ("v100", 2.0, 32, 16.0)
    assert job.memory_bytes == 64 * 2**30
    assert (job.deadline_s, job.time_limit_s) == (9000.0, 7200.0)
    assert (job.elastic, job.shareable, job.preemptible) == (True, True, False)
    assert trace.duration_s.tolist() == [3600.0]
    assert trace.iterations.tolist() == [1000.0]
    assert trace.end.tolist() == [FAILED]


def test_columns_left_out_are_neutral(tmp_path: Path) -> None:
    trace = read(tmp_path, "job_id,submit_s,gpus,duration_s\na,0,3,5\n")
    job = trace.jobs.job(0)
    assert (job.min_gpus, job.max_gpus, job.deadline_s) == (3, 3, float("inf"))
    assert (job.user, job.preemptible, job.elastic) == ("", True, False)
    assert np.isnan(trace.iterations[0])
    assert trace.end.tolist() == [COMPLETED]
    assert trace.name == "t"


def test_ids_of_numbers_order_as_numbers_and_others_as_text(tmp_path: Path) -> None:
    header = "job_id,submit_s,gpus,duration_s\n"
    numbers = read(tmp_path, header + "10,5,1,1\n9,5,1,1\n100,1,1,1\n")
    assert numbers.jobs.job_id == ("100", "9", "10")
    texts = read(tmp_path, header + "j10,5,1,1\nj9,5,1,1\n100,1,1,1\n")
    assert texts.jobs.job_id == ("100", "j10", "j9")


def test_rows_that_cannot_be_used_are_counted_by_reason(tmp_path: Path) -> None:
    rows = [
        "ok,1,1,5",
        ",1,1,5",
        "a,,1,5",
        "b,inf,1,5",
        "c,-1,1,5",
        "d,1e12,1,5",
        "e,1,,5",
        "f,1,0,5",
        "g,1,-2,5",
        "h,1,2e6,5",
        "i,1,1,nan",
        "j,1,1,inf",
        "k,1,1,0",
        "l,1,1,-5",
        "m,1,1,1e10",
        "ok,2,1,5",
    ]
    trace = read(tmp_path, "job_id,submit_s,gpus,duration_s\n" + "\n".join(rows) + "\n")
    assert trace.jobs.job_id == ("ok",)
    assert trace.counts == {
        "read": 16,
        "usable": 1,
        "rejected: no job id": 1,
        "rejected: no submission time": 1,
        "rejected: submission not finite": 1,
        "rejected: negative submission": 1,
        "rejected: absurd submission": 1,
        "rejected: no GPU count": 1,
        "rejected: no GPU": 1,
        "rejected: negative GPU count": 1,
        "rejected: absurd GPU count": 1,
        "rejected: no duration": 1,
        "rejected: duration not finite": 1,
        "rejected: zero duration": 1,
        "rejected: negative duration": 1,
        "rejected: absurd duration": 1,
        "rejected: duplicate id": 1,
    }


def test_parts_of_gpus_are_written_and_read_again(tmp_path: Path) -> None:
    text = (
        "job_id,submit_s,gpus,duration_s,gpu_part,cpus\n"
        "a,0,2,5,0.25,\n"
        "b,1,1,5,0,8\n"
        "c,2,1,5,,\n"
        "d,3,1,5,1.5,\n"
        "e,4,2.5,5,,\n"
    )
    trace = read(tmp_path, text)
    assert trace.jobs.gpus.tolist() == [2, 1, 1, 1, 3]
    assert trace.jobs.gpu_part.tolist() == [0.25, 0.0, 1.0, 1.0, 0.833]
    assert trace.counts["adjusted: gpu_part out of range, left out"] == 1
    assert trace.counts["adjusted: parts of a GPU evened out over a job's GPUs"] == 1
    again = tmp_path / "again.csv"
    write_trace(trace, again)
    assert read_trace(again).jobs.gpu_part.tolist() == trace.jobs.gpu_part.tolist()
    with_gpus = import_trace([again], cpu_only="reject", fractions="round-up")
    assert with_gpus.jobs.job_id == ("a", "c", "d", "e")
    assert not with_gpus.jobs.has_parts
    with pytest.raises(InputError, match="--fractions"):
        import_trace([again], fractions="down")


def test_rows_that_are_changed_are_counted_too(tmp_path: Path) -> None:
    text = (
        "job_id,submit_s,gpus,duration_s,min_gpus,max_gpus,deadline_s,iterations,colour\n"
        "a,9,0.5,5,3,1,4,-1,red\n"
        "b,2,2,5,1,4,,10,\n"
    )
    trace = read(tmp_path, text)
    assert trace.jobs.job_id == ("b", "a")
    assert trace.jobs.min_gpus.tolist() == [1, 1]
    assert trace.jobs.max_gpus.tolist() == [4, 1]
    assert trace.jobs.gpus.tolist() == [2, 1]
    assert trace.jobs.gpu_part.tolist() == [1.0, 0.5]
    assert trace.counts == {
        "read": 2,
        "usable": 2,
        "ignored column: colour": 2,
        "adjusted: iterations out of range, left out": 1,
        "adjusted: deadline_s out of range, left out": 1,
        "adjusted: min_gpus out of range, left out": 1,
        "adjusted: out of order, sorted by submission": 1,
    }


@pytest.mark.parametrize(
    ("word", "end"),
    [
        *(("", COMPLETED), ("completed", COMPLETED), ("FAILED", FAILED), ("Cancelled", CANCELLED)),
        *(("timeout", TIMEOUT), ("Killed", CANCELLED), ("Pass", COMPLETED)),
    ],
)
def test_each_word_for_an_end_is_known(tmp_path: Path, word: str, end: int) -> None:
    trace = read(tmp_path, f"job_id,submit_s,gpus,duration_s,status\na,0,1,1,{word}\n")
    assert trace.end.tolist() == [end]


def test_blank_lines_quotes_crlf_and_a_byte_order_mark_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(
        b"\xef\xbb\xbfjob_id,submit_s,gpus,duration_s,user\r\n\r\n"
        b'1,0,1,5,"Smith, ""Al"""\r\n\r\n2,1,1,5,bob\r\n\r\n'
    )
    trace = read_trace(path)
    assert trace.jobs.user.texts() == ['Smith, "Al"', "bob"]
    assert trace.counts["read"] == 2


words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=6)
seconds = st.floats(0, 1e9, allow_subnormal=False)


@st.composite
def run_lists(draw: st.DrawFn, is_started: np.ndarray) -> RecordedRuns | None:
    """Draws the runs of some of the jobs that started."""
    rows: list[tuple[int, float, float, float, str]] = []
    for job in np.flatnonzero(is_started).tolist():
        begin_s = 0.0
        for _ in range(draw(st.integers(0, 3))):
            length_s, held_s = draw(seconds), draw(st.just(0.0) | seconds)
            cause = draw(st.sampled_from(["", "PREEMPTED", "NODE_FAIL"]))
            rows.append((job, begin_s, length_s, held_s, cause))
            begin_s += length_s + draw(seconds)
    if not rows:
        return None
    times = (np.array([row[n] for row in rows]) for n in (1, 2, 3))
    jobs = np.array([row[0] for row in rows], np.int64)
    return RecordedRuns(jobs, *times, Labels.of([row[4] for row in rows]))


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Draws a trace whose optional columns may each be neutral, partly given or full."""
    n = draw(st.integers(1, 6))

    def column(values: st.SearchStrategy[float]) -> np.ndarray:
        return np.array(draw(st.lists(values, min_size=n, max_size=n)))

    ids = draw(st.lists(words, min_size=n, max_size=n, unique=True))
    submit = column(seconds)
    # The order of the file's reader: by submission, then by id.
    numeric = all(i.isascii() and i.isdecimal() for i in ids)
    order = sorted(range(n), key=lambda i: (submit[i], int(ids[i]) if numeric else ids[i].encode()))
    gpus = column(st.integers(1, 64)).astype(np.int64)
    labels = {name: Labels.of([draw(st.just("") | words) for _ in range(n)]) for name in LABELS}
    submit = submit[order]
    jobs = JobTable.build(
        [ids[i] for i in order],
        submit,
        gpus,
        min_gpus=np.minimum(gpus, column(st.integers(1, 64)).astype(np.int64)),
        max_gpus=np.maximum(gpus, column(st.integers(1, 64)).astype(np.int64)),
        priority=column(st.floats(-1e6, 1e6)),
        batch_size=column(st.integers(0, 2**40)).astype(np.int64),
        cpus=column(seconds),
        memory_bytes=column(st.integers(0, 2**50)).astype(np.float64),
        time_limit_s=column(st.floats(1e-3, 1e9) | st.just(np.inf)),
        deadline_s=submit + 1.0 + column(seconds | st.just(np.inf)),
        elastic=column(st.booleans()),
        shareable=column(st.booleans()),
        preemptible=column(st.booleans()),
        **labels,
    )
    iterations = column(st.floats(1e-3, 1e12) | st.just(np.nan))
    end = column(st.integers(0, 3)).astype(np.int8)
    duration_s = column(st.floats(1e-3, 1e9))
    started = st.floats(0, 1e9, allow_subnormal=False) | st.just(np.nan)
    wait_s = column(started)
    start_s = submit + column(started)
    recorded = Recorded(
        start_s,
        submit + column(started),
        wait_s,
        column(st.integers(0, 9)).astype(np.int64),
        Labels.of([draw(st.just("") | words) for _ in range(n)]),
        runs=draw(run_lists(np.isfinite(start_s))),
    )
    # A trace in which no start is known has no record.
    known = bool(np.isfinite(recorded.start_s).any())
    return Trace(jobs, duration_s, iterations, end, recorded=recorded if known else None)


def assert_same(one: Trace, other: Trace) -> None:
    left, right = one.jobs, other.jobs
    assert left.job_id == right.job_id
    for name in LABELS:
        assert getattr(left, name).texts() == getattr(right, name).texts()
    for name in ("submit_s", "gpus", "min_gpus", "max_gpus", "priority", "batch_size", "cpus"):
        assert getattr(left, name).tolist() == getattr(right, name).tolist()
    for name in ("memory_bytes", "time_limit_s", "deadline_s"):
        assert getattr(left, name).tolist() == getattr(right, name).tolist()
    for name in ("elastic", "shareable", "preemptible"):
        assert getattr(left, name).tolist() == getattr(right, name).tolist()
    assert one.duration_s.tolist() == other.duration_s.tolist()
    np.testing.assert_array_equal(one.iterations, other.iterations)
    assert one.end.tolist() == other.end.tolist()
    assert (one.recorded is None) == (other.recorded is None)
    if one.recorded is not None and other.recorded is not None:
        for name in ("start_s", "end_s", "wait_s", "restarts"):
            columns = getattr(one.recorded, name), getattr(other.recorded, name)
            np.testing.assert_array_equal(*columns)
        assert one.recorded.nodes.texts() == other.recorded.nodes.texts()
        assert listed(one.recorded.runs) == listed(other.recorded.runs)


def listed(runs: RecordedRuns | None) -> list[tuple[object, ...]]:
    if runs is None:
        return []
    columns = (runs.job, runs.begin_s, runs.length_s, runs.held_s)
    return list(zip(*(column.tolist() for column in columns), runs.cause.texts(), strict=True))


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "parquet"])
def test_writing_then_reading_gives_the_same_trace(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"t.{kind}"

    @settings(examples(20), suppress_health_check=list(HealthCheck))
    @given(traces())
    def check(trace: Trace) -> None:
        write_trace(trace, path)
        again = read_trace(path)
        assert_same(trace, again)
        assert again.counts == {"read": len(trace), "usable": len(trace)}

    check()


def test_the_same_trace_gives_the_same_bytes(tmp_path: Path) -> None:
    trace = read(tmp_path, FULL)
    for kind in ("csv", "csv.gz", "parquet"):
        write_trace(trace, tmp_path / f"a.{kind}")
        write_trace(trace, tmp_path / f"b.{kind}")
        assert (tmp_path / f"a.{kind}").read_bytes() == (tmp_path / f"b.{kind}").read_bytes()


def test_columns_that_say_nothing_are_not_written(tmp_path: Path) -> None:
    trace = read(tmp_path, "job_id,submit_s,gpus,duration_s,user\na,0,3,5,\n")
    write_trace(trace, tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == "job_id,submit_s,gpus,duration_s\na,0.0,3,5.0\n"


def test_an_unknown_kind_of_file_is_refused(tmp_path: Path) -> None:
    trace = read(tmp_path, FULL)
    with pytest.raises(InputError, match=r"use \.csv, \.csv\.gz or \.parquet"):
        write_trace(trace, tmp_path / "t.xlsx")


def test_a_parquet_file_of_others_is_read_by_its_column_names(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    frame = {"job_id": [3, 1], "submit_s": [5, 5], "gpus": [1, 2], "duration_s": [9, 8]}
    pl.DataFrame(frame).write_parquet(path)
    trace = read_trace(path)
    assert trace.jobs.job_id == ("1", "3")
    assert trace.duration_s.tolist() == [8.0, 9.0]


def test_lists_of_runs_that_cannot_be_read_are_left_out_and_counted(tmp_path: Path) -> None:
    head = "job_id,submit_s,gpus,duration_s,start_s,end_s,restarts,runs\n"
    lists = ["0+10:NODE_FAIL 20+30", "20+30", "0+10 5+10", "0+10 what", "0+1e999 5+1", ""]
    rows = [f"{n},0,1,40,5,60,1,{text}\n" for n, text in enumerate(lists)]
    trace = read(tmp_path, head + "".join(rows) + "9,0,1,40,,,,0+10\n")
    assert trace.recorded is not None
    assert listed(trace.recorded.runs) == [
        (0, 0.0, 10.0, 0.0, "NODE_FAIL"),
        (0, 20.0, 30.0, 0.0, ""),
    ]
    assert trace.counts["adjusted: runs that cannot be read, left out"] == 4
    assert listed(trace.recorded.take(np.array([1])).runs) == []

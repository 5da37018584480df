"""sacct's own columns in Parquet are read as its text is, however their values are stored."""

from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

from dovetail.cli.main import cli
from dovetail.core.errors import InputError
from dovetail.core.trace import Trace
from dovetail.traces.importing import import_trace, sniff
from dovetail.traces.readers.format import ReadOptions
from sacct_log import log_lines, logged_jobs

TIMES = ("Submit", "Eligible", "Start", "End")
ZONE = "Europe/Berlin"


@pytest.fixture(scope="module")
def table() -> pl.DataFrame:
    """Returns the whole lines of the log as texts."""
    header, *rows = log_lines(logged_jobs(300))
    width = header.count("|")
    whole = [row for row in rows if row.count("|") == width and row != header and row[0].isdigit()]
    text = "\n".join([header, *whole]).encode()
    return pl.read_csv(BytesIO(text), separator="|", infer_schema=False, quote_char=None).fill_null(
        ""
    )


def moment(name: str) -> pl.Expr:
    return pl.col(name).str.to_datetime("%Y-%m-%dT%H:%M:%S", strict=False)


def span(name: str) -> pl.Expr:
    parts = pl.col(name).str.extract_groups(r"^(?:(\d+)-)?(\d+):(\d+):(\d+)$")
    units = (86400, 3600, 60, 1)
    seconds = sum(
        (parts.struct[n].cast(pl.Int64).fill_null(0) * unit for n, unit in enumerate(units)),
        pl.lit(0),
    )
    known = pl.when(parts.struct[1].is_not_null()).then(seconds)
    return pl.duration(seconds=known).alias(name)


def jobs_of(path: Path, zone: str = ZONE) -> Trace:
    return import_trace([path], options=ReadOptions(timezone=zone))


def assert_same(one: Trace, other: Trace) -> None:
    assert one.counts == other.counts
    assert list(one.jobs.job_id) == list(other.jobs.job_id)
    for name in ("submit_s", "gpus", "cpus", "memory_bytes", "time_limit_s"):
        assert np.array_equal(getattr(one.jobs, name), getattr(other.jobs, name)), name
    for name in ("user", "account", "queue", "gpu_type", "recurrence"):
        assert getattr(one.jobs, name).texts() == getattr(other.jobs, name).texts(), name
    assert np.array_equal(one.duration_s, other.duration_s)
    assert np.array_equal(one.end, other.end)


@pytest.fixture(scope="module")
def expected(table: pl.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    path = tmp_path_factory.mktemp("text") / "log.txt"
    path.write_text(table.write_csv(separator="|", quote_style="never"))
    return jobs_of(path)


@pytest.mark.parametrize("stored", ["texts", "categories", "typed", "seconds"])
def test_a_parquet_file_of_sacct_is_read_as_its_text(
    stored: str, table: pl.DataFrame, expected: Trace, tmp_path: Path
) -> None:
    if stored == "categories":
        table = table.cast({"State": pl.Categorical, "Partition": pl.Categorical})
    if stored in ("typed", "seconds"):
        spans = [span(c) for c in ("Elapsed", "Suspended", "Timelimit")]
        # As pandas stores counts beside missing values.
        nodes = pl.col("NNodes").cast(pl.Float64, strict=False)
        lists = pl.col("AllocTRES").str.split(",")
        table = table.with_columns(*spans, nodes, lists, *map(moment, TIMES))
    path = tmp_path / "log.parquet"
    if stored == "seconds":
        # In an hour that occurs twice a local time may be either.
        offsets = [moment_s(table[name]) for name in TIMES]
        table = table.with_columns(offsets)
        table.write_parquet(path)
        assert np.array_equal(jobs_of(path, "").duration_s, expected.duration_s)
        return
    table.write_parquet(path)
    assert sniff(path) == "slurm"
    assert_same(jobs_of(path), expected)


def moment_s(times: pl.Series) -> pl.Series:
    return times.dt.replace_time_zone(ZONE, ambiguous="earliest", non_existent="null").dt.epoch("s")


def stored(path: Path, **changes: list[object]) -> Path:
    """Writes two jobs and a step, with changes of columns, and returns the file."""
    columns: dict[str, list[object]] = {
        "JobID": ["7", "7.batch", "8"],
        "Submit": ["2025-10-13T08:00:00"] * 3,
        "Start": ["2025-10-13T08:01:00"] * 3,
        "End": ["2025-10-13T09:01:00"] * 3,
        "State": ["COMPLETED"] * 3,
        "AllocTRES": ["cpu=8,gres/gpu=4", "", "cpu=4,gres/gpu:a100=2"],
    }
    if "Elapsed" not in changes:
        columns["ElapsedRaw"] = [3600, 3600, 3600]
    if "Timelimit" not in changes:
        columns["TimelimitRaw"] = [120.0, None, 60.0]
    pl.DataFrame(columns | changes, strict=False).write_parquet(path)
    return path


def test_numbers_and_rows_are_read_and_rejected_by_their_row(tmp_path: Path) -> None:
    path = stored(tmp_path / "log.parquet", State=["COMPLETED", "COMPLETED", "PENDING"])
    out, rejects = tmp_path / "out.csv", tmp_path / "rejects.csv"
    words = ["trace", "import", str(path), "--timezone", "UTC", "-o", str(out)]
    result = CliRunner().invoke(cli, [*words, "--rejects", str(rejects)])
    assert result.exit_code == 0, result.output
    rows = pl.read_csv(rejects).select("line", "reason").rows()
    # A job that may have held GPUs comes before the steps.
    assert rows == [(3, "not ended yet"), (2, "job step")]
    trace = jobs_of(path, "UTC")
    assert list(trace.jobs.job_id) == ["7"]
    assert (trace.jobs.gpus[0], trace.duration_s[0]) == (4, 3600.0)
    assert trace.jobs.time_limit_s[0] == 7200.0


def test_times_with_a_zone_need_no_zone(tmp_path: Path) -> None:
    submit = [datetime(2025, 10, 13, 8, tzinfo=UTC)] * 3
    path = stored(tmp_path / "log.parquet", Submit=submit)
    trace = import_trace([path], origin="keep")
    assert trace.jobs.submit_s[0] == submit[0].timestamp()
    assert trace.imported is not None
    assert not any("time zone" in note for note in trace.imported.notes)
    local = import_trace([stored(path)], origin="keep").imported
    assert local is not None
    assert any("no time zone was given" in note for note in local.notes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"Elapsed": [3600, 1, 2]}, "column Elapsed: has numbers, whose unit .* as ElapsedRaw"),
        ({"Timelimit": [60, 1, 2]}, "column Timelimit: .*store minutes as TimelimitRaw"),
        ({"Submit": [1760342400000] * 3}, "column Submit: .* too large for Unix seconds"),
        ({"AllocTRES": [b"\xff", b"", b""]}, "column AllocTRES: contains Binary"),
    ],
)
def test_values_that_could_mean_two_things_are_refused(
    changes: dict[str, list[object]], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        jobs_of(stored(tmp_path / "log.parquet", **changes), "UTC")
    if "Elapsed" in changes:
        raw = stored(tmp_path / "log.parquet", ElapsedRaw=[3600] * 3, **changes)
        assert jobs_of(raw, "UTC").duration_s[0] == 3600.0


def test_a_file_that_lacks_the_gpus_names_the_columns_to_request(tmp_path: Path) -> None:
    path = stored(tmp_path / "log.parquet")
    pl.read_parquet(path).drop("AllocTRES").write_parquet(path)
    with pytest.raises(InputError, match=r"has no column 'AllocTRES'.*request -o JobID,User"):
        jobs_of(path, "UTC")
    with pytest.raises(InputError, match=r"--columns.* names its columns itself"):
        import_trace([stored(path)], options=ReadOptions(columns=("JobID",)))


def test_rows_without_a_job_are_rejected(tmp_path: Path) -> None:
    path = stored(tmp_path / "log.parquet", JobID=["7", None, None])
    assert jobs_of(path, "UTC").counts["rejected: no job id"] == 2

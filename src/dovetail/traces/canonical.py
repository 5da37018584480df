"""Reads and writes canonical trace files: one row per job, as CSV (plain or gzip) or Parquet.

Times are in seconds, memory is in GiB, an empty value is a missing one. A trace that is written
and read again is identical to the last bit.
"""

from __future__ import annotations

import gzip
import io
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl

from dovetail.core.cluster import GIB
from dovetail.core.errors import InputError
from dovetail.core.job import LABELS, Floats, Labels
from dovetail.core.trace import ENDS, ImportRecord, Recorded, Trace
from dovetail.traces.assemble import STATUS_OF, assemble
from dovetail.traces.delimited import Delimited, read_delimited
from dovetail.traces.import_record import (
    COMMENT,
    METADATA_KEY,
    comment_line,
    read_record,
    record_text,
)
from dovetail.traces.output_file import write_output
from dovetail.traces.rows import CANONICAL, FLAGS, NUMBERS, REQUIRED, TEXTS, Rows
from dovetail.traces.run_lists import run_lists
from dovetail.traces.source import LINE_LIMIT_BYTES, PARQUET_MAGIC, first_bytes

_TRUE, _FALSE = ("true", "1", "yes", "t", "y"), ("false", "0", "no", "f", "n")


def read_trace(path: Path | str) -> Trace:
    """Returns the trace of a canonical CSV, CSV.gz or Parquet file.

    `Trace.counts` has the number of rejected rows by reason. Raises InputError with line and
    column if the file cannot be read or has no usable job.
    """
    path = Path(path)
    return assemble(canonical_rows(path), trace_name(path), str(path))


def write_trace(trace: Trace, path: Path | str) -> None:
    """Writes a canonical file; the suffix decides its type: .csv, .csv.gz or .parquet.

    The write is atomic. Raises InputError if the file cannot be written.
    """
    path = Path(path)
    if path.suffix == ".parquet":
        data = _parquet_bytes(trace)
    elif path.suffix == ".gz":
        # Without a time stamp and a name, the same trace gives the same bytes.
        data = gzip.compress(_csv_bytes(trace), 6, mtime=0)
    elif path.suffix == ".csv":
        data = _csv_bytes(trace)
    else:
        raise InputError(str(path), "unknown file type", "use .csv, .csv.gz or .parquet")
    write_output(path, lambda stream: stream.write(data))


def write_apart(parts: Mapping[str, Trace], folder: Path) -> dict[Path, Trace]:
    """Writes NAME.csv for each part into a new folder; returns the traces by their paths.

    Raises InputError if the folder exists or cannot be written.
    """
    if folder.exists():
        raise InputError(str(folder), "already exists", "specify a new folder")
    written: dict[Path, Trace] = {}
    try:
        with TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as temporary:
            inside = Path(temporary) / folder.name
            inside.mkdir()
            for name, part in parts.items():
                path = folder / f"{_as_file(name)}.csv"
                if path in written:
                    path = path.with_stem(f"{path.stem}-{len(written)}")
                write_trace(part, inside / path.name)
                written[path] = part
            inside.rename(folder)
    except OSError as error:
        raise InputError(str(folder), f"cannot be written: {error.strerror or error}") from None
    return written


def _as_file(name: str) -> str:
    """Returns the file name of a virtual cluster."""
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name).lstrip(".") or "none"


def _csv_bytes(trace: Trace) -> bytes:
    above = b"" if trace.imported is None else comment_line(trace.imported)
    return above + to_frame(trace).write_csv().encode()


def _parquet_bytes(trace: Trace) -> bytes:
    buffer = io.BytesIO()
    known = trace.imported
    metadata = None if known is None else {METADATA_KEY: record_text(known)}
    to_frame(trace).write_parquet(buffer, metadata=metadata)
    return buffer.getvalue()


def trace_name(path: Path) -> str:
    """Returns the name of a file without its suffixes."""
    name = path.name
    for ending in (".gz", ".csv", ".parquet", ".json", ".txt", ".trace", ".swf"):
        name = name.removesuffix(ending)
    return name


def is_parquet(path: Path) -> bool:
    """True if the file begins with the magic bytes of Parquet."""
    try:
        with path.open("rb") as stream:
            return stream.read(4) == PARQUET_MAGIC
    except OSError:
        return False


def canonical_rows(path: Path) -> Rows:
    """Returns the unchecked rows of a canonical file. Raises InputError."""
    frame, names = _parquet_columns(path) if is_parquet(path) else _csv_columns(path)
    counts = Counter({f"ignored column: {c}": frame.height for c in names if c not in CANONICAL})
    known = _import_record(path)
    notes = () if known is None else known.notes
    return Rows(frame, frame.height, counts, notes=notes, imported=known)


def _import_record(path: Path) -> ImportRecord | None:
    """Returns the record of the import that wrote a file, None without one. Raises InputError."""
    if is_parquet(path):
        text = pl.read_parquet_metadata(path).get(METADATA_KEY)
        return None if text is None else read_record(text, str(path))
    # One byte more than the longest line: a record that is longer cannot be read.
    first, _, _ = first_bytes(path, LINE_LIMIT_BYTES + 1).partition(b"\n")
    line = first.decode("utf-8-sig", "replace")
    return (
        read_record(line[len(COMMENT) :], f"{path}, line 1") if line.startswith(COMMENT) else None
    )


def _csv_columns(path: Path) -> tuple[pl.DataFrame, list[str]]:
    """Returns the canonical columns of a file, and the names of all its columns."""
    table = read_delimited(path)
    table.need(*REQUIRED)
    columns = [table.lines(), table.text("job_id")]
    columns += [table.number(c) for c in (*REQUIRED[1:], *NUMBERS) if table.has(c)]
    columns += [table.text(c) for c in TEXTS if table.has(c) and c != "status"]
    columns += [_flag(table, c) for c in FLAGS if table.has(c)]
    if table.has("status"):
        columns.append(_status(table))
    return pl.DataFrame(columns), table.columns


def _flag(table: Delimited, column: str) -> pl.Series:
    text = table.text(column).str.to_lowercase().str.strip_chars()
    bad = ~text.is_in([*_TRUE, *_FALSE, ""])
    if bad.any():
        raise table.error(column, bad, "is not true or false")
    neutral = column == "preemptible"
    return text.is_in([*_TRUE, ""] if neutral else list(_TRUE)).rename(column)


def _status(table: Delimited) -> pl.Series:
    text = table.text("status").str.to_lowercase().str.strip_chars()
    bad = ~text.is_in(list(STATUS_OF))
    if bad.any():
        raise table.error("status", bad, f"is not a status; known: {', '.join(ENDS)}")
    return text


def _parquet_columns(path: Path) -> tuple[pl.DataFrame, list[str]]:
    """Returns the canonical columns of a file, and the names of all its columns."""
    try:
        frame = pl.read_parquet(path.read_bytes())
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as error:
        reason = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        raise InputError(str(path), f"is not a readable Parquet file: {reason}") from None
    for column in REQUIRED:
        if column not in frame.columns:
            raise InputError(str(path), f"has no column '{column}'")
    columns = [_typed(path, frame[c]) for c in CANONICAL if c in frame.columns]
    return pl.DataFrame(columns), frame.columns


def _typed(path: Path, column: pl.Series) -> pl.Series:
    """Returns a Parquet column in the type of its name. Raises InputError."""
    name = column.name
    wanted = (
        pl.String if name in (*TEXTS, "job_id") else pl.Boolean if name in FLAGS else pl.Float64
    )
    if column.dtype.is_nested():
        raise InputError(f"{path}, column {name}", f"contains {column.dtype}, not numbers or texts")
    try:
        values = column.cast(wanted)
    except pl.exceptions.PolarsError:
        raise InputError(f"{path}, column {name}", f"cannot be read as {wanted}") from None
    if name == "status":
        bad = ~values.fill_null("").str.to_lowercase().is_in(list(STATUS_OF))
        if bad.any():
            row = int(bad.arg_max() or 0)
            raise InputError(
                f"{path}, row {row + 1}, column status", f"{values[row]!r} is not a status"
            )
    return values


def to_frame(trace: Trace) -> pl.DataFrame:
    """Returns the trace as a frame of canonical columns, without empty ones."""
    jobs, ends = trace.jobs, pl.Series(list(ENDS), dtype=pl.String)
    columns: dict[str, pl.Series] = {
        "job_id": pl.Series(jobs.job_id, dtype=pl.String),
        "submit_s": pl.Series(jobs.submit_s),
        "gpus": pl.Series(jobs.gpus),
        "duration_s": pl.Series(trace.duration_s),
        "iterations": _given(trace.iterations),
        "batch_size": pl.Series(jobs.batch_size).set(pl.Series(jobs.batch_size == 0), None),
        "priority": _given(jobs.priority, 0.0),
        "deadline_s": _given(jobs.deadline_s, np.inf),
        "time_limit_s": _given(jobs.time_limit_s, np.inf),
        "restart_s": _given(jobs.restart_s, 0.0),
        "min_gpus": _unless((jobs.min_gpus == jobs.gpus).all(), pl.Series(jobs.min_gpus)),
        "max_gpus": _unless((jobs.max_gpus == jobs.gpus).all(), pl.Series(jobs.max_gpus)),
        "gpu_part": _unless(not jobs.has_parts, pl.Series(jobs.gpu_part)),
        "cpus": _given(jobs.cpus, 0.0),
        "memory_gb": _given(jobs.memory_bytes / GIB, 0.0),
        "elastic": _unless(not jobs.elastic.any(), pl.Series(jobs.elastic)),
        "shareable": _unless(not jobs.shareable.any(), pl.Series(jobs.shareable)),
        "preemptible": _unless(jobs.preemptible.all(), pl.Series(jobs.preemptible)),
        "status": _unless(not trace.end.any(), ends.gather(trace.end.astype(np.int64))),
    }
    columns |= {name: _texts(getattr(jobs, name)) for name in LABELS}
    columns |= _recorded_columns(trace.recorded, len(jobs))
    if trace.recorded is not None and trace.recorded.submitted_s is not None:
        columns["submit_s"] = pl.Series(trace.recorded.submitted_s)
    used = {
        c: columns[c] for c in CANONICAL if c in REQUIRED or columns[c].null_count() < len(jobs)
    }
    return pl.DataFrame(used)


def _texts(label: Labels) -> pl.Series:
    values = pl.Series([*label.names, None], dtype=pl.String)
    return values.gather(np.where(label.codes < 0, len(label.names), label.codes))


def _recorded_columns(recorded: Recorded | None, jobs: int) -> dict[str, pl.Series]:
    if recorded is None:
        nothing = pl.Series([None] * jobs, dtype=pl.Float64)
        names = ("eligible_s", "start_s", "end_s", "wait_s", "restarts", "nodes", "runs")
        return dict.fromkeys(names, nothing)
    eligible_s = np.full(jobs, np.nan) if recorded.eligible_s is None else recorded.eligible_s
    return {
        "eligible_s": _given(eligible_s),
        "start_s": _given(recorded.start_s),
        "end_s": _given(recorded.end_s),
        "wait_s": _given(recorded.wait_s),
        "restarts": _unless(not recorded.restarts.any(), pl.Series(recorded.restarts)),
        "nodes": _texts(recorded.nodes),
        "runs": run_lists(recorded.runs, jobs),
    }


def _given(values: Floats, neutral: float = np.nan) -> pl.Series:
    silent = np.isnan(values) | (values == neutral)
    return pl.Series(values).set(pl.Series(silent), None)


def _unless(usual: bool | np.bool_, values: pl.Series) -> pl.Series:
    """Returns a column, or nulls where all its values are the usual ones."""
    return pl.Series([None] * len(values), dtype=values.dtype) if usual else values

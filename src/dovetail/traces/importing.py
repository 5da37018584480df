"""Imports logs of any known format as canonical traces: several files as one trace, or one each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from dovetail.core.errors import InputError, nearest
from dovetail.core.trace import ImportRecord, Trace
from dovetail.traces.assemble import KEEP, OUT_OF_ORDER, Imported, assembled, late
from dovetail.traces.canonical import canonical_rows, trace_name
from dovetail.traces.clock import check_zone, monday_before
from dovetail.traces.hardware import fitting_cluster, gpu_type_rows
from dovetail.traces.import_record import joined_records, source_name
from dovetail.traces.loss import gpu_seconds, loss_of
from dovetail.traces.readers.format import Format, Head, ReadOptions
from dovetail.traces.readers.registry import FORMATS
from dovetail.traces.rows import CLOCK_TIMES, REQUIRED, Rows, adjusted
from dovetail.traces.source import first_bytes

CANONICAL = "canonical"
ORIGINS = ("week", "first", "keep")


def sniff(path: Path) -> str:
    """Returns the name of the format of a file. Raises InputError for an unknown format."""
    head = Head(path, first_bytes(path))
    if head.has(*REQUIRED):
        return CANONICAL
    for known in FORMATS:
        if known.parquet in (None, head.parquet) and known.matches(head):
            return known.name
    if head.parquet:
        raise InputError(
            str(path),
            f"has unknown columns ({', '.join(head.columns[:8])})"[:160],
            f"a trace needs {', '.join(REQUIRED)}",
        )
    shown = ", ".join(head.columns[:8])[:120]
    if not shown.strip():
        raise InputError(str(path), "is empty", "specify a trace with a header line")
    missing = [name for name in REQUIRED if not head.has(name)]
    if len(missing) < len(REQUIRED):
        lacks = f"lacks the column {' and '.join(missing)}"
        raise InputError(f"{path}, line 1", lacks, f"a trace needs {', '.join(REQUIRED)}")
    if len(head.columns) == 1 and ";" in shown:
        mend = "separate the columns by commas"
        raise InputError(f"{path}, line 1", "has columns separated by semicolons", mend)
    raise InputError(
        f"{path}, line 1",
        f"has an unknown format (its first line has: {shown})",
        f"supported formats: {', '.join(format_names())}",
    )


def format_names() -> tuple[str, ...]:
    """Returns the names of all supported formats."""
    return (CANONICAL, *(f.name for f in FORMATS))


def format_called(name: str) -> Format:
    """Returns the format with a name. Raises InputError for an unknown name."""
    for known in FORMATS:
        if known.name == name:
            return known
    raise InputError(f"format '{name}'", "is unknown", nearest(name, format_names()))


def import_trace(
    paths: Sequence[Path | str],
    format_name: str | None = None,
    *,
    options: ReadOptions | None = None,
    origin: str = "week",
    cpu_only: str = "",
    fractions: str = KEEP,
) -> Trace:
    """Returns one trace of all files, with a queue for each virtual cluster. Raises InputError.

    `origin` is time 0 for a log with dates: `week` is the Monday 00:00 local time before the first
    job, `first` the first job, `keep` the beginning of 1970. A single file with times relative to
    its own start keeps them.
    """
    return import_rows(
        paths, format_name, options=options, origin=origin, cpu_only=cpu_only, fractions=fractions
    ).trace


def import_rows(
    paths: Sequence[Path | str],
    format_name: str | None = None,
    *,
    options: ReadOptions | None = None,
    origin: str = "week",
    cpu_only: str = "",
    fractions: str = KEEP,
) -> Imported:
    """Returns the trace as `import_trace` does, with each rejected row. Raises InputError."""
    files = [Path(p) for p in paths]
    rows = _rows_of(files, format_name, options, origin)
    name = trace_name(files[0]) if len(files) == 1 else f"{trace_name(files[0])}+{len(files) - 1}"
    found = assembled(rows, name, _where(files), cpu_only=cpu_only, fractions=fractions)
    clock = (rows.origin_s, options.timezone if options else "")
    return with_record(found, files, format_name or sniff(files[0]), *clock)


def import_apart(
    paths: Sequence[Path | str],
    format_name: str | None = None,
    *,
    options: ReadOptions | None = None,
    origin: str = "week",
    cpu_only: str = "",
    fractions: str = KEEP,
) -> dict[str, Trace]:
    """Returns one trace per virtual cluster by name, with one time 0. Raises InputError."""
    parts = import_rows_apart(
        paths, format_name, options=options, origin=origin, cpu_only=cpu_only, fractions=fractions
    )
    return {name: part.trace for name, part in parts.items()}


def import_rows_apart(
    paths: Sequence[Path | str],
    format_name: str | None = None,
    *,
    options: ReadOptions | None = None,
    origin: str = "week",
    cpu_only: str = "",
    fractions: str = KEEP,
) -> dict[str, Imported]:
    """Returns the traces as `import_apart` does, with each rejected row. Raises InputError.

    Rows that were rejected before their virtual cluster was known are with the first of them.

    The virtual cluster of a rejected row is unknown, so each trace counts these rows under
    `whole import, ...`, as well as the virtual clusters that have no usable job.
    """
    files = [Path(p) for p in paths]
    whole = _rows_of(files, format_name, options, origin)
    queue = pl.col("queue").fill_null("") if "queue" in whole.frame.columns else pl.lit("")
    counts = Counter({f"whole import, {reason}": n for reason, n in whole.counts.items()})
    parts = whole.frame.with_columns(queue.alias("queue")).partition_by(
        "queue", maintain_order=True
    )
    apart: dict[str, Imported] = {}
    before = tuple(whole.refused)
    for part in sorted(parts, key=lambda p: str(p["queue"][0])):
        name = str(part["queue"][0]) or "none"
        try:
            rows = replace(whole, frame=part, read=part.height, counts=Counter(), refused=before)
            treated = assembled(rows, name, _where(files), cpu_only=cpu_only, fractions=fractions)
            apart[name] = treated
            before = ()
        except InputError:
            counts[f"whole import, rejected: virtual cluster {name} without a usable job"] += (
                part.height
            )
    if not apart:
        raise InputError(_where(files), "no virtual cluster has a usable job")
    shared = {k: n for k, n in counts.items() if n}
    kind = format_name or sniff(files[0])
    return {
        name: with_record(
            replace(part, trace=replace(part.trace, counts={**part.trace.counts, **shared})),
            files,
            kind,
            whole.origin_s,
            options.timezone if options else "",
        )
        for name, part in apart.items()
    }


def with_record(
    imported: Imported,
    files: Sequence[Path],
    format_name: str,
    epoch_s: float | None = None,
    zone: str = "",
) -> Imported:
    """Returns the import with its record in the trace; a canonical file keeps the one it has.

    `epoch_s` is the Unix time of second 0, if known.
    """
    trace = imported.trace
    if format_name == CANONICAL:
        return imported
    loss = loss_of(imported)
    record = ImportRecord(
        source_name(files),
        format_name,
        trace.counts,
        gpu_seconds(trace),
        loss.gpu_s,
        imported.notes,
        epoch_s,
        zone,
        fitting_cluster(gpu_type_rows(trace)),
    )
    return replace(imported, trace=replace(trace, imported=record))


def _where(files: list[Path]) -> str:
    return ", ".join(map(str, files[:3])) + (
        f" and {len(files) - 3} more" if len(files) > 3 else ""
    )


def _rows_of(
    files: list[Path], format_name: str | None, options: ReadOptions | None, origin: str
) -> Rows:
    parts = _read_all(files, format_name, options or ReadOptions())
    return _merged(_on_one_clock(parts, origin), files)


def _read_all(files: list[Path], format_name: str | None, options: ReadOptions) -> list[Rows]:
    if not files:
        raise InputError("import", "the list of files is empty")
    if options.timezone:
        check_zone(options.timezone)
    name = format_name or sniff(files[0])
    if name == CANONICAL:
        return [canonical_rows(path) for path in files]
    known = format_called(name)
    if known.join is not None:
        return [known.join(files, options)]
    return [known.read(path, options) for path in files]


def _on_one_clock(parts: list[Rows], origin: str) -> list[Rows]:
    """Returns the parts with `submit_s` relative to one time 0; times without a date stay."""
    if origin not in ORIGINS:
        raise InputError(f"origin '{origin}'", "is unknown", nearest(origin, ORIGINS))
    starts = [
        part.epoch_s + float(part.frame["submit_s"].min() or 0.0)  # type: ignore[arg-type]
        for part in parts
        if part.epoch_s is not None
    ]
    # A single file with times relative to its own start (epoch above zero) keeps them.
    elapsed = len(parts) == 1 and parts[0].epoch_s != 0.0
    if not starts or elapsed:
        return parts
    if len(starts) < len(parts):
        raise InputError(
            "import", "some files have dates and some do not", "import them separately"
        )
    zero = 0.0 if origin == "keep" else min(starts)
    if origin == "week":
        zero = monday_before(zero, parts[starts.index(zero)].zone_offset_s)
    return [_shifted(part, zero) for part in parts]


def _shifted(part: Rows, zero_s: float) -> Rows:
    """Returns the part with times that count from a Unix time."""
    by_s = float(part.epoch_s or 0.0) - zero_s
    columns = [c for c in CLOCK_TIMES if c in part.frame.columns]
    frame = part.frame.with_columns(pl.col(c) + by_s for c in columns)
    return replace(part, frame=frame, epoch_s=None, origin_s=zero_s)


def _merged(parts: list[Rows], files: list[Path]) -> Rows:
    """Returns all parts as one; if files share ids, prefixes each id with the file name."""
    if len(parts) == 1:
        return parts[0]
    ids = pl.concat([part.frame["job_id"].unique() for part in parts])
    frames = [_with_queue(part.frame, path) for part, path in zip(parts, files, strict=True)]
    if ids.is_duplicated().any():
        frames = [
            frame.with_columns((pl.lit(f"{trace_name(path)}:") + pl.col("job_id")).alias("job_id"))
            for frame, path in zip(frames, files, strict=True)
        ]
    counts: Counter[str] = Counter()
    for part in parts:
        counts.update(part.counts)
        # Files need not be in order of time: only the order within a file matters.
        counts[adjusted(OUT_OF_ORDER)] += late(part.frame["submit_s"])
    frame = pl.concat(frames, how="diagonal_relaxed").sort("submit_s", maintain_order=True)
    refused = [
        refused.with_columns(pl.lit(str(path)).alias("file"))
        for part, path in zip(parts, files, strict=True)
        for refused in part.refused
    ]
    notes = tuple(dict.fromkeys(note for part in parts for note in part.notes))
    return Rows(
        frame,
        sum(p.read for p in parts),
        counts,
        refused=refused,
        notes=notes,
        beside_gpus=all(part.beside_gpus for part in parts),
        imported=joined_records([part.imported for part in parts]),
        origin_s=parts[0].origin_s,
    )


def _with_queue(frame: pl.DataFrame, path: Path) -> pl.DataFrame:
    """Returns the frame with its file, which is also the queue if there are no virtual clusters."""
    file = pl.lit(str(path)).alias("file")
    if "queue" in frame.columns:
        return frame.with_columns(file)
    return frame.with_columns(file, pl.lit(trace_name(path)).alias("queue"))

"""The timeline: the jobs on each GPU over time, as a file for Perfetto (ui.perfetto.dev).

A group of tracks is a node, a track is a GPU, a slice is a job on it with its arguments;
switching is a slice of its own; counters show waiting and running jobs, held and present GPUs.
Times are nanoseconds from the first submission. Written in Perfetto's native format, which has
whole nanoseconds, ordered tracks and units; the older JSON has none of them. Nodes and GPUs
are plain tracks, not processes and threads: those show invented process numbers beside names.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import polars as pl

from dovetail.record import perfetto
from dovetail.record.result import RunResult
from dovetail.record.seats import seats

CLUSTER_UUID = 1
ARGUMENTS = ("job", "gpus", "gpus_on_node", "rate", "user", "model")
COUNTERS = (
    ("waiting", "waiting jobs", "jobs"),
    ("running", "running jobs", "jobs"),
    ("held_gpus", "held GPUs", "GPUs"),
    ("capacity_gpus", "GPUs present", "GPUs"),
)
_CHUNK_BYTES = 1 << 20


def write_timeline(result: RunResult, path: Path | str) -> None:
    """Writes the timeline of a run to `path`, compressed if the name ends in `.gz`.

    The same result gives the same bytes. Perfetto opens both forms.
    """
    with _opened(Path(path)) as file:
        chunk = bytearray()
        for packet in timeline_packets(result):
            chunk += packet
            if len(chunk) >= _CHUNK_BYTES:
                file.write(chunk)
                chunk.clear()
        file.write(chunk)


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    with path.open("wb") as raw:
        if path.suffix != ".gz":
            yield raw
            return
        # A name or a date in the header would make two equal runs differ.
        with gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed:
            yield packed  # type: ignore[misc]


def timeline_packets(result: RunResult) -> Iterator[bytes]:
    """Yields the packets of the timeline: names, then counters, then each GPU."""
    spans = result.spans.filter(pl.col("end_s") > pl.col("start_s"))
    people = result.jobs["user"].drop_nulls().unique(maintain_order=True).to_list()
    models = result.jobs["model"].drop_nulls().unique(maintain_order=True).to_list()
    shared = list(dict.fromkeys([*people, *models]))
    names = perfetto.Names(ARGUMENTS, shared, ("run", "switch"))
    yield names.packet()
    yield from _counter_packets(result)
    yield from _slice_packets(result, spans, _bodies(result, spans, names))


def _counter_packets(result: RunResult) -> Iterator[bytes]:
    title, origin_s = f"cluster under {result.policy}", result.origin_s
    yield perfetto.group_track(CLUSTER_UUID, title, 0)
    for rank, (column, name, unit) in enumerate(COUNTERS):
        uuid = CLUSTER_UUID + 1 + rank
        yield perfetto.counter_track(uuid, CLUSTER_UUID, name, unit, rank)
        changed = result.series.filter(pl.col(column).ne_missing(pl.col(column).shift(1)))
        for t_s, value in changed.select("t_s", column).drop_nulls().iter_rows():
            yield perfetto.counter_value(_ns(t_s - origin_s), uuid, value)


def _bodies(result: RunResult, spans: pl.DataFrame, names: perfetto.Names) -> list[bytes]:
    """Returns the body of the slices of each stay; a stay on many GPUs repeats it on each."""
    jobs = result.jobs.select("job_id", "user", "model", pl.col("gpus").alias("requested"))
    rows = spans.join(jobs, on="job_id", how="left", maintain_order="left")
    bodies = []
    for job, gpus, rate, kind, user, model, requested in rows.select(
        "job_id", "gpus", "rate", "kind", "user", "model", "requested"
    ).iter_rows():
        arguments: dict[str, perfetto.Value] = {
            "job": job,
            "gpus": gpus if requested is None else requested,
            "gpus_on_node": gpus,
        }
        if kind == "run":
            arguments["rate"] = rate if rate is not None else 0.0
        arguments |= {k: v for k, v in (("user", user), ("model", model)) if v}
        # Perfetto colours slices by their name without its digits: the model tells them apart.
        title = f"{job} {model or user or ''}".rstrip() if kind == "run" else "switching"
        bodies.append(names.slice_body(title, kind, arguments))
    return bodies


def _slice_packets(result: RunResult, spans: pl.DataFrame, bodies: list[bytes]) -> Iterator[bytes]:
    sizes, origin_s = result.node_gpus, result.origin_s
    start_s, end_s = spans["start_s"].to_list(), spans["end_s"].to_list()
    stays: dict[tuple[int, int], list[int]] = {
        (n, g): [] for n, k in enumerate(sizes) for g in range(k)
    }
    for row, (node, ids) in enumerate(zip(spans["node"], seats(spans, sizes), strict=True)):
        for gpu in ids:
            stays.setdefault((node, gpu), []).append(row)
    # Perfetto orders groups as text, so numbers need the same width.
    digits = len(str(max((node for node, _ in stays), default=0)))
    uuid, group, grouped = CLUSTER_UUID + len(COUNTERS), 0, -1
    for (node, gpu), rows in sorted(stays.items()):
        if node != grouped:
            uuid += 1
            group, grouped = uuid, node
            yield perfetto.group_track(group, f"node {node:0{digits}}", node + 1)
        rows.sort(key=lambda r: (start_s[r], r))
        for lane, held in enumerate(_lanes(rows, start_s, end_s)):
            uuid += 1
            name = f"GPU {gpu}" if not lane else f"GPU {gpu}, beside"
            yield perfetto.row_track(uuid, group, name, LANES_MAX * gpu + lane)
            for row in held:
                yield perfetto.slice_begin(_ns(start_s[row] - origin_s), uuid, bodies[row])
                yield perfetto.slice_end(_ns(end_s[row] - origin_s), uuid)


LANES_MAX = 64
"""The most jobs side by side on one GPU in the order of tracks."""


def _lanes(rows: list[int], start_s: list[float], end_s: list[float]) -> list[list[int]]:
    """Returns the stays of one GPU in rows without overlap: jobs that share it are in several."""
    lanes: list[list[int]] = [[]]
    for row in rows:
        for lane in lanes:
            if not lane or end_s[lane[-1]] <= start_s[row]:
                lane.append(row)
                break
        else:
            lanes.append([row])
    return lanes


def _ns(since_s: float) -> int:
    return max(0, round(since_s * 1e9))

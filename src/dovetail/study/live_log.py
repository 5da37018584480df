"""The log of a live cluster as an event log like any other, and the same jobs simulated.

The store says what happened; what a simulation needs besides is how long each job is alone on the
GPUs it asked for. That is the progress it had made when it was over, in solo seconds; of a job
that is not over yet, what its owner declared, or the progress so far.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl

from dovetail.core.errors import InputError
from dovetail.core.policy import parse_policy, spell
from dovetail.core.trace import Trace
from dovetail.live.durable.folder import Folder
from dovetail.live.durable.queries import Queries, Reader
from dovetail.live.lifecycle import TERMINAL
from dovetail.live.record import JobRecord
from dovetail.record.log import VERSION
from dovetail.study.replay import read_recording
from dovetail.study.run import simulate
from dovetail.wire.spec import JobSpec
from dovetail.workload.canonical import write_trace


def is_cluster(path: Path) -> bool:
    """Returns whether a path is the folder of a live cluster."""
    return path.is_dir() and Folder(path).store.is_file()


def log_lines(reader: Queries) -> Iterator[str]:
    """Yields the lines of the event log of a live cluster. Raises InputError if it has none."""
    said = reader.meta("manifest")
    if said is None:
        raise InputError("store", "no controller ever ran on it")
    header = {"log": "dovetail", "version": VERSION, "manifest": json.loads(said)}
    yield json.dumps(header)
    for line in reader.all_facts():
        if '"e":"submitted"' in line:
            fact = json.loads(line)
            fact["work_s"] = _work_s(reader, int(fact["job"]))
            line = json.dumps(fact, separators=(",", ":"))
        yield line
    yield '{"e":"closed"}'


def _work_s(reader: Queries, number: int) -> float | None:
    found = reader.find(number)
    return None if found is None else work_s(*found)


def work_s(spec: JobSpec, record: JobRecord) -> float | None:
    """Returns the length of a job alone on the GPUs it asked for, None if nobody knows it yet."""
    if record.state in TERMINAL and record.done_s > 0:
        return record.done_s
    return spec.duration_s or record.done_s or None


def export_log(home: Path, out: Path) -> int:
    """Writes the event log of a live cluster; returns its number of lines. Raises InputError."""
    with Reader(Folder(home).store) as reader:
        return write_log(reader, out)


def write_log(reader: Queries, out: Path) -> int:
    """Writes the event log of a store that is open; returns its number of lines."""
    written = 0
    with out.open("w", encoding="utf-8") as file:
        for line in log_lines(reader):
            file.write(line + "\n")
            written += 1
    return written


@contextmanager
def exported(path: Path) -> Iterator[Path]:
    """Gives the event log of a path: itself, or that of a live cluster for the while."""
    if not is_cluster(path):
        yield path
        return
    with TemporaryDirectory() as folder:
        log = Path(folder) / "events.jsonl"
        export_log(path, log)
        yield log


def export_trace(home: Path, out: Path) -> int:
    """Writes the jobs of a live cluster that ran and are over as a canonical trace; how many.

    Of a job that was cancelled before it ran nobody knows how long it is.
    """
    with exported(home) as log:
        recording = read_recording(log)
    jobs = recording.jobs()
    ran = jobs["start_s"].is_finite() & jobs["finish_s"].is_not_null()
    over = np.flatnonzero(ran.fill_null(False).to_numpy())
    if not len(over):
        raise InputError(str(home), "no job that ran is over yet")
    write_trace(_restricted(recording.trace, over), out)
    return len(over)


@dataclass(frozen=True, slots=True)
class Prediction:
    """One job as it went and as the simulator says it should have gone."""

    job: str
    real_jct_s: float
    predicted_jct_s: float


@dataclass(frozen=True, slots=True)
class Compared:
    """How well a simulation of the same jobs foretells what happened."""

    policy: str
    jobs: tuple[Prediction, ...]
    real_jct_s: float
    predicted_jct_s: float
    real_makespan_s: float
    predicted_makespan_s: float


def predict(log: Path, policy: str = "") -> Compared:
    """Returns the completed jobs of an exported log as they went, and simulated anew.

    The simulator is given the lengths that the jobs turned out to have. Raises InputError.
    """
    recording = read_recording(log)
    real = recording.jobs()
    rows = np.flatnonzero((real["end"] == "completed").to_numpy())
    if not len(rows):
        raise InputError("live cluster", "no job has completed yet", "wait for one")
    trace = _restricted(recording.trace, rows)
    chosen = parse_policy(policy or str(recording.manifest["policy"]))
    # What was declared on the live cluster is known to the simulator: the lengths are real ones.
    options = replace(recording.options, forecast="known", belief="exact")
    return _compared(spell(chosen), real, simulate(trace, chosen, options).jobs)


def _restricted(trace: Trace, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Trace:
    return Trace.of(trace.jobs.take(rows), trace.duration_s[rows], trace.name)


def _compared(policy: str, real: pl.DataFrame, simulated: pl.DataFrame) -> Compared:
    both = simulated.select("job_id", "jct_s", "submit_s", "finish_s").join(
        real.select("job_id", "jct_s", "finish_s"), on="job_id", suffix="_real"
    )
    jobs = tuple(
        Prediction(row["job_id"], row["jct_s_real"], row["jct_s"])
        for row in both.iter_rows(named=True)
        if row["jct_s"] is not None and row["jct_s_real"] is not None
    )
    first = float(both["submit_s"].min() or 0.0)  # type: ignore[arg-type]
    return Compared(
        policy,
        jobs,
        float(np.mean([j.real_jct_s for j in jobs])),
        float(np.mean([j.predicted_jct_s for j in jobs])),
        float(both["finish_s_real"].max() or 0.0) - first,  # type: ignore[arg-type]
        float(both["finish_s"].max() or 0.0) - first,  # type: ignore[arg-type]
    )

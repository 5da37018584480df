"""Exports the history of a live cluster as an event log and as a trace.

A simulation also needs the length of each job when it runs alone on the GPUs it requests. For an
ended job that is its progress in solo seconds; for a live job, its declared duration, or its
progress so far.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import numpy as np

from dovetail.core.errors import InputError
from dovetail.core.trace import ENDS
from dovetail.live.jobs.lifecycle import TERMINAL
from dovetail.live.jobs.record import JobRecord
from dovetail.live.serving.period import LogPeriod
from dovetail.live.store.database import DAMAGED_FILE
from dovetail.live.store.folder import Folder
from dovetail.live.store.queries import Queries, StoreReader
from dovetail.record.log import VERSION
from dovetail.replaying.decisions import (
    LogRecord,
    in_order,
    options_of,
    read_recording,
    trace_of,
)
from dovetail.study.run import build_physics
from dovetail.traces.canonical import write_trace
from dovetail.wire.spec import JobSpec


def is_cluster(path: Path) -> bool:
    """True if a path is the folder of a live cluster."""
    return path.is_dir() and Folder(path).store.is_file()


def called_in(path: Path) -> dict[str, str]:
    """Returns the name for users of each job of a live cluster, by its name in the log.

    Empty for any other log, where jobs have the names of their trace.
    """
    if not is_cluster(path):
        return {}
    with StoreReader(Folder(path).store) as reader:
        numbers = (number for number, _ in reader.states())
        return {str(number): name for number, name in reader.called(numbers).items()}


def log_lines(reader: Queries) -> Iterator[str]:
    """Yields the lines of the event log of a live cluster, from the last change of its nodes.

    Raises InputError for a cluster without a log.
    """
    text = reader.meta("manifest")
    if text is None:
        raise InputError("store", "no controller has run on it")
    period = LogPeriod.of(reader)
    manifest: LogRecord = {**json.loads(text), "policies": period.policies}
    yield json.dumps({"log": "dovetail", "version": VERSION, "manifest": manifest})
    additions = _additions(reader, period, manifest)
    for line in reader.all_facts(period.after):
        if '"e":"submitted"' in line:
            fact = _fact(line)
            more = additions.get(str(fact["job"]), {})
            line = json.dumps({**fact, **more}, separators=(",", ":"))
        yield line
    yield '{"e":"closed"}'


def _fact(line: str) -> LogRecord:
    """Returns the record of a line of the store. Raises InputError."""
    try:
        fact = json.loads(line)
        return {**fact, "e": str(fact["e"])}
    except (ValueError, KeyError, TypeError):
        what = f"a line of its log is damaged: {line[:60]!r}"
        raise InputError("store", what, DAMAGED_FILE) from None


def _additions(
    reader: Queries, period: LogPeriod, manifest: LogRecord
) -> Mapping[str, dict[str, object]]:
    """Returns the fields to add to the submission of each job: length, dependencies and scale."""
    requests, solo = _requests(reader, period)
    additions: dict[str, dict[str, object]] = {}
    alone = solo.ran_alone()
    models = {requests[name].get("model") for name in alone} - {None}
    for name in requests:
        stored = reader.job(int(name))
        if stored is None:
            continue
        spec, record = stored.spec, stored.record
        fields: dict[str, object] = {"work_s": work_s(spec, record)}
        if spec.after:
            fields["after"] = [[x.kind, x.job] for x in spec.after]
        if spec.at_once:
            fields["limited"] = str(spec.array_of)
        measured = name in alone or requests[name].get("model") in models
        if not (measured or spec.paced or spec.duration_s) and name in solo.ran:
            fields["guessed"] = True
        additions[name] = fields
    for name, scale in _scales([*requests.values()], manifest).items():
        additions.setdefault(name, {})["scale"] = scale
    return additions


def _requests(reader: Queries, period: LogPeriod) -> tuple[dict[str, LogRecord], _SoloJobs]:
    """Returns the first submission of each job, and the jobs that ran alone. Raises InputError."""
    requests: dict[str, LogRecord] = {}
    solo = _SoloJobs()
    for line in reader.all_facts(period.after):
        fact = _fact(line)
        name = fact.get("job")
        if fact["e"] == "submitted":
            requests.setdefault(str(name), fact)
        elif name is not None and name not in requests:
            raise InputError(
                "store",
                f"job {name} was active when the nodes of this cluster changed",
                "wait for all jobs to end before you change the nodes, or use another --home",
            )
        solo.update(fact)
    return requests, solo


def _scales(requests: list[LogRecord], manifest: LogRecord) -> dict[str, float]:
    """Returns the speed-up of each job over one GPU by its profile."""
    if not requests:
        return {}
    trace = trace_of("live", in_order(requests, live=True))
    truth = build_physics(trace, options_of(manifest))
    return {name: truth.structure.scale(row) for row, name in enumerate(trace.jobs.job_id)}


@dataclass(slots=True)
class _SoloJobs:
    """Tracks which jobs ever had all their GPUs to themselves, from the facts in order."""

    now: float = 0.0
    ran: set[str] = field(default_factory=set)
    _alone: set[str] = field(default_factory=set)
    _gpus: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    _jobs: dict[tuple[int, int], set[str]] = field(default_factory=dict)
    _changed: set[str] = field(default_factory=set)

    def update(self, fact: LogRecord) -> None:
        """Applies the next fact."""
        t = cast(float, fact["t"])
        if t > self.now:
            self._check_changed()
            self.now = t
        if fact["e"] in ("started", "shrunk"):
            self._remove(str(fact["job"]))
            self._place(fact)
        elif fact["e"] in ("stopped", "ended"):
            self._remove(str(fact["job"]))

    def ran_alone(self) -> set[str]:
        """Returns the jobs that were alone for some time."""
        self._check_changed()
        return self._alone

    def _place(self, fact: LogRecord) -> None:
        job, ids = str(fact["job"]), cast("Sequence[Sequence[int]]", fact.get("gpu_ids", ()))
        on = cast("Sequence[tuple[int, int]]", fact["on"])
        spans = zip(on, ids, strict=True) if ids else ()
        self._gpus[job] = [(node, gpu) for (node, _), gpus in spans for gpu in gpus]
        self.ran.add(job)
        self._changed.add(job)
        for gpu in self._gpus[job]:
            self._jobs.setdefault(gpu, set()).add(job)

    def _remove(self, job: str) -> None:
        for gpu in self._gpus.pop(job, ()):
            self._jobs[gpu].discard(job)
            self._changed |= self._jobs[gpu]

    def _check_changed(self) -> None:
        """Notes which jobs are alone after the last instant, of those whose neighbours changed."""
        for job in self._changed:
            if job in self._gpus and all(len(self._jobs[gpu]) == 1 for gpu in self._gpus[job]):
                self._alone.add(job)
        self._changed.clear()


def work_s(spec: JobSpec, record: JobRecord) -> float | None:
    """Returns the length of a job alone on the GPUs it requests, None if unknown."""
    if record.state in TERMINAL and record.done_s > 0:
        return record.done_s
    return spec.duration_s or record.done_s or None


def export_log(home: Path, out: Path) -> int:
    """Writes the event log of a live cluster; returns its number of lines. Raises InputError."""
    with StoreReader(Folder(home).store) as reader:
        return write_log(reader, out)


def write_log(reader: Queries, out: Path) -> int:
    """Writes the event log of an open store; returns its number of lines. Raises InputError."""
    lines = 0
    with out.open("w", encoding="utf-8") as file:
        for line in log_lines(reader):
            file.write(line + "\n")
            lines += 1
    return lines


@contextmanager
def exported(path: Path) -> Iterator[Path]:
    """Yields the event log of a path: the path itself, or a temporary export of a live cluster.

    Raises InputError.
    """
    if not is_cluster(path):
        if path.is_dir():
            mend = "specify an event log, such as events.jsonl, or the folder of a live cluster"
            raise InputError(str(path), "is a folder, but not that of a live cluster", mend)
        yield path
        return
    with TemporaryDirectory() as folder:
        log = Path(folder) / "events.jsonl"
        export_log(path, log)
        yield log


@dataclass(frozen=True, slots=True)
class Exported:
    """The number of jobs in an exported trace, and the jobs whose length is a guess."""

    jobs: int
    guessed: tuple[str, ...]


def export_trace(home: Path, out: Path) -> Exported:
    """Writes the ended jobs of a live cluster as a canonical trace. Raises InputError.

    Leaves out jobs that never ran, as their length is unknown.
    """
    with exported(home) as log:
        recording = read_recording(log)
    jobs = recording.jobs()
    ran = jobs["start_s"].is_finite() & jobs["finish_s"].is_not_null()
    over = np.flatnonzero(ran.fill_null(False).to_numpy())
    over = over[np.argsort(jobs["submit_s"].to_numpy()[over], kind="stable")]
    if not len(over):
        raise InputError(str(home), "no job has run and ended yet")
    ends = [ENDS.index(how) for how in jobs["end"].to_numpy()[over]]
    trace = replace(recording.last_asked.take(over), end=np.array(ends, np.int8))
    write_trace(trace, out)
    known = set(trace.jobs.job_id)
    return Exported(len(over), tuple(job for job in recording.guessed if job in known))

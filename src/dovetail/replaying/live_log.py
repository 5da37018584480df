"""The log of a live cluster as an event log like any other, and its jobs as a trace.

The store says what happened; what a simulation needs besides is how long each job is alone on the
GPUs it asked for. That is the progress it had made when it was over, in solo seconds; of a job
that is not over yet, what its owner declared, or the progress so far.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from dovetail.core.errors import InputError
from dovetail.core.trace import ENDS
from dovetail.live.jobs.lifecycle import TERMINAL
from dovetail.live.jobs.record import JobRecord
from dovetail.live.serving.period import Period
from dovetail.live.store.database import DAMAGED_FILE
from dovetail.live.store.folder import Folder
from dovetail.live.store.queries import Queries, Reader
from dovetail.record.log import VERSION
from dovetail.replaying.decisions import in_order, options_of, read_recording, trace_of
from dovetail.study.run import build_physics
from dovetail.traces.canonical import write_trace
from dovetail.wire.spec import JobSpec


def is_cluster(path: Path) -> bool:
    """Returns whether a path is the folder of a live cluster."""
    return path.is_dir() and Folder(path).store.is_file()


def called_in(path: Path) -> dict[str, str]:
    """Returns how users call the jobs of a live cluster, by their names in its log.

    Of any other log there is nothing to say: its jobs have the names of their trace.
    """
    if not is_cluster(path):
        return {}
    with Reader(Folder(path).store) as reader:
        numbers = (number for number, _ in reader.states())
        return {str(number): name for number, name in reader.called(numbers).items()}


def log_lines(reader: Queries) -> Iterator[str]:
    """Yields the lines of the event log of a live cluster, since its nodes are what they are.

    Raises InputError if it has none.
    """
    said = reader.meta("manifest")
    if said is None:
        raise InputError("store", "no controller ever ran on it")
    period = Period.of(reader)
    manifest = {**json.loads(said), "policies": period.policies}
    yield json.dumps({"log": "dovetail", "version": VERSION, "manifest": manifest})
    known = _known(reader, period, manifest)
    for line in reader.all_facts(period.after):
        if '"e":"submitted"' in line:
            fact = _fact(line)
            line = json.dumps({**fact, **known.get(fact["job"], {})}, separators=(",", ":"))
        yield line
    yield '{"e":"closed"}'


def _fact(line: str) -> dict[str, Any]:
    try:
        fact = json.loads(line)
        return {**fact, "e": str(fact["e"])}
    except (ValueError, KeyError, TypeError):
        what = f"a line of its log is damaged: {line[:60]!r}"
        raise InputError("store", what, DAMAGED_FILE) from None


def _known(
    reader: Queries, period: Period, manifest: dict[str, Any]
) -> Mapping[str, dict[str, Any]]:
    """Returns what is known of each job only now: its length, if that is a guess, its scale."""
    requests: dict[str, dict[str, Any]] = {}
    company = _Company()
    for line in reader.all_facts(period.after):
        fact = _fact(line)
        name = fact.get("job")
        if fact["e"] == "submitted":
            requests.setdefault(str(name), fact)
        elif name is not None and name not in requests:
            raise InputError(
                "store",
                f"job {name} was under way when the nodes of this cluster became others",
                "let jobs end before you bring it up on other nodes, or give each its own --home",
            )
        company.hear(fact)
    known: dict[str, dict[str, Any]] = {}
    alone = company.ran_alone()
    models = {requests[name].get("model") for name in alone} - {None}
    for name in requests:
        found = reader.find(int(name))
        if found is not None:
            known[name] = {"work_s": work_s(*found)}
            if found[0].after:
                known[name]["after"] = [[x.kind, x.job] for x in found[0].after]
            if found[0].at_once:
                known[name]["limited"] = str(found[0].array_of)
            measured = name in alone or requests[name].get("model") in models
            if not (measured or found[0].paced or found[0].duration_s) and name in company.ran:
                known[name]["guessed"] = True
    for name, scale in _scales([*requests.values()], manifest).items():
        known.setdefault(name, {})["scale"] = scale
    return known


def _scales(requests: list[dict[str, Any]], manifest: dict[str, Any]) -> dict[str, float]:
    """Returns the speed-up of each job over one GPU, as profiles have it."""
    if not requests:
        return {}
    trace = trace_of("live", in_order(requests, live=True))
    truth = build_physics(trace, options_of(manifest))
    return {name: truth.structure.scale(row) for row, name in enumerate(trace.jobs.job_id)}


@dataclass(slots=True)
class _Company:
    """Who was ever alone on the GPUs it had, by the facts of a log in order."""

    now: float = 0.0
    ran: set[str] = field(default_factory=set)
    _alone: set[str] = field(default_factory=set)
    _gpus: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    _jobs: dict[tuple[int, int], set[str]] = field(default_factory=dict)
    _since: set[str] = field(default_factory=set)

    def hear(self, fact: dict[str, Any]) -> None:
        """Hears the next fact."""
        if fact["t"] > self.now:
            self._look()
            self.now = fact["t"]
        if fact["e"] in ("started", "shrunk"):
            self._leave(fact["job"])
            self._sit(fact)
        elif fact["e"] in ("stopped", "ended"):
            self._leave(fact["job"])

    def ran_alone(self) -> set[str]:
        """Returns those that were alone for a while."""
        self._look()
        return self._alone

    def _sit(self, fact: dict[str, Any]) -> None:
        job, ids = fact["job"], fact.get("gpu_ids", [])
        spans = zip(fact["on"], ids, strict=True) if ids else ()
        self._gpus[job] = [(node, gpu) for (node, _), named in spans for gpu in named]
        self.ran.add(job)
        self._since.add(job)
        for gpu in self._gpus[job]:
            self._jobs.setdefault(gpu, set()).add(job)

    def _leave(self, job: str) -> None:
        for gpu in self._gpus.pop(job, ()):
            self._jobs[gpu].discard(job)
            self._since |= self._jobs[gpu]

    def _look(self) -> None:
        """Notes who of those whose company changed is alone from the last instant on."""
        for job in self._since:
            if job in self._gpus and all(len(self._jobs[gpu]) == 1 for gpu in self._gpus[job]):
                self._alone.add(job)
        self._since.clear()


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
        if path.is_dir():
            mend = "give an event log, as events.jsonl of a run, or the folder of a live cluster"
            raise InputError(str(path), "is a folder, and of no live cluster", mend)
        yield path
        return
    with TemporaryDirectory() as folder:
        log = Path(folder) / "events.jsonl"
        export_log(path, log)
        yield log


@dataclass(frozen=True, slots=True)
class Exported:
    """The jobs that were written as a trace, and those of them whose length is a guess."""

    jobs: int
    guessed: tuple[str, ...]


def export_trace(home: Path, out: Path) -> Exported:
    """Writes the jobs of a live cluster that ran and are over as a canonical trace.

    Of a job that was cancelled before it ran nobody knows how long it is.
    """
    with exported(home) as log:
        recording = read_recording(log)
    jobs = recording.jobs()
    ran = jobs["start_s"].is_finite() & jobs["finish_s"].is_not_null()
    over = np.flatnonzero(ran.fill_null(False).to_numpy())
    over = over[np.argsort(jobs["submit_s"].to_numpy()[over], kind="stable")]
    if not len(over):
        raise InputError(str(home), "no job that ran is over yet")
    ends = [ENDS.index(how) for how in jobs["end"].to_numpy()[over]]
    trace = replace(recording.last_asked.take(over), end=np.array(ends, np.int8))
    write_trace(trace, out)
    known = set(trace.jobs.job_id)
    return Exported(len(over), tuple(job for job in recording.guessed if job in known))

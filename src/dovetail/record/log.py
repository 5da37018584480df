"""The event log: a header line with the manifest, then one JSON object per fact.

Metrics, plots, `why` and replay are all computed from the log. The format is versioned; a reader
rejects an unknown version. The last line is a `closed` record, so that a truncated log is detected.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from dovetail.core.beliefs import Physics
from dovetail.core.errors import IllegalPlan, InputError
from dovetail.core.job import LABELS, JobTable
from dovetail.core.messages import (
    READY,
    RECOVERING,
    ControllerChanged,
    Ended,
    Explained,
    Fact,
    Foreseen,
    Learned,
    Measured,
    NodeChanged,
    Reason,
    Refused,
    Retimed,
    Shrunk,
    Started,
    Stopped,
    Submitted,
    Switched,
    Withdrawn,
    Woke,
)
from dovetail.core.placement import Interleave, Placement
from dovetail.core.trace import Trace

VERSION = 2
READABLE = (1, VERSION)
"""Version 1 lacks the `controller` and `learned` records."""
_FLUSH_LINES = 20_000


class LogWriter:
    """Writes facts as lines. The caller opens the file, and calls `close` on success."""

    def __init__(
        self, file: IO[str], trace: Trace, physics: Physics, manifest: dict[str, object]
    ) -> None:
        self._file = file
        self._lines: list[str] = [
            json.dumps({"log": "dovetail", "version": VERSION, "manifest": manifest})
        ]
        self._line = LogLines(trace.jobs, physics, trace.duration_s.tolist()).line

    def record(self, facts: Sequence[Fact]) -> None:
        """Writes the facts of one instant."""
        add, line = self._lines.append, self._line
        for fact in facts:
            add(line(fact))
        if len(self._lines) >= _FLUSH_LINES:
            self._flush()

    def close(self) -> None:
        """Writes the remaining lines and the `closed` record."""
        self._lines.append('{"e":"closed"}')
        self._flush()

    def _flush(self) -> None:
        self._file.write("\n".join(self._lines) + "\n")
        self._lines.clear()


class FactLines:
    """Formats facts as lines of the log.

    `name` returns the id of a job as JSON, `submitted` the line of a submission with its request.
    """

    def __init__(self, name: Callable[[int], str], submitted: Callable[[Submitted], str]) -> None:
        self._name = name
        self._submitted = submitted
        self._spans: dict[Placement, str] = {}

    def line(self, fact: Fact) -> str:
        """Returns the line of one fact, without the line break."""
        kind, name = type(fact), self._name
        if kind is Started:
            started: Started = fact  # type: ignore[assignment]
            where = self._spans.get(started.placement)
            if where is None:
                where = self._spell(started.placement)
            return (
                f'{{"t":{started.t!r},"e":"started","job":{name(started.job)},'
                f'"how":"{started.how}",{where},"rate":{started.rate!r},"from":{started.from_s!r}'
                + (f',"preparing":{started.preparing}}}' if started.preparing else "}")
            )
        if kind is Submitted:
            return self._submitted(fact)  # type: ignore[arg-type]
        if kind is Ended:
            return f'{{"t":{fact.t!r},"e":"ended","job":{name(fact.job)},"how":"{fact.how}"}}'  # type: ignore[union-attr]
        return self._rare(repr(fact.t), fact)

    def _rare(self, t: str, fact: Fact) -> str:
        name = self._name
        match fact:
            case Stopped(_, job, why, done_s):
                return (
                    f'{{"t":{t},"e":"stopped","job":{name(job)},"why":"{why}","done_s":{done_s!r}}}'
                )
            case Switched(_, job, rate, from_s, preparing):
                return (
                    f'{{"t":{t},"e":"switched","job":{name(job)},"rate":{rate!r},'
                    f'"from":{from_s!r}{_preparing(preparing)}}}'
                )
            case Shrunk(_, job, placement, rate, from_s, preparing):
                return (
                    f'{{"t":{t},"e":"shrunk","job":{name(job)},{self._spell(placement)},'
                    f'"rate":{rate!r},"from":{from_s!r}{_preparing(preparing)}}}'
                )
            case Retimed(_, job, rate):
                return f'{{"t":{t},"e":"retimed","job":{name(job)},"rate":{rate!r}}}'
            case Measured(_, job, done_s, rate):
                return (
                    f'{{"t":{t},"e":"measured","job":{name(job)},"done_s":{done_s!r},'
                    f'"rate":{rate!r}}}'
                )
            case Foreseen(_, job, length_s):
                length = _number(length_s)
                return f'{{"t":{t},"e":"foreseen","job":{name(job)},"length_s":{length}}}'
            case Refused(_, why):
                return f'{{"t":{t},"e":"refused","why":{json.dumps(why)}}}'
            case Withdrawn(_, job):
                return f'{{"t":{t},"e":"withdrawn","job":{name(job)}}}'
            case Explained(_, reasons):
                texts = ",".join(self._reason(r) for r in reasons)
                return f'{{"t":{t},"e":"explained","reasons":[{texts}]}}'
            case Woke():
                return f'{{"t":{t},"e":"woke"}}'
            case NodeChanged(_, node, state):
                return f'{{"t":{t},"e":"node","node":{node},"state":"{state}"}}'
            case Learned():
                return f'{{"t":{t},"e":"learned"}}'
            case ControllerChanged(_, epoch, state, policy):
                under = f',"policy":{json.dumps(policy)}' if policy else ""
                return f'{{"t":{t},"e":"controller","epoch":{epoch},"state":"{state}"{under}}}'
        raise AssertionError(f"unknown fact {fact}")

    def _reason(self, reason: Reason) -> str:
        text = f'{{"code":"{reason.code}"'
        if reason.job >= 0:
            text += f',"job":{self._name(reason.job)}'
        if reason.shape >= 0:
            text += f',"shape":{reason.shape}'
        if reason.behind >= 0:
            text += f',"behind":{self._name(reason.behind)}'
        return text + "}"

    def _spell(self, placement: Placement) -> str:
        text = '"on":[' + ",".join(f"[{n},{g}]" for n, g in placement.spans) + "]"
        if placement.gpu_ids:
            text += f',"gpu_ids":{json.dumps(placement.gpu_ids)}'
        if placement.accumulation_steps > 1:
            text += f',"steps":{placement.accumulation_steps}'
        if placement.fractions:
            text += f',"fractions":{json.dumps(placement.fractions)}'
        if placement.samples:
            text += f',"samples":{json.dumps(placement.samples)}'
        if placement.batch_size:
            text += f',"batch":{placement.batch_size}'
        if placement.interleave is not None:
            text += f',"seat":[{placement.interleave.set_id},{placement.interleave.phase}]'
        if len(self._spans) < 100_000:
            self._spans[placement] = text
        return text


class LogLines:
    """Formats facts on the jobs of a table. `work_s` is the length of each job, inf if unknown."""

    def __init__(self, jobs: JobTable, physics: Physics, work_s: Sequence[float]) -> None:
        self._jobs = jobs
        self._physics = physics
        self._work: list[float] = []
        self._name: list[str] = []
        self._submit: list[float] = []
        self._request: list[str] = []
        self.line = FactLines(self._name.__getitem__, self._submitted).line
        self.admit(work_s)

    def admit(self, work_s: Sequence[float]) -> None:
        """Adds jobs that were appended to the table, with their lengths."""
        known, jobs = len(self._name), self._jobs
        self._work.extend(work_s)
        self._name.extend(json.dumps(jobs.job_id[job]) for job in range(known, len(jobs)))
        self._submit.extend(jobs.submit_s[known:].tolist())
        self._request.extend(_requests(jobs, self._physics, known))

    def _submitted(self, fact: Submitted) -> str:
        t, job = fact.t, fact.job
        late = "" if self._submit[job] == t else f'"submit_s":{self._submit[job]!r},'
        return (
            f'{{"t":{t!r},"e":"submitted","job":{self._name[job]},{late}{self._request[job]},'
            f'"work_s":{_number(self._work[job])},"length_s":{_number(fact.length_s)}}}'
        )


_NUMBER_DEFAULTS: dict[str, float] = {
    "priority": 0.0,
    "batch_size": 0,
    "cpus": 0.0,
    "memory_bytes": 0.0,
    "time_limit_s": float("inf"),
    "deadline_s": float("inf"),
}
_FLAG_DEFAULTS = {"elastic": False, "shareable": False, "preemptible": True}


def _preparing(gpus: int) -> str:
    return f',"preparing":{gpus}' if gpus else ""


def _number(value: float) -> str:
    return repr(value) if value < float("inf") else "null"


def _requests(jobs: JobTable, physics: Physics, first: int) -> list[str]:
    """Returns the JSON of the requests from one job on, without fields that have their default."""
    parts = [f'"gpus":{g}' for g in jobs.gpus[first:].tolist()]
    for name in LABELS:
        labels = getattr(jobs, name)
        codes = labels.codes[first:].tolist()
        texts = {
            c: f',"{name}":{json.dumps(labels.names[c])}' if c >= 0 else ""
            for c in dict.fromkeys(codes)
        }
        parts = [p + texts[c] for p, c in zip(parts, codes, strict=True)]
    for name, default in _NUMBER_DEFAULTS.items():
        parts = _with_field(parts, name, getattr(jobs, name)[first:].tolist(), default)
    for row, job in enumerate(range(first, len(jobs))):
        low, high = int(jobs.min_gpus[job]), int(jobs.max_gpus[job])
        if low != high:
            parts[row] += f',"min_gpus":{low},"max_gpus":{high}'
    for name, flag in _FLAG_DEFAULTS.items():
        parts = _with_field(parts, name, getattr(jobs, name)[first:].tolist(), flag)
    for row, gpus in enumerate(jobs.gpus[first:].tolist()):
        scale = physics.structure.scale(first + row)
        if scale != gpus:
            parts[row] += f',"scale":{scale!r}'
    return parts


def _with_field(
    parts: list[str], name: str, values: Sequence[float | bool], default: float | bool
) -> list[str]:
    """Returns the requests with the values of one field that differ from its default."""
    if all(value == default for value in values):
        return parts
    show = json.dumps if isinstance(default, bool) else repr
    return [
        part + (f',"{name}":{show(value)}' if value != default else "")
        for part, value in zip(parts, values, strict=True)
    ]


def read_log(path: Path) -> tuple[dict[str, object], Iterator[dict[str, object]]]:
    """Returns the manifest and an iterator over the records of a log.

    Raises InputError, also during iteration, for a file that is not a log, has an unknown version
    or is truncated.
    """
    try:
        with path.open(encoding="utf-8") as file:
            header = json.loads(file.readline() or "null")
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(str(path), f"cannot be read as an event log: {reason}") from None
    if not isinstance(header, dict) or header.get("log") != "dovetail":
        raise InputError(f"{path}, line 1", "this is not a dovetail event log")
    if header.get("version") not in READABLE:
        raise InputError(
            f"{path}, line 1",
            f"log version {header.get('version')} is unknown, expected 1 to {VERSION}",
            "read it with the version of dovetail that wrote it",
        )
    if not isinstance(header.get("manifest"), dict):
        raise InputError(f"{path}, line 1", "the log has no manifest")
    return header["manifest"], _records(path)


def _records(path: Path) -> Iterator[dict[str, object]]:
    with path.open(encoding="utf-8", errors="replace") as file:
        number = 1
        for number, line in enumerate(file, start=1):
            if number == 1:
                continue
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                record = None
            if not isinstance(record, dict) or "e" not in record:
                raise InputError(f"{path}, line {number}", "the record is damaged")
            if record.get("e") == "closed":
                return
            yield record
    raise InputError(f"{path}, line {number}", "the log ends early", "the run was cut off")


def fact_of(record: Mapping[str, object], index_of: Mapping[str, int]) -> Fact:
    """Returns the fact of one record of a log; `index_of` maps the ids of jobs to rows.

    Raises InputError for a record with a missing or invalid field.
    """
    try:
        return _fact(record, index_of)
    except (KeyError, TypeError, ValueError, IllegalPlan) as error:
        text = json.dumps(record)[:80]
        raise InputError("event log", f"the record {text} is damaged: {error!r}") from None


class _Fields:
    """Typed access to the fields of a record. Raises KeyError, TypeError or ValueError."""

    def __init__(self, record: Mapping[str, object], index_of: Mapping[str, int]) -> None:
        self._record: Mapping[str, Any] = record
        self._index_of = index_of

    @property
    def t(self) -> float:
        return self.number("t")

    @property
    def job(self) -> int:
        return self.index("job")

    def index(self, name: str) -> int:
        """Returns the row of the job in a field; -1 without one."""
        return self._index_of.get(str(self._record.get(name)), -1)

    def text(self, name: str, default: str | None = None) -> str:
        return str(self._record[name] if default is None else self._record.get(name, default))

    def number(self, name: str) -> float:
        return float(self._record[name])

    def speed(self) -> tuple[float, float]:
        """Returns the rate of a job, and the time from which it makes progress."""
        return self.number("rate"), self.number("from")

    def length_s(self) -> float:
        """Returns the forecast length, inf for null, which means unknown."""
        return float("inf") if self._record["length_s"] is None else self.number("length_s")

    def count(self, name: str, default: int | None = None) -> int:
        value = self._record[name] if default is None else self._record.get(name, default)
        return int(value)

    def placement(self) -> Placement:
        r = self._record
        seat = r.get("seat")
        return Placement(
            tuple((int(n), int(g)) for n, g in r["on"]),
            tuple(tuple(ids) for ids in r.get("gpu_ids", ())),
            self.count("steps", 1),
            tuple(r.get("fractions", ())),
            tuple(r.get("samples", ())),
            Interleave(*seat) if seat else None,
            self.count("batch", 0),
        )

    def reasons(self) -> tuple[Reason, ...]:
        return tuple(
            Reason(
                fields.text("code"),
                fields.index("job"),
                fields.count("shape", -1),
                fields.index("behind"),
            )
            for fields in (_Fields(reason, self._index_of) for reason in self._record["reasons"])
        )


_FACTS: dict[str, Callable[[_Fields], Fact]] = {
    "submitted": lambda r: Submitted(r.t, r.job, r.length_s()),
    "started": lambda r: Started(
        r.t, r.job, r.text("how"), r.placement(), *r.speed(), r.count("preparing", 0)
    ),
    "switched": lambda r: Switched(r.t, r.job, *r.speed(), r.count("preparing", 0)),
    "shrunk": lambda r: Shrunk(r.t, r.job, r.placement(), *r.speed(), r.count("preparing", 0)),
    "retimed": lambda r: Retimed(r.t, r.job, r.number("rate")),
    "measured": lambda r: Measured(r.t, r.job, r.number("done_s"), r.number("rate")),
    "foreseen": lambda r: Foreseen(r.t, r.job, r.length_s()),
    "refused": lambda r: Refused(r.t, r.text("why")),
    "stopped": lambda r: Stopped(r.t, r.job, r.text("why"), r.number("done_s")),
    "withdrawn": lambda r: Withdrawn(r.t, r.job),
    "ended": lambda r: Ended(r.t, r.job, r.text("how")),
    "woke": lambda r: Woke(r.t),
    "learned": lambda r: Learned(r.t),
    "controller": lambda r: _controller(r),
    "node": lambda r: NodeChanged(r.t, r.count("node"), r.text("state")),
    "explained": lambda r: Explained(r.t, r.reasons()),
}
"""The parser of each kind of record; docs/reference/event-log describes the kinds."""


def _fact(record: Mapping[str, object], index_of: Mapping[str, int]) -> Fact:
    kind = record["e"]
    if kind not in _FACTS:
        raise InputError("event log", f"unknown record '{kind}'")
    return _FACTS[str(kind)](_Fields(record, index_of))


def _controller(fields: _Fields) -> ControllerChanged:
    state = fields.text("state")
    if state not in (RECOVERING, READY):
        raise ValueError(f"unknown state '{state}'")
    return ControllerChanged(fields.t, fields.count("epoch"), state, fields.text("policy", ""))

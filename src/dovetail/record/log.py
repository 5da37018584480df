"""The event log: a header line with the manifest, then one JSON object per fact.

Metrics, plots, `why` and replay are all computed from the log. The format is versioned; a reader
rejects an unknown version. The last line is a `closed` record, so that a truncated log is detected.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import IO, Any

from dovetail.core.beliefs import Physics
from dovetail.core.errors import IllegalPlan, InputError
from dovetail.core.job import LABELS, JobTable
from dovetail.core.messages import (
    KINDS,
    READY,
    RECOVERING,
    ControllerChanged,
    Ended,
    Fact,
    Reason,
    Retimed,
    Started,
    Stopped,
    Submitted,
)
from dovetail.core.placement import Interleave, Placement
from dovetail.core.trace import Trace
from dovetail.core.units import NEVER_S

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
        self._spans: dict[Placement, str] = {}
        formats: dict[str, Callable[..., str]] = {
            "job": lambda job: f',"job":{name(job)}',
            "how": lambda how: f',"how":{_quoted(how)}',
            "why": lambda why: f',"why":{_quoted(why)}',
            "state": lambda state: f',"state":{_quoted(state)}',
            "policy": lambda policy: f',"policy":{_quoted(policy)}' if policy else "",
            "placement": self._placement,
            "rate": lambda rate: f',"rate":{rate!r}',
            "from_s": lambda from_s: f',"from":{from_s!r}',
            "done_s": lambda done_s: f',"done_s":{done_s!r}',
            "length_s": lambda length_s: f',"length_s":{_number(length_s)}',
            "distribution": _distribution,
            "preparing": lambda gpus: f',"preparing":{gpus}' if gpus else "",
            "node": lambda node: f',"node":{node}',
            "nodes": lambda nodes: f',"nodes":[{",".join(map(str, nodes))}]',
            "epoch": lambda epoch: f',"epoch":{epoch}',
            "reasons": self._reasons,
            "gpus": lambda gpus: f',"gpus":{json.dumps(gpus, separators=(",", ":"))}',
            "staying": lambda jobs: f',"staying":[{",".join(map(name, jobs))}]' if jobs else "",
        }
        self._lines: dict[type[Fact], Callable[..., str]] = {
            cls: partial(_line, kind, [formats[field] for field in cls._fields[1:]])
            for kind, cls in KINDS.items()
        }
        self._lines |= {Started: self._started, Ended: self._ended, Submitted: submitted}
        self._lines |= {Retimed: self._retimed, Stopped: self._stopped}

    def line(self, fact: Fact) -> str:
        """Returns the line of one fact, without the line break."""
        return self._lines[type(fact)](fact)

    # NOTE: the kinds that a simulation writes most take half as long by themselves.

    def _started(self, fact: Started) -> str:
        t, job, how, placement, rate, from_s, preparing = fact
        where = self._spans.get(placement) or self._placement(placement)
        return (
            f'{{"t":{t!r},"e":"started","job":{self._name(job)},"how":"{how}"{where},'
            f'"rate":{rate!r},"from":{from_s!r}'
            + (f',"preparing":{preparing}}}' if preparing else "}")
        )

    def _ended(self, fact: Ended) -> str:
        return f'{{"t":{fact.t!r},"e":"ended","job":{self._name(fact.job)},"how":"{fact.how}"}}'

    def _retimed(self, fact: Retimed) -> str:
        return f'{{"t":{fact.t!r},"e":"retimed","job":{self._name(fact.job)},"rate":{fact.rate!r}}}'

    def _stopped(self, fact: Stopped) -> str:
        t, job, why, done_s = fact
        head = f'{{"t":{t!r},"e":"stopped","job":{self._name(job)},"why":{_quoted(why)}'
        return f'{head},"done_s":{done_s!r}}}'

    def _reasons(self, reasons: Sequence[Reason]) -> str:
        return ',"reasons":[' + ",".join([self._reason(reason) for reason in reasons]) + "]"

    def _reason(self, reason: Reason) -> str:
        text = f'{{"code":"{reason.code}"'
        if reason.job >= 0:
            text += f',"job":{self._name(reason.job)}'
        if reason.shape >= 0:
            text += f',"shape":{reason.shape}'
        if reason.behind >= 0:
            text += f',"behind":{self._name(reason.behind)}'
        return text + "}"

    def _placement(self, placement: Placement) -> str:
        text = self._spans.get(placement)
        if text is None:
            text = _placement_text(placement)
            if len(self._spans) < 100_000:
                self._spans[placement] = text
        return text


def _line(kind: str, formats: Sequence[Callable[..., str]], fact: Fact) -> str:
    t, *values = fact
    parts = [form(value) for form, value in zip(formats, values, strict=True)]
    return f'{{"t":{t!r},"e":"{kind}"{"".join(parts)}}}'


def _placement_text(placement: Placement) -> str:
    text = ',"on":[' + ",".join(f"[{n},{g}]" for n, g in placement.spans) + "]"
    if placement.gpu_ids:
        text += f',"gpu_ids":{json.dumps(placement.gpu_ids)}'
    if placement.accumulation_steps > 1:
        text += f',"steps":{placement.accumulation_steps}'
    if placement.gpu_part != 1.0:
        text += f',"gpu_part":{placement.gpu_part!r}'
    if placement.fractions:
        text += f',"fractions":{json.dumps(placement.fractions)}'
    if placement.samples:
        text += f',"samples":{json.dumps(placement.samples)}'
    if placement.batch_size:
        text += f',"batch":{placement.batch_size}'
    if placement.interleave is not None:
        text += f',"seat":[{placement.interleave.set_id},{placement.interleave.phase}]'
    return text


@lru_cache(maxsize=1000)
def _quoted(text: str) -> str:
    return json.dumps(text)


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
            f'"work_s":{_number(self._work[job])},"length_s":{_number(fact.length_s)}'
            f"{_distribution(fact.distribution)}}}"
        )


_NUMBER_DEFAULTS: dict[str, float] = {
    "gpu_part": 1.0,
    "priority": 0.0,
    "batch_size": 0,
    "cpus": 0.0,
    "memory_bytes": 0.0,
    "time_limit_s": float("inf"),
    "deadline_s": float("inf"),
    "restart_s": 0.0,
}
_FLAG_DEFAULTS = {"elastic": False, "shareable": False, "preemptible": True}


def _distribution(numbers: Sequence[float]) -> str:
    return f',"distribution":[{",".join(map(repr, numbers))}]' if numbers else ""


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
        kind = str(record["e"])
        if kind not in KINDS:
            raise InputError("event log", f"unknown record '{kind}'")
        cls = KINDS[kind]
        fact = cls(*[_PARSERS[field](record, index_of) for field in cls._fields])  # type: ignore[arg-type]
        if isinstance(fact, ControllerChanged) and fact.state not in (RECOVERING, READY):
            raise ValueError(f"unknown state '{fact.state}'")
        return fact
    except (KeyError, TypeError, ValueError, IllegalPlan) as error:
        text = json.dumps(record)[:80]
        raise InputError("event log", f"the record {text} is damaged: {error!r}") from None


def _index(name: str, r: _Record, index_of: Mapping[str, int]) -> int:
    """Returns the row of the job in a field; -1 without one."""
    return index_of.get(str(r.get(name)), -1)


def _parse_placement(r: _Record, _: Mapping[str, int]) -> Placement:
    seat = r.get("seat")
    return Placement(
        tuple((int(n), int(g)) for n, g in r["on"]),
        tuple(tuple(ids) for ids in r.get("gpu_ids", ())),
        int(r.get("steps", 1)),
        tuple(r.get("fractions", ())),
        tuple(r.get("samples", ())),
        Interleave(*seat) if seat else None,
        int(r.get("batch", 0)),
        float(r.get("gpu_part", 1.0)),
    )


def _parse_reasons(r: _Record, index_of: Mapping[str, int]) -> tuple[Reason, ...]:
    return tuple(
        Reason(
            str(reason["code"]),
            _index("job", reason, index_of),
            int(reason.get("shape", -1)),
            _index("behind", reason, index_of),
        )
        for reason in r["reasons"]
    )


_Record = Mapping[str, Any]
_PARSERS: dict[str, Callable[[_Record, Mapping[str, int]], object]] = {
    "t": lambda r, _: float(r["t"]),
    "job": lambda r, index_of: _index("job", r, index_of),
    "how": lambda r, _: str(r["how"]),
    "why": lambda r, _: str(r["why"]),
    "state": lambda r, _: str(r["state"]),
    "policy": lambda r, _: str(r.get("policy", "")),
    "placement": _parse_placement,
    "rate": lambda r, _: float(r["rate"]),
    "from_s": lambda r, _: float(r["from"]),
    "done_s": lambda r, _: float(r["done_s"]),
    "length_s": lambda r, _: NEVER_S if r["length_s"] is None else float(r["length_s"]),
    "distribution": lambda r, _: tuple(float(x) for x in r.get("distribution", ())),
    "preparing": lambda r, _: int(r.get("preparing", 0)),
    "node": lambda r, _: int(r["node"]),
    "nodes": lambda r, _: tuple(int(node) for node in r["nodes"]),
    "epoch": lambda r, _: int(r["epoch"]),
    "reasons": _parse_reasons,
    "gpus": lambda r, _: tuple((int(node), int(gpu), str(state)) for node, gpu, state in r["gpus"]),
    "staying": lambda r, index_of: tuple(index_of.get(str(j), -1) for j in r.get("staying", ())),
}
"""The parser of each field of a fact; docs/reference/event-log describes the records."""

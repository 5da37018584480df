"""What a client may ask, and what it is told: one frozen message for each verb and each reply.

Everything that changes something carries a `key` the client made: the same key twice is the same
request, so a client that lost the reply may ask again. Jobs are asked for by number, never by a
path. Times are in seconds of the cluster's clock, which began when it was first brought up.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from typing import Any, TypeVar

from dovetail.wire.codec import PLAIN, WireError, build, parse_object, plain
from dovetail.wire.submission import Submission

R = TypeVar("R")
_text = json.JSONEncoder(separators=(",", ":")).encode
NEVER = float("inf")
KEY_LENGTH_MAX = 64
CROWDED = "too many clients at once"
"""Says that all places are taken by clients that are being answered; nothing was read or done."""


@dataclass(frozen=True, slots=True)
class Submit:
    """Take jobs, all or none; a submission with indices is an array of jobs."""

    key: str
    submissions: tuple[Submission, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """Cancel, requeue, hold or release jobs: `12`, which is all tasks of an array, or `12_3`."""

    verb: str
    key: str
    jobs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Drain:
    """Give a node no new work, or (`undo`) work again."""

    key: str
    node: int
    undo: bool = False


@dataclass(frozen=True, slots=True)
class Down:
    """Stop the controller: leave the jobs running, or (`drain`) let them end first."""

    key: str
    drain: bool = False


@dataclass(frozen=True, slots=True)
class Ping:
    """Say who you are."""


@dataclass(frozen=True, slots=True)
class ListJobs:
    """List jobs: placed, waiting in the policy's order, and with `ended` those that are over.

    If all `states` are ends: those that ended at `since_s` or later, the newest end first.
    """

    states: tuple[str, ...] = ()
    user: str = ""
    name: str = ""
    ended: bool = False
    limit: int = 200
    since_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Show:
    """Show all of one job."""

    job: str


@dataclass(frozen=True, slots=True)
class Track:
    """Say in which states jobs are, with all tasks of arrays."""

    jobs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Logs:
    """Give what a job printed, the last `tail` lines or all (-1); with `follow` until it ends."""

    job: str
    follow: bool = False
    tail: int = -1


@dataclass(frozen=True, slots=True)
class Why:
    """Explain where a job is."""

    job: str


@dataclass(frozen=True, slots=True)
class Nodes:
    """List the nodes and who is on their GPUs."""


@dataclass(frozen=True, slots=True)
class History:
    """Give what happened: the facts of one job, or of all (no job), behind number `after`."""

    job: str = ""
    after: int = 0
    limit: int = 1000


Question = (
    Submit | Change | Drain | Down | Ping | ListJobs | Show | Track | Logs | Why | Nodes | History
)


CHANGES = ("cancel", "requeue", "hold", "release")
_CLASS: dict[str, type] = {
    "submit": Submit,
    **dict.fromkeys(CHANGES, Change),
    "drain": Drain,
    "down": Down,
    "ping": Ping,
    "ls": ListJobs,
    "show": Show,
    "track": Track,
    "logs": Logs,
    "why": Why,
    "nodes": Nodes,
    "history": History,
}
_VERB: dict[type, str] = {cls: verb for verb, cls in _CLASS.items() if cls is not Change}


@dataclass(frozen=True, slots=True)
class Submitted:
    """The numbers of the jobs taken; they are on disk."""

    jobs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Left:
    """A job, or all tasks of an array, as it was named, and why nothing is done to it."""

    job: str
    why: str


@dataclass(frozen=True, slots=True)
class Changed:
    """The request is on disk and will be carried out for these jobs, and not for those `left`."""

    jobs: tuple[int, ...] = ()
    left: tuple[Left, ...] = ()


@dataclass(frozen=True, slots=True)
class Pong:
    """Who answers: process, start number, policy, engine, cluster time and its speed."""

    pid: int
    epoch: int
    version: str
    policy: str
    engine: str
    forecast: str
    now_s: float
    speed: float = 1.0


@dataclass(frozen=True, slots=True)
class JobRow:
    """One job in a list. `progress` is -1 where it is not known, `left_s` then infinite."""

    job: int
    name: str
    user: str
    state: str
    gpus: int
    min_gpus: int
    max_gpus: int
    submit_s: float
    held_gpus: int = 0
    where: str = ""
    reason: str = ""
    start_s: float = NEVER
    end_s: float = NEVER
    done_s: float = 0.0
    rate: float = 0.0
    progress: float = -1.0
    left_s: float = NEVER
    array: int = -1
    array_of: int = -1
    exit_code: int | None = None
    retries: int = 0


@dataclass(frozen=True, slots=True)
class Listed:
    """Jobs, how many more there are that were not listed, and the cluster's time."""

    now_s: float
    jobs: tuple[JobRow, ...]
    more: int = 0
    counts: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Shown:
    """All of one job. Of its environment only the names: values may be secret."""

    row: JobRow
    command: tuple[str, ...]
    script_lines: int
    workdir: str
    output: str
    folder: str
    model: str
    queue: str
    gpu_type: str
    trains: bool
    shareable: bool
    preemptible: bool
    requeue: bool
    priority: float
    batch_size: int
    time_limit_s: float
    deadline_s: float
    duration_s: float
    environment: tuple[str, ...]
    after: tuple[str, ...]
    generation: int
    workers: tuple[str, ...]
    attained_gpu_s: float
    ran_s: float
    held: bool
    detail: str = ""
    samples: int = 0
    total_samples: int = 0
    iteration_s: float = 0.0
    saved_step: int = -1


@dataclass(frozen=True, slots=True)
class JobState:
    """Where one job is."""

    job: int
    state: str
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class Tracked:
    """The states of jobs, by number."""

    jobs: tuple[JobState, ...]


@dataclass(frozen=True, slots=True)
class LogText:
    """A piece of what a job printed; the last piece has `end`."""

    text: str = ""
    end: bool = False
    state: str = ""
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class Explained:
    """Why a job is where it is: a code in Slurm's words, a sentence, and the evidence for it."""

    job: int
    state: str
    code: str
    sentence: str
    evidence: tuple[str, ...]
    ahead: tuple[int, ...] = ()
    ahead_count: int = 0
    free_gpus: int = 0
    would_start: str = ""
    decided_s: float = -1.0
    now_s: float = 0.0


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One node: state, GPUs by name, and the jobs on each of them."""

    node: int
    state: str
    gpus: tuple[str, ...]
    jobs: tuple[tuple[int, ...], ...]
    silent_s: float = 0.0
    gpu_type: str = ""


@dataclass(frozen=True, slots=True)
class NodesShown:
    """The nodes, and the cluster's time."""

    now_s: float
    nodes: tuple[NodeRow, ...]


@dataclass(frozen=True, slots=True)
class Event:
    """One fact by its number, as the line the event log has for it."""

    number: int
    line: str


@dataclass(frozen=True, slots=True)
class Recalled:
    """Facts in order, and the number to ask from for more (-1: there are no more)."""

    events: tuple[Event, ...]
    more_after: int = -1


@dataclass(frozen=True, slots=True)
class Refused:
    """Says where and what is wrong, and how to mend it. `fault` is ours, not the user's."""

    where: str
    what: str
    mend: str = ""
    fault: bool = False


Reply = (
    Submitted
    | Changed
    | Pong
    | Listed
    | Shown
    | Tracked
    | LogText
    | Explained
    | NodesShown
    | Recalled
    | Refused
)


def question_of(said: Mapping[str, Any]) -> Question:
    """Returns the question that a JSON object asks. Raises WireError."""
    verb = said.get("verb")
    cls = _CLASS.get(verb) if isinstance(verb, str) else None
    if cls is None:
        raise WireError(f"unknown verb {str(verb)[:40]!r}; known: {', '.join(sorted(_CLASS))}")
    _check_values(said)
    rest = dict(said) if cls is Change else {k: v for k, v in said.items() if k != "verb"}
    asked: Question = build(cls, rest)
    key = getattr(asked, "key", "fine")
    if not (0 < len(key) <= KEY_LENGTH_MAX and key.isascii() and key.isprintable()):
        raise WireError(f"a key is 1 to {KEY_LENGTH_MAX} printable characters")
    return asked


def _check_values(value: Any) -> None:
    """Raises WireError for a text no file or process could take, or a number no table holds."""
    kind = type(value)
    if kind is str:
        if "\0" in value or not (value.isascii() or _is_unicode(value)):
            raise WireError(f"a text holds what is no character: {value[:40]!r}")
    elif kind is int and abs(value) >= 1 << 53:
        raise WireError("a number is too large")
    elif kind is dict:
        for name, entry in value.items():
            _check_values(name)
            _check_values(entry)
    elif kind is list:
        for entry in value:
            _check_values(entry)


def _is_unicode(text: str) -> bool:
    """Tells whether a text has no half of a pair of surrogates alone."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def verb_of(question: Question) -> str:
    """Returns the verb of a question."""
    return question.verb if isinstance(question, Change) else _VERB[type(question)]


def line_of_question(question: Question, token: str = "") -> bytes:
    """Returns the line that asks a question; what has its usual value is left out."""
    said = {"verb": verb_of(question), **plain(question)}
    if token:
        said["token"] = token
    return _text(said).encode() + b"\n"


def line_of_reply(reply: Reply) -> bytes:
    """Returns the line of a reply."""
    said = {"ok": not isinstance(reply, Refused), **values(reply)}
    return _text(said).encode() + b"\n"


REPLY_BYTES_MAX = 1 << 28
"""A reply comes from our own controller; a list of all jobs is longer than any other message."""


def reply_of(line: bytes, cls: type[R]) -> R | Refused:
    """Returns the reply in a line: one of `cls`, or a refusal. Raises WireError."""
    said = parse_object(line, REPLY_BYTES_MAX)
    ok = said.pop("ok", None)
    if ok not in (True, False):
        raise WireError("a reply says whether it is ok")
    found: R | Refused = build(cls if ok else Refused, said)
    return found


def values(message: object) -> dict[str, Any]:
    """Returns the fields of a message as JSON values, all of them."""
    cls: type = type(message)
    return {name: _value(getattr(message, name)) for name in _names(cls)}


@lru_cache(maxsize=64)
def _names(cls: type) -> tuple[str, ...]:
    return tuple(f.name for f in fields(cls))


def _value(value: object) -> Any:
    if type(value) in PLAIN:
        return value
    if isinstance(value, tuple):
        return [_value(v) for v in value]
    return values(value) if is_dataclass(value) else value


OR_NONE = ("array", "array_of", "decided_s", "more_after", "progress", "saved_step")
"""The fields of replies where -1 says that there is none."""
PAIRS = ("counts",)
"""The fields that hold pairs of a name and a value."""


def json_values(message: object) -> Any:
    """Returns a message as JSON that any reader takes: what is not there or not finite is null."""
    return _shown(values(message))


def _shown(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _field(name, said) for name, said in value.items()}
    if isinstance(value, list):
        return [_shown(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _field(name: str, value: Any) -> Any:
    if name in OR_NONE and value == -1:
        return None
    return dict(value) if name in PAIRS else _shown(value)

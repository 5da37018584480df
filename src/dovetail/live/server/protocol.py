"""Questions and replies as lines of JSON: what a client may ask, and what it is told.

Each verb and each reply is one frozen message (`messages/`). Jobs are asked for by number, never by
a path. Times are in seconds of the cluster's clock, which began when it was first brought up.

NOTE: to make such a class takes 0.3 ms, and a command that a user waits for needs two of thirty.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from dovetail.wire.codec import PLAIN, WireError, build, parse_object, plain

if TYPE_CHECKING:
    from dovetail.live.server.requests import Question, Reply

R = TypeVar("R")
_text = json.JSONEncoder(separators=(",", ":")).encode
ENDLESS_S = 300 * 86400.0
"""A job that is said to last longer has no length that anybody knows: forecasts say a year then."""
CROWDED = "too many clients at once"
TOO_SLOW = "the whole line did not come in time"
"""Refusals of a connection before anything was read or done: a client may ask again."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Says where and what is wrong, and how to mend it. `fault` is ours, not the user's."""

    where: str
    what: str
    mend: str = ""
    fault: bool = False


def line_of_question(question: Question, token: str = "") -> bytes:
    """Returns the line that asks a question; what has its usual value is left out."""
    said = {"verb": question.verb, **plain(question)}
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


OR_NONE = ("array", "array_of", "at", "decided_s", "more_after", "progress", "saved_step")
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

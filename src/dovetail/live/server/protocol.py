"""Requests and replies as lines of JSON.

Each verb and each reply is one frozen message (`messages/`). Jobs are named by number, never by a
path. Times are in seconds of the cluster's clock, which began when it was first brought up.

NOTE: defining such a class takes 0.3 ms, and a command needs only two of some thirty.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from typing import Protocol, TypeVar

from dovetail.wire.codec import PLAIN, WireError, build, parse_object, plain

R = TypeVar("R")
_text = json.JSONEncoder(separators=(",", ":")).encode
ENDLESS_S = 300 * 86400.0
"""A longer forecast means that the length is unknown: forecasts return a year then."""
CROWDED = "too many clients at once"
TOO_SLOW = "the whole line did not come in time"
"""Refusals before anything was read or done: a client may retry."""


@dataclass(frozen=True, slots=True)
class RequestRefused:
    """Where and what is wrong, and how to mend it. `fault` means ours, not the user's."""

    where: str
    what: str
    mend: str = ""
    fault: bool = False


class HasVerb(Protocol):
    """A question: a frozen message with the verb that it is asked by.

    The questions themselves are listed in `requests`. This module must not import them: a command
    would load them all to ask one.
    """

    @property
    def verb(self) -> str:
        """Returns the verb."""
        ...


def line_of_question(question: HasVerb, token: str = "") -> bytes:
    """Returns the line that asks a question; what has its usual value is left out."""
    said = {"verb": question.verb, **plain(question)}
    if token:
        said["token"] = token
    return _text(said).encode() + b"\n"


def line_of_reply(reply: object) -> bytes:
    """Returns the line of a reply."""
    said = {"ok": not isinstance(reply, RequestRefused), **values(reply)}
    return _text(said).encode() + b"\n"


REPLY_BYTES_MAX = 1 << 28
"""A reply comes from our own controller; a list of all jobs is longer than any other message."""


def reply_of(line: bytes, cls: type[R]) -> R | RequestRefused:
    """Returns the reply in a line: one of `cls`, or a refusal. Raises WireError."""
    said = parse_object(line, REPLY_BYTES_MAX)
    ok = said.pop("ok", None)
    if ok not in (True, False):
        raise WireError("a reply says whether it is ok")
    return build(cls, said) if ok else build(RequestRefused, said)


def values(message: object) -> dict[str, object]:
    """Returns the fields of a message as JSON values, all of them."""
    cls: type = type(message)
    return {name: _value(getattr(message, name)) for name in _names(cls)}


@lru_cache(maxsize=64)
def _names(cls: type) -> tuple[str, ...]:
    return tuple(f.name for f in fields(cls))


def _value(value: object) -> object:
    if type(value) in PLAIN:
        return value
    if isinstance(value, tuple):
        return [_value(v) for v in value]
    return values(value) if is_dataclass(value) else value


OR_NONE = ("array", "array_of", "at", "decided_s", "more_after", "progress", "saved_step")
"""The fields of replies where -1 means none."""
PAIRS = ("counts",)
"""The fields that hold pairs of a name and a value."""


def json_values(message: object) -> object:
    """Returns a message as JSON that any reader takes: what is not there or not finite is null."""
    return _shown(values(message))


def _shown(value: object) -> object:
    if isinstance(value, dict):
        return {name: _field(name, said) for name, said in value.items()}
    if isinstance(value, list):
        return [_shown(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _field(name: str, value: object) -> object:
    if name in OR_NONE and value == -1:
        return None
    return dict(value) if name in PAIRS and isinstance(value, list) else _shown(value)

"""Requests and replies as lines of JSON.

Each verb and each reply is one frozen message (`messages/`). Times are in seconds of the cluster's
clock, which began with its first controller.

NOTE: the messages have several modules since defining a class takes 0.3 ms, and a command needs
only two of some thirty.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from typing import TypeVar

from dovetail.wire.codec import PLAIN, WireError, build, parse_object, plain

R = TypeVar("R")
_text = json.JSONEncoder(separators=(",", ":")).encode
ENDLESS_S = 300 * 86400.0
"""Forecasts return a year for a job of unknown length; nothing above this bound is known."""
CROWDED = "too many clients at once"
TOO_SLOW = "the whole line did not come in time"
"""Refusals of requests that the server has not read: a client may retry."""


@dataclass(frozen=True, slots=True)
class RequestRefused:
    """A request was refused: where, for what reason, and how to fix it.

    `fault` is True for an error of the controller, False for one of the user.
    """

    where: str
    what: str
    mend: str = ""
    fault: bool = False


def line_of_question(verb: str, question: object, token: str = "") -> bytes:
    """Returns the line of a request, without fields that have their default."""
    fields = {"verb": verb, **plain(question)}
    if token:
        fields["token"] = token
    return _text(fields).encode() + b"\n"


def line_of_reply(reply: object) -> bytes:
    """Returns the line of a reply, with all its fields."""
    fields = {"ok": not isinstance(reply, RequestRefused), **values(reply)}
    return _text(fields).encode() + b"\n"


REPLY_BYTES_MAX = 1 << 28
"""Larger than the limit of requests: a list may have every job."""


def reply_of(line: bytes, cls: type[R]) -> R | RequestRefused:
    """Returns the reply in a line: one of `cls`, or a refusal. Raises WireError."""
    fields = parse_object(line, REPLY_BYTES_MAX)
    ok = fields.pop("ok", None)
    if ok not in (True, False):
        raise WireError("a reply has no field 'ok'")
    return build(cls, fields) if ok else build(RequestRefused, fields)


def values(message: object) -> dict[str, object]:
    """Returns all fields of a message as JSON values."""
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
"""The fields that are pairs of a name and a value, shown as one object."""


def json_values(message: object) -> object:
    """Returns a message as strict JSON: values that are missing or not finite are null."""
    return _shown(values(message))


def _shown(value: object) -> object:
    if isinstance(value, dict):
        return {name: _field(name, part) for name, part in value.items()}
    if isinstance(value, list):
        return [_shown(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _field(name: str, value: object) -> object:
    if name in OR_NONE and value == -1:
        return None
    return dict(value) if name in PAIRS and isinstance(value, list) else _shown(value)

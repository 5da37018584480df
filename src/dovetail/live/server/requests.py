"""All questions, and how the lines that ask them are read: unknown verbs and values are refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail.live.server.messages.changes import Change, Changed, Down, Drain, Submit, Submitted
from dovetail.live.server.messages.cluster import Nodes, NodesShown, Ping, Pong
from dovetail.live.server.messages.events import History, Recalled
from dovetail.live.server.messages.listing import Listed, ListJobs
from dovetail.live.server.messages.one_job import Show, Shown
from dovetail.live.server.messages.output import Logs, LogText
from dovetail.live.server.messages.reason import Explained, Why
from dovetail.live.server.messages.tracking import Track, Tracked
from dovetail.live.server.protocol import Refused
from dovetail.wire.codec import WireError, build

KEY_LENGTH_MAX = 64
CHANGES = ("cancel", "requeue", "hold", "release")
Question = (
    Submit | Change | Drain | Down | Ping | ListJobs | Show | Track | Logs | Why | Nodes | History
)
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
_OTHERS = (Submit, Drain, Down, Ping, ListJobs, Show, Track, Logs, Why, Nodes, History)
_CLASS: dict[str, type] = dict.fromkeys(CHANGES, Change) | {cls.verb: cls for cls in _OTHERS}


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

"""All requests and replies, and the parser of requests: it refuses unknown verbs and values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from dovetail.live.server.messages.changes import (
    ChangeReply,
    Down,
    Drain,
    JobChange,
    Submit,
    SubmitReply,
)
from dovetail.live.server.messages.cluster import ListNodes, NodeList, Ping, PingReply
from dovetail.live.server.messages.events import History, HistoryReply
from dovetail.live.server.messages.listing import JobList, ListJobs
from dovetail.live.server.messages.one_job import ShowJob, ShowReply
from dovetail.live.server.messages.output import Logs, LogsReply
from dovetail.live.server.messages.reason import ExplainJob, ExplainReply
from dovetail.live.server.messages.tenants import ListTenants, TenantList
from dovetail.live.server.messages.terminal import AttachReply, AttachTerminal
from dovetail.live.server.messages.tracking import TrackJobs, TrackReply
from dovetail.live.server.protocol import RequestRefused
from dovetail.wire.codec import WireError, build
from dovetail.wire.spec_faults import is_text

KEY_LENGTH_MAX = 64
CHANGES = ("cancel", "requeue", "hold", "release")
Question = (
    Submit
    | JobChange
    | Drain
    | Down
    | Ping
    | ListJobs
    | ShowJob
    | TrackJobs
    | Logs
    | ExplainJob
    | ListNodes
    | ListTenants
    | History
    | AttachTerminal
)
Reply = (
    SubmitReply
    | ChangeReply
    | PingReply
    | JobList
    | ShowReply
    | TrackReply
    | LogsReply
    | ExplainReply
    | NodeList
    | TenantList
    | HistoryReply
    | AttachReply
    | RequestRefused
)
_CLASS: dict[str, type] = dict.fromkeys(CHANGES, JobChange) | {
    cls.verb: cls for cls in get_args(Question) if cls is not JobChange
}


def question_of(fields: Mapping[str, object]) -> Question:
    """Parses a request. Raises WireError."""
    verb = fields.get("verb")
    cls = _CLASS.get(verb) if isinstance(verb, str) else None
    if cls is None:
        raise WireError(f"unknown verb {str(verb)[:40]!r}; known: {', '.join(sorted(_CLASS))}")
    _check_values(fields)
    is_field = cls is JobChange
    question: Question = build(cls, {k: v for k, v in fields.items() if is_field or k != "verb"})
    key = getattr(question, "key", "fine")
    if not (0 < len(key) <= KEY_LENGTH_MAX and key.isascii() and key.isprintable()):
        raise WireError(f"a key is 1 to {KEY_LENGTH_MAX} printable characters")
    return question


def _check_values(value: object) -> None:
    """Raises WireError for text that is not UTF-8 or has a NUL, and for a too large number."""
    if isinstance(value, str):
        # NOTE: `isascii` alone is faster than encoding a long script.
        if "\0" in value or not (value.isascii() or is_text(value)):
            raise WireError(f"a text holds what is no character: {value[:40]!r}")
    elif type(value) is int and abs(value) >= 1 << 53:
        raise WireError("a number is too large")
    elif isinstance(value, dict):
        for name, entry in value.items():
            _check_values(name)
            _check_values(entry)
    elif isinstance(value, list):
        for entry in value:
            _check_values(entry)

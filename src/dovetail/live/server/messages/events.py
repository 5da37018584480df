"""The history of jobs and nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class History:
    """Request the facts of one job, or of all (no job), with numbers above `after`."""

    verb: ClassVar[str] = "history"
    job: str = ""
    after: int = 0
    limit: int = 1000


@dataclass(frozen=True, slots=True)
class Event:
    """One fact: its number, its line of the event log, and the name of its job, empty for none."""

    number: int
    line: str
    called: str = ""


@dataclass(frozen=True, slots=True)
class HistoryReply:
    """Facts in order, and the value of `after` for the next page (-1: this is the last)."""

    events: tuple[Event, ...]
    more_after: int = -1

"""What has happened, fact by fact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class History:
    """Give what happened: the facts of one job, or of all (no job), behind number `after`."""

    verb: ClassVar[str] = "history"
    job: str = ""
    after: int = 0
    limit: int = 1000


@dataclass(frozen=True, slots=True)
class Event:
    """One fact by its number, as the line the event log has for it.

    `called` is the name that `ls` gives the job it names, empty if it names none.
    """

    number: int
    line: str
    called: str = ""


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """Facts in order, and the number to ask from for more (-1: there are no more)."""

    events: tuple[Event, ...]
    more_after: int = -1

"""The output of a job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Logs:
    """Request the last `tail` lines of an output, or all (-1); with `follow` until the job ends.

    `begin` is the byte up to which an interrupted client has read (-1: it has not).
    """

    verb: ClassVar[str] = "logs"
    job: str
    follow: bool = False
    tail: int = -1
    begin: int = -1


@dataclass(frozen=True, slots=True)
class LogsReply:
    """A piece of an output up to byte `at` of its file; the last piece has `end` and the state."""

    text: str = ""
    end: bool = False
    state: str = ""
    exit_code: int | None = None
    at: int = -1

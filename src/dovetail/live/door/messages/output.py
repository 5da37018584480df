"""What a job printed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Logs:
    """Give what a job printed, the last `tail` lines or all (-1); with `follow` until it ends."""

    verb: ClassVar[str] = "logs"
    job: str
    follow: bool = False
    tail: int = -1


@dataclass(frozen=True, slots=True)
class LogText:
    """A piece of what a job printed; the last piece has `end`."""

    text: str = ""
    end: bool = False
    state: str = ""
    exit_code: int | None = None

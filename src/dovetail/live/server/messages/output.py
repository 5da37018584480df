"""What a job printed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Logs:
    """Give what a job printed, the last `tail` lines or all (-1); with `follow` until it ends.

    Who read up to a place before goes on there by naming it as `begin` (-1: nobody did).
    """

    verb: ClassVar[str] = "logs"
    job: str
    follow: bool = False
    tail: int = -1
    begin: int = -1


@dataclass(frozen=True, slots=True)
class LogText:
    """A piece of what a job printed, up to place `at` of the file; the last piece has `end`."""

    text: str = ""
    end: bool = False
    state: str = ""
    exit_code: int | None = None
    at: int = -1

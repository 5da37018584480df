"""The terminal of an interactive job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class AttachTerminal:
    """Request the terminal of an interactive job, for the user who submitted it alone."""

    verb: ClassVar[str] = "attach"
    job: str


@dataclass(frozen=True, slots=True)
class AttachReply:
    """The frames of `wire.terminal` follow on this connection, once the job runs.

    Nothing follows if it is `over`: its state then, its exit code and why it ended.
    """

    job: int
    over: bool = False
    state: str = ""
    exit_code: int | None = None
    detail: str = ""

"""Explanations of the state of a job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class ExplainJob:
    """Request the explanation of the state of a job."""

    verb: ClassVar[str] = "why"
    job: str


@dataclass(frozen=True, slots=True)
class ExplainReply:
    """The state of a job with a reason code in Slurm's words, a sentence and evidence.

    `called` is the name of the job in lists: `12`, or `12_3` for a task of an array.
    """

    job: int
    called: str
    state: str
    code: str
    sentence: str
    evidence: tuple[str, ...]
    ahead: tuple[int, ...] = ()
    ahead_count: int = 0
    free_gpus: int = 0
    would_start: str = ""
    decided_s: float = -1.0
    now_s: float = 0.0

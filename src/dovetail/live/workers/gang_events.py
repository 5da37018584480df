"""What a gang tells the world: facts about one job's workers, in the past tense."""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.wire.worker import Training


@dataclass(frozen=True, slots=True)
class Formed:
    """All members train in this generation (or, plain, all their processes run)."""

    generation: int
    pause_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Died:
    """A wanted worker is gone that should not be: exit code, or -N after signal N."""

    worker: int
    exit_code: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class Trained:
    """The first member said how training goes."""

    said: Training


@dataclass(frozen=True, slots=True)
class Saved:
    """The state after `step` iterations is on disk."""

    step: int
    samples: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The job did all it had to do. `samples` is -1 where nobody said how many."""

    samples: int = -1


@dataclass(frozen=True, slots=True)
class Stalled:
    """The job has said nothing for too long."""

    silent_s: float


@dataclass(frozen=True, slots=True)
class Unspoken:
    """Its first worker has made no training job for so long that it may never make one."""


@dataclass(frozen=True, slots=True)
class Vacated:
    """Its last worker is gone."""


News = Formed | Died | Trained | Saved | Finished | Stalled | Unspoken | Vacated

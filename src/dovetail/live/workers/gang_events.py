"""What a gang tells the world: facts about one job's workers, in the past tense."""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.wire.worker import Training


@dataclass(frozen=True, slots=True)
class GangFormed:
    """All members train in this generation (or, plain, all their processes run)."""

    generation: int
    pause_s: float = 0.0


@dataclass(frozen=True, slots=True)
class WorkerDied:
    """A wanted worker is gone that should not be: exit code, or -N after signal N."""

    worker: int
    exit_code: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class GangTrained:
    """The first member said how training goes."""

    said: Training


@dataclass(frozen=True, slots=True)
class GangSaved:
    """The state after `step` iterations is on disk."""

    step: int
    samples: int


@dataclass(frozen=True, slots=True)
class GangFinished:
    """The job did all it had to do. `samples` is -1 where nobody said how many."""

    samples: int = -1


@dataclass(frozen=True, slots=True)
class GangStalled:
    """The job has said nothing for too long."""

    silent_s: float


@dataclass(frozen=True, slots=True)
class TrainJobMissing:
    """Its first worker has made no training job for so long that it may never make one."""


@dataclass(frozen=True, slots=True)
class GangVacated:
    """Its last worker is gone."""


GangEvent = (
    GangFormed
    | WorkerDied
    | GangTrained
    | GangSaved
    | GangFinished
    | GangStalled
    | TrainJobMissing
    | GangVacated
)

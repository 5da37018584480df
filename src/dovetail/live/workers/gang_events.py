"""What a gang reports to the controller: facts about one job's workers, in the past tense."""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.wire.worker import Training


@dataclass(frozen=True, slots=True)
class GangFormed:
    """All members train in this generation; of a plain gang, all processes run."""

    generation: int
    pause_s: float = 0.0


@dataclass(frozen=True, slots=True)
class WorkerDied:
    """A wanted worker ended that should run: exit code, or -N after signal N."""

    worker: int
    exit_code: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class GangTrained:
    """The first member reported how training goes."""

    said: Training


@dataclass(frozen=True, slots=True)
class GangSaved:
    """The state after `step` iterations is on disk."""

    step: int
    samples: int


@dataclass(frozen=True, slots=True)
class GangFinished:
    """The job did all it had to do. `samples` is -1 if no worker reported how many."""

    samples: int = -1


@dataclass(frozen=True, slots=True)
class GangStalled:
    """No worker has reported anything for too long."""

    silent_s: float


@dataclass(frozen=True, slots=True)
class TrainJobMissing:
    """The first worker has made no training job for so long that it may never make one."""


@dataclass(frozen=True, slots=True)
class GangVacated:
    """The last worker is gone."""


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

"""What a gang reports to the controller, and what it orders from agents.

A message of a worker that concerns the job as a whole is passed on as it came.
"""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.wire.agent import (
    EndWorker,
    FindPort,
    Forget,
    InventoryRequest,
    NotifyWorkers,
    Renew,
    StartWorker,
    WarnWorker,
    WorkerEnded,
)
from dovetail.wire.worker import Finished, Saved, Training


@dataclass(frozen=True, slots=True)
class GangFormed:
    """All members train in this generation; of a plain gang, all processes run."""

    generation: int


@dataclass(frozen=True, slots=True)
class GangStalled:
    """No worker has reported anything for too long."""

    silent_s: float


@dataclass(frozen=True, slots=True)
class NoTrainJob:
    """The first worker has made no training job for so long that it may never make one."""


@dataclass(frozen=True, slots=True)
class LeavingTimeout:
    """Plain processes that were to leave did not end within their grace, and were killed."""


@dataclass(frozen=True, slots=True)
class GangVacated:
    """The last worker is gone."""


GangEvent = (
    GangFormed
    | GangStalled
    | NoTrainJob
    | LeavingTimeout
    | GangVacated
    | WorkerEnded
    | Training
    | Saved
    | Finished
)
"""`WorkerEnded` is of a wanted worker that should run, with the cause as `why`."""

Order = (
    StartWorker
    | EndWorker
    | NotifyWorkers
    | Forget
    | InventoryRequest
    | Renew
    | FindPort
    | WarnWorker
)
NodeOrder = tuple[int, Order]
"""The number of a node, and an order for its agent."""

"""What the controller asks of whatever reads the reports of training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dovetail.core.beliefs import Neighbour, Physics
from dovetail.core.placement import Placement
from dovetail.live.measuring.meter import MeasuredProgress
from dovetail.wire.spec import JobSpec
from dovetail.wire.worker import Training


class Meter(Protocol):
    """Reads the reports of running jobs. Jobs go by their row in the tables."""

    @property
    def physics(self) -> Physics | None:
        """Returns what is believed now; None for a meter that learns nothing."""
        ...

    def heard(
        self,
        job: int,
        report: Training,
        now: float,
        *,
        spec: JobSpec,
        placement: Placement,
        neighbours: Sequence[Neighbour],
        since_s: float,
    ) -> MeasuredProgress | None:
        """Returns what a report means; None to leave what is believed as it is.

        `since_s` is since when the job runs as it does now, beside these neighbours.
        """
        ...

    def length_s(self, job: int) -> float | None:
        """Returns the work of a job that reports, in solo seconds, if it is known."""
        ...

    def undo_pair(self, host: Neighbour, guest: Neighbour, cost_s: float = 0.0) -> bool:
        """Returns whether two jobs that share GPUs must be separated, by stopping the guest."""
        ...

    def ran_out(
        self,
        job: int,
        placement: Placement,
        neighbours: Sequence[Neighbour],
        gpu_memory_bytes: float,
    ) -> bool:
        """Notes that a job found no memory beside others; returns if `physics` knows it now."""
        ...

    def ended(self, job: int) -> None:
        """Notes that a job is over."""
        ...

    @property
    def unsaved(self) -> bool:
        """Returns whether there is more to `dump` than was dumped last."""
        ...

    def dump(self) -> str:
        """Returns what was learned, as text."""
        ...

"""The interface of a belief that learns; the live world imports no physics itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dovetail.core.beliefs import Neighbour, Physics
from dovetail.core.placement import Placement
from dovetail.core.reading import SpeedMeasurement


class LearningBelief(Protocol):
    """A belief that learns from measurements."""

    @property
    def physics(self) -> Physics:
        """Returns what is believed now; another object whenever something was learned."""

    @property
    def unsaved(self) -> bool:
        """Returns whether there is more to `dump` than was dumped last."""

    def solo_rate(self, job: int) -> float:
        """Returns samples a second alone as requested, 0 if nothing is known."""

    def ratio(self, job: int, steps: int, other: int, other_steps: int) -> float:
        """Returns the measured interference of a job beside another, 0 if there is none."""

    def observe(
        self,
        job: int,
        placement: Placement,
        neighbours: Sequence[Neighbour],
        reading: SpeedMeasurement,
    ) -> bool:
        """Learns; returns whether `physics` is another one from now on."""

    def ran_out(
        self,
        job: int,
        placement: Placement,
        neighbours: Sequence[Neighbour],
        gpu_memory_bytes: float,
    ) -> bool:
        """Learns that a job found no memory beside others; returns whether it believes that now."""

    def forget(self, job: int) -> None:
        """Drops what only a job that is over could use."""

    def dump(self) -> str:
        """Returns what was learned, as text."""

"""A meter that learns nothing, for tests of what does not depend on learning."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.core.beliefs import Neighbour, Physics
from dovetail.core.placement import Placement
from dovetail.live.measuring.meter import PACED_RATE, MeasuredProgress
from dovetail.wire.spec import JobSpec
from dovetail.wire.worker import Training


class PlainMeter:
    """Believes a rate alone only where it is certain: of a clock, or from its owner's length."""

    physics: Physics | None = None
    unsaved: bool = False

    def heard(
        self,
        job: int,
        said: Training,
        now: float,
        *,
        spec: JobSpec,
        placement: Placement,
        neighbours: Sequence[Neighbour],
        since_s: float,
    ) -> MeasuredProgress | None:
        """Returns samples over the rate alone, None if that is not known."""
        alone = PACED_RATE if spec.paced else 0.0
        if not alone and spec.duration_s and said.total_samples:
            alone = said.total_samples / spec.duration_s
        if not alone:
            return None
        return MeasuredProgress(said.samples / alone, said.rate / alone, grain_s=1.0 / alone)

    def length_s(self, job: int) -> float | None:
        """Keeps nothing of reports."""
        return None

    def undo_pair(self, host: Neighbour, guest: Neighbour, cost_s: float = 0.0) -> bool:
        """Never parts a pair."""
        return False

    def ran_out(
        self,
        job: int,
        placement: Placement,
        neighbours: Sequence[Neighbour],
        gpu_memory_bytes: float,
    ) -> bool:
        """Learns nothing."""
        return False

    def ended(self, job: int) -> None:
        """Has nothing to drop."""

    def dump(self) -> str:
        """Returns nothing: it learned nothing."""
        return ""

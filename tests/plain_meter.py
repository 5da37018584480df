"""A meter that learns nothing, for tests of what does not depend on learning."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.core.beliefs import Neighbour, Physics
from dovetail.core.placement import Placement
from dovetail.core.reading import SpeedMeasurement
from dovetail.live.measuring.meter import PACED_RATE, MeasuredProgress, ReportMeter
from dovetail.wire.spec import JobSpec
from dovetail.wire.worker import Training


class NothingLearned:
    """A belief that no measurement changes."""

    unsaved = False

    @property
    def physics(self) -> Physics:
        """Has none: nobody asks for what did not change."""
        raise AssertionError("nothing was learned")

    def solo_rate(self, job: int) -> float:
        """Knows none."""
        return 0.0

    def ratio(self, job: int, steps: int, other: int, other_steps: int) -> float:
        """Knows none."""
        return 0.0

    def observe(
        self,
        job: int,
        placement: Placement,
        neighbours: Sequence[Neighbour],
        reading: SpeedMeasurement,
    ) -> bool:
        """Learns nothing."""
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

    def forget(self, job: int) -> None:
        """Has nothing to forget."""

    def dump(self) -> str:
        """Returns nothing: it learned nothing."""
        return ""


class PlainMeter(ReportMeter):
    """Believes a rate alone only where it is certain: of a clock, or from its owner's length."""

    def __init__(self) -> None:
        super().__init__(NothingLearned())

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
        """Returns samples over the rate alone, None if that is not known."""
        alone = PACED_RATE if spec.paced else 0.0
        if not alone and spec.duration_s and report.total_samples:
            alone = report.total_samples / spec.duration_s
        if not alone:
            return None
        return MeasuredProgress(report.samples / alone, report.rate / alone, grain_s=1.0 / alone)

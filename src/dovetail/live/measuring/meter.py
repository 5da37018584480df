"""Progress and rate of jobs, from the reports of their workers.

Progress is in solo seconds: samples done over the samples a second that the job does alone on
its requested GPUs. That rate is the measured one if the job, or another of its model, ran like
that. Else it follows from the length that its owner states; else it is the present rate over the
believed speed of the present placement, which the job keeps until something better is known.
`done_s` and the length change together when the rate alone becomes better known: the share that
is done never does.

A report covers the time since the last one. It counts only if the last one came from the same
generation beside the same neighbours, so neither a pause nor a switch looks like slowness. A
synthetic job reports each change at once, so its rate counts when it is reported again. The rate
returned is the median of the last five reports that count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import NamedTuple

from dovetail.core.beliefs import Neighbour
from dovetail.core.placement import Placement
from dovetail.core.reading import SpeedMeasurement
from dovetail.live.measuring.learner import LearningBelief
from dovetail.live.measuring.pair_guard import PairGuard
from dovetail.wire.spec import JobSpec
from dovetail.wire.worker import Training

PACED_RATE = 1000.0
"""Samples a second of a synthetic job alone: one is a millisecond of solo work."""
LAST = 5
SETTLED = 3
"""Reports that count until a rate inferred from them is kept."""
SILENT_S = 5.0
"""A job that has not reported for so long is not known to train."""
UNSEEN_S = 10.0
"""A neighbour that never reports (a plain program) is taken to be at work after so long."""


@dataclass(frozen=True, slots=True)
class JobMeter:
    """A summary of the reports of one job; `rates` are those of the last reports that count.

    `inferred` is the inferred rate alone in samples a second, 0 before it is known.
    """

    generation: int = -1
    since_s: float = 0.0
    heard_s: float = float("-inf")
    samples: int = 0
    total_samples: int = 0
    reported_rate: float = 0.0
    rates: tuple[float, ...] = ()
    inferred: float = 0.0

    def heard(
        self, report: Training, now: float, since_s: float, *, clock: bool = False
    ) -> JobMeter:
        """Returns the meter after a report; the job has run as it does now since `since_s`."""
        counts = report.generation == self.generation and since_s <= self.heard_s < now
        if clock:
            counts = counts and report.rate == self.reported_rate
        # Rates from before a change of neighbours or GPUs are of another speed.
        rates = self.rates if self.since_s == since_s else ()
        return JobMeter(
            report.generation,
            since_s,
            now,
            report.samples,
            report.total_samples or self.total_samples,
            report.rate,
            (*rates, report.rate)[-LAST:] if counts else (),
            self.inferred,
        )

    def inferring(self, speed: float) -> JobMeter:
        """Returns the meter with the rate alone that follows from its rates at a believed speed."""
        # Inferred once and then kept: a rate that moved with the belief would bend progress.
        if self.inferred or len(self.rates) < SETTLED or speed <= 0:
            return self
        return replace(self, inferred=self.rate / speed)

    @property
    def rate(self) -> float:
        """Returns the samples a second, 0 if nothing counts yet."""
        return median(self.rates) if self.rates else 0.0

    def length_s(self, solo_rate: float) -> float | None:
        """Returns the length in solo seconds, if it is known how many samples there are."""
        return self.total_samples / solo_rate if self.total_samples and solo_rate else None

    def left_s(self, solo_rate: float) -> float | None:
        """Returns the solo seconds left, if the length is known."""
        length_s = self.length_s(solo_rate)
        return None if length_s is None else max(0.0, length_s - self.samples / solo_rate)


class MeasuredProgress(NamedTuple):
    """Progress and rate in solo seconds from a report; `length_s` is None if not known.

    With `news` the belief has been replaced. Progress is exact to `grain_s`, one sample.
    """

    done_s: float
    rate: float
    length_s: float | None = None
    news: bool = False
    grain_s: float = 0.0


class ReportMeter:
    """Reads the reports of running jobs, which go by row, and feeds the belief that learns."""

    def __init__(self, learner: LearningBelief) -> None:
        self.learner = learner
        self._guard = PairGuard(learner)
        self._meters: dict[int, JobMeter] = {}
        self._solo_rate: dict[int, float] = {}

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
        """Returns the progress in a report of a running job; None until its rate alone is known.

        The job has run in this generation, beside these neighbours, since `since_s`.
        """
        meter = self._meters.get(job, JobMeter()).heard(report, now, since_s, clock=spec.paced)
        # Before `observe`: the guard compares with the belief from before this measurement.
        for neighbour in neighbours:
            self._guard.note((job, placement), neighbour)
        news = False
        if meter.rates and self._at_work(neighbours, now, since_s):
            news = self.learner.observe(job, placement, neighbours, _reading(report, spec))
        # The rate alone of a synthetic job is known, whatever is believed of its speed.
        speed = 0.0 if spec.paced else self.learner.physics.rate(job, placement, neighbours)
        self._meters[job] = meter = meter.inferring(speed)
        solo_rate = self._solo_rate[job] = self._alone(job, meter, spec, speed)
        if not solo_rate:
            return None
        if spec.paced:
            # A synthetic job reports each change of its rate at once, also 0 while it switches.
            rate = report.rate / PACED_RATE
        else:
            rate = meter.rate / solo_rate if meter.rates else speed
        grain_s = 1.0 / solo_rate
        return MeasuredProgress(
            meter.samples / solo_rate, rate, meter.length_s(solo_rate), news, grain_s
        )

    def length_s(self, job: int) -> float | None:
        """Returns the work of a job that reports, in solo seconds, if it is known."""
        meter = self._meters.get(job)
        return None if meter is None else meter.length_s(self._solo_rate.get(job, 0.0))

    def undo_pair(self, host: Neighbour, guest: Neighbour, cost_s: float = 0.0) -> bool:
        """Returns whether two jobs that share GPUs must be separated, by stopping the guest.

        True only once for a pair: a policy that pairs them again knows what was measured.
        """
        return self._guard.undo(host, guest, self._left_s(host[0]), self._left_s(guest[0]), cost_s)

    def ended(self, job: int) -> None:
        """Drops what only this job could use: it is over."""
        self._meters.pop(job, None)
        self._solo_rate.pop(job, None)
        self._guard.forget(job)
        self.learner.forget(job)

    def _alone(self, job: int, meter: JobMeter, spec: JobSpec, speed: float) -> float:
        """Returns the rate alone: measured, from the length its owner states, or inferred."""
        if spec.paced:
            return PACED_RATE
        known = self.learner.solo_rate(job)
        # A measured rate is better than a stated length, and that is better than a guess.
        if not known and spec.duration_s:
            known = meter.total_samples / spec.duration_s
        if not known:
            known = meter.inferred or (meter.rate / speed if speed > 0 else 0.0)
        return known

    def _left_s(self, job: int) -> float | None:
        meter = self._meters.get(job)
        return None if meter is None else meter.left_s(self._solo_rate.get(job, 0.0))

    def _at_work(self, neighbours: Sequence[Neighbour], now: float, since_s: float) -> bool:
        """Returns whether all neighbours train, so that they explain what is measured."""
        for other, _ in neighbours:
            meter = self._meters.get(other)
            if meter is None:
                # A plain program never reports. After a while it is taken to be at work.
                if now - since_s < UNSEEN_S:
                    return False
            elif now - meter.heard_s > SILENT_S or not meter.rate:
                return False
        return True


def _reading(report: Training, spec: JobSpec) -> SpeedMeasurement:
    """Returns the measurement in a report; a batch that the spec lacks is samples over steps."""
    batch = spec.batch_size or (round(report.samples / report.step) if report.step else 0)
    return SpeedMeasurement(
        report.rate, batch, report.iteration_s, report.memory_bytes, report.stage_s
    )

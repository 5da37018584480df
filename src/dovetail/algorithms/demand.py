"""The least demand of jobs: a release, a shortest time, a least area, a progress curve.

This is all that a bound knows of a job. The curve is the concave hull of the job's progress rate
over GPUs held on average, cut into segments: the first GPUs are the most productive. Progress
is a fraction of the job, so every job needs exactly 1 of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from dovetail.algorithms.arrays import Floats, Ints


@dataclass(frozen=True, slots=True)
class Segments:
    """Pieces of the jobs' progress curves, job by job: `first[j]` to `first[j + 1]` are job j's.

    A segment takes up to `width_gpus` GPUs, each making `rate_per_gpu_s` of the job a second.
    """

    first: Ints
    width_gpus: Floats
    rate_per_gpu_s: Floats


@dataclass(frozen=True, slots=True)
class JobDemand:
    """Jobs as bounds see them: no schedule can serve them in less time or with less area."""

    release_s: Floats
    shortest_s: Floats
    area_gpu_s: Floats
    segments: Segments

    def __post_init__(self) -> None:
        columns = (self.release_s, self.shortest_s, self.area_gpu_s)
        if any(c.ndim != 1 or c.size != self.jobs for c in columns):
            raise ValueError("demand needs one release, shortest time and area per job")
        if not all(np.isfinite(c).all() for c in columns):
            raise ValueError("releases, shortest times and areas must be finite")
        if bool((self.shortest_s < 0).any() or (self.area_gpu_s < 0).any()):
            raise ValueError("shortest times and areas must not be negative")
        if bool(((self.area_gpu_s > 0) & (self.shortest_s == 0)).any()):
            raise ValueError("a job with some area must take some time")

    @property
    def jobs(self) -> int:
        """Returns the number of jobs."""
        return self.release_s.size

    def charged(self, charge: Floats) -> JobDemand:
        """Returns the demand where a second at full speed on a GPU costs job j `charge[j]` of it.

        Charges lie in (0, 1]; those of jobs on one GPU, each times its speed over that alone, must
        have a sum of at most 1.
        """
        if charge.shape != self.release_s.shape or not bool(((charge > 0) & (charge <= 1)).all()):
            raise ValueError("each job needs a charge above 0 and up to 1")
        of_segment = np.repeat(charge, np.diff(self.segments.first))
        narrower = Segments(
            self.segments.first,
            self.segments.width_gpus * of_segment,
            self.segments.rate_per_gpu_s / of_segment,
        )
        return replace(self, area_gpu_s=self.area_gpu_s * charge, segments=narrower)

    def merged(self, steepness: float) -> JobDemand:
        """Returns a demand of fewer segments whose curves lie nowhere below these.

        Of each curve only segments stay whose rate is at most `steepness` of the one kept before;
        they are prolonged until they meet. The first one and the top speed stay.
        """
        jobs, curves = self.segments.first, []
        for first, end in zip(jobs[:-1].tolist(), jobs[1:].tolist(), strict=True):
            width, rate = (
                column[first:end].tolist()
                for column in (self.segments.width_gpus, self.segments.rate_per_gpu_s)
            )
            curves.append(_merged(width, rate, steepness))
        first = np.cumsum([0, *(len(curve) for curve in curves)])
        width, rate = np.array([piece for curve in curves for piece in curve]).reshape(-1, 2).T
        return replace(self, segments=Segments(first, width, rate))

    def subset(self, jobs: Ints) -> JobDemand:
        """Returns the demand of some of the jobs, in the order given."""
        counts = np.diff(self.segments.first)[jobs]
        first = np.concatenate(([0], np.cumsum(counts)))
        inside = np.arange(first[-1]) - np.repeat(first[:-1], counts)
        rows = np.repeat(self.segments.first[jobs], counts) + inside
        return JobDemand(
            self.release_s[jobs],
            self.shortest_s[jobs],
            self.area_gpu_s[jobs],
            Segments(first, self.segments.width_gpus[rows], self.segments.rate_per_gpu_s[rows]),
        )


def _merged(
    width: Sequence[float], rate: Sequence[float], steepness: float
) -> list[tuple[float, float]]:
    """Returns the (width, rate) of the segments that `JobDemand.merged` keeps of one curve."""
    lines: list[tuple[float, float]] = []
    height, at = 0.0, 0.0
    for gpus, slope in zip(width, rate, strict=True):
        # A segment's line: its value at 0 GPUs, and its slope.
        if not lines or slope <= steepness * lines[-1][1]:
            lines.append((height - slope * at, slope))
        height, at = height + slope * gpus, at + gpus
    lines.append((height, 0.0))
    meets = [0.0]
    for (low, steep), (high, flat) in pairwise(lines):
        meets.append((high - low) / (steep - flat))
    return [
        (end - begin, slope)
        for (begin, end), (_, slope) in zip(pairwise(meets), lines, strict=False)
        if end > begin
    ]


def plain_demand(
    release_s: npt.ArrayLike, shortest_s: npt.ArrayLike, area_gpu_s: npt.ArrayLike
) -> JobDemand:
    """Returns the demand of jobs with known extremes: one segment of area / shortest time GPUs.

    That is the weakest curve with these extremes: a job may be stretched at no cost in area.
    """
    release = np.asarray(release_s, dtype=np.float64)
    shortest = np.asarray(shortest_s, dtype=np.float64)
    area = np.asarray(area_gpu_s, dtype=np.float64)
    if not release.shape == shortest.shape == area.shape:
        raise ValueError("demand needs one release, shortest time and area per job")
    works = (area > 0) & (shortest > 0)
    first = np.concatenate(([0], np.cumsum(works))).astype(np.int64)
    segments = Segments(first, area[works] / shortest[works], 1 / area[works])
    return JobDemand(release, shortest, area, segments)


def rigid_demand(
    release_s: npt.ArrayLike, duration_s: npt.ArrayLike, gpus: npt.ArrayLike
) -> JobDemand:
    """Returns jobs that run on exactly `gpus` GPUs, alone, for `duration_s` in all."""
    duration = np.asarray(duration_s, dtype=np.float64)
    return plain_demand(release_s, duration, duration * np.asarray(gpus, dtype=np.float64))


@dataclass(frozen=True, slots=True)
class ScalingCurve:
    """Throughput (work per second) of a model at each GPU count it may run on."""

    gpus: Floats
    throughput: Floats

    @staticmethod
    def of(gpus: npt.ArrayLike, throughput: npt.ArrayLike) -> ScalingCurve:
        """Returns the curve of plain lists, sorted by GPU count. Raises ValueError."""
        counts = np.asarray(gpus, dtype=np.float64)
        rates = np.asarray(throughput, dtype=np.float64)
        if counts.ndim != 1 or counts.shape != rates.shape or not counts.size:
            raise ValueError("a scaling curve needs one throughput per GPU count")
        if not (np.isfinite(rates).all() and bool((counts > 0).all()) and float(rates.max()) > 0):
            raise ValueError("a scaling curve needs positive GPU counts and some throughput")
        order = np.argsort(counts, kind="stable")
        return ScalingCurve(counts[order], rates[order])

    def hull(self) -> tuple[Floats, Floats]:
        """Returns the concave hull from the origin up: widths (GPUs), slopes (throughput/GPU).

        Running at one count for part of the time and at another, or not at all, for the rest
        reaches every point under the hull and none above it.
        """
        points = [(0.0, 0.0)]
        for x, y in zip(self.gpus.tolist(), self.throughput.tolist(), strict=True):
            while len(points) > 1 and _turns_up(points[-2], points[-1], (x, y)):
                points.pop()
            if x == points[-1][0] or y <= points[-1][1]:
                continue
            points.append((x, y))
        corner = np.array(points)
        width = np.diff(corner[:, 0])
        return width, np.diff(corner[:, 1]) / width


def _turns_up(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> bool:
    """Returns whether the middle point lies on or under the line from the first to the last."""
    return (b[1] - a[1]) * (c[0] - a[0]) <= (c[1] - a[1]) * (b[0] - a[0])


def elastic_demand(
    release_s: npt.ArrayLike,
    work: npt.ArrayLike,
    curve_of: npt.ArrayLike,
    curves: Sequence[ScalingCurve],
) -> JobDemand:
    """Returns jobs that may change their GPU count: `work` units on curve `curve_of[j]` each.

    Shortest time: at the best throughput. Least area: at the best throughput per GPU.
    """
    release = np.asarray(release_s, dtype=np.float64)
    works = np.asarray(work, dtype=np.float64)
    which = np.asarray(curve_of, dtype=np.int64)
    if not release.shape == works.shape == which.shape:
        raise ValueError("elastic demand needs one release, work and curve per job")
    hulls = [curve.hull() for curve in curves]
    fastest = np.array([float((width * slope).sum()) for width, slope in hulls])
    thriftiest = np.array([float(slope[0]) for _, slope in hulls])
    busy = np.flatnonzero(works > 0)
    counts = np.zeros(works.size, dtype=np.int64)
    counts[busy] = np.array([width.size for width, _ in hulls])[which[busy]]
    empty = [np.empty(0)]
    segments = Segments(
        np.concatenate(([0], np.cumsum(counts))),
        np.concatenate([*empty, *(hulls[which[j]][0] for j in busy)]),
        np.concatenate([*empty, *(hulls[which[j]][1] / works[j] for j in busy)]),
    )
    return JobDemand(release, works / fastest[which], works / thriftiest[which], segments)

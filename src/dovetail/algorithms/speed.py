"""A machine whose speed changes at known instants: constant, or a capacity timeline.

`work_by` converts time to work and `time_of` work to time, so one machine of speed 1 in work time
serves every timeline.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dovetail.algorithms.arrays import Floats


@dataclass(frozen=True)
class SpeedTimeline:
    """Speed `speed[i]` from `start_s[i]` until the next start; the last one for ever.

    Nothing is done before the first start.
    """

    start_s: Floats
    speed: Floats

    def __post_init__(self) -> None:
        if self.start_s.ndim != 1 or self.start_s.shape != self.speed.shape:
            raise ValueError("a speed timeline needs as many speeds as starts")
        if not (self.start_s.size and np.isfinite(self.start_s).all()):
            raise ValueError("a speed timeline needs at least one start, all finite")
        if bool((np.diff(self.start_s) <= 0).any()):
            raise ValueError("the starts of a speed timeline must ascend")
        if not np.isfinite(self.speed).all() or bool((self.speed < 0).any()):
            raise ValueError("speeds must be finite and not negative")

    @staticmethod
    def constant(speed: float, start_s: float = 0.0) -> SpeedTimeline:
        """Returns one speed for ever, from `start_s` on."""
        return SpeedTimeline(np.array([start_s]), np.array([float(speed)]))

    @staticmethod
    def of(start_s: npt.ArrayLike, speed: npt.ArrayLike) -> SpeedTimeline:
        """Returns the timeline of plain lists."""
        return SpeedTimeline(
            np.asarray(start_s, dtype=np.float64), np.asarray(speed, dtype=np.float64)
        )

    def work_by(self, at_s: npt.ArrayLike) -> Floats:
        """Returns the work that can be done by each instant."""
        at = np.asarray(at_s, dtype=np.float64)
        piece = np.maximum(np.searchsorted(self.start_s, at, side="right") - 1, 0)
        return self._work[piece] + self.speed[piece] * np.maximum(at - self.start_s[piece], 0.0)

    def time_of(self, work: npt.ArrayLike) -> Floats:
        """Returns the first instant by which each amount of work can be done; inf if never."""
        amount = np.asarray(work, dtype=np.float64)
        piece = np.maximum(np.searchsorted(self._work, amount, side="left") - 1, 0)
        more = amount - self._work[piece]
        speed = self.speed[piece]
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.start_s[piece] + np.where(more > 0, more / speed, 0.0)

    def time_integral(self, work: npt.ArrayLike) -> Floats:
        """Returns the integral of `time_of` from the first unit of work up to each amount."""
        amount = np.asarray(work, dtype=np.float64)
        piece = np.maximum(np.searchsorted(self._work, amount, side="left") - 1, 0)
        more = amount - self._work[piece]
        speed = self.speed[piece]
        with np.errstate(divide="ignore", invalid="ignore"):
            part = more * (self.start_s[piece] + more / (2 * speed))
        return self._moment[piece] + np.where(more > 0, part, 0.0)

    @cached_property
    def _work(self) -> Floats:
        """The work done by each start."""
        return np.concatenate(([0.0], np.cumsum(self.speed[:-1] * np.diff(self.start_s))))

    @cached_property
    def _moment(self) -> Floats:
        """The integral of `time_of` over the work done by each start."""
        middle = (self.start_s[:-1] + self.start_s[1:]) / 2
        return np.concatenate(([0.0], np.cumsum(np.diff(self._work) * middle)))

"""A period in which the speeds of some jobs are measured.

Speeds are measured in the world and not believed, so they are right for unforeseen neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.core.view import View


@dataclass(frozen=True, slots=True)
class TrialPeriod:
    """Measured jobs: their progress `done_s` at the begin, and when the period ends.

    `pause_s` are the seconds from `begun_s` on in which each job makes no progress, for a switch.
    """

    jobs: tuple[int, ...]
    begun_s: float
    ends_s: float
    done_s: tuple[float, ...]
    pause_s: tuple[float, ...] = ()

    @staticmethod
    def of(
        view: View, jobs: tuple[int, ...], lasts_s: float, pause_s: tuple[float, ...] = ()
    ) -> TrialPeriod:
        """Returns a trial that begins now and lasts `lasts_s` after the longest pause."""
        ends_s = view.now + lasts_s + max(pause_s, default=0.0)
        return TrialPeriod(jobs, view.now, ends_s, tuple(view.progress.done_s(jobs)), pause_s)

    def speeds(self, view: View) -> tuple[float, ...]:
        """Returns the speed of each job since the trial began, in solo seconds per second."""
        pauses = self.pause_s or (0.0,) * len(self.jobs)
        now_s = view.progress.done_s(self.jobs)
        return tuple(
            max(0.0, now - done) / (view.now - self.begun_s - pause)
            for now, done, pause in zip(now_s, self.done_s, pauses, strict=True)
        )

"""A stretch of time over which the progress of some jobs is watched, to know how fast they run.

What comes of it is measured in the world and not believed, so it holds for jobs whose company
nobody foresaw.
"""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.core.view import View


@dataclass(frozen=True, slots=True)
class TrialPeriod:
    """Jobs under watch: their progress `done_s` when it began, and when it ends.

    `pause_s` are the seconds from `begun_s` on in which a switch lets each job make no progress.
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
        """Returns a trial that begins now and lasts so long after the longest pause."""
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

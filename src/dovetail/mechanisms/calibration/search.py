"""GIMBAL's search for the best setting of one co-location set, by measured steps.

Starting from free competition, each step squeezes workers of the low-priority side and moves
samples. Each setting is measured for five iterations or a minute; the best one stays. After three
steps in a row without gain the search ends. GIMBAL Algorithm 1; ALGORITHMS 3.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from dovetail.core.messages import ADJUST, LIMIT
from dovetail.core.placement import Placement
from dovetail.core.view import View
from dovetail.mechanisms.calibration.goals import Goal, Member, together
from dovetail.mechanisms.calibration.primitives import Bench, Setting, free_competition
from dovetail.mechanisms.sharing.stars import Star

FAILURES_MAX = 3
LEAST_GAIN = 1e-3
TRIAL_STEPS = 5
TRIAL_S = 60.0
"""A setting is measured for five iterations or a minute, whichever is first."""


@dataclass(frozen=True, slots=True)
class TrialPeriod:
    """A period in which the speeds of jobs are measured: their progress `done_s` at its begin.

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


@dataclass(frozen=True, slots=True)
class Means:
    """The goal of a search and its mechanisms."""

    goal: Goal
    limits: bool = True
    samples: bool = True
    early_exit: bool = True
    begin_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Search:
    """The state of the search on a set. `bare` are the placements without limits and samples.

    `due_s` is the time of the next step, infinite when the search is over; `speeds` were measured
    at `best`; `low` are the members of lower priority, by position.
    """

    star: Star
    bare: tuple[Placement, ...]
    now: Setting
    best: Setting
    due_s: float
    speeds: tuple[float, ...] = ()
    low: tuple[int, ...] = ()
    failures: int = 0
    steps: int = 0
    trial: TrialPeriod | None = None

    @staticmethod
    def begin(view: View, star: Star, bare: tuple[Placement, ...], means: Means) -> Search:
        """Returns a search that begins when all members have started."""
        start = free_competition(bare)
        settled_s = max(means.begin_s, *view.switch_s.values())
        return Search(star, bare, start, start, view.now + settled_s)

    def advanced(self, view: View, means: Means) -> Search:
        """Returns the search after the step that is due now, if any."""
        if view.now < self.due_s:
            return self
        if self.trial is None:
            return self._trying(view, self.now)
        measured = self._judged(view, means, self.trial.speeds(view))
        if means.early_exit and measured.failures >= FAILURES_MAX:
            return measured._over()
        setting = measured._bench(view, means).step(measured.now, measured.low)
        return measured._over() if setting is None else measured._trying(view, setting)

    def _judged(self, view: View, means: Means, speeds: tuple[float, ...]) -> Search:
        """Returns the search after the measurement of the present setting."""
        if not self.speeds:
            members = self._members(view, speeds)
            goal, rest = means.goal, range(1, len(members))
            centre_first = together(goal, members[1:]) < goal.priority(members[0])
            low = tuple(rest) if centre_first else (0,)
            return replace(self, speeds=speeds, low=low)
        # Both at this moment, so that elapsed time is no gain.
        value = means.goal.objective(self._members(view, speeds))
        best = means.goal.objective(self._members(view, self.speeds))
        if value < best - LEAST_GAIN * abs(best) or value < best == inf:
            return replace(self, best=self.now, speeds=speeds, failures=0)
        return replace(self, failures=self.failures + 1)

    def _trying(self, view: View, setting: Setting) -> Search:
        """Returns the search that measures a setting from now on."""
        cost = view.switch_s
        pauses = tuple(
            cost[LIMIT] if old.limits != new.limits else cost[ADJUST] if old != new else 0.0
            for old, new in zip(self.now, setting, strict=True)
        )
        trial = TrialPeriod.of(view, self.star.members, self._window_s(view), pauses)
        tried = self.steps if setting == self.now else self.steps + 1
        return replace(self, now=setting, trial=trial, due_s=trial.ends_s, steps=tried)

    def _over(self) -> Search:
        return replace(self, now=self.best, trial=None, due_s=inf)

    def _window_s(self, view: View) -> float:
        """Returns the seconds of a measurement: five slowest iterations, at most a minute."""
        kind_of, alone_s = view.physics.kind_of, view.physics.sharing.interleaving.iteration_s
        iterations = [float(alone_s[kind_of[job]]) for job in self.star.members]
        speeds = self.speeds or (1.0,) * len(iterations)
        if not all(iterations) or not all(speeds):
            return TRIAL_S
        slowest_s = max(i / s for i, s in zip(iterations, speeds, strict=True))
        return min(TRIAL_S, TRIAL_STEPS * slowest_s)

    def _members(self, view: View, speeds: Sequence[float]) -> list[Member]:
        jobs, deadline_s = self.star.members, view.jobs.deadline_s
        left_s = view.progress.left_s(jobs)
        return [
            Member.of(
                gpus=placement.gpus,
                utilization=view.physics.sharing.utilization(job),
                speed=speed,
                left_s=left,
                deadline_s=float(deadline_s[job]),
                now=view.now,
            )
            for job, placement, speed, left in zip(jobs, self.bare, speeds, left_s, strict=True)
        ]

    def _bench(self, view: View, means: Means) -> Bench:
        bench = Bench(view, self.star, self.bare, means.limits, means.samples)
        return bench if bench.fits_contexts() else replace(bench, limits=False)

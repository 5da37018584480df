"""The simulator whose jobs report their true rates, and a belief that learns from them.

It wakes the policy when the belief changed, as the live world does.
"""

from collections.abc import Sequence

from dovetail.core.beliefs import Neighbour, Physics
from dovetail.core.plan import Draft
from dovetail.core.policy import Decision, Policy
from dovetail.core.reading import SpeedMeasurement
from dovetail.core.view import View, show
from dovetail.physics.beliefs.learning import Learning
from dovetail.sim.world import SimWorld

PER_S = 100.0
"""Samples a second of every model on one GPU."""


class Reporting:
    """A simulated world whose jobs report every so many seconds."""

    def __init__(
        self, world: SimWorld, learning: Learning, truth: Physics, every_s: float = 2.0
    ) -> None:
        self._world, self._learning, self._truth = world, learning, truth
        self._every_s = self._report_s = every_s

    def advance(self, until: float) -> bool:
        """Moves to the next instant that concerns the policy."""
        while self._world.advance(min(until, self._report_s)):
            view = self._world.observe()
            learned = view.now >= self._report_s and self._hear(view)
            show(view, changes=view.changes._replace(woke=learned or view.now >= until))
            c = view.changes
            if c.woke or c.arrived or c.ended:
                return True
        return False

    def _hear(self, view: View) -> bool:
        self._report_s = view.now + self._every_s
        learned = False
        for job, placement in view.running.items():
            beside = self._neighbours(view, job)
            if view.progress.running_since_s(job) < view.now:
                speed = self._truth.rate(job, placement, beside)
                held = int(self._truth.memory.held_bytes(job, placement))
                reading = SpeedMeasurement(
                    PER_S * self._truth.structure.scale(job) * speed, memory_bytes=held
                )
                learned |= self._learning.observe(job, placement, beside, reading)
        show(view, physics=self._learning.physics)
        return learned

    def _neighbours(self, view: View, job: int) -> Sequence[Neighbour]:
        mine = set(view.running[job].named())
        return [
            (other, there)
            for other, there in view.running.items()
            if other != job and mine & set(there.named())
        ]

    def observe(self) -> View:
        """Returns the view."""
        return self._world.observe()

    def apply(self, draft: Draft) -> None:
        """Carries a draft out."""
        self._world.apply(draft)

    def in_time(self, took_s: float) -> bool:
        """Holds always."""
        return True

    def refuse(self, policy: Policy, why: Sequence[str], cause: Exception | None = None) -> float:
        """Raises."""
        return self._world.refuse(policy, why, cause)

    def note(self, decision: Decision) -> None:
        """Records the reasons."""
        self._world.note(decision)

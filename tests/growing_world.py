"""A simulated world that admits each job when it arrives, as a live one does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from builders import Facts
from dovetail.control.loop import run
from dovetail.control.state import ClusterState
from dovetail.core.beliefs import Physics
from dovetail.core.job import JobTable, Shape
from dovetail.core.messages import Explained, Fact, Recorder
from dovetail.core.policy import Policy
from dovetail.sim.scene import Scene
from dovetail.sim.world import SimWorld

Told = Fact | tuple[float, tuple[tuple[str, int, Shape | None, int], ...]]
"""A fact; of an `Explained`, its reasons with shapes in place of their numbers."""


def empty_table() -> JobTable:
    """Returns a table to which jobs can be appended."""
    return JobTable.build([], np.empty(0), np.empty(0, np.int64))


class GrowingWorld(SimWorld):
    """Begins with an empty table; `belief_of` makes the physics of it."""

    def __init__(
        self,
        scene: Scene,
        policy: Policy,
        recorder: Recorder,
        belief_of: Callable[[JobTable], Physics],
    ) -> None:
        super().__init__(scene, policy, recorder)
        table = empty_table()
        self.state = ClusterState(
            table,
            scene.cluster,
            policy,
            physics=belief_of(table),
            forecast=scene.forecast,
            placing=scene.placing,
            switching=scene.switching,
        )

    def _submit_jobs(self, now: float, facts: list[Fact]) -> list[int]:
        known, due = len(self.state.jobs), self._next
        while self._submit[due] <= now:
            due += 1
        jobs = [self._scene.trace.jobs.job(job) for job in range(known, due)]
        assert self.state.admit(jobs) == range(known, due)
        return super()._submit_jobs(now, facts)


def told(world: SimWorld, policy: Policy, facts: Facts) -> list[Told]:
    """Runs a world to its end; returns what it recorded, whatever its shapes are called."""
    run(world, policy)
    shapes = world.state.waiting.shapes
    return [_named(fact, shapes) for fact in facts.all]


def _named(fact: Fact, shapes: list[Shape]) -> Told:
    if not isinstance(fact, Explained):
        return fact
    # Reasons of shapes come in the order of their numbers.
    named = [
        (r.code, r.job, shapes[r.shape] if r.shape >= 0 else None, r.behind) for r in fact.reasons
    ]
    return fact.t, tuple(sorted(named, key=repr))

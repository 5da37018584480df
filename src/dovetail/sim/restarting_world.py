"""A simulated world whose tables are lost now and then, to test what survives a restart."""

from __future__ import annotations

import numpy as np

from dovetail.control.state import ClusterState
from dovetail.core.messages import Recorder
from dovetail.core.policy import Policy
from dovetail.core.view import Changes, show
from dovetail.sim.scene import Scene
from dovetail.sim.world import SimWorld


class RestartingWorld(SimWorld):
    """A world whose tables are lost now and then, and rebuilt from the progress of each job.

    A live controller restarts in the same way: all waiting jobs arrive, the others go on running.
    """

    def __init__(self, scene: Scene, policy: Policy, recorder: Recorder) -> None:
        super().__init__(scene, policy, recorder)
        self._draw = np.random.default_rng(1)
        self.restarts = 0
        self.restarted = False

    def advance(self, until: float) -> bool:
        """Moves to the next instant; before a fifth of them the tables are lost."""
        goes_on = super().advance(until)
        self.restarted = goes_on and bool(self._draw.random() < 0.2)
        if self.restarted:
            self._restart()
        return goes_on

    def _restart(self) -> None:
        old, scene = self.state, self._scene
        self.state = state = ClusterState(
            scene.trace.jobs,
            old.view.cluster,
            self._policy,
            physics=scene.belief,
            forecast=scene.forecast,
            placing=scene.placing,
            switching=scene.switching,
            startup_s=scene.startup_s,
        )
        state.now = old.now
        for job in sorted(old.plan.placed):
            state.restore(job, old.life(job), old.plan.placed[job], old.rate[job])
        waiting = sorted(old.waiting)
        for job in waiting:
            state.restore(job, old.life(job), None)
        show(state.view, now=old.now, changes=Changes(arrived=waiting))
        self.restarts += 1

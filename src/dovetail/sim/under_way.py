"""The simulated world that begins with jobs on its GPUs, as a running cluster does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dovetail.control.state import JobProgress
from dovetail.core.beliefs import Neighbour
from dovetail.core.messages import RESUME, Recorder, Started, Submitted
from dovetail.core.placement import Placement
from dovetail.core.policy import Policy
from dovetail.sim.scene import Scene
from dovetail.sim.scripted import ScriptedEvents, ScriptedWorld

ALONE: tuple[Neighbour, ...] = ()


@dataclass(frozen=True, slots=True)
class UnderWay:
    """What a world begins with at `now_s`: the placement and the progress of running jobs.

    `states` are those of nodes that are not up.
    """

    now_s: float
    running: Mapping[int, tuple[Placement, JobProgress]]
    states: Sequence[tuple[int, str]] = ()


class UnderWayWorld(ScriptedWorld):
    """A world with scripted users that begins in the middle. Its jobs share no GPUs at first.

    Raises IllegalPlan when jobs under way claim the same GPUs.
    """

    def __init__(
        self,
        scene: Scene,
        script: ScriptedEvents,
        begin: UnderWay,
        policy: Policy,
        recorder: Recorder,
    ) -> None:
        super().__init__(scene, script, policy, recorder)
        state, now = self.state, begin.now_s
        state.now = now
        for job, (placement, life) in sorted(begin.running.items()):
            rate = scene.truth.rate(job, placement, ALONE, life.done_s)
            state.restore(job, life, placement, rate)
            self._from_s[job] = life.placed_s
            self._schedule(job)
            self._facts.append(Submitted(now, job, *state.told(job)))
            self._facts.append(Started(now, job, RESUME, placement, rate, now))
        if begin.states:
            state.change_nodes(begin.states)

"""A policy goes on from its first memory with jobs that it never saw arrive or start."""

import random

import pytest
from test_policies_with_blurred_belief import crowded
from test_policy_contract import BUSY, some_rows

from builders import Facts, policy_of, scene_of, trace_of
from dovetail.control.loop import run
from dovetail.control.state import ClusterState
from dovetail.core.cluster import Cluster
from dovetail.core.messages import HOW, Ended, Recorder
from dovetail.core.policy import Decision, Policy
from dovetail.core.view import Changes, View
from dovetail.physics.placed import PlacedPhysics
from dovetail.physics.zoo import shipped
from dovetail.sim.scene import Scene
from dovetail.sim.world import SimWorld


class RestartingWorld(SimWorld):
    """A world whose tables are lost now and then, and made anew from what each job had reached."""

    def __init__(self, scene: Scene, policy: Policy, recorder: Recorder) -> None:
        super().__init__(scene, policy, recorder)
        self._draw = random.Random(1)
        self.restarts = 0
        self.restarted = False

    def advance(self, until: float) -> bool:
        goes_on = super().advance(until)
        self.restarted = goes_on and self._draw.random() < 0.2
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
            switch_s={how: scene.switching.delay_s(how) for how in HOW},
        )
        state.now = state.view.now = old.now
        for job in sorted(old.plan.placed):
            state.restore(job, old.life(job), old.plan.placed[job], old.rate[job])
        waiting = sorted(old.waiting)
        for job in waiting:
            state.restore(job, old.life(job), None)
        state.view.changes = Changes(arrived=waiting)
        self.restarts += 1


class Forgetful:
    """A policy whose memory is lost with the tables of its world."""

    def __init__(self, inner: Policy) -> None:
        self._inner = inner
        self.world: RestartingWorld | None = None
        self.knows, self.powers, self.order = inner.knows, inner.powers, inner.order
        self.initial = inner.initial

    def decide(self, view: View, memory: object) -> Decision:
        assert self.world is not None
        return self._inner.decide(view, self.initial if self.world.restarted else memory)


def play_with_restarts(scene: Scene, name: str) -> int:
    """Runs a scene; returns how often everything was lost. Every job ends once."""
    policy, facts = Forgetful(policy_of(name)), Facts()
    policy.world = RestartingWorld(scene, policy, facts)
    run(policy.world, policy)
    ended = sorted(fact.job for fact in facts.all if isinstance(fact, Ended))
    assert ended == list(range(len(scene.trace)))
    return policy.world.restarts


@pytest.mark.parametrize("switching", ["restart:3", "restart:3,prepared:2"])
@pytest.mark.parametrize("name", BUSY)
def test_every_job_ends_though_the_scheduler_forgets(name: str, switching: str) -> None:
    scene = scene_of(trace_of(*some_rows(40, seed=31)), "2x4", switching=switching)
    assert play_with_restarts(scene, name) > 3


@pytest.mark.parametrize("name", BUSY)
def test_every_job_of_a_model_ends_though_the_scheduler_forgets(name: str) -> None:
    trace = crowded(seed=9)
    truth = PlacedPhysics(trace.jobs, Cluster.uniform(2, 4), shipped())
    assert play_with_restarts(scene_of(trace, "2x4", truth=truth), name) > 3

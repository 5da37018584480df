"""A policy goes on from its first memory with jobs that it never saw arrive or start."""

import pytest
from test_policies_with_blurred_belief import crowded
from test_policy_contract import BUSY, some_rows

from builders import Facts, policy_of, scene_of, trace_of
from dovetail.conformance import Forgetful
from dovetail.control.loop import run
from dovetail.core.cluster import Cluster
from dovetail.core.messages import Ended
from dovetail.physics.placed import placed_physics
from dovetail.physics.zoo.models import shipped
from dovetail.sim.restarting_world import RestartingWorld
from dovetail.sim.scene import Scene


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
    assert play_with_restarts(scene, name) > 1


@pytest.mark.parametrize("name", BUSY)
def test_every_job_of_a_model_ends_though_the_scheduler_forgets(name: str) -> None:
    trace = crowded(seed=9)
    truth = placed_physics(trace.jobs, Cluster.uniform(2, 4), shipped())
    assert play_with_restarts(scene_of(trace, "2x4", truth=truth), name) > 1

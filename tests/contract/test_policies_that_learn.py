"""Every policy serves a trace while its belief changes from a guess to what is measured."""

import pytest
from test_policies_with_blurred_belief import BUSY, JOBS, crowded

from builders import play_scene, policy_of, scene_of
from dovetail.core.cluster import Cluster
from dovetail.physics.beliefs.learning import Learning
from dovetail.physics.linear import linear_physics
from dovetail.physics.placed import placed_physics
from dovetail.physics.sharing.interference import Injected
from dovetail.physics.zoo.models import shipped
from reporting_world import Reporting


@pytest.mark.parametrize("name", BUSY)
def test_every_job_ends_while_the_belief_learns(name: str) -> None:
    trace = crowded()
    truth = placed_physics(trace.jobs, Cluster.uniform(2, 4), shipped(), interference=Injected(1.8))
    learning = Learning(linear_physics(trace.jobs, Injected(1.1)), trace.jobs)
    story = play_scene(
        scene_of(trace, "2x4", truth=truth, belief=learning.physics),
        policy_of(name),
        lambda world: Reporting(world, learning, truth, every_s=10.0),
    )
    assert sorted(story.ended()) == list(range(JOBS))
    assert learning.measurements.rated(), "something was learned"

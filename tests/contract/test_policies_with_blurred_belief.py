"""Every policy serves a trace of the zoo's models while it believes wrong things on any axis."""

import random

import pytest

import dovetail.policies  # registers the policies
from builders import Row, play_scene, policy_of, scene_of, trace_of
from dovetail.core.cluster import Cluster
from dovetail.core.policy import registered
from dovetail.core.trace import Trace
from dovetail.physics.beliefs.noisy import believed
from dovetail.physics.placed import placed_physics
from dovetail.physics.zoo.models import shipped

assert dovetail.policies
BUSY = sorted(
    name
    for name, made in registered().items()
    if made.module.startswith("dovetail.policies.") and name != "no-op"
)
MODELS = ("muri/vgg16", "muri/gpt2", "muri/a2c", "pollux/cifar10", "afs/resnet50", "")
JOBS = 22


def crowded(seed: int = 3) -> Trace:
    """Returns jobs of the zoo that do not fit eight GPUs all at once."""
    draw, rows, submit_s = random.Random(seed), [], 0.0
    for _ in range(JOBS):
        submit_s += draw.choice([0.0, 5.0, 60.0])
        gpus, elastic = draw.choice([1, 1, 2, 4]), draw.random() < 0.3
        rows.append(
            Row(
                gpus,
                draw.choice([30.0, 200.0, 700.0]),
                submit_s,
                model=draw.choice(MODELS),
                shareable=True,
                elastic=elastic,
                min_gpus=1 if elastic else gpus,
                max_gpus=2 * gpus if elastic else gpus,
            )
        )
    return trace_of(*rows)


@pytest.mark.parametrize("belief", ["scaling:0.7", "interference:0.7", "stages:1", "memory:1"])
@pytest.mark.parametrize("name", BUSY)
def test_every_job_ends_whatever_is_believed(name: str, belief: str) -> None:
    trace = crowded()
    truth = placed_physics(trace.jobs, Cluster.uniform(2, 4), shipped())
    blurred = believed(truth, trace.jobs, belief, 5)
    story = play_scene(scene_of(trace, "2x4", truth=truth, belief=blurred), policy_of(name))
    assert sorted(story.ended()) == list(range(JOBS))

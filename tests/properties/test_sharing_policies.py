"""Whole runs of the sharing policies: as the plain ones decide, and within every limit."""

import pytest
from hypothesis import given, settings

from builders import Story, play_scene
from dovetail.core.messages import Ended, Started
from dovetail.core.placement import Placement
from dovetail.core.policy import Policy, parse_policy
from dovetail.sim.scene import Scene
from plain_sharing import Plain
from property_size import examples
from sharing_scenes import scenes


def seats(story: Story) -> list[tuple[float, int, Placement | None]]:
    """Returns every start and end with its placement, in order."""
    found: list[tuple[float, int, Placement | None]] = []
    for fact in story.facts:
        if isinstance(fact, Started):
            found.append((fact.t, fact.job, fact.placement))
        elif isinstance(fact, Ended):
            found.append((fact.t, fact.job, None))
    return found


PAIRS: list[tuple[str, Policy]] = [
    ("sjf-bsbf", Plain()),
    ("sjf-bsbf:priority=service", Plain(by_service=True)),
    ("sjf-bsbf:order-hosts=benefit", Plain(by_benefit=True)),
    ("sjf-ffs", Plain(first_fit=True)),
    ("sjf-ffs:priority=service", Plain(first_fit=True, by_service=True)),
]


@pytest.mark.parametrize(("name", "plain"), PAIRS, ids=[name for name, _ in PAIRS])
@examples(15)
@given(scene=scenes())
def test_it_decides_as_the_plain_one(name: str, plain: Policy, scene: Scene) -> None:
    fast = play_scene(scene, parse_policy(name))
    slow = play_scene(scene, plain)
    assert seats(fast) == seats(slow)


@pytest.mark.parametrize("name", ["sjf-bsbf", "sjf-ffs"])
@settings(max_examples=30)
@given(scene=scenes())
def test_gangs_stay_whole_and_gpus_hold_two_jobs_that_fit(name: str, scene: Scene) -> None:
    story = play_scene(scene, name)
    jobs, physics = scene.trace.jobs, scene.truth
    memory = scene.cluster.groups[0].gpu_memory_bytes
    on: dict[int, Placement] = {}
    shared = 0
    for batch in story.batches:
        for fact in batch:
            if isinstance(fact, Started):
                assert fact.placement.gpus == jobs.gpus[fact.job]
                on[fact.job] = fact.placement
            elif type(fact).__name__ in ("Ended", "Stopped"):
                on.pop(fact.job, None)  # type: ignore[union-attr]
        sitting: dict[tuple[int, int], list[int]] = {}
        for job, placement in on.items():
            for gpu in placement.named():
                sitting.setdefault(gpu, []).append(job)
        for here in sitting.values():
            assert len(here) <= 2
            if len(here) == 2:
                shared += 1
                assert all(jobs.shareable[j] for j in here)
                held = [physics.memory.footprint_bytes(j, on[j].accumulation_steps) for j in here]
                assert sum(held) <= memory
    assert sorted(story.ended()) == list(range(len(jobs)))
    if not any(jobs.shareable):
        assert shared == 0

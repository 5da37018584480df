"""A policy may raise anywhere in a decision: the plan stays, and no job is lost."""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from test_policies_with_blurred_belief import crowded
from test_policy_contract import BUSY, some_rows

from builders import Facts, policy_of, scene_of, trace_of
from dovetail.control.loop import run
from dovetail.core.cluster import Cluster
from dovetail.core.messages import Ended
from dovetail.core.occupancy import Occupancy
from dovetail.core.placement import Placement
from dovetail.core.policy import Decision, Policy
from dovetail.core.view import View
from dovetail.physics.placed import placed_physics
from dovetail.physics.zoo.models import shipped
from dovetail.sim.scene import Scene
from dovetail.sim.world import SimWorld
from fingerprint import fingerprint


class Fault(Exception):
    """Stands for any bug."""


class RecordingWorld(SimWorld):
    """Goes on with the last good plan, and asks again a second later."""

    refused = 0

    def refuse(  # type: ignore[override]
        self, policy: Policy, why: Sequence[str], cause: Exception | None = None
    ) -> float:
        assert isinstance(cause, Fault), why
        assert why == (f"it raised Fault: {cause}",)
        assert isinstance(policy, Faulty) and policy.before is not None
        assert fingerprint(self.state.view, self.state) == policy.before, "tables have changed"
        self.refused += 1
        return self.state.now + 1.0


class Faulty:
    """Raises now and then: before it decides, in the middle of a step of its draft, or after."""

    def __init__(self, inner: Policy, seed: int) -> None:
        self._inner = inner
        self._draw = random.Random(seed)
        self.before: tuple[object, ...] | None = None
        self.world: RecordingWorld | None = None
        self.knows, self.powers, self.order = inner.knows, inner.powers, inner.order
        self.initial = inner.initial

    def decide(self, view: View, memory: object) -> Decision:
        assert self.world is not None
        how = self._draw.choice(("well", "well", "before", "inside", "after"))
        if how == "well":
            return self._inner.decide(view, memory)
        self.before = fingerprint(view, self.world.state)
        if how == "before":
            raise Fault(how)
        with _breaking(self._draw.randrange(3) if how == "inside" else 10**9):
            self._inner.decide(view, memory)
        raise Fault(how)


@contextmanager
def _breaking(steps: int) -> Iterator[None]:
    """Lets holding GPUs fail half way, after so many times."""
    hold, left = Occupancy.hold, [steps]

    def broken(self: Occupancy, job: int, placement: Placement) -> None:
        hold(self, job, placement)
        left[0] -= 1
        if left[0] < 0:
            raise Fault("inside")

    Occupancy.hold = broken  # type: ignore[method-assign]
    try:
        yield
    finally:
        Occupancy.hold = hold  # type: ignore[method-assign]


def play_with_faults(scene: Scene, name: str) -> None:
    """Runs a scene under a policy that raises; every job ends once."""
    policy, facts = Faulty(policy_of(name), 5), Facts()
    policy.world = world = RecordingWorld(scene, policy, facts)
    run(world, policy)
    assert world.refused > 10
    ended = sorted(fact.job for fact in facts.all if isinstance(fact, Ended))
    assert ended == list(range(len(scene.trace)))


@pytest.mark.parametrize("name", BUSY)
def test_no_job_is_lost_by_faults(name: str) -> None:
    play_with_faults(
        scene_of(trace_of(*some_rows(30, seed=41)), "2x4", switching="restart:3"), name
    )


@pytest.mark.parametrize("name", BUSY)
def test_no_job_of_a_model_is_lost_by_faults(name: str) -> None:
    trace = crowded(seed=11)
    truth = placed_physics(trace.jobs, Cluster.uniform(2, 4), shipped())
    play_with_faults(scene_of(trace, "2x4", truth=truth), name)

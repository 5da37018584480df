"""The public suite over every physics of ours, and over some that break it."""

from dataclasses import replace

import pytest

from dovetail.conformance import PhysicsConformance
from dovetail.core.beliefs import Neighbour, Physics
from dovetail.core.cluster import Cluster
from dovetail.core.job import JobTable
from dovetail.core.placement import Placement
from dovetail.physics.beliefs.learning import Learning
from dovetail.physics.beliefs.noisy import believed
from dovetail.physics.linear import LinearSharing, LinearStructure, UnknownMemory, linear_physics
from dovetail.physics.placed import placed_physics
from dovetail.physics.sharing.interference import Injected
from dovetail.physics.zoo.models import shipped

CLUSTER = Cluster.uniform(2, 4)


def placed(jobs: JobTable) -> Physics:
    return placed_physics(jobs, CLUSTER, shipped(), interference=Injected(1.2))


def counted(jobs: JobTable) -> Physics:
    return placed_physics(jobs, CLUSTER, shipped(), by_count=True)


def noisy(jobs: JobTable) -> Physics:
    return believed(placed(jobs), jobs, "scaling:0.3,interference:0.3,memory:0.3", 1)


def noisy_stages(jobs: JobTable) -> Physics:
    return believed(linear_physics(jobs), jobs, "stages:0.5", 1)


def measured(jobs: JobTable) -> Physics:
    return Learning(placed(jobs), jobs).physics


class TestLinear(PhysicsConformance):
    physics = staticmethod(linear_physics)


class TestPlaced(PhysicsConformance):
    physics = staticmethod(placed)


class TestCounted(PhysicsConformance):
    physics = staticmethod(counted)


class TestNoisy(PhysicsConformance):
    physics = staticmethod(noisy)


class TestNoisyStages(PhysicsConformance):
    physics = staticmethod(noisy_stages)


class TestMeasured(PhysicsConformance):
    physics = staticmethod(measured)


class Tiring(LinearSharing):
    """Slows a job more each time it is asked."""

    asked = 0

    def slowdown(self, job: int, placement: Placement, neighbours: list[Neighbour]) -> float:  # type: ignore[override]
        self.asked += 1
        return 1.0 + self.asked


class Shrinking(UnknownMemory):
    """Fits into a small GPU and not into a large one."""

    def fits(self, occupants: object, gpu_memory_bytes: float) -> bool:
        return gpu_memory_bytes < 10e9


def test_the_suite_finds_a_physics_that_remembers_what_it_was_asked() -> None:
    def tiring(jobs: JobTable) -> Physics:
        return replace(linear_physics(jobs), sharing=Tiring(LinearStructure(jobs), Injected()))

    with pytest.raises(AssertionError, match="are of one kind and differ"):
        PhysicsConformance.check(tiring)


def test_the_suite_finds_memory_that_does_not_grow_with_the_gpu() -> None:
    with pytest.raises(AssertionError, match="and not into more memory"):
        PhysicsConformance.check(lambda jobs: replace(linear_physics(jobs), memory=Shrinking()))

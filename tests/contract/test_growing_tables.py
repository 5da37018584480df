"""A policy decides the same whether its tables hold all jobs yet to come or only those so far."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from test_policies_with_blurred_belief import crowded
from test_policy_contract import BUSY, VARIANTS, some_rows

from builders import Facts, Row, policy_of, scene_of, trace_of
from dovetail.core.beliefs import Physics
from dovetail.core.cluster import Cluster, NodeGroup
from dovetail.core.job import JobTable
from dovetail.core.tenants import QueueSpec
from dovetail.core.trace import Trace
from dovetail.physics.beliefs.noisy import believed
from dovetail.physics.linear import linear_physics
from dovetail.physics.placed import placed_physics
from dovetail.physics.sharing.interference import Injected, MeasuredInterference
from dovetail.physics.zoo.models import shipped
from dovetail.sim.world import SimWorld
from growing_world import GrowingWorld, Told, told

ZOO = Cluster.uniform(2, 4)


def both(
    name: str, trace: Trace, cluster: Cluster | str, belief_of: Callable[[JobTable], Physics]
) -> tuple[list[Told], list[Told]]:
    """Returns what a policy does with the whole table and with a growing one."""
    made = []
    for growing in (False, True):
        policy, facts = policy_of(name), Facts()
        belief = belief_of(trace.jobs)
        scene = scene_of(
            trace, cluster, truth=belief_of(trace.jobs), belief=belief, switching="restart:3"
        )
        world = (
            GrowingWorld(scene, policy, facts, belief_of)
            if growing
            else SimWorld(scene, policy, facts)
        )
        made.append(told(world, policy, facts))
    return made[0], made[1]


@pytest.mark.parametrize("name", BUSY)
def test_jobs_without_models_and_quotas(name: str) -> None:
    cluster = Cluster(
        (NodeGroup("all", 2, 4, cpus=32.0, memory_bytes=64e9),), queues=(QueueSpec("q", 3),)
    )
    rows = [
        replace(
            row,
            queue="q" if row.gpus <= 3 and i % 4 == 1 else "",
            preemptible=i % 7 != 6,
            cpus=4.0 * row.gpus if i > 20 and i % 5 == 0 else 0.0,
            batch_size=16 * (i % 3),
        )
        for i, row in enumerate(some_rows(40, seed=21))
    ]
    whole, growing = both(
        name, trace_of(*rows), cluster, lambda jobs: linear_physics(jobs, Injected(1.3))
    )
    assert growing == whole


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if n in VARIANTS else []) for n in BUSY]
)
def test_jobs_of_models_that_appear_one_by_one(name: str) -> None:
    whole, growing = both(
        name,
        crowded(seed=7),
        ZOO,
        lambda jobs: placed_physics(jobs, ZOO, shipped(), interference=MeasuredInterference()),
    )
    assert growing == whole


@pytest.mark.parametrize(
    "name", ["muri-l", "sjf-bsbf", "gimbal", "afs-p", "pollux", "a-srpt", "antman"]
)
def test_errors_of_a_belief_are_drawn_job_by_job(name: str) -> None:
    def blurred(jobs: JobTable) -> Physics:
        words = "scaling:0.5,interference:0.5,stages:0.5,memory:0.5"
        return believed(placed_physics(jobs, ZOO, shipped()), jobs, words, 5)

    whole, growing = both(name, crowded(seed=8), ZOO, blurred)
    assert growing == whole


def test_types_of_gpus_that_nobody_asked_for_before() -> None:
    rows = [
        Row(1, 10.0 + i, float(i), gpu_type=("", "", "v100", "a100")[i % 4 if i > 8 else 0])
        for i in range(24)
    ]
    for name in ("backfill", "max-min", "afs-p", "optimus", "srtf", "sjf-bsbf"):
        whole, growing = both(name, trace_of(*rows), "1x2:a100+1x2:v100", linear_physics)
        assert growing == whole

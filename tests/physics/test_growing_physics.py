"""A physics to which jobs are admitted answers as one that knew them all from the start."""

from collections.abc import Callable

import numpy as np
import pytest

from builders import Row, trace_of
from dovetail.core.beliefs import Physics, SizedJob
from dovetail.core.cluster import Cluster
from dovetail.core.job import JobRequest, JobTable
from dovetail.core.placement import Interleave, Placement
from dovetail.physics.beliefs.noisy import believed
from dovetail.physics.linear import linear_physics
from dovetail.physics.placed import placed_physics
from dovetail.physics.sharing.interference import Injected, MeasuredInterference
from dovetail.physics.zoo.models import shipped
from growing_world import empty_table

CLUSTER = Cluster.uniform(2, 4)
ROWS = [
    Row(2, 10, model="muri/vgg16", shareable=True),
    Row(2, 10, model="muri/gpt2"),
    Row(1, 10),
    Row(2, 10, model="muri/vgg16"),
    Row(4, 10, model="pollux/cifar10", batch_size=512),
    Row(1, 10, model="nobody/knows"),
    Row(4, 10, model="asrpt/vgg19"),
    Row(1, 10, model="muri/a2c"),
]


def placed(jobs: JobTable) -> Physics:
    return placed_physics(jobs, CLUSTER, shipped(), interference=MeasuredInterference())


MADE: dict[str, Callable[[JobTable], Physics]] = {
    "linear": lambda jobs: linear_physics(jobs, Injected(1.4)),
    "placed": placed,
    "counted": lambda jobs: placed_physics(jobs, CLUSTER, shipped(), by_count=True),
    "blurred": lambda jobs: believed(
        placed(jobs), jobs, "scaling:0.4,interference:0.4,memory:0.4", 3
    ),
    "unlike": lambda jobs: believed(placed(jobs), jobs, "stages:0.4", 3),
}


def answers(physics: Physics, jobs: int) -> list[object]:
    """Returns all that a physics says of the first jobs."""
    said: list[object] = []
    kinds = int(physics.kind_of[:jobs].max()) + 1
    known = physics.sharing.interleaving
    said.append((physics.kind_of[:jobs].tolist(), physics.speed.rates(8)[:kinds].tolist()))
    said.append((known.stage_s[:kinds].tolist(), known.iteration_s[:kinds].tolist()))
    for job in range(jobs):
        gpus = ROWS[job].gpus
        named = Placement(((0, gpus),), (tuple(range(gpus)),))
        said.append(
            (physics.rate(job, Placement(((0, 1), (1, 1))), ()), physics.structure.scale(job))
        )
        said.append([array.tolist() for array in physics.speed.best_batches(job, 0.0, 4)])
        said.append(
            (
                physics.structure.graph(job),
                physics.batches.samples(job),
                physics.sharing.utilization(job),
            )
        )
        said.append((physics.memory.footprint_bytes(job, 1), physics.memory.fixed_bytes(job)))
        said.append((physics.batches.accumulated(job, 2), physics.batches.most_steps(job)))
        said.append((physics.speed.top(job, 2), physics.speed.spread(job)))
        ours, theirs = physics.sharing.interferences(
            [SizedJob(job, 2)], [SizedJob(o) for o in range(jobs)]
        )
        each = [
            physics.sharing.interference(SizedJob(job, 2), SizedJob(other, 1))
            for other in range(jobs)
        ]
        assert list(zip(ours[0].tolist(), theirs[0].tolist(), strict=True)) == each
        for other in range(jobs):
            there = Placement(((0, ROWS[other].gpus),), (tuple(range(ROWS[other].gpus)),))
            said.append(physics.sharing.interference(SizedJob(job, 1), SizedJob(other, 1)))
            if other != job:
                said.append(physics.rate(job, named, [(other, there)]))
                seats = [Placement(p.spans, p.gpu_ids, interleave=Interleave(0, i))
                         for i, p in enumerate((named, there))]  # fmt: skip
                said.append(physics.rate(job, seats[0], [(other, seats[1])]))
                said.append(physics.memory.fits([(job, named), (other, there)], 16e9))
    return said


@pytest.mark.parametrize("name", MADE)
def test_answers_are_those_of_the_whole_table_and_stay_as_they_are(name: str) -> None:
    whole = MADE[name](trace_of(*ROWS).jobs)
    jobs = empty_table()
    growing = MADE[name](jobs)
    assert growing.speed.rates(8).shape == (0, 9)
    for job in range(len(ROWS)):
        jobs.append([trace_of(*ROWS).jobs.job(job)])
        growing.structure.admit(jobs)
        growing.structure.admit(jobs)  # told twice, it takes note once
        assert answers(growing, job + 1) == answers(whole, job + 1)
        assert growing.speed.rates(8) is growing.speed.rates(8)
        with pytest.raises(ValueError, match="read-only"):
            growing.speed.rates(8)[0, 0] = 1.0
    assert len(growing.kind_of) == len(ROWS)


def test_a_table_read_before_keeps_its_kinds() -> None:
    jobs = empty_table()
    jobs.append([JobRequest("a", 0.0, 2, 2, 2)])
    physics = linear_physics(jobs)
    before = physics.speed.rates(4)
    jobs.append([JobRequest("b", 0.0, 3, 3, 3)])
    physics.structure.admit(jobs)
    assert before.tolist() == [[0.0, 0.5, 1.0, 1.5, 2.0]]
    assert np.array_equal(physics.speed.rates(4)[:1], before)
    assert len(physics.speed.rates(4)) == 2

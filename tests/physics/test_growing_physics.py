"""A physics to which jobs are admitted answers as one that knew them all from the start."""

from collections.abc import Callable

import numpy as np
import pytest

from builders import Row, trace_of
from dovetail.core.beliefs import Physics
from dovetail.core.cluster import Cluster
from dovetail.core.job import JobRequest, JobTable
from dovetail.core.placement import Interleave, Placement
from dovetail.physics.beliefs.noisy import believed
from dovetail.physics.linear import LinearPhysics
from dovetail.physics.placed import PlacedPhysics
from dovetail.physics.sharing.pair_law import Injected, Measured
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
    return PlacedPhysics(jobs, CLUSTER, shipped(), interference=Measured())


MADE: dict[str, Callable[[JobTable], Physics]] = {
    "linear": lambda jobs: LinearPhysics(jobs, Injected(1.4)),
    "placed": placed,
    "counted": lambda jobs: PlacedPhysics(jobs, CLUSTER, shipped(), by_count=True),
    "blurred": lambda jobs: believed(
        placed(jobs), jobs, "scaling:0.4,interference:0.4,memory:0.4", 3
    ),
    "unlike": lambda jobs: believed(placed(jobs), jobs, "stages:0.4", 3),
}


def answers(physics: Physics, jobs: int) -> list[object]:
    """Returns all that a physics says of the first jobs."""
    said: list[object] = []
    kinds = int(physics.kind_of[:jobs].max()) + 1
    known = physics.interleaving
    said.append((physics.kind_of[:jobs].tolist(), physics.rates(8)[:kinds].tolist()))
    said.append((known.stage_s[:kinds].tolist(), known.iteration_s[:kinds].tolist()))
    for job in range(jobs):
        gpus = ROWS[job].gpus
        named = Placement(((0, gpus),), (tuple(range(gpus)),))
        said.append((physics.speed(job, Placement(((0, 1), (1, 1))), ()), physics.scale(job)))
        said.append([array.tolist() for array in physics.best_batches(job, 0.0, 4)])
        said.append((physics.graph(job), physics.batch(job), physics.utilization(job)))
        said.append((physics.footprint_bytes(job, 1), physics.fixed_bytes(job)))
        said.append((physics.accumulated(job, 2), physics.most_steps(job)))
        said.append((physics.top_speed(job, 2), physics.spread_speed(job)))
        ours, theirs = physics.interferences([(job, 2)], [(o, 1) for o in range(jobs)])
        each = [physics.interference(job, 2, other, 1) for other in range(jobs)]
        assert list(zip(ours[0].tolist(), theirs[0].tolist(), strict=True)) == each
        for other in range(jobs):
            there = Placement(((0, ROWS[other].gpus),), (tuple(range(ROWS[other].gpus)),))
            said.append(physics.interference(job, 1, other, 1))
            if other != job:
                said.append(physics.speed(job, named, [(other, there)]))
                seats = [Placement(p.spans, p.gpu_ids, interleave=Interleave(0, i))
                         for i, p in enumerate((named, there))]  # fmt: skip
                said.append(physics.speed(job, seats[0], [(other, seats[1])]))
                said.append(physics.fits_memory([(job, named), (other, there)], 16e9))
    return said


@pytest.mark.parametrize("name", MADE)
def test_answers_are_those_of_the_whole_table_and_stay_as_they_are(name: str) -> None:
    whole = MADE[name](trace_of(*ROWS).jobs)
    jobs = empty_table()
    growing = MADE[name](jobs)
    assert growing.rates(8).shape == (0, 9)
    for job in range(len(ROWS)):
        jobs.append([trace_of(*ROWS).jobs.job(job)])
        growing.admit(jobs)
        growing.admit(jobs)  # told twice, it takes note once
        assert answers(growing, job + 1) == answers(whole, job + 1)
        assert growing.rates(8) is growing.rates(8)
        with pytest.raises(ValueError, match="read-only"):
            growing.rates(8)[0, 0] = 1.0
    assert len(growing.kind_of) == len(ROWS)


def test_a_table_read_before_keeps_its_kinds() -> None:
    jobs = empty_table()
    jobs.append([JobRequest("a", 0.0, 2, 2, 2)])
    physics = LinearPhysics(jobs)
    before = physics.rates(4)
    jobs.append([JobRequest("b", 0.0, 3, 3, 3)])
    physics.admit(jobs)
    assert before.tolist() == [[0.0, 0.5, 1.0, 1.5, 2.0]]
    assert np.array_equal(physics.rates(4)[:1], before)
    assert len(physics.rates(4)) == 2

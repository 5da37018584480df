"""Islands on a live cluster: workers get GPUs of one island, whatever controllers come and go."""

from dataclasses import replace

import pytest
from live_stage import Stage

from dovetail.core.cluster import Cluster, NodeGroup
from dovetail.core.errors import InputError
from dovetail.live.jobs.lifecycle import State
from dovetail.live.store.largest_size import check_topology
from dovetail.wire.spec import JobSpec

ISLANDS = Cluster((NodeGroup("all", 1, 4, gpus_per_island=2),))


def islands(stage: Stage, job: int) -> set[int]:
    """Returns the islands on which the workers of a job were started."""
    return {gpu // 2 for _, _, gpu in stage.starts(job)}


def test_workers_are_started_on_one_island_where_the_job_demands_it() -> None:
    s = Stage("fifo", nodes=1, gpus=4)
    s.cluster = ISLANDS
    s.submit(0.0, 1, 30.0)
    s.submit(0.5, 2, 5.0)
    s.submit(1.0, 1, 20.0)
    s.submit(2.0, 2, 10.0, topology="island")
    s.play(100.0)
    assert set(s.states().values()) == {State.COMPLETED}
    # Two GPUs are free from the end of job 2 on, as those of one island.
    assert len(islands(s, 4)) == 1
    s.check()


def test_a_controller_that_learns_of_islands_names_the_gpus_that_workers_have() -> None:
    s = Stage("fifo:bypass=skip", nodes=1, gpus=4)
    for number, length_s in enumerate((5.0, 60.0, 60.0, 5.0)):
        s.submit(0.1 * number, 1, length_s)
    s.submit(12.0, 2, 10.0, topology="island")
    s.submit(13.0, 2, 10.0, topology="island?")
    s.play(10.0)
    s.cluster = ISLANDS
    s.play(200.0)
    # Jobs 2 and 3 hold one GPU of each island until second 60.
    held = [gpu for job in (2, 3) for _, _, gpu in s.starts(job)]
    assert {gpu // 2 for gpu in held} == {0, 1}
    assert s.states()[5] is State.COMPLETED
    assert len(islands(s, 5)) == 1
    assert s.record(6).first_start_s < 30 < s.record(5).first_start_s
    assert len(islands(s, 6)) == 2
    s.check()


def test_only_a_demand_for_more_than_an_island_is_refused() -> None:
    gang = JobSpec(name="job", command=("true",), workdir="/", gpus=3, min_gpus=3, max_gpus=3)
    check_topology("job", ISLANDS, replace(gang, topology="island?"))
    with pytest.raises(InputError, match="3 GPUs under one island, which has 2 at most"):
        check_topology("job", ISLANDS, replace(gang, topology="island"))

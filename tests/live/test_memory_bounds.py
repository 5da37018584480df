"""Who shares a GPU cannot take the memory of the other."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from builders import Row, jobs_of
from dovetail.control.state import ClusterState
from dovetail.core.cluster import Cluster
from dovetail.core.placement import Placement
from dovetail.core.placing import Placing
from dovetail.core.policy import parse_policy
from dovetail.forecast.forecasts import Declared
from dovetail.live.measuring.memory_bounds import MemoryBounds, bounds
from dovetail.live.workers.gpu_usage import GpuUsage
from dovetail.physics.linear import UnknownMemory, linear_physics


def test_alone_a_job_has_no_bound() -> None:
    assert bounds([30e9], 48e9) == (0,)
    assert bounds([], 48e9) == ()


def test_each_gets_what_it_holds_and_half_of_the_rest() -> None:
    assert bounds([10e9, 30e9], 48e9) == (14 * 10**9, 34 * 10**9)


def test_without_knowledge_the_parts_are_even() -> None:
    assert bounds([0.0, 30e9], 48e9) == (24 * 10**9, 24 * 10**9)
    assert bounds([30e9, 30e9], 48e9) == (24 * 10**9, 24 * 10**9)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(0.0, 1e11), min_size=2, max_size=4), st.floats(1e9, 1e11))
def test_bounds_never_exceed_the_memory_and_hold_what_is_believed(
    held: list[float], memory: float
) -> None:
    found = bounds(held, memory)
    assert sum(found) <= memory * (1 + 1e-9)
    if all(held) and sum(held) <= memory:
        assert all(b + 1 >= h for b, h in zip(found, held, strict=True))


GIB = 1 << 30


class Holding(UnknownMemory):
    """Jobs hold what is set here, in GiB."""

    def __init__(self, held: dict[int, float]) -> None:
        self.held = held

    def held_bytes(self, job: int, placement: Placement) -> float:
        return self.held[job] * GIB


def on(*gpus: int) -> Placement:
    return Placement(((0, len(gpus)),), (gpus,))


class Three:
    """Three jobs on a node of two GPUs of 16 GiB."""

    def __init__(self) -> None:
        jobs = jobs_of(*(Row(1, 10.0, shareable=True) for _ in range(3)))
        self.memory = Holding({0: 4.0, 1: 6.0, 2: 0.0})
        self.state = ClusterState(
            jobs,
            Cluster.uniform(1, 2),
            parse_policy("fifo"),
            physics=replace(linear_physics(jobs), memory=self.memory),
            forecast=Declared(jobs, lambda job: 10.0),
            placing=Placing.parse("prefer"),
        )
        self.bounds = MemoryBounds(self.state)

    def place(self, **placements: Placement | None) -> None:
        draft = self.state.plan.draft()
        for name, placement in placements.items():
            job = int(name[1:])
            if job in draft.placed:
                draft.remove(job)
            if placement is not None:
                draft.place(job, placement)
        self.state.plan.commit(draft)

    def of(self, *rows: int) -> list[float]:
        return [self.bounds.of(row) / GIB for row in rows]


def test_parts_are_reckoned_when_somebody_comes_or_goes_and_stay_in_between() -> None:
    three = Three()
    three.place(j0=on(0))
    assert three.of(0) == [0.0]
    three.place(j1=on(0))
    assert three.of(0, 1) == [7.0, 9.0]
    three.memory.held[0] = 5.0
    assert three.of(0, 1) == [7.0, 9.0], "parts of different beliefs would not add up"
    three.place(j1=None)
    assert three.of(0) == [0.0]
    three.place(j1=on(0))
    assert three.of(0, 1) == [7.5, 8.5]


def test_the_least_of_the_gpus_that_are_shared_bounds_all_workers_of_a_job() -> None:
    three = Three()
    three.place(j0=on(0, 1), j1=on(0))
    assert three.of(0, 1) == [7.0, 9.0]
    three.memory.held[2] = 9.0
    three.place(j2=on(1))
    assert three.of(0, 1, 2) == [5.5, 9.0, 10.5]


def test_on_a_floor_bounds_never_add_up_to_more_than_there_is() -> None:
    floor, gpu = GpuUsage(), (0, 1)
    floor.update(1, {0: (gpu,)}, {0: 0})
    assert floor.has_room(1, gpu, 0, 16.0), "alone it may hold all"
    assert not floor.has_room(2, gpu, 8, 16.0), "who is not bound may hold all"
    floor.changed = False
    floor.update(1, {0: (gpu,)}, {0: 10})
    assert floor.changed, "memory was given back"
    assert floor.has_room(2, gpu, 6, 16.0) and not floor.has_room(2, gpu, 7, 16.0)
    assert not floor.has_room(2, gpu, 0, 16.0), "who is not bound may want all"
    floor.changed = False
    floor.update(1, {0: (gpu,)}, {0: 12})
    assert not floor.changed and not floor.has_room(2, gpu, 6, 16.0)
    floor.update(1, {}, {})
    assert floor.changed and floor.has_room(2, gpu, 0, 16.0)
    floor.add_unknown((3, 0), 0, (1,))
    assert not floor.has_room(2, gpu, 6, 16.0), "nobody knows what a stray may hold"

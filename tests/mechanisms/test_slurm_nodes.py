"""Slurm's choice of nodes, the backfill map, expected starts, and whom a job preempts."""

import pytest

from builders import Row, jobs_of
from dovetail.core.cluster import Cluster, NodeGroup
from dovetail.core.job import Shape
from dovetail.core.occupancy import Occupancy
from dovetail.core.placement import Placement, Spans
from dovetail.core.placing import Placing
from dovetail.mechanisms.slurm.backfill_map import BackfillMap
from dovetail.mechanisms.slurm.cycles import Cycles
from dovetail.mechanisms.slurm.forecast_start import LimitEnd, StartForecast
from dovetail.mechanisms.slurm.node_choice import FreeNodes, choose
from dovetail.mechanisms.slurm.parameters import SlurmParameters
from dovetail.mechanisms.slurm.preemption import Candidate, takeover

ALL = (1 << 64) - 1


def _free(free: list[int], gpus: int = 4) -> FreeNodes:
    """Returns nodes of four GPUs with so many free."""
    nodes = len(free)
    held = [gpus - count for count in free]
    jobs = jobs_of(*(Row(max(count, 1), 1) for count in held))
    occupancy = Occupancy(Cluster.uniform(nodes, gpus), jobs)
    for node, count in enumerate(held):
        if count:
            occupancy.hold(node, Placement(((node, count),)))
    return FreeNodes.now(occupancy)


def _chosen(free: list[int], gpus: int, placing: str = "strict") -> Spans | None:
    everywhere = (1 << len(free)) - 1
    return choose(_free(free), Placing.parse(placing), Shape(gpus), everywhere)


def test_the_first_node_of_the_smallest_run_is_selected() -> None:
    # Two GPUs: nodes 0-2 form a run, nodes 4-5 one of fewer nodes. The fullest does not matter.
    assert _chosen([4, 2, 4, 1, 4, 3], 2) == ((4, 2),)
    assert _chosen([4, 2, 4, 0, 4, 2, 4], 2) == ((0, 2),)


def test_of_equal_runs_and_nodes_the_first_is_selected() -> None:
    assert _chosen([4, 0, 4], 3) == ((0, 3),)
    assert _chosen([4, 4], 3) == ((0, 3),)


def test_a_gang_gets_whole_nodes_of_the_smallest_run_that_suffices() -> None:
    assert _chosen([4, 4, 4, 0, 4, 4], 8) == ((4, 4), (5, 4))
    # No run of three: the largest first, then the rest.
    assert _chosen([4, 0, 4, 4], 12) == ((0, 4), (2, 4), (3, 4))
    # Six: a whole node (of the smallest run) and a node for the rest.
    assert _chosen([4, 4, 0, 4, 3], 6) == ((3, 4), (4, 2))


def test_without_enough_whole_nodes_a_gang_waits_or_is_spread() -> None:
    assert _chosen([4, 3, 3], 8) is None
    assert _chosen([4, 3, 3], 8, "prefer") == ((0, 4), (1, 3), (2, 1))


def test_the_least_loaded_node_and_the_first_can_be_asked_for() -> None:
    assert _chosen([3, 2, 4], 2, "strict,most-free") == ((2, 2),)
    assert _chosen([3, 2, 4], 2, "strict,first-fit") == ((0, 2),)


def test_cpus_decide_where_a_job_fits() -> None:
    jobs = jobs_of(Row(1, 1, cpus=15), Row(2, 1, cpus=2))
    occupancy = Occupancy(Cluster((NodeGroup("all", 2, 4, cpus=16),)), jobs)
    occupancy.hold(0, Placement(((0, 1),)))
    state = FreeNodes.now(occupancy)
    # Node 0 has one CPU free.
    assert choose(state, Placing.parse("strict"), Shape(1, cpus=1), 0b11) == ((0, 1),)
    assert choose(state, Placing.parse("strict"), Shape(1, cpus=3), 0b11) == ((1, 1),)
    # The least loaded node has the most free CPUs.
    lln = Placing.parse("strict,most-free")
    assert choose(state, lln, Shape(1, cpus=1), 0b11) == ((1, 1),)


def test_the_map_is_aligned_and_reserves_whole_nodes() -> None:
    plans = BackfillMap.of(130, 3600, 60, 0b111)
    assert (plans.begins, plans.ends) == ([120], [3720])
    plans.reserve(600, 1200, 0b001)
    assert plans.free_throughout(130, 500, 0b111) == (0b111, 1200)
    # A job that ends when a plan begins is in its way: Slurm compares with "at most".
    assert plans.free_throughout(130, 600, 0b111)[0] == 0b110
    assert plans.free_throughout(1200, 9999, 0b111)[0] == 0b111
    assert plans.overlaps(0, 601, 0b001) and not plans.overlaps(0, 600, 0b001)
    assert not plans.overlaps(0, 601, 0b010)


def test_the_map_says_when_to_look_again() -> None:
    plans = BackfillMap.of(0, 3600, 60, 0b11)
    plans.reserve(0, 600, 0b01)
    plans.reserve(0, 1200, 0b10)
    # Nothing is free now; node 0 is from 600 s, node 1 from 1200 s on.
    assert plans.free_throughout(0, 60, 0b11) == (0, 600)
    assert plans.free_throughout(600, 660, 0b11) == (0b01, 1200)
    # For a job that may use node 1 only, nothing changes at 600 s.
    assert plans.free_throughout(0, 60, 0b10) == (0, 1200)


def test_a_plan_lasts_one_resolution_at_least() -> None:
    plans = BackfillMap.of(0, 3600, 60, 0b1)
    plans.reserve(120, 120, 0b1)
    assert plans.overlaps(150, 160, 0b1) and not plans.overlaps(180, 190, 0b1)


def _forecast(ends: list[tuple[int, int]], **parameters: int) -> StartForecast:
    """Returns the forecast for jobs of one GPU that end at times, each on its node."""
    rows = [
        LimitEnd(end_s, job, 1 << node, ((node, 1),), Shape(1))
        for job, (end_s, node) in enumerate(ends)
    ]
    p = SlurmParameters(**parameters)  # type: ignore[arg-type]
    return StartForecast(p, Placing.parse("none"), 0, sorted(rows))


def test_a_job_is_expected_when_the_last_job_of_a_group_ends() -> None:
    state = _free([0, 0, 0], gpus=1)
    # Groups: the first ends up to 30 s behind the next barrier of 30 s, 120 + 30; then the window
    # is 60 s. One GPU is free at 100 s, but the job at 145 s belongs to the same group.
    forecast = _forecast([(100, 0), (145, 1), (400, 2)])
    assert forecast.later(state.copy(), Shape(1), ALL) == (145, ((0, 1),))
    assert forecast.later(state.copy(), Shape(3), ALL) == (400, ((0, 1), (1, 1), (2, 1)))


def test_jobs_on_other_nodes_are_not_waited_for() -> None:
    forecast = _forecast([(100, 0), (700, 1)])
    state = _free([0, 0], gpus=1)
    assert forecast.later(state, Shape(1), 0b10) == (700, ((1, 1),))


def test_groups_widen_by_doubling_or_by_a_step() -> None:
    ends = [(100, 0), (300, 1), (390, 2)]
    # Barrier 120. Doubling: 30, 60, 120, then 240 to reach 300 s: so 390 s is past 360 s.
    assert _forecast(ends).later(_free([0] * 3, gpus=1), Shape(2), ALL) == (300, ((0, 1), (1, 1)))
    ends = [(100, 0), (300, 1), (350, 2)]
    assert _forecast(ends).later(_free([0] * 3, gpus=1), Shape(2), ALL) == (350, ((0, 1), (1, 1)))
    # In steps of 10 s the window is 180 s when it reaches 300 s, and 350 s lies beyond.
    step = _forecast(ends, bf_window_linear=10)
    assert step.later(_free([0] * 3, gpus=1), Shape(2), ALL) == (300, ((0, 1), (1, 1)))


def test_a_job_past_its_limit_is_expected_to_be_killed() -> None:
    ends = [LimitEnd(-100, 0, 1, ((0, 1),), Shape(1))]
    for p, expected in (
        (SlurmParameters(kill_wait=130), 30),
        (SlurmParameters(over_time_limit=2), 50),
        (SlurmParameters(), 1),
    ):
        forecast = StartForecast(p, Placing.parse("none"), 0, ends)
        assert forecast.later(_free([0], gpus=1), Shape(1), ALL) == (expected, ((0, 1),))


def _candidate(job: int, node: int, gpus: int) -> Candidate:
    return Candidate(job, ((node, gpus),), Shape(gpus), 1 << node)


def _victims(free: list[int], gpus: int, order: list[Candidate], **p: object) -> tuple[int, ...]:
    parameters = SlurmParameters(**p)  # type: ignore[arg-type]
    everywhere = (1 << len(free)) - 1
    placing = Placing.parse("strict")
    took = takeover(parameters, _free(free), placing, Shape(gpus), everywhere, order)
    return () if took is None else took.jobs


def test_no_more_jobs_stop_than_needed() -> None:
    # Four GPUs: the first candidate is on another node than the one that makes room.
    order = [_candidate(7, 0, 1), _candidate(8, 1, 4)]
    assert _victims([0, 0], 4, order) == (8,)
    # Both on one node are needed.
    assert set(_victims([0, 0], 4, [_candidate(7, 0, 2), _candidate(8, 0, 2)])) == {7, 8}


def test_reordering_spares_a_job_that_was_stopped_for_nothing() -> None:
    # In order: 7 frees two GPUs of node 0, 8 all of node 0's rest; 9 is not needed.
    order = [_candidate(7, 0, 1), _candidate(8, 0, 3), _candidate(9, 1, 4)]
    assert set(_victims([0, 0], 3, order)) == {8}


def test_a_job_that_finds_no_room_stops_nobody() -> None:
    assert _victims([0, 0], 8, [_candidate(7, 0, 4)]) == ()


@pytest.mark.parametrize(
    ("last_s", "news_s", "due_s"),
    [(0, 5, 30), (0, 30, 30), (0, 50, 50), (0.5, 50.2, 50.5), (100, 110, 130)],
)
def test_backfill_is_due_an_interval_after_the_last_or_a_second_after_news(
    last_s: float, news_s: float, due_s: float
) -> None:
    assert Cycles().backfill_s(last_s, 30, news_s) == due_s


def test_full_passes_are_at_multiples_of_their_interval() -> None:
    assert [Cycles().full_pass_from_s(60, now) for now in (0, 1, 60, 61)] == [0, 60, 60, 120]

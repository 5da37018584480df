"""Where pipelined jobs go: ranks on servers, slices kept whole, and the passes of the baselines."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import Row, Stage, play, play_scene, scene_of, trace_of
from dovetail.core.cluster import Cluster, NodeGroup
from dovetail.core.job import PipelineStage
from dovetail.core.messages import Started
from dovetail.core.placement import Spans
from dovetail.core.tenants import QueueSpec
from dovetail.core.trace import Trace
from dovetail.core.view import show
from dovetail.mechanisms.pipelines.heavy_edge_placement import GraphSeats
from dovetail.physics.linear import linear_physics

MB = 1e6


def stage(replicas: int, into: float, out: float, weights: float, slices: int = 1) -> PipelineStage:
    return PipelineStage(replicas, 0.01, 0.02, into * MB, out * MB, weights * MB, slices)


CASE_11 = (stage(2, 0, 6, 4), stage(2, 6, 0, 16))
"""Worked example 11: k = (2, 2), 6 MB between stages, AllReduce of 4 and 16 MB."""
SLICED = (stage(2, 0, 8, 4, slices=2), stage(1, 16, 0, 16, slices=2))
"""Three replicas of two slices: six GPUs."""


def with_graphs(trace: Trace, *graphs: tuple[PipelineStage, ...]) -> Trace:
    """Gives the first jobs these graphs."""
    codes = np.full(len(trace), -1, np.int32)
    codes[: len(graphs)] = np.arange(len(graphs))
    return replace(trace, jobs=replace(trace.jobs, graphs=graphs, graph_code=codes))


def seats(
    graph: tuple[PipelineStage, ...],
    cluster: str,
    held: dict[int, int],
    *,
    rule: str = "on_emptiest",
    placing: str = "",
    refined: bool = False,
) -> Spans | None:
    """Returns the seats of a job with that graph, some GPUs of some nodes being held."""
    gpus = sum(s.gpus for s in graph)
    rows = [Row(gpus, 1.0), *(Row(count, 1.0) for count in held.values())]
    shown = Stage(rows, "wcs-subtime", cluster, placing=placing)
    show(shown.view, physics=linear_physics(with_graphs(shown.trace, graph).jobs))
    shown.run_jobs(*((i + 1, ((node, n),)) for i, (node, n) in enumerate(held.items())))
    all_seats = GraphSeats(shown.view, shown.view.plan.occupancy, refined=refined)
    found: Spans | None = getattr(all_seats, rule)(0)
    return found


def test_worked_example_11() -> None:
    # Ranks are S1R1, S1R2, S2R1, S2R2.
    assert seats(CASE_11, "2x2", {}) == ((1, 2), (0, 2))
    assert seats(CASE_11, "1x3+1x1", {}) == ((0, 1), (1, 1), (0, 2))
    assert seats(CASE_11, "1x4", {}) == ((0, 4),)


def test_refined_seats_keep_a_stage_whole_that_heavy_edge_cuts() -> None:
    # Three replicas that reduce 90 MB, two that reduce 60 MB, one; four GPUs free here, two there.
    cut = (stage(3, 0, 2, 90), stage(2, 3, 3, 60), stage(1, 6, 0, 0))
    assert seats(cut, "2x4", {1: 2}) == ((0, 4), (1, 2))
    assert seats(cut, "2x4", {1: 2}, refined=True) == ((0, 3), (1, 2), (0, 1))
    assert seats(cut, "1x8", {}, refined=True) == ((0, 6),)


def test_refined_replicas_stay_whole() -> None:
    found = seats(SLICED, "3x4", {0: 1, 1: 1, 2: 1}, refined=True)
    assert found is not None
    assert [gpus for _, gpus in found] == [2, 2, 2]
    assert seats(SLICED, "2x4", {0: 1, 1: 1}, refined=True) is None


def test_the_fullest_servers_first_still_cut_by_the_most_gpus() -> None:
    # Least free first: one GPU of node 0, then three of node 1; Heavy-Edge fills node 1 first.
    assert seats(CASE_11, "2x4", {0: 3}, rule="on_fullest") == ((1, 1), (0, 1), (1, 2))
    assert seats(CASE_11, "2x4", {0: 3}) == ((1, 4),)


def test_slices_of_a_replica_stay_together_and_leave_gpus_unused() -> None:
    # Three GPUs free on each of three nodes: a replica of two slices on each.
    found = seats(SLICED, "3x4", {0: 1, 1: 1, 2: 1})
    assert found is not None
    assert sorted(node for node, _ in found) == [0, 1, 2]
    assert [gpus for _, gpus in found] == [2, 2, 2]


def test_replicas_that_do_not_fit_now_wait_for_whole_room() -> None:
    # Six GPUs are free, and only two replicas find room.
    assert seats(SLICED, "2x4", {0: 1, 1: 1}) is None


def test_replicas_that_fit_no_cluster_are_cut_in_order_of_rank() -> None:
    assert seats(SLICED, "6x1", {}) == tuple((node, 1) for node in range(6))
    assert seats(SLICED, "2x3", {}) == ((0, 3), (1, 3))


@settings(max_examples=60)
@given(
    st.lists(st.integers(0, 4), min_size=3, max_size=5),
    st.sampled_from([(2, 2), (2, 1), (4, 4), (3, 1), (1, 1)]),
    st.sampled_from(["on_emptiest", "on_fullest"]),
)
def test_seats_are_free_in_rank_order_and_whole(
    held: list[int], slices: tuple[int, int], rule: str
) -> None:
    graph = (stage(2, 0, 8, 4, slices=slices[0]), stage(1, 16, 0, 16, slices=slices[1]))
    gpus = sum(s.gpus for s in graph)
    busy = {node: count for node, count in enumerate(held) if count}
    found = seats(graph, f"{len(held)}x4", busy, rule=rule)
    room = [4 - busy.get(node, 0) for node in range(len(held))]
    if found is None:
        # Filled one server after another, widest replicas first, they find no room either.
        widths = sorted((s.slices for s in graph for _ in range(s.replicas)), reverse=True)
        for width in widths:
            fit = [node for node, free in enumerate(room) if free >= width]
            if not fit:
                return
            room[fit[0]] -= width
        pytest.fail(f"{gpus} GPUs fit on {held}")
    server_of = [node for node, count in found for _ in range(count)]
    assert len(server_of) == gpus
    assert all(server_of.count(node) <= free for node, free in enumerate(room))
    rank = 0
    for one in graph:
        for _ in range(one.replicas):
            assert len(set(server_of[rank : rank + one.slices])) == 1
            rank += one.slices


def test_strict_placement_says_which_servers() -> None:
    assert seats(CASE_11, "2x3", {0: 1, 1: 1}, placing="strict") is None
    assert seats(CASE_11, "2x3", {}, placing="strict") == ((0, 1), (1, 1), (0, 2))


def test_a_sliced_job_counts_against_its_quota_with_what_it_holds() -> None:
    cluster = Cluster((NodeGroup("all", 3, 4),), queues=(QueueSpec("q", 6),))
    rows = [Row(6, 5.0, queue="q"), Row(1, 9.0), Row(1, 9.0), Row(1, 9.0)]
    trace = with_graphs(trace_of(*rows), SLICED)
    story = play_scene(scene_of(trace, cluster), "wcs-subtime")
    assert story.starts(0) == [(0.0, "start")]


# The passes: 2 GPUs; job 0 takes both for 4 s, then 1: 2 GPUs for 2 s, 2: 1 GPU for 9 s,
# 3: 1 GPU for 3 s.
ROWS = [Row(2, 4.0), Row(2, 2.0, submit_s=1), Row(1, 9.0, submit_s=1), Row(1, 3.0, submit_s=1)]


@pytest.mark.parametrize(
    ("policy", "finishes"),
    [
        # By length: 1 (2 s), 3, 2.
        ("spjf", [4, 6, 15, 9]),
        ("wcs-duration", [4, 6, 15, 9]),
        # By length times GPUs: 3 (3), 1 (4), 2 (9). Strictly, job 1 stops job 2 till 7 s.
        ("spwf", [4, 9, 18, 7]),
        ("wcs-workload", [4, 15, 13, 7]),
        ("wcs-subtime", [4, 6, 15, 9]),
    ],
)
def test_each_baseline_on_two_gpus(policy: str, finishes: list[float]) -> None:
    assert play(ROWS, policy, "1x2").finishes == finishes


def test_a_strict_baseline_stops_where_the_others_pass_over() -> None:
    rows = [Row(1, 10.0), Row(2, 3.0, submit_s=1), Row(1, 6.0, submit_s=2)]
    assert play(rows, "spjf", "1x2").finishes == [10, 13, 19]
    for policy in ("wcs-duration", "wcs-subtime", "wcs-workload"):
        assert play(rows, policy, "1x2").finishes == [10, 13, 8]


def test_the_baselines_take_the_servers_with_most_free_gpus() -> None:
    story = play([Row(1, 9.0), Row(2, 9.0), Row(2, 9.0)], "wcs-subtime", "2x4")
    spans = [f.placement.spans for f in story.of(Started)]  # type: ignore[union-attr]
    assert spans == [((0, 1),), ((1, 2),), ((0, 2),)]


def test_a_job_whose_slices_find_no_room_does_not_stop_its_like() -> None:
    # Both want six GPUs; two nodes have three free each, which serves only the plain one.
    rows = [Row(1, 99.0), Row(1, 99.0), Row(6, 5.0, submit_s=1), Row(6, 7.0, submit_s=2)]
    trace = trace_of(*rows)
    codes = np.array([-1, -1, 0, -1], np.int32)
    trace = replace(trace, jobs=replace(trace.jobs, graphs=(SLICED,), graph_code=codes))
    story = play_scene(scene_of(trace, "2x4"), "wcs-subtime")
    assert story.starts(3) == [(2.0, "start")]
    assert story.starts(2) == [(99.0, "start")]

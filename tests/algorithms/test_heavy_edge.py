"""Heavy-Edge: worked example 11, its ties, its rule for single GPUs, and slices."""

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.double_tree import tree_graph
from dovetail.algorithms.heavy_edge import cut, heavy_edge
from dovetail.algorithms.job_graph import JobGraph, job_graph
from dovetail.core.job import PipelineStage

# Inter-stage edges of 6 MB each, AllReduce edges of 4 and 16 MB.
EXAMPLE = (
    PipelineStage(2, 1.0, 1.0, 0.0, 6e6, 4e6),
    PipelineStage(2, 1.0, 1.0, 6e6, 0.0, 16e6),
)


def cut_bytes(graph: JobGraph, server_of: tuple[int, ...]) -> float:
    return sum(w for a, b, w in graph.heaviest if server_of[a] != server_of[b])


def test_the_worked_example_on_two_servers_of_two() -> None:
    # Ranks: S1R1, S1R2, S2R1, S2R2.
    assert heavy_edge(EXAMPLE, (2, 2)) == (1, 1, 0, 0)
    assert cut_bytes(job_graph(EXAMPLE), (1, 1, 0, 0)) == 24e6
    best = min(cut_bytes(job_graph(EXAMPLE), p) for p in [(0, 0, 1, 1), (0, 1, 0, 1), (0, 1, 1, 0)])
    assert best == 24e6


def test_the_worked_example_on_servers_of_three_and_one() -> None:
    assert heavy_edge(EXAMPLE, (3, 1)) == (0, 1, 0, 0)


def test_the_edges_of_the_worked_example() -> None:
    weights = {(a, b): w for a, b, w in job_graph(EXAMPLE).heaviest}
    assert weights == {
        (0, 1): 4e6, (2, 3): 16e6, (0, 2): 6e6, (0, 3): 6e6, (1, 2): 6e6, (1, 3): 6e6
    }  # fmt: skip
    # With two replicas a pair is in both trees, so both collectives weigh the same.
    assert tree_graph(EXAMPLE) == job_graph(EXAMPLE)


def test_an_inter_stage_edge_carries_what_one_replica_sends_another() -> None:
    # FIX-15: 12 MB leave the stage of one replica, three replicas receive 4 MB each.
    graph = job_graph(
        (PipelineStage(1, 1, 1, 0.0, 12e6, 0.0), PipelineStage(3, 1, 1, 4e6, 0.0, 0.0))
    )
    assert {w for _, _, w in graph.heaviest} == {8e6}


def test_servers_are_filled_by_room_and_ties_by_order() -> None:
    assert heavy_edge(EXAMPLE, (1, 3)) == (1, 0, 1, 1)
    assert heavy_edge(EXAMPLE, (4,)) == (0, 0, 0, 0)
    assert heavy_edge(EXAMPLE, (1, 1, 1, 1)) == (0, 1, 2, 3)


def test_a_single_gpu_takes_the_replica_with_the_least_to_exchange() -> None:
    chain = (
        PipelineStage(1, 1, 1, 0.0, 9e6, 0.0),
        PipelineStage(1, 1, 1, 9e6, 2e6, 0.0),
        PipelineStage(1, 1, 1, 2e6, 0.0, 0.0),
    )
    assert heavy_edge(chain, (1, 1, 1)) == (1, 2, 0)


def test_without_an_edge_the_first_replica_left_is_taken() -> None:
    silent = (PipelineStage(4, 1, 1, 0.0, 0.0, 0.0),)
    assert heavy_edge(silent, (2, 2)) == (0, 0, 1, 1)


def test_a_replica_of_several_slices_stays_on_one_server() -> None:
    sliced = (
        PipelineStage(1, 1, 1, 0.0, 6e6, 1e6, slices=4),
        PipelineStage(1, 1, 1, 6e6, 0.0, 1e6, slices=2),
    )
    assert heavy_edge(sliced, (2, 4)) == (1, 1, 1, 1, 0, 0)
    assert heavy_edge(sliced, (3, 3)) is None
    assert heavy_edge(sliced, (5, 3)) == (0, 0, 0, 0, 1, 1)


def test_too_few_gpus_are_no_placement() -> None:
    assert heavy_edge(EXAMPLE, (2, 1)) is None
    assert heavy_edge(EXAMPLE, ()) is None


@settings(max_examples=80, deadline=None)
@given(
    replicas=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    wide=st.integers(1, 3),
    capacities=st.lists(st.integers(1, 8), min_size=1, max_size=6),
    graph_of=st.sampled_from([job_graph, tree_graph]),
)
def test_every_rank_has_a_server_and_no_server_too_many(
    replicas: list[int],
    wide: int,
    capacities: list[int],
    graph_of: Callable[[tuple[PipelineStage, ...]], JobGraph],
) -> None:
    stages = tuple(
        PipelineStage(k, 1.0, 1.0, 6e6 / k, 6e6 / k, 1e7 * (s + 1), slices=wide)
        for s, k in enumerate(replicas)
    )
    placed = cut(graph_of(stages), capacities)
    if placed is None:
        assert sum(c // wide for c in capacities) < sum(replicas)
        return
    assert len(placed) == wide * sum(replicas)
    for server, room in enumerate(capacities):
        assert placed.count(server) <= room
    assert all(len(set(placed[r : r + wide])) == 1 for r in range(0, len(placed), wide))
    assert placed == cut(graph_of(stages), capacities)

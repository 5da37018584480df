"""The iteration time of a pipelined job: worked example 10, and what must hold anywhere."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.double_tree import double_tree
from dovetail.algorithms.job_graph import job_graph, trouble_with
from dovetail.algorithms.pipeline_time import (
    Links,
    full_servers,
    iteration_s,
    packed_s,
    replicas_held,
    spread_s,
    stage_parts,
)
from dovetail.core.job import PipelineStage
from tools.zoo.plans import barrier_s

LINKS = Links(5e10, 2e9, 4)
EXAMPLE = (
    PipelineStage(1, 0.02, 0.04, 0.0, 8e6, 1e7),
    PipelineStage(2, 0.03, 0.06, 4e6, 0.0, 3e7),
)


def test_the_worked_example_on_two_servers() -> None:
    first, second = [1, 0], [0, 2]
    assert sum(stage_parts(EXAMPLE, 0, first, LINKS)) == pytest.approx(0.092)
    assert iteration_s(EXAMPLE, [first, second], LINKS) == pytest.approx(0.1066)


def test_a_stage_that_spans_servers_reduces_through_its_share_of_the_nic() -> None:
    assert iteration_s(EXAMPLE, [[1, 1], [0, 1]], LINKS) == pytest.approx(0.166)
    assert spread_s(EXAMPLE, LINKS) == pytest.approx(0.166)


def test_replicas_of_a_server_share_what_its_nic_gives_the_stage() -> None:
    stages = (
        PipelineStage(2, 0.02, 0.04, 0.0, 8e6, 1e7),
        PipelineStage(4, 0.03, 0.06, 4e6, 0.0, 3e7),
    )
    half = [1, 2]
    # (6): two of four replicas own half of the NIC, 1e9 bytes a second, for 2 * 3/4 * 3e7 bytes.
    assert stage_parts(stages, 1, half, LINKS) == pytest.approx((0.09, 0.008 + 8e-5, 0.045))
    assert stage_parts(stages, 0, half, LINKS) == pytest.approx((0.06, 0.016 + 1.6e-4, 0.02))
    assert iteration_s(stages, [half, half], LINKS) == pytest.approx(0.14308)


def test_all_on_one_server_makes_the_worked_example_communication_heavy() -> None:
    assert iteration_s(EXAMPLE, [[1, 2]], LINKS) == pytest.approx(0.09076)
    assert packed_s(EXAMPLE, LINKS) == pytest.approx(0.09076)
    assert spread_s(EXAMPLE, LINKS) / packed_s(EXAMPLE, LINKS) == pytest.approx(1.83, abs=0.005)


def test_one_stage_exchanges_no_activations_and_one_replica_reduces_nothing() -> None:
    alone = (PipelineStage(1, 0.1, 0.2, 5e6, 5e6, 1e9),)
    assert iteration_s(alone, [[1]], LINKS) == pytest.approx(0.3)
    assert spread_s(alone, LINKS) == pytest.approx(0.3)


def test_a_barrier_fills_and_drains_the_pipeline_once_an_iteration() -> None:
    # Four micro-batches through two stages: 5/4 of the slowest stage, then its AllReduce.
    busy_s, reduce_s = 0.09 + 8e6 / 5e10, 3e7 / 5e10
    assert barrier_s(EXAMPLE, [[1, 2]], LINKS, 4) == pytest.approx(5 / 4 * busy_s + reduce_s)
    assert barrier_s(EXAMPLE, [[1, 2]], LINKS, 10**9) == pytest.approx(
        iteration_s(EXAMPLE, [[1, 2]], LINKS)
    )


def test_slices_of_a_replica_share_its_exchange() -> None:
    whole = (
        PipelineStage(1, 0.02, 0.04, 0.0, 8e6, 1e7),
        PipelineStage(1, 0.02, 0.04, 8e6, 0.0, 1e7),
    )
    sliced = tuple(
        PipelineStage(1, 0.02, 0.04, s.activation_in_bytes, s.activation_out_bytes, 1e7, slices=2)
        for s in whole
    )
    apart = [[1, 0], [0, 1]]
    one, two = (sum(stage_parts(g, 0, apart[0], LINKS)) for g in (whole, sliced))
    assert one - 0.06 == pytest.approx(2 * (two - 0.06))
    assert replicas_held(sliced, [0, 0, 0, 1]) == [[1, 0.5], [0, 0.5]]


def test_bytes_that_vanish_between_stages_are_refused() -> None:
    leaky = (EXAMPLE[0], PipelineStage(2, 0.03, 0.06, 8e6, 0.0, 3e7))
    said = "stage 1 sends 8e+06 bytes in all and stage 2 receives 1.6e+07"
    assert trouble_with(leaky) == said
    with pytest.raises(ValueError, match="stage 1 sends"):
        job_graph(leaky)
    assert "at least one replica" in trouble_with((PipelineStage(0, 1, 1, 0, 0, 0),))
    assert "not finite" in trouble_with((PipelineStage(1, float("nan"), 1, 0, 0, 0),))
    assert "no time" in trouble_with((PipelineStage(1, 0, 0, 0, 0, 0),))
    assert not trouble_with(EXAMPLE)


def test_the_second_tree_is_a_mirror_of_the_first_or_its_shift() -> None:
    even = ((1, 2), (2, 0), (3, 2)), ((2, 1), (1, 3), (0, 1))
    odd = ((1, 2), (2, 4), (3, 2), (4, 0)), ((2, 3), (3, 0), (4, 3), (0, 1))
    assert double_tree(4) == (*even[0], *even[1])
    assert double_tree(5) == (*odd[0], *odd[1])


@pytest.mark.parametrize("ranks", range(2, 34))
def test_both_trees_of_the_double_tree_span_all_ranks(ranks: int) -> None:
    edges = double_tree(ranks)
    for tree in (edges[: ranks - 1], edges[ranks - 1 :]):
        parent = dict(tree)
        roots = set(range(ranks)) - set(parent)
        assert len(parent) == ranks - 1 and len(roots) == 1
        for rank in parent:
            steps = 0
            while rank in parent:
                rank, steps = parent[rank], steps + 1
            assert rank in roots and steps <= ranks.bit_length()
        assert max(sum(p == r for p in parent.values()) for r in range(ranks)) <= 2


def test_servers_are_full_but_for_the_last() -> None:
    assert full_servers(20, 8) == (8, 8, 4)
    assert full_servers(8, 8) == (8,)
    assert full_servers(1, 8) == (1,)


graphs = st.lists(
    st.tuples(st.integers(1, 4), st.floats(0.01, 1), st.floats(1e3, 1e8), st.floats(1e3, 1e9)),
    min_size=1,
    max_size=4,
).map(
    lambda rows: tuple(
        PipelineStage(k, f, 2 * f, (rows[i - 1][2] if i else 0.0) / k, out / k, h)
        for i, (k, f, out, h) in enumerate(rows)
    )
)


@settings(max_examples=60, deadline=None)
@given(graph=graphs, seed=st.randoms(use_true_random=False))
def test_no_placement_is_slower_than_every_replica_alone(graph, seed) -> None:  # type: ignore[no-untyped-def]
    servers = [m for m in range(3) for _ in range(sum(s.replicas for s in graph))]
    placed = seed.sample(servers, sum(s.replicas for s in graph))
    held = replicas_held(graph, placed)
    assert iteration_s(graph, held, LINKS) <= spread_s(graph, LINKS) * (1 + 1e-12)
    assert packed_s(graph, LINKS) <= spread_s(graph, LINKS) * (1 + 1e-12)
    computing_s = max(s.forward_s + s.backward_s for s in graph)
    assert iteration_s(graph, held, LINKS) >= computing_s

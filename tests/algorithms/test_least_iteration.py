"""No placement of a pipeline has a shorter iteration than the least, whole replicas or broken."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.algorithms.least_iteration import least_iteration_s
from dovetail.algorithms.pipeline_time import Links, packed_s, replicas_held, server_s
from dovetail.core.job import PipelineStage

SIZES = (2, 4, 8)
MB = 1e6
Graph = tuple[PipelineStage, ...]


def links(gpus: int) -> Links:
    return Links(5e10, 2e9, gpus)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    replicas = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    sent = [10 ** draw(st.floats(5, 8)) for _ in replicas]
    slices = draw(st.sampled_from([(1,), (2,), (1, 2)]))
    return tuple(
        PipelineStage(
            k,
            draw(st.floats(0.001, 0.1)),
            0.1,
            sent[s - 1] / k if s else 0.0,
            sent[s] / k if s < len(replicas) - 1 else 0.0,
            10 ** draw(st.floats(5, 9)),
            slices[s % len(slices)],
        )
        for s, k in enumerate(replicas)
    )


@settings(max_examples=300)
@given(
    graph=graphs(), data=st.data(), sizes=st.lists(st.sampled_from(SIZES), min_size=1, max_size=3)
)
def test_no_placement_has_a_shorter_iteration(
    graph: Graph, data: st.DataObject, sizes: list[int]
) -> None:
    gpus = sum(stage.gpus for stage in graph)
    servers = sizes * -(-gpus // sum(sizes))
    seats = [server for server, size in enumerate(servers) for _ in range(size)]
    server_of = data.draw(st.permutations(seats))[:gpus]
    held = replicas_held(graph, server_of)
    placed_s = max(server_s(graph, row, links(servers[m])) for m, row in enumerate(held))
    assert least_iteration_s(graph, tuple(links(size) for size in set(sizes))) <= placed_s * (
        1 + 1e-9
    )


@given(graph=graphs())
def test_a_pipeline_that_fits_one_server_is_fastest_there(graph: Graph) -> None:
    gpus = sum(stage.gpus for stage in graph)
    on_one = server_s(graph, [float(stage.replicas) for stage in graph], links(gpus))
    least_s = least_iteration_s(graph, (links(gpus),))
    assert least_s <= on_one * (1 + 1e-9)
    if gpus > 1:
        # A share of the NIC is slower than the links inside, so no cut helps.
        assert least_s == pytest.approx(on_one)


def test_a_cut_stage_reduces_through_the_share_of_its_smaller_half() -> None:
    # Six replicas on servers of four: at best three and three, on 3/4 of 2 GB/s each.
    graph = (PipelineStage(6, 0.01, 0.02, 0.0, 0.0, 90 * MB),)
    expected_s = 0.03 + 2 * 5 / 6 * 90 * MB / 1.5e9
    assert least_iteration_s(graph, (links(4),)) == pytest.approx(expected_s)
    assert packed_s(graph, links(4)) > expected_s


def test_on_servers_of_two_sizes_a_small_one_may_hold_the_smallest_piece() -> None:
    # Five replicas: three on a server of four, on 3/4 of 2 GB/s, and two with a NIC to themselves.
    graph = (PipelineStage(5, 0.01, 0.02, 0.0, 0.0, 90 * MB),)
    sizes = (4, 2)
    held = replicas_held(graph, [0, 0, 0, 1, 1])
    placed_s = max(server_s(graph, row, links(n)) for row, n in zip(held, sizes, strict=True))
    assert placed_s == pytest.approx(0.03 + 2 * 4 / 5 * 90 * MB / 1.5e9)
    assert least_iteration_s(graph, tuple(map(links, sizes))) <= placed_s

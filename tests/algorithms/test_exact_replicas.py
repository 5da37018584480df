"""The integer programme finds the shortest iteration; Heavy-Edge is measured against it."""

from collections.abc import Callable
from itertools import product
from random import Random
from statistics import mean

import pytest

from benchmarks.double_tree import tree_graph
from dovetail.algorithms.heavy_edge import cut
from dovetail.algorithms.job_graph import JobGraph, job_graph
from dovetail.algorithms.pipeline_time import Links, iteration_s, replicas_held
from dovetail.core.job import PipelineStage
from dovetail.physics.pipelines.pipelined import pipelined
from dovetail.physics.pipelines.planner import TESTBED, plan
from papers.a_srpt.exact_replicas import exact_replicas
from patience import UNHURRIED_S

LINKS = Links(5e10, 2e9, 4)
GraphOf = Callable[[tuple[PipelineStage, ...]], JobGraph]


def drawn(draw: Random) -> tuple[PipelineStage, ...]:
    """Returns a job of at most 9 replicas with much or little to exchange."""
    replicas = [draw.randint(1, 3) for _ in range(draw.randint(1, 3))]
    sent = [10 ** draw.uniform(6, 8) for _ in replicas]
    return tuple(
        PipelineStage(
            k,
            draw.uniform(0.02, 0.1),
            draw.uniform(0.04, 0.2),
            sent[s - 1] / k if s else 0.0,
            sent[s] / k if s < len(replicas) - 1 else 0.0,
            10 ** draw.uniform(6, 8),
        )
        for s, k in enumerate(replicas)
    )


def split(draw: Random, gpus: int) -> tuple[int, ...]:
    taken: list[int] = []
    while sum(taken) < gpus:
        taken.append(min(draw.randint(1, 4), gpus - sum(taken)))
    return tuple(taken)


def by_trying_all(graph: tuple[PipelineStage, ...], capacities: tuple[int, ...]) -> float:
    ranks = sum(stage.replicas for stage in graph)
    fitting = (
        servers
        for servers in product(range(len(capacities)), repeat=ranks)
        if all(servers.count(m) <= room for m, room in enumerate(capacities))
    )
    return min(iteration_s(graph, replicas_held(graph, s), LINKS) for s in fitting)


@pytest.mark.parametrize("seed", range(12))
def test_no_placement_is_shorter(seed: int) -> None:
    draw = Random(seed)
    graph = drawn(draw)
    capacities = split(draw, sum(stage.replicas for stage in graph))
    if len(capacities) ** sum(stage.replicas for stage in graph) > 20_000:
        capacities = (4, 4)
    best = exact_replicas(graph, capacities, LINKS, limit_s=UNHURRIED_S)
    assert best is not None
    assert best.iteration_s == pytest.approx(by_trying_all(graph, capacities), rel=1e-3)
    assert best.bound_s == pytest.approx(best.iteration_s, rel=1e-3)
    for s, stage in enumerate(graph):
        assert sum(row[s] for row in best.replicas) == stage.replicas


def test_slices_that_do_not_fit_have_no_placement() -> None:
    wide = (PipelineStage(2, 1.0, 1.0, 0.0, 0.0, 1e6, slices=4),)
    assert exact_replicas(wide, (5, 3), LINKS) is None
    assert exact_replicas(wide, (4, 4), LINKS) is not None


def ratio(
    graph: tuple[PipelineStage, ...], taken: tuple[int, ...], how: GraphOf, on: Links
) -> float:
    """Returns Heavy-Edge's iteration over the best."""
    best = exact_replicas(graph, taken, on, limit_s=UNHURRIED_S)
    servers = cut(how(graph), taken)
    assert best is not None and servers is not None
    over = iteration_s(graph, replicas_held(graph, servers), on) / best.iteration_s
    assert over >= 1 - 1e-3
    return over


@pytest.mark.parametrize("graph_of", [job_graph, tree_graph])
def test_on_random_jobs_heavy_edge_is_within_a_tenth_of_the_best_on_average(
    graph_of: GraphOf,
) -> None:
    draw = Random(5)
    ratios = []
    for _ in range(60):
        graph = drawn(draw)
        taken = split(draw, sum(stage.replicas for stage in graph))
        ratios.append(ratio(graph, taken, graph_of, LINKS))
    assert mean(ratios) <= 1.10


def test_on_straight_pipelines_heavy_edge_is_within_six_per_cent_on_average() -> None:
    """Eight servers have 1 to 8 GPUs free; those with most are taken first, as A-SRPT does."""
    draw, ratios = Random(7), []
    for name in ("bert-large", "xlnet-large"):
        for gpus in (4, 8, 16):
            graph = plan(pipelined()[name], gpus)
            assert {stage.replicas for stage in graph} == {1}
            for _ in range(5):
                free = sorted((draw.randint(1, 8) for _ in range(8)), reverse=True)
                taken: list[int] = []
                for here in free:
                    taken.append(min(here, gpus - sum(taken)))
                ratios.append(ratio(graph, tuple(n for n in taken if n), job_graph, TESTBED))
    assert mean(ratios) <= 1.06

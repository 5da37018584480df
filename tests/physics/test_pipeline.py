"""Pipelines in a cluster: graphs of the trace and of the planner, speeds by rank, kinds."""

from dataclasses import replace

import numpy as np
import pytest

from builders import Row, trace_of
from dovetail.algorithms.heavy_edge import heavy_edge
from dovetail.algorithms.pipeline_time import Links, iteration_s, packed_s, spread_s
from dovetail.core.beliefs import Physics
from dovetail.core.cluster import Cluster, Link, NodeGroup
from dovetail.core.errors import InputError
from dovetail.core.job import JobTable, PipelineStage
from dovetail.core.placement import Placement
from dovetail.physics.linear import linear_physics
from dovetail.physics.pipelines.pipelined import pipelined
from dovetail.physics.pipelines.planner import held_bytes, plan
from dovetail.physics.placed import placed_physics
from dovetail.physics.zoo.models import shipped

LINKS = (Link("node", 5e10, 0.0, nodes=1), Link("fabric", 2e9))
FOURS = replace(Cluster.uniform(4, 4), links=LINKS)
EXAMPLE = (
    PipelineStage(1, 0.02, 0.04, 0.0, 8e6, 1e7),
    PipelineStage(2, 0.03, 0.06, 4e6, 0.0, 3e7),
)


def given(*graphs: tuple[PipelineStage, ...]) -> JobTable:
    """Returns jobs of unknown model with these graphs, and one without."""
    gpus = [sum(stage.gpus for stage in graph) for graph in graphs]
    jobs: JobTable = trace_of(*(Row(n, 100) for n in (*gpus, 3))).jobs
    codes = np.array([*range(len(graphs)), -1], np.int32)
    return replace(jobs, graphs=graphs, graph_code=codes)


def placed(jobs: JobTable, cluster: Cluster = FOURS, by_count: bool = False) -> Physics:
    return placed_physics(jobs, cluster, shipped(), by_count=by_count)


def test_a_graph_of_the_trace_runs_as_worked_example_10_says() -> None:
    physics = placed(given(EXAMPLE))
    assert physics.structure.graph(0) == EXAMPLE and physics.structure.graph(1) == ()
    assert physics.rate(0, Placement(((0, 3),)), ()) == pytest.approx(1)
    assert physics.rate(0, Placement(((0, 1), (1, 2))), ()) == pytest.approx(0.09076 / 0.1066)
    # Ranks follow the spans: here the second stage is the one that is cut.
    assert physics.rate(0, Placement(((0, 2), (1, 1))), ()) == pytest.approx(0.09076 / 0.166)
    assert physics.speed.spread(0) == pytest.approx(0.09076 / 0.166)


def test_a_node_may_appear_in_several_spans() -> None:
    physics = placed(given(EXAMPLE))
    around = Placement(((0, 1), (1, 1), (0, 1)))
    assert physics.rate(0, around, ()) == pytest.approx(0.09076 / 0.166)


def test_kinds_tell_graphs_apart() -> None:
    slower = (EXAMPLE[0], replace(EXAMPLE[1], backward_s=0.12))
    for physics in (placed(given(EXAMPLE, slower)), linear_physics(given(EXAMPLE, slower))):
        assert len(set(physics.kind_of.tolist())) == 3
        assert physics.speed.rates(4).shape == (3, 5)


def test_graphs_that_cannot_be_are_refused() -> None:
    leaky = (EXAMPLE[0], replace(EXAMPLE[1], activation_in_bytes=8e6))
    with pytest.raises(InputError, match="stage 1 sends 8e\\+06 bytes in all"):
        placed(given(leaky))
    jobs = given(EXAMPLE)
    fewer = replace(jobs, graph_code=np.array([-1, -1], np.int32))
    assert placed(fewer).structure.graph(0) == ()
    other = replace(trace_of(Row(2, 100)).jobs, graphs=(EXAMPLE,), graph_code=np.array([0]))
    with pytest.raises(InputError, match="has 3 GPUs, the job 2"):
        placed(other)


def test_a_trace_s_graph_on_other_counts() -> None:
    physics = placed(given(EXAMPLE))
    kind = physics.kind_of[0]
    # It has no other plan: fewer GPUs are slower in proportion, more of them idle.
    assert physics.speed.rates(6)[kind].tolist() == pytest.approx([0, 1 / 3, 2 / 3, 1, 1, 1, 1])
    assert physics.rate(0, Placement(((0, 4),)), ()) == pytest.approx(1)
    assert physics.rate(0, Placement(((0, 1),)), ()) == pytest.approx(1 / 3)


def test_models_of_the_set_get_the_planner_s_graph() -> None:
    cluster = Cluster.uniform(4, 8)
    rows = [Row(g, 100, model=f"asrpt/{m}") for m in ("vgg19", "t5-11b") for g in (1, 8, 16)]
    physics = placed(trace_of(*rows).jobs, cluster)
    links = Links(12e9, 1.25e9, 8)
    for job, row in enumerate(rows):
        graph = plan(pipelined()[row.model.partition("/")[2]], row.gpus)
        assert physics.structure.graph(job) == graph
        if not graph:
            continue
        capacities = [min(8, row.gpus - 8 * m) for m in range((row.gpus + 7) // 8)]
        servers = heavy_edge(graph, capacities)
        assert servers is not None
        best = Placement(tuple((m, 1) for m in servers))
        assert physics.rate(job, best, ()) == pytest.approx(1)
        wide = packed_s(graph, links) / spread_s(graph, links)
        assert physics.speed.spread(job) == pytest.approx(wide)
        assert physics.speed.rates(16)[physics.kind_of[job], row.gpus] == pytest.approx(1)
        fixed, held = held_bytes(pipelined()[row.model.partition("/")[2]], row.gpus)
        assert (physics.memory.fixed_bytes(job), physics.memory.footprint_bytes(job, 1)) == (
            fixed,
            held,
        )
        assert physics.speed.best_batches(job, 0.0, 16).speed.shape[1] == 17


def test_the_job_s_batch_makes_its_plan() -> None:
    jobs = trace_of(*(Row(8, 100, model="asrpt/vgg19", batch_size=b) for b in (0, 32, 256))).jobs
    physics = placed(jobs, Cluster.uniform(2, 8))
    assert physics.structure.graph(0) == physics.structure.graph(1) != physics.structure.graph(2)


def test_only_the_count_matters_where_it_is_asked() -> None:
    physics = placed(given(EXAMPLE), by_count=True)
    assert physics.rate(0, Placement(((0, 2), (1, 1))), ()) == 1
    assert physics.speed.spread(0) == 1


def test_a_replica_cut_in_two_pays_for_its_tensors() -> None:
    sliced = (
        PipelineStage(1, 0.02, 0.04, 0.0, 8e6, 1e7, slices=2),
        PipelineStage(1, 0.03, 0.06, 8e6, 0.0, 3e7, slices=2),
    )
    physics = placed(given(sliced))
    whole = physics.rate(0, Placement(((0, 2), (1, 2))), ())
    # Four exchanges of 8 MB at an all-reduce of two, through a quarter of the NIC.
    tensors_s = 4 * 8e6 / (2e9 / 4)
    held = [[0.5, 0.0], [0.5, 1.0]]
    plain_s = iteration_s(sliced, held, Links(5e10, 2e9, 4))
    cut = physics.rate(0, Placement(((0, 1), (1, 3))), ())
    assert cut < whole
    assert 1 / cut * packed_s(sliced, Links(5e10, 2e9, 4)) >= 0.06 + tensors_s
    assert 1 / cut * packed_s(sliced, Links(5e10, 2e9, 4)) <= plain_s + tensors_s + 0.05


def test_a_small_node_gives_each_gpu_more_of_its_nic() -> None:
    mixed = Cluster((NodeGroup("big", 2, 4), NodeGroup("small", 2, 2)), links=LINKS)
    physics = placed(given(EXAMPLE), mixed)
    on_big = physics.rate(0, Placement(((0, 1), (1, 2))), ())
    on_small = physics.rate(0, Placement(((2, 1), (3, 2))), ())
    assert on_small > on_big


def test_accumulation_slows_a_planned_job_as_it_says() -> None:
    jobs = trace_of(Row(8, 100, model="asrpt/bert-large")).jobs
    physics = placed(jobs, Cluster.uniform(2, 8))
    cut = physics.rate(0, Placement(((0, 8),), accumulation_steps=4), ())
    assert cut == pytest.approx(
        physics.batches.accumulated(0, 4) * physics.rate(0, Placement(((0, 8),)), ())
    )
    assert cut < 1

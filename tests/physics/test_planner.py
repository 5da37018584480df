"""Blocks add up to the published models, and plans to what a planner owes."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.algorithms.job_graph import trouble_with
from dovetail.algorithms.pipeline_time import packed_s, spread_s
from dovetail.physics.pipelines.pipelined import LAUNCH_S, Block, Pipelined, pipelined
from dovetail.physics.pipelines.planner import (
    MEMORY_BYTES,
    TESTBED,
    held_bytes,
    plan,
)
from dovetail.physics.zoo.architecture import CONTEXT_BYTES
from dovetail.physics.zoo.provenance import shipped_text
from tools.zoo.networks import FP32_BYTES, dump_networks, networks
from tools.zoo.plans import even_cuts

PUBLISHED = {
    # Parameters, and billions of operations of a forward pass of one sample.
    "vgg19": (143.67e6, 39.3),
    "resnet152": (60.19e6, 23.1),
    "inception3": (23.83e6, 11.4),
    "bert-large": (334e6, None),
    "xlnet-large": (360e6, None),
    "t5-11b": (11.3e9, None),
    "gpt-6.7b": (6.7e9, None),
    "gpt-13b": (13.0e9, None),
    "gpt-175b": (175e9, None),
}


def parameters_of(model: Pipelined) -> float:
    return sum(block.parameters for block in model.blocks)


@pytest.mark.parametrize("name", PUBLISHED)
def test_blocks_add_up_to_the_published_model(name: str) -> None:
    parameters, operations = PUBLISHED[name]
    model = pipelined()[name]
    assert parameters_of(model) == pytest.approx(parameters, rel=0.03)
    if operations:
        assert sum(b.flops for b in model.blocks) / 1e9 == pytest.approx(operations, rel=0.01)


def test_the_shipped_networks_are_what_the_published_shapes_make() -> None:
    assert shipped_text("networks.toml") == dump_networks()
    assert tuple(pipelined().values()) == networks()


def test_table_one_gives_the_batches() -> None:
    batches = {name: model.batch for name, model in pipelined().items()}
    assert list(batches.values()) == [32, 4, 32, 4, 4, 8, 32, 32, 16]


@pytest.mark.parametrize("name", ["vgg19", "bert-large", "t5-11b", "gpt-13b", "gpt-175b"])
@pytest.mark.parametrize("gpus", [1, 2, 5, 8, 16, 32])
def test_a_plan_uses_all_its_gpus_and_fits_their_memory(name: str, gpus: int) -> None:
    model = pipelined()[name]
    graph = plan(model, gpus)
    if not graph:
        # Without any plan the fixed part alone must be too much, or slices do not divide.
        share = model.state_bytes * parameters_of(model) / gpus
        assert gpus % model.slices or CONTEXT_BYTES + 1.3 * share > MEMORY_BYTES
        return
    assert sum(stage.gpus for stage in graph) == gpus
    assert not trouble_with(graph)
    assert graph[0].activation_in_bytes == graph[-1].activation_out_bytes == 0
    fixed, held = held_bytes(model, gpus)
    assert CONTEXT_BYTES < fixed <= held <= MEMORY_BYTES
    in_all = sum(stage.parameter_bytes for stage in graph)
    assert in_all == pytest.approx(model.number_bytes * parameters_of(model))


def test_the_largest_models_need_many_gpus() -> None:
    assert not plan(pipelined()["t5-11b"], 1)
    assert plan(pipelined()["t5-11b"], 2)
    assert not plan(pipelined()["gpt-175b"], 16)
    assert {stage.slices for stage in plan(pipelined()["gpt-175b"], 32)} == {8}
    assert held_bytes(pipelined()["gpt-175b"], 16) == (0.0, 0.0)


def test_one_gpu_runs_one_stage_with_nothing_to_exchange() -> None:
    model = pipelined()["resnet152"]
    (stage,) = plan(model, 1)
    assert stage.replicas == 1
    launch_s = LAUNCH_S * sum(block.layers for block in model.blocks)
    sample_s = sum(block.flops for block in model.blocks) / model.flops_per_s
    assert packed_s((stage,), TESTBED) == spread_s((stage,), TESTBED)
    assert packed_s((stage,), TESTBED) == pytest.approx(
        (1 + model.backward_factor) * (launch_s + model.batch * sample_s)
    )


def chain(
    outs: list[float], flops: list[float], parameters: tuple[float, ...] = (1e4,)
) -> Pipelined:
    sizes = parameters * len(outs) if len(parameters) == 1 else parameters
    rows = zip(sizes, flops, outs, strict=True)
    return Pipelined(
        "chain", tuple(Block(p, f, o, o, 1) for p, f, o in rows), 12, 1e12, FP32_BYTES, 12
    )


def test_equal_blocks_with_little_to_hand_on_make_a_straight_pipeline() -> None:
    model = chain([10.0] * 4, [1e11] * 4)
    assert [stage.replicas for stage in plan(model, 4)] == [1, 1, 1, 1]


def test_what_computes_much_is_replicated_and_what_weighs_much_is_not() -> None:
    model = chain([10.0, 10.0], [3e11, 1e11], (1e4, 1e9))
    assert [stage.replicas for stage in plan(model, 4)] == [3, 1]


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.floats(10, 1e5), st.floats(1e9, 1e12)), min_size=1, max_size=6),
    st.integers(1, 12),
)
def test_a_plan_is_never_worse_than_all_data_parallel(
    rows: list[tuple[float, float]], gpus: int
) -> None:
    model = chain([o for o, _ in rows], [f for _, f in rows])
    graph = plan(model, gpus)
    whole = Pipelined(
        "whole", (Block(*map(sum, zip(*model.blocks, strict=True))),), 12, 1e12, 4, 12
    )
    alike = plan(whole, gpus)
    product = packed_s(graph, TESTBED) * spread_s(graph, TESTBED)
    assert product <= packed_s(alike, TESTBED) * spread_s(alike, TESTBED) * (1 + 1e-9)


def test_even_cuts_share_the_work() -> None:
    model = pipelined()["gpt-6.7b"]
    cuts = even_cuts(model, 4)
    assert cuts[0][0] == 0 and cuts[-1][1] == len(model.blocks)
    assert all(a[1] == b[0] for a, b in pairwise(cuts))
    work = [sum(b.flops for b in model.blocks[first:end]) for first, end in cuts]
    assert max(work) < 1.2 * min(work)

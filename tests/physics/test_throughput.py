import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from physics_scene import a_model, assumed, curve, stages

from dovetail.core.cluster import DEFAULT_LINKS
from dovetail.core.errors import InputError
from dovetail.physics.speed.compute import Compute
from dovetail.physics.speed.network import Network
from dovetail.physics.speed.throughput import (
    fewest_steps,
    footprint_bytes,
    iteration_s,
    speed_relative,
    spread,
    throughput_table,
)
from dovetail.physics.zoo.models import zoo
from dovetail.physics.zoo.profile import Batch, ModelProfile

ZOO = st.sampled_from(sorted(zoo().values(), key=lambda profile: profile.full_name))


def test_an_iteration_is_computing_and_the_ring() -> None:
    # 4 GPUs, 16 samples each: 10 + 16 ms; ring 2*3/4 * 100 MB at 10 GB/s: 15 ms.
    assert iteration_s(a_model(), gpus=4) == pytest.approx(0.026 + 0.015)
    # Over two nodes the ring runs at 1 GB/s.
    assert iteration_s(a_model(), gpus=4, spans=(2, 2)) == pytest.approx(0.026 + 0.150)


def test_the_batch_on_each_gpu_and_the_steps_may_be_given() -> None:
    spelled_out = iteration_s(a_model(), gpus=1, batch_per_gpu=64, accumulation_steps=1)

    assert iteration_s(a_model(), gpus=1) == spelled_out == pytest.approx(0.074)
    assert iteration_s(a_model(), gpus=1, accumulation_steps=4) == pytest.approx(0.104)


def test_batches_the_source_could_not_hold_are_accumulated() -> None:
    small = a_model(batch=assumed(Batch(64, per_gpu=False, max_per_gpu=16)))

    assert [fewest_steps(small, b) for b in (1, 16, 17, 64)] == [1, 1, 2, 4]
    assert iteration_s(small, gpus=1) == pytest.approx(4 * 0.010 + 0.064)


def test_the_network_of_the_source_carries_the_gradients() -> None:
    links = Network.of(DEFAULT_LINKS)
    ring_s = 6 * 3e-5 + 1.5 * 1e8 / 1.25e9

    assert iteration_s(a_model(network=assumed(links)), gpus=4, spans=(2, 2)) == pytest.approx(
        0.026 + ring_s
    )


def test_a_slower_device_computes_longer_and_a_measured_one_as_measured() -> None:
    both = a_model(
        compute=(("v100", assumed(Compute(0.01, 0.001))), ("k80", assumed(Compute(0.1, 0.01))))
    )

    assert iteration_s(a_model(), gpus=1, gpu_type="p100") == pytest.approx(0.074 / 0.58)
    assert iteration_s(a_model(), gpus=1, gpu_type="v100") == pytest.approx(0.074)
    assert iteration_s(both, gpus=1, gpu_type="k80") == pytest.approx(0.74)


def test_an_unknown_device_is_named_with_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'a10'"):
        iteration_s(a_model(), gpus=1, gpu_type="a10o")


def test_spans_that_do_not_add_up_are_refused() -> None:
    with pytest.raises(ValueError, match="4 GPUs cannot lie"):
        iteration_s(a_model(), gpus=4, spans=(2, 1))
    with pytest.raises(ValueError, match="0 GPUs"):
        iteration_s(a_model(), gpus=0)


def test_a_measured_curve_is_met_exactly_and_bent_by_placement() -> None:
    measured = a_model(curve=curve(0.1, 0.06, 0.05))

    assert [iteration_s(measured, gpus=n) for n in (1, 2, 4)] == pytest.approx([0.1, 0.06, 0.05])
    apart = iteration_s(measured, gpus=4, spans=(2, 2))
    assert apart == pytest.approx(0.05 * 0.176 / 0.041)


def test_between_measured_counts_throughput_is_linear() -> None:
    measured = a_model(curve=curve(0.1, 0.05, 0.04))

    assert throughput_table(measured, 4).tolist() == pytest.approx([0, 10, 20, 22.5, 25])


def test_a_table_is_flat_beyond_the_useful_most_and_cannot_be_written() -> None:
    narrow = a_model(max_gpus=assumed(2))

    table = throughput_table(narrow, 5)

    assert len(table) == 6
    assert table[0] == 0
    assert table[2] == table[3] == table[5] == pytest.approx(1 / iteration_s(narrow, gpus=2))
    assert throughput_table(narrow, 5) is table
    with pytest.raises(ValueError, match="read-only"):
        table[0] = 1


def test_under_weak_scaling_more_gpus_do_more_work_in_an_iteration() -> None:
    weak = a_model(
        batch=assumed(Batch(16, per_gpu=True, max_per_gpu=16)), curve=curve(0.1, 0.1, 0.2)
    )

    assert iteration_s(weak, gpus=4) == pytest.approx(0.2)
    assert throughput_table(weak, 4).tolist() == pytest.approx([0, 10, 20, 20, 20])


def test_as_requested_and_well_placed_is_speed_one() -> None:
    def speed(gpus: int, nodes: int) -> float:
        return speed_relative(
            a_model(), gpus=gpus, nodes_used=nodes, requested_gpus=4, gpus_per_node=4
        )

    assert speed(4, 1) == 1.0
    assert speed(4, 2) == pytest.approx(0.041 / 0.176)
    assert speed(2, 1) == pytest.approx(0.041 / (0.042 + 0.010))


def test_the_same_global_batch_is_kept_when_a_weak_scaling_job_shrinks() -> None:
    weak = a_model(batch=assumed(Batch(16, per_gpu=True, max_per_gpu=16)))

    half = speed_relative(weak, gpus=2, nodes_used=1, requested_gpus=4, gpus_per_node=4)

    # 32 samples on each of two GPUs, in two steps: 26 + 26 + 10 ms, against 26 + 15 ms.
    assert half == pytest.approx(0.041 / 0.062)


def test_accumulating_more_than_needed_slows_a_job() -> None:
    halved = speed_relative(
        a_model(),
        gpus=4,
        nodes_used=1,
        requested_gpus=4,
        gpus_per_node=4,
        accumulation_steps=2,
    )

    assert halved == pytest.approx(0.041 / 0.051)


def test_a_footprint_is_that_of_the_largest_micro_batch() -> None:
    small = a_model(batch=assumed(Batch(50, per_gpu=False, max_per_gpu=16)))

    # 50 samples in four steps: at most 13 at a time, 10 MB each, beside 1 GB.
    assert footprint_bytes(small, gpus=1) == pytest.approx(1.13e9)
    assert footprint_bytes(small, gpus=1, accumulation_steps=5) == pytest.approx(1.10e9)
    assert footprint_bytes(small, gpus=4, batch_per_gpu=8) == pytest.approx(1.08e9)


def test_stage_times_are_linear_between_rows_and_flat_beyond() -> None:
    staged = a_model(stages=stages())
    rows = {n: staged.stage_times(n) for n in (1, 3, 4, 64)}
    assert rows[1].of_resources() == (0.5, 0.0, 0.1, 0.0)  # type: ignore[union-attr]
    assert rows[3].of_resources() == pytest.approx((17 / 30, 0.0, 0.1, 0.4 / 3))  # type: ignore[union-attr]
    assert rows[4].of_resources() == (0.6, 0.0, 0.1, 0.2)  # type: ignore[union-attr]
    assert rows[64] == rows[4]
    assert a_model().stage_times(4) is None


@given(gpus=st.integers(1, 200), nodes=st.integers(1, 50))
def test_a_spread_uses_every_node_and_is_even(gpus: int, nodes: int) -> None:
    if nodes > gpus:
        with pytest.raises(ValueError, match="cannot lie"):
            spread(gpus, nodes)
        return
    spans = spread(gpus, nodes)
    assert sum(spans) == gpus and len(spans) == nodes
    assert max(spans) - min(spans) <= 1


@given(profile=ZOO, gpus=st.integers(2, 64), batch=st.integers(1, 512), s=st.integers(1, 8))
def test_no_model_of_the_zoo_is_faster_outside_one_node(
    profile: ModelProfile, gpus: int, batch: int, s: int
) -> None:
    def on(*spans: int) -> float:
        return iteration_s(
            profile, gpus=gpus, spans=spans, batch_per_gpu=batch, accumulation_steps=s
        )

    slack = 1 - 1e-12
    assert on(gpus - 1, 1) >= on(gpus) * slack
    assert on(*[1] * gpus) >= on(gpus) * slack
    if profile.network.value.pair is None and gpus > 2:
        assert on(gpus - 2, 1, 1) >= on(gpus - 1, 1) * slack


@given(profile=ZOO, gpus=st.integers(1, 64), batch=st.integers(1, 512), s=st.integers(1, 4))
def test_no_model_of_the_zoo_gains_by_larger_batches_or_accumulation(
    profile: ModelProfile, gpus: int, batch: int, s: int
) -> None:
    def at(samples: int, steps: int) -> float:
        return iteration_s(profile, gpus=gpus, batch_per_gpu=samples, accumulation_steps=steps)

    slack = 1 - 1e-9
    assert at(batch + 1, s) >= at(batch, s) * slack
    assert at(batch, s + 1) >= at(batch, s) * slack


@given(profile=ZOO)
def test_curves_of_the_zoo_are_sane(profile: ModelProfile) -> None:
    table = throughput_table(profile, 64)
    useful = profile.max_gpus.value

    assert table[0] == 0 and (table[1:] > 0).all()
    assert (np.diff(table[useful:]) == 0).all()
    assert (np.diff(table[: useful + 1]) > 0).all()
    # The measured curve of the autoencoder is superlinear, by 8.3 % on 20 GPUs.
    assert (table[1 : useful + 1] <= 1.09 * table[1] * np.arange(1, useful + 1)).all()

"""What a job asks of its resources, at the size it has now."""

from dataclasses import replace

import pytest
from physics_scene import a_model, assumed, stages

from dovetail.physics.sharing.service_demand import (
    GPU,
    Size,
    load,
    on_one_gpu,
    service_demand,
    well_placed_demand,
)
from dovetail.physics.speed.throughput import iteration_s
from dovetail.physics.zoo.models import zoo
from dovetail.physics.zoo.profile import Batch

STAGED = a_model(stages=stages())
"""64 samples: 0.5 s of storage and 0.1 of the GPU on one; on four 0.6, 0.1, and 0.2 of network."""


@pytest.mark.parametrize("gpus", [1, 4])
def test_at_its_own_batch_a_job_has_the_measured_stages(gpus: int) -> None:
    demand = well_placed_demand(STAGED, gpus)
    known = STAGED.stage_times(gpus)
    assert known and demand.stage_s == pytest.approx(known.of_resources())
    assert demand.iteration_s == pytest.approx(iteration_s(STAGED, gpus=gpus))
    assert demand.micro_batch == 64 / gpus


def test_over_the_zoo_stages_are_as_profiled_and_iterations_as_modelled() -> None:
    for profile in zoo().values():
        for gpus in (1, 2, 4, 8, 16):
            demand, known = well_placed_demand(profile, gpus), profile.stage_times(gpus)
            assert demand.iteration_s == pytest.approx(iteration_s(profile, gpus=gpus))
            if known:
                assert demand.stage_s == pytest.approx(known.of_resources()), profile.full_name
            assert all(0 <= share <= 1 for share in demand.shares)


def test_loading_grows_with_the_samples_and_computing_by_its_own_line() -> None:
    whole, half = (service_demand(STAGED, Size((1,), batch, 1)) for batch in (64.0, 32.0))
    assert half.stage_s[0] == pytest.approx(whole.stage_s[0] / 2)
    # 10 ms and 1 ms a sample: 42 ms in place of 74.
    assert half.stage_s[GPU] == pytest.approx(whole.stage_s[GPU] * 42 / 74)
    assert whole.load == pytest.approx(6.4) and half.load == pytest.approx(3.2)


def test_steps_lengthen_computing_alone_and_lighten_the_load() -> None:
    whole, cut = (service_demand(STAGED, Size((1,), 64.0, steps)) for steps in (1, 4))
    assert cut.micro_batch == 16.0 and cut.load == pytest.approx(whole.load / 4)
    assert cut.stage_s[GPU] == pytest.approx(whole.stage_s[GPU] * 104 / 74)
    assert cut.stage_s[0] == whole.stage_s[0]


def test_a_batch_beyond_what_fits_is_cut_by_itself() -> None:
    tight = replace(STAGED, batch=assumed(Batch(64, per_gpu=False, max_per_gpu=16)))
    assert service_demand(tight, Size((1,), 64.0, 1)).micro_batch == 16.0


def test_the_exchange_is_that_of_the_nodes_held() -> None:
    # 100 MB round a ring of four: 15 ms at 10 GB/s, 150 ms at 1 GB/s.
    near = service_demand(STAGED, Size((4,), 16.0, 1))
    apart = service_demand(STAGED, Size((1, 1, 1, 1), 16.0, 1))
    assert near.stage_s[3] == pytest.approx(0.2)
    assert apart.stage_s[3] == pytest.approx(2.0)
    assert apart.stage_s[:3] == near.stage_s[:3]


def test_without_known_stages_a_job_computes_and_exchanges() -> None:
    plain = a_model()
    one = on_one_gpu(plain, 64)
    assert one.stage_s == pytest.approx((0, 0, 0.074, 0)) and one.shares[GPU] == pytest.approx(1)
    four = service_demand(plain, Size((4,), 16.0, 1))
    assert four.stage_s == pytest.approx((0, 0, 0.026, 0.015))
    assert load(plain, 16) == pytest.approx(1.6)

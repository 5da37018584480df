from pathlib import Path

import numpy as np
import pytest
from physics_scene import curve

from dovetail.core.errors import InputError
from dovetail.physics.speed.compute import Compute, iteration_s
from dovetail.physics.zoo.models import shipped_sets, zoo
from dovetail.physics.zoo.profile import Batch, Curve
from dovetail.physics.zoo.profile_file import ProfileSet, field_values, profile_fields
from dovetail.profiling.fit_curve import Servers, fit_curve
from dovetail.profiling.least_squares import error_of
from tools.zoo.accuracy import errors_by_region
from tools.zoo.fit import FITS, refit
from tools.zoo.fit_placements import Steps, fit_steps, read_steps
from tools.zoo.from_curve import left_out_times, measured_points
from tools.zoo.muri import fit_timed_exchange

TRUE = Compute(0.02, 0.003)
GRADIENT_BYTES = 1e8


def made_up_steps(noise: float) -> Steps:
    """Steps of a known model: 0.1 ms and 5 GB/s inside, 0.5 ms and 1 GB/s across, d = 2.

    The exchange of two nodes takes half as long again.
    """
    sizes = [(n, n * g) for n in (1, 2, 3, 4, 8) for g in (1, 2, 3, 4)]
    rows = np.array([(n, k, b) for n, k in sizes for b in (4, 8, 16, 32, 64)], float)
    nodes, gpus, batch = rows.T
    hops = 2 * (gpus - 1)
    across = nodes > 1
    bytes_s = GRADIENT_BYTES / np.where(across, 1e9, 5e9)
    comm_s = hops * np.where(across, 5e-4, 1e-4) + hops / gpus * bytes_s
    comm_s *= np.where(nodes == 2, 1.5, 1.0)
    step_s = np.asarray(iteration_s(TRUE, batch=batch, steps=1.0, comm_s=comm_s, overlap=2.0))
    jitter = np.exp(noise * np.random.default_rng(1).standard_normal(len(rows)))
    return Steps(nodes, gpus, batch, step_s * jitter, np.repeat(np.arange(len(sizes)), 5))


def test_a_fit_finds_the_model_that_made_the_steps() -> None:
    fit = fit_steps(made_up_steps(noise=0.0), GRADIENT_BYTES)

    assert fit.compute.a_s == pytest.approx(0.02, rel=1e-3)
    assert fit.compute.b_s_per_sample == pytest.approx(0.003, rel=1e-3)
    assert fit.overlap == pytest.approx(2, rel=1e-3)
    assert fit.network.within.bandwidth_bytes_per_s == pytest.approx(5e9, rel=0.01)
    assert fit.network.across.latency_s == pytest.approx(5e-4, rel=0.01)
    assert fit.network.pair is not None
    assert fit.network.pair.bandwidth_bytes_per_s == pytest.approx(1e9 / 1.5, rel=0.01)
    assert fit.held_out.worst < 1e-3


def test_noise_in_the_steps_shows_in_the_held_out_error() -> None:
    fit = fit_steps(made_up_steps(noise=0.05), GRADIENT_BYTES)

    assert 0.02 < fit.held_out.mean < 0.08
    assert fit.compute.b_s_per_sample == pytest.approx(0.003, rel=0.1)


def test_whole_placements_are_held_out_and_one_gpu_never() -> None:
    seen, held = made_up_steps(noise=0.0).split()

    assert not set(seen.placement.tolist()) & set(held.placement.tolist())
    assert len(held.placement) == 5 * round(0.25 * 19)
    assert (held.gpus > 1).all()
    again = made_up_steps(noise=0.0).split()[1]
    assert held.placement.tolist() == again.placement.tolist()


def test_errors_are_relative_and_ranked() -> None:
    predicted = np.array([1.1] * 9 + [0.5])

    error = error_of(predicted, np.ones(10))

    assert (error.rows, error.p90, error.worst) == (10, pytest.approx(0.1), 0.5)
    assert error.mean == pytest.approx(0.14)


def test_points_filled_in_by_a_straight_line_are_not_measurements() -> None:
    filled = Curve((1, 2, 3, 4, 5, 6), (4.0, 3.0, 2.5, 2.0, 1.9, 1.8))

    assert measured_points(filled).gpus == (1, 2, 4, 6)


def test_a_strong_curve_is_fitted_within_what_its_links_can_carry() -> None:
    batch = Batch(128, per_gpu=False, max_per_gpu=128)
    servers = Servers(gpus_per_node=4, within=1e10, across=1e9)

    points = measured_points(curve(1.0, 0.52, 0.28, 0.3, 0.2).value)
    fit = fit_curve(points, batch, servers, GRADIENT_BYTES)

    assert fit.network.within.bandwidth_bytes_per_s <= 1e10
    assert fit.network.across.bandwidth_bytes_per_s <= 1e9 * (1 + 1e-9)
    assert fit.compute.time_s(128) == pytest.approx(1.0, rel=0.1)
    assert left_out_times(points, batch, servers, GRADIENT_BYTES) is None


def test_links_are_fitted_to_an_exchange_that_was_timed() -> None:
    batch = Batch(16, per_gpu=True, max_per_gpu=16)
    exchange_s = [0.0, 0.01, 0.015, 0.0175 * 5]

    fit = fit_timed_exchange(
        curve(0.1, 0.11, 0.115, 0.1 + 0.0175 * 5).value,
        exchange_s,
        batch,
        gpus_per_node=4,
        gradient_bytes=GRADIENT_BYTES,
    )

    assert fit.network.within.bandwidth_bytes_per_s == pytest.approx(1e10, rel=1e-6)
    assert fit.network.comm_s((4, 4), GRADIENT_BYTES) == pytest.approx(0.0875, rel=1e-6)
    assert fit.overlap == pytest.approx(1.0, abs=1e-3)
    assert fit.compute.time_s(16) == pytest.approx(0.1)


def test_a_folder_without_the_data_is_refused(tmp_path: Path) -> None:
    for family in FITS:
        with pytest.raises(InputError):
            refit(family, tmp_path)


def test_a_table_without_its_columns_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "muri"
    folder.mkdir(parents=True)
    (folder / "stage_profiles_derived.csv").write_text("model,num_gpu\nvgg16,1\n")

    with pytest.raises(InputError, match="data of muri cannot be used: KeyError"):
        refit("muri", tmp_path)


@pytest.fixture(scope="module")
def refitted(data_dir: Path) -> dict[str, ProfileSet]:
    return {family: fit(data_dir) for family, fit in FITS.items()}


def test_the_committed_parameters_are_what_the_data_gives(
    refitted: dict[str, ProfileSet],
) -> None:
    for shipped in shipped_sets():
        again = refitted[shipped.family]
        assert [p.name for p in again.profiles] == [p.name for p in shipped.profiles]
        for ours, theirs in zip(shipped.profiles, again.profiles, strict=True):
            for key, entry in profile_fields(ours).items():
                other = profile_fields(theirs)[key]
                assert (entry.provenance, entry.source) == (other.provenance, other.source)
                for part, value in field_values(entry.value).items():
                    expected = field_values(other.value)[part]
                    where = f"{ours.full_name} {key}.{part}"
                    if isinstance(value, str):
                        assert value == expected, where
                    else:
                        assert value == pytest.approx(expected, rel=1e-3, abs=1e-9), where


def test_held_out_errors_stay_where_they_were_measured(refitted: dict[str, ProfileSet]) -> None:
    means = {
        profile.name: profile.fit_error.value.mean
        for profile in refitted["pollux"].profiles
        if profile.fit_error
    }

    assert means == {
        "bert": pytest.approx(0.033, abs=0.003),
        "cifar10": pytest.approx(0.061, abs=0.003),
        "deepspeech2": pytest.approx(0.065, abs=0.003),
        "imagenet": pytest.approx(0.062, abs=0.003),
        "ncf": pytest.approx(0.083, abs=0.003),
        "yolov3": pytest.approx(0.066, abs=0.003),
    }


def test_the_call_that_policies_use_makes_the_errors_the_fit_reports(data_dir: Path) -> None:
    profile = zoo()["pollux/imagenet"]

    regions = errors_by_region(profile, data_dir)

    held = [error for name, error in regions.items() if name != "one GPU"]
    rows = sum(error.rows for error in held)
    mean = sum(error.rows * error.mean for error in held) / rows
    assert profile.fit_error is not None
    assert (rows, mean) == (
        profile.fit_error.value.rows,
        pytest.approx(profile.fit_error.value.mean, rel=1e-9),
    )
    assert regions["one GPU"].rows == 8


def test_placements_are_read_digit_by_digit(data_dir: Path) -> None:
    steps = read_steps(data_dir / "data" / "pollux-osdi21" / "traces" / "bert")

    assert len(steps.step_s) == 540 + 180
    assert (steps.nodes.max(), steps.gpus.max()) == (16, 64)
    last_uneven = np.flatnonzero((steps.nodes == 2) & (steps.gpus == 5))
    assert len(last_uneven) == 10  # 14 and 23, at five batch sizes

"""A fit gives the same parameters whatever the last bits of the arithmetic are."""

import csv
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.optimize
from numpy.typing import NDArray

from dovetail.physics.zoo.models import shipped_sets
from dovetail.physics.zoo.profile import Batch, Curve
from dovetail.physics.zoo.profile_file import field_values, profile_fields
from dovetail.profiling.fit_curve import PULL, CurveFit, fit_curve
from dovetail.profiling.least_squares import OPEN, solve_least_squares
from tools.zoo.fit import FITS
from tools.zoo.from_curve import measured_points

Floats = NDArray[np.float64]
Residuals = Callable[[Floats], Floats]
ROUNDING = 1e-14
"""What the arithmetic of another processor may change, in parts of a residual: some last bits."""


def other_arithmetic(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Lets every residual come out a few last bits off, as another processor's would."""
    search = scipy.optimize.least_squares

    def noisy(residuals: Residuals, start: Floats, **options: object) -> object:
        def rounded(x: Floats) -> Floats:
            exact = residuals(x)
            drawn = np.random.default_rng([seed, zlib.crc32(np.asarray(x).tobytes())])
            return np.asarray(exact + ROUNDING * drawn.uniform(-1, 1, exact.shape))

        return search(rounded, start, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(scipy.optimize, "least_squares", noisy)


def a_fit_of(name: str, data_dir: Path) -> CurveFit:
    """Returns the fit of one curve of the AFS authors, measured on GTX 1080."""
    from dovetail.physics.zoo.architecture import architectures
    from tools.zoo.afs import SERVERS

    path = data_dir / "traces" / "profiles" / "afs" / "afs_step_times.csv"
    facts = architectures()[f"afs/{name}"]
    shipped = next(p for s in shipped_sets() for p in s.profiles if p.full_name == f"afs/{name}")
    with path.open(newline="", encoding="utf-8") as file:
        rows = [r for r in csv.DictReader(file) if r["model_name"] == facts.aliases[0]]
    gpus = tuple(int(row["num_gpus"]) for row in rows)
    seconds = tuple(int(row["step_time_us"]) / 1e6 for row in rows)
    batch: Batch = shipped.batch.value
    return fit_curve(
        measured_points(Curve(gpus, seconds)), batch, SERVERS, facts.gradient_bytes.value
    )


def numbers_of(fit: CurveFit) -> list[float]:
    within, across = fit.network.within, fit.network.across
    links = [within.latency_s, within.bandwidth_bytes_per_s, across.bandwidth_bytes_per_s]
    return [fit.compute.a_s, fit.compute.b_s_per_sample, fit.overlap, *links]


@pytest.mark.parametrize("name", ["autoencoder", "transformer", "transformer4096"])
def test_a_curve_that_leaves_parameters_open_is_fitted_alike_by_another_processor(
    name: str, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = numbers_of(a_fit_of(name, data_dir))
    other_arithmetic(monkeypatch, seed=1)

    elsewhere = numbers_of(a_fit_of(name, data_dir))

    assert elsewhere == pytest.approx(here, rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_committed_profile_is_what_another_processor_would_fit(
    seed: int, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other_arithmetic(monkeypatch, seed)

    for shipped in shipped_sets():
        again = FITS[shipped.family](data_dir)
        for ours, theirs in zip(shipped.profiles, again.profiles, strict=True):
            for key, entry in profile_fields(ours).items():
                expected = field_values(profile_fields(theirs)[key].value)
                for part, value in field_values(entry.value).items():
                    where = f"{ours.full_name} {key}.{part}"
                    if not isinstance(value, str):
                        assert value == pytest.approx(expected[part], rel=1e-4), where


def test_of_two_valleys_the_deeper_one_is_found_from_either_side() -> None:
    def residuals(x: Floats) -> Floats:
        return np.array([x[0] ** 2 - 1, 0.2 * (x[0] - 1)])

    for starts in ([[-2.0], [2.0]], [[2.0], [-2.0]]):
        found = solve_least_squares(residuals, starts, ([-5], [5]))

        assert found == pytest.approx([1.0], rel=1e-9)


def test_the_search_goes_on_where_the_valley_is_flat() -> None:
    """The second parameter is held by a pull alone, as a link that the points leave open."""

    def residuals(x: Floats) -> Floats:
        return np.array([x[0] - 3, x[0] * np.exp(x[1]) * 1e-3 - 2e-3, PULL * (x[1] + 2)])

    ends = [
        solve_least_squares(residuals, [[1.0, start]], ([-9, -9], [9, 9]))
        for start in (-3.0, 0.0, 4.0)
    ]

    assert ends[1] == pytest.approx(ends[0], rel=1e-6)
    assert ends[2] == pytest.approx(ends[0], rel=1e-6)


def test_a_parameter_that_no_point_depends_on_is_at_its_bound() -> None:
    def residuals(x: Floats) -> Floats:
        return np.array([x[0] - 3, OPEN / 10 * x[1]])

    found = solve_least_squares(residuals, [[1.0, 4.0]], ([0, 0.5], [9, 9]))

    assert found == pytest.approx([3, 0.5])

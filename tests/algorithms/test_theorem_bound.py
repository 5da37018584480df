"""Theorem 1 of A-SRPT, term by term."""

import pytest

from papers.a_srpt.theorem_bound import worst_ratio

GIVEN = {
    "gpus": 100,
    "widest_gpus": 20,
    "placement_ratio": 1.5,
    "iteration_ratio": 10.0,
    "mean_error_iterations": 0.0,
    "tau": 1.0,
}


def test_with_perfect_prediction_only_placement_counts() -> None:
    # G / (G - g) = 1.25: (2 + 1 + 1.5 * 1.25) * 1.5
    assert worst_ratio(**GIVEN) == pytest.approx(7.3125)  # type: ignore[arg-type]


def test_errors_count_by_the_widest_job() -> None:
    # 2 * 1.5 * 20 * 10 * (1 + 1 + 2.5 * 1.25) * 0.01 on top
    given = {**GIVEN, "mean_error_iterations": 0.01}
    assert worst_ratio(**given) == pytest.approx(7.3125 + 30.75)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["placement_ratio", "iteration_ratio", "tau", "widest_gpus"])
def test_it_grows_with_whatever_makes_things_worse(name: str) -> None:
    given = {**GIVEN, "mean_error_iterations": 0.01}
    assert worst_ratio(**{**given, name: given[name] * 2}) > worst_ratio(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("widest_gpus", 100),
        ("widest_gpus", 0),
        ("placement_ratio", 0.9),
        ("iteration_ratio", 0.5),
        ("mean_error_iterations", -1.0),
        ("tau", -1.0),
    ],
)
def test_it_is_silent_where_the_theorem_is(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=r"theorem|placement|negative"):
        worst_ratio(**{**GIVEN, name: value})  # type: ignore[arg-type]

"""The integer programme of Sia against all choices, and the paper's own example."""

from itertools import product

import numpy as np
import pytest

from dovetail.algorithms.configuration_programme import best_configurations


def test_the_example_of_the_paper() -> None:
    # Table 1: one node of 2 GPUs of type A, one of 4 of type B. Job 1 takes all of B, job 2 all
    # of A: 3.5 + 2.1.
    goodput = np.array([[1, 1.5, 1.5, 2.5, 3.5], [1.2, 2.1, 1, 1.9, 3.6]])
    gpus, kind = np.array([1, 2, 1, 2, 4]), np.array([0, 0, 1, 1, 1])
    chosen = best_configurations(goodput + 1.1, gpus, kind, np.array([2, 4]))
    assert chosen.tolist() == [4, 1]


def test_what_does_not_gain_or_does_not_fit_is_never_chosen() -> None:
    gpus, kind = np.array([1, 2]), np.array([0, 0])
    one = np.array([[-1.0, 5.0], [0.0, -2.0]])
    assert best_configurations(one, gpus, kind, np.array([1])).tolist() == [-1, -1]
    assert best_configurations(one, gpus, kind, np.array([2])).tolist() == [1, -1]


@pytest.mark.parametrize("seed", range(8))
def test_it_is_as_good_as_the_best_of_all_choices(seed: int) -> None:
    draw = np.random.default_rng(seed)
    gain = np.round(draw.uniform(-0.5, 3, (4, 5)), 2)
    gpus, kind = np.array([1, 2, 1, 2, 4]), np.array([0, 0, 1, 1, 1])
    capacity = draw.integers(1, 5, 2)

    def worth(choice: tuple[int, ...]) -> float:
        taken = [c for c in choice if c >= 0]
        held = [sum(gpus[c] for c in taken if kind[c] == k) for k in (0, 1)]
        if any(h > most for h, most in zip(held, capacity, strict=True)):
            return -np.inf
        return float(sum(gain[j, c] for j, c in enumerate(choice) if c >= 0))

    best = max(worth(choice) for choice in product(range(-1, 5), repeat=4))
    chosen = best_configurations(gain, gpus, kind, capacity)
    assert worth(tuple(chosen.tolist())) == pytest.approx(best, rel=1e-3)

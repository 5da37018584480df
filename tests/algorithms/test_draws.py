"""Named draws: the same for the same name, and even."""

import numpy as np

from dovetail.algorithms.draws import uniform_draws


def test_a_draw_depends_on_its_seed_and_names_and_on_nothing_else() -> None:
    many = uniform_draws(7, 3, np.arange(100))
    assert uniform_draws(7, 3, 42)[0] == many[42]
    assert uniform_draws(7, 3, np.array([99, 42]))[1] == many[42]
    others = [uniform_draws(8, 3, 42), uniform_draws(7, 4, 42), uniform_draws(7, 42, 3)]
    assert len({many[42], *(float(d[0]) for d in others)}) == 4


def test_draws_of_rows_and_columns_are_a_table() -> None:
    table = uniform_draws(0, np.arange(4)[:, None], np.arange(5))
    assert table.shape == (4, 5)
    assert len(np.unique(table)) == 20


def test_draws_are_even() -> None:
    draws = uniform_draws(1, 0, np.arange(100_000))
    assert 0 <= draws.min() < 1e-3 and 1 - 1e-3 < draws.max() < 1
    # The standard deviation of a mean of 1e5 draws is 0.0009, of a share of a tenth 0.00095.
    assert abs(draws.mean() - 0.5) < 0.004
    shares = np.histogram(draws, bins=10, range=(0, 1))[0] / len(draws)
    assert np.abs(shares - 0.1).max() < 0.004
    assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 0.02


def test_a_negative_seed_is_a_seed() -> None:
    assert uniform_draws(-1, 0)[0] != uniform_draws(1, 0)[0]

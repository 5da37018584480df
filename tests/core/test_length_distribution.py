"""Distributions of lengths: what is left against samples, known lengths, and the tail."""

import numpy as np
import pytest

from dovetail.core.length_distribution import PARTS, DistributionTable, LengthDistribution

SAMPLES = np.sort(np.random.default_rng(0).lognormal(8.0, 1.5, 100_000))
QUANTILES = np.quantile(SAMPLES, np.arange(PARTS) / PARTS)
TAIL = float(SAMPLES[QUANTILES[-1] < SAMPLES].mean() / QUANTILES[-1] - 1.0)
TOLD = LengthDistribution(tuple(QUANTILES.tolist()), TAIL)


def test_the_mean_is_that_of_the_samples() -> None:
    assert TOLD.mean_s == pytest.approx(SAMPLES.mean(), rel=0.02)


@pytest.mark.parametrize("part", [1, 5, 10, 15, 19])
def test_what_is_left_at_a_quantile_is_the_mean_of_what_is_longer(part: int) -> None:
    done_s = float(QUANTILES[part])
    left_s = float(SAMPLES[done_s < SAMPLES].mean()) - done_s
    assert TOLD.left_s(done_s) == pytest.approx(left_s, rel=0.03)


def test_between_two_quantiles_what_is_left_falls_with_the_progress() -> None:
    low_s, high_s = QUANTILES[10:12].tolist()
    half_s = (low_s + high_s) / 2.0
    assert TOLD.left_s(low_s) - TOLD.left_s(half_s) == pytest.approx(half_s - low_s)
    assert TOLD.left_s(high_s) > TOLD.left_s(half_s)


def test_in_the_tail_what_is_left_stays_in_proportion() -> None:
    for done_s in np.geomspace(QUANTILES[-1], 1e4 * QUANTILES[-1], 200).tolist():
        assert 0.2 * TAIL < TOLD.left_s(done_s) / done_s <= TAIL * (1.0 + 1e-9)


def test_a_known_length_is_left_to_the_last_second() -> None:
    known = LengthDistribution.point(100.0)
    assert [known.left_s(done_s) for done_s in (0.0, 40.0, 99.5)] == pytest.approx([100, 60, 0.5])
    assert [known.left_s(done_s) for done_s in (100.0, 500.0)] == [0.0, 0.0]


def test_rows_answer_as_distributions_do_whatever_was_asked_before() -> None:
    rng = np.random.default_rng(1)
    table = DistributionTable()
    many = [LengthDistribution(tuple((QUANTILES * k).tolist()), TAIL) for k in range(1, 201)]
    rows = np.array([table.add(one) for one in many])
    for _ in range(3):
        done_s = rng.choice(SAMPLES, len(rows)) * 100.0
        alone = [one.left_s(done) for one, done in zip(many, done_s.tolist(), strict=True)]
        assert table.left_s(rows, done_s).tolist() == alone
    table.drop(int(rows[0]))
    assert table.add(LengthDistribution.point(5.0)) == rows[0]
    assert table.left_s(rows[:1], np.array([2.0])) == pytest.approx([3.0])


def test_what_a_log_stores_is_the_same_distribution() -> None:
    assert LengthDistribution.of(TOLD.numbers) == TOLD
    assert LengthDistribution.of(()) is None
    with pytest.raises(ValueError, match="19 quantiles"):
        LengthDistribution((1.0,) * 19)

"""Intervals tell the truth about as often as they say, and are silent where they cannot."""

import numpy as np
import pytest

from dovetail.study.uncertainty import (
    Samples,
    block_length,
    blocks,
    intervals,
    replicates,
)

WARM_UP = 2000


def one_server(
    jobs: int, load: float, rng: np.random.Generator, tail: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns submissions and JCTs of two first-come servers, the second a fifth faster.

    Work has mean 1: exponential, or with a tail lognormal with a variance of e^2 - 1.
    """
    n = jobs + WARM_UP
    gap = rng.exponential(1 / load, n)
    work = rng.lognormal(-1.0, np.sqrt(2.0), n) if tail else rng.exponential(1.0, n)
    submit = np.cumsum(gap)
    return submit[WARM_UP:], jct(gap, work)[WARM_UP:], jct(gap, 0.8 * work)[WARM_UP:]


def jct(gap: np.ndarray, work: np.ndarray) -> np.ndarray:
    """Returns waits by Lindley's recursion, plus work."""
    walk = np.concatenate(([0.0], np.cumsum(work[:-1] - gap[1:])))
    return walk - np.minimum.accumulate(walk) + work


@pytest.mark.parametrize(
    ("jobs", "load", "mean_at_least", "ratio_at_least"),
    [(2000, 0.6, 0.88, 0.84), (8000, 0.8, 0.87, 0.85)],
)
def test_intervals_cover_the_truth_about_as_often_as_they_say(
    jobs: int, load: float, mean_at_least: float, ratio_at_least: float
) -> None:
    # Mean JCT of M/M/1 with service time s: s / (1 - load s).
    slow, fast = 1 / (1 - load), 0.8 / (1 - 0.8 * load)
    hits = {"mean": 0, "ratio": 0}
    rounds = 100
    for seed in range(rounds):
        submit, a, b = one_server(jobs, load, np.random.default_rng([seed, jobs]))
        samples = blocks(submit, {"a": a, "b": b})
        assert not samples.why_not
        means, ratios = intervals(samples, "a", 0)
        hits["mean"] += means["a"].low <= slow <= means["a"].high  # type: ignore[operator]
        hits["ratio"] += ratios["b"].low <= fast / slow <= ratios["b"].high  # type: ignore[operator]
    assert mean_at_least * rounds <= hits["mean"] <= 0.99 * rounds
    assert ratio_at_least * rounds <= hits["ratio"] <= 0.99 * rounds


def test_one_job_far_from_the_others_changes_no_interval_much() -> None:
    submit, a, b = one_server(2000, 0.6, np.random.default_rng(3))
    far = np.concatenate(([submit[0] - 50 * (submit[-1] - submit[0])], submit))
    _, alone = intervals(blocks(submit, {"a": a, "b": b}), "a", 0)
    jcts = {"a": np.concatenate(([1.0], a)), "b": np.concatenate(([1.0], b))}
    _, more = intervals(blocks(far, jcts), "a", 0)
    widths = [r["b"].high - r["b"].low for r in (alone, more)]  # type: ignore[operator]
    assert widths[1] == pytest.approx(widths[0], rel=0.2)


def test_jobs_in_two_bursts_get_no_interval() -> None:
    submit, a, b = one_server(2000, 0.6, np.random.default_rng(3))
    submit = np.where(np.arange(2000) < 1000, submit, submit + 50 * submit[-1])
    samples = blocks(submit, {"a": a, "b": b})
    assert samples.silent == {"a", "b"}
    assert "small part of the time" in samples.why_not


def test_jobs_resampled_one_by_one_would_claim_far_too_much() -> None:
    load, covered, rounds = 0.8, 0, 60
    for seed in range(rounds):
        _, a, _ = one_server(4000, load, np.random.default_rng([seed, 1]))
        half = 1.96 * a.std() / np.sqrt(len(a))
        covered += abs(a.mean() - 1 / (1 - load)) <= half
    assert covered < 0.5 * rounds


def test_a_backlog_longer_than_a_tenth_of_the_run_gives_no_interval() -> None:
    submit = np.arange(4000.0)
    backlog = np.abs(submit - 2000.0)  # one rise and one fall: nothing repeats
    samples = blocks(submit, {"a": 3000.0 - backlog})
    assert "too short" in samples.why_not
    assert samples.silent == {"a"}
    means, ratios = intervals(samples, "a", 0)
    assert (means["a"].low, means["a"].high, ratios["a"].low) == (None, None, None)
    assert means["a"].value == pytest.approx(2000.0, rel=1e-3)


@pytest.mark.parametrize("count", [0, 1, 7, 39])
def test_a_few_jobs_give_no_interval(count: int) -> None:
    rng = np.random.default_rng(0)
    samples = blocks(np.arange(float(count)), {"a": rng.exponential(1.0, count)})
    assert "too few jobs" in samples.why_not
    means, _ = intervals(samples, "a", 0)
    assert means["a"].low is None


def test_one_policy_with_a_long_memory_does_not_silence_the_others() -> None:
    submit, a, _ = one_server(4000, 0.5, np.random.default_rng(3))
    backlog = 3000.0 - np.abs(np.arange(4000.0) - 2000.0)
    samples = blocks(submit, {"slow": backlog, "quick": a, "base": a * 2})
    assert samples.silent == {"slow"}
    means, ratios = intervals(samples, "base", 0)
    assert (means["slow"].low, ratios["slow"].low) == (None, None)
    assert means["quick"].low is not None
    assert ratios["quick"].value == ratios["quick"].low == pytest.approx(0.5)
    _, against_slow = intervals(samples, "slow", 0)
    assert against_slow["quick"].low is None


def test_jobs_all_at_once_give_no_interval() -> None:
    samples = blocks(np.zeros(1000), {"a": np.arange(1000.0)})
    assert "all at once" in samples.why_not


def test_jobs_that_do_not_count_change_nothing() -> None:
    rng = np.random.default_rng(3)
    submit, a, b = one_server(2000, 0.5, rng)
    lost = a.copy()
    lost[::2] = np.nan
    samples = blocks(submit, {"a": lost, "b": b})
    means, _ = intervals(samples, "b", 0)
    assert means["a"].value == pytest.approx(np.nanmean(lost))
    assert means["b"].value == pytest.approx(b.mean())


def test_a_policy_against_itself_is_a_ratio_of_one_for_certain() -> None:
    submit, a, _ = one_server(2000, 0.5, np.random.default_rng(3))
    _, ratios = intervals(blocks(submit, {"a": a, "twin": a.copy()}), "a", 0)
    assert (ratios["twin"].low, ratios["twin"].value, ratios["twin"].high) == (1.0, 1.0, 1.0)


def test_pairing_makes_a_ratio_far_surer_than_a_mean() -> None:
    submit, a, b = one_server(4000, 0.6, np.random.default_rng(5))
    means, ratios = intervals(blocks(submit, {"a": a, "b": b}), "a", 0)
    spread_of = {
        "mean": means["b"].high / means["b"].low,  # type: ignore[operator]
        "ratio": ratios["b"].high / ratios["b"].low,  # type: ignore[operator]
    }
    assert spread_of["ratio"] < spread_of["mean"]


def test_the_same_seed_gives_the_same_interval() -> None:
    submit, a, b = one_server(2000, 0.7, np.random.default_rng(9))
    samples = blocks(submit, {"a": a, "b": b})
    assert intervals(samples, "a", 4) == intervals(samples, "a", 4)
    assert intervals(samples, "a", 4) != intervals(samples, "a", 5)


def test_four_replicates_give_students_interval_worked_by_hand() -> None:
    # Log means 0 and +-0.2 around e^1; each replicate has one job.
    values = np.exp(np.array([0.8, 1.2, 0.8, 1.2]))
    samples = replicates({"a": values}, {"a": np.ones(4)})
    means, _ = intervals(samples, "a", 0)
    pull = (values - values.mean()) / (4 * values.mean())
    half = 3.182446 * np.sqrt((pull**2).sum() * 4 / 3)
    assert means["a"].value == pytest.approx(values.mean())
    assert means["a"].low == pytest.approx(values.mean() * np.exp(-half), rel=1e-6)
    assert means["a"].high == pytest.approx(values.mean() * np.exp(half), rel=1e-6)


def test_three_replicates_are_too_few() -> None:
    samples = replicates({"a": np.ones(3)}, {"a": np.ones(3)})
    assert isinstance(samples, Samples)
    assert "too few" in samples.why_not


def test_block_length_grows_with_the_memory_of_a_series() -> None:
    rng = np.random.default_rng(2)
    noise = rng.normal(size=2000)
    found = []
    for carry in (0.0, 0.5, 0.9, 0.97):
        series = np.empty(2000)
        level = 0.0
        for i, shock in enumerate(noise.tolist()):
            level = carry * level + shock
            series[i] = level
        found.append(block_length(series))
    assert found == sorted(found)
    assert found[0] <= 3
    assert found[-1] >= 30


def test_a_constant_series_has_no_memory() -> None:
    assert block_length(np.ones(100)) == 1
    assert block_length(np.array([])) == 1


@pytest.mark.slow
@pytest.mark.parametrize("tail", [False, True])
@pytest.mark.parametrize(
    ("jobs", "load"), [(2000, 0.6), (2000, 0.8), (8000, 0.6), (8000, 0.8), (8000, 0.9)]
)
def test_the_table_of_the_documentation(jobs: int, load: float, tail: bool) -> None:
    # Pollaczek and Khinchine: mean wait = load E[S^2] / (2 (1 - load)).
    square = np.exp(2.0) if tail else 2.0
    slow, fast = (s + load * s * s * square / (2 * (1 - load * s)) for s in (1.0, 0.8))
    rounds = 300
    found = {"mean": [], "ratio": []}  # type: dict[str, list[tuple[bool, float]]]
    for seed in range(rounds):
        rng = np.random.default_rng([seed, 1])
        submit, a, b = one_server(jobs, load, rng, tail)
        means, ratios = intervals(blocks(submit, {"a": a, "b": b}), "a", 0)
        for name, interval, truth in (
            ("mean", means["a"], slow),
            ("ratio", ratios["b"], fast / slow),
        ):
            if interval.low is not None and interval.high is not None:
                width = interval.high / interval.low
                found[name].append((interval.low <= truth <= interval.high, width))
    for name, rows in found.items():
        covered = np.mean([hit for hit, _ in rows])
        width = np.median([w for _, w in rows])
        print(f"{jobs} {load} {tail} {name}: {len(rows) / rounds:.2f} {covered:.3f} {width:.2f}")
        assert covered >= (0.70 if tail else 0.83)

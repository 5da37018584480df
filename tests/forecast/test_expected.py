"""Distributions learned from errors: evidence, nearness, jobs that run on, and what is assumed."""

import numpy as np
import pytest

from builders import Row, jobs_of, play, trace_of
from dovetail.core.errors import InputError
from dovetail.core.length_distribution import LengthDistribution
from dovetail.forecast.expected import ASSUMED_S, Expected
from dovetail.forecast.forecasts import Known, parse_forecast, parse_live_forecast

COUNT = 400


def no_progress(jobs: list[int]) -> list[float]:
    return [0.0] * len(jobs)


def taught(guess_s: np.ndarray, ran_s: np.ndarray, more_s: tuple[float, ...]) -> Expected:
    """Returns a forecast that saw jobs end; those of `more_s` come after them."""
    every_s = np.concatenate((guess_s, more_s))
    forecast = Expected(Known(every_s), jobs_of(*(Row(1, 1.0) for _ in every_s)))
    for job, ran in enumerate(ran_s.tolist()):
        forecast.length_s(job, 0.0)
        forecast.ended(job, ran, "completed", 0.0)
    return forecast


def told(forecast: Expected, job: int, done_s: object = no_progress) -> LengthDistribution:
    forecast.length_s(job, 0.0)
    found = forecast.distribution(job, 0.0, done_s)  # type: ignore[arg-type]
    assert found is not None
    return found


def test_a_distribution_is_the_forecast_times_earlier_factors() -> None:
    factors = np.random.default_rng(0).lognormal(0.5, 1.0, COUNT)
    found = told(taught(np.full(COUNT, 100.0), 100.0 * factors, (200.0,)), COUNT)
    latest = np.sort(200.0 * factors)
    assert found.quantiles_s[10] == pytest.approx(np.median(latest), rel=0.25)
    assert found.mean_s == pytest.approx(latest.mean(), rel=0.3)


def test_forecasts_of_other_lengths_count_only_until_there_are_nearer_ones() -> None:
    guess_s = np.where(np.arange(COUNT) % 2, 100.0, 10_000.0)
    ran_s = np.where(np.arange(COUNT) % 2, 1_000.0, 10_000.0)
    forecast = taught(guess_s, ran_s, (100.0, 10_000.0))
    assert told(forecast, COUNT).quantiles_s[10] == pytest.approx(1_000.0)
    assert told(forecast, COUNT + 1).quantiles_s[10] == pytest.approx(10_000.0)


def test_jobs_that_run_on_make_all_longer() -> None:
    half = COUNT // 8
    forecast = taught(np.full(half, 100.0), np.full(half, 100.0), (100.0,) * (half + 1))
    for job in range(half, 2 * half):
        forecast.length_s(job, 0.0)
    still = told(forecast, 2 * half, lambda jobs: [500.0] * len(jobs))
    alone = told(forecast, 2 * half)
    assert alone.quantiles_s[10] == pytest.approx(100.0)
    # Half of the jobs have done 500 s: the upper half of the lengths lies beyond.
    assert still.quantiles_s[5] == pytest.approx(100.0)
    assert still.quantiles_s[15] > alone.quantiles_s[15]
    assert still.mean_s > 1.2 * alone.mean_s


def test_without_evidence_factors_are_assumed() -> None:
    forecast = Expected(Known(np.array([100.0, 0.0])), jobs_of(Row(1, 1.0), Row(1, 1.0)))
    found = told(forecast, 0)
    assert found.quantiles_s[10] == pytest.approx(100.0, rel=0.2)
    assert found.left_s(10_000.0) > 1_000.0
    assert told(forecast, 1).quantiles_s[10] == pytest.approx(ASSUMED_S, rel=0.2)


def test_a_time_limit_bounds_what_is_expected() -> None:
    forecast = Expected(Known(np.array([100.0])), jobs_of(Row(1, 1.0, time_limit_s=150.0)))
    assert max(told(forecast, 0).quantiles_s) == 150.0


def test_a_job_that_never_ran_teaches_nothing() -> None:
    first = told(taught(np.full(1, 100.0), np.zeros(1), (100.0,)), 1)
    assert first == told(taught(np.zeros(0), np.zeros(0), (100.0,)), 0)


def test_known_lengths_stay_what_they_are() -> None:
    trace = trace_of(Row(1, 50.0), Row(1, 20.0))
    assert type(parse_forecast("known,expected", trace, 0)) is Known
    plain, expected = (
        play([Row(1, 50.0), Row(1, 20.0)], "srtf", "1x1", forecast=text).facts
        for text in ("known", "known,expected")
    )
    assert plain == expected


def test_another_word_behind_a_forecast_is_refused() -> None:
    with pytest.raises(InputError, match=r"unknown word 'mean' behind 'known'.*known,expected"):
        parse_forecast("known,mean", trace_of(Row(1, 1.0)), 0)


@pytest.mark.parametrize("text", ["declared,expected", "limit,expected", "predicted,expected"])
def test_a_live_forecast_states_distributions_for_jobs_that_come_later(text: str) -> None:
    from dovetail.core.job import JobRequest, JobTable

    jobs = JobTable.build([], np.empty(0), np.empty(0, np.int64), numbered=True)
    forecast = parse_live_forecast(text, jobs, lambda job: 60.0, 0)
    jobs.append([JobRequest("0", 0.0, 1, 1, 1, time_limit_s=60.0)])
    forecast.admit(jobs)
    assert forecast.length_s(0, 0.0) == 60.0
    found = forecast.distribution(0, 0.0, no_progress)
    assert found is not None and found.left_s(600.0) > 60.0


def test_backfill_forecasts_an_end_anew_once_it_has_passed() -> None:
    from builders import Stage

    scene = Stage([Row(2, 10), Row(2, 10)], "backfill", "1x2")
    told_s = LengthDistribution(tuple(float(n) for n in range(1, 21)), 0.5)
    scene.state.relength(0, 0.0, told_s)
    scene.run_jobs((0, ((0, 2),)))
    ends = scene.view.ends
    assert ends is not None
    assert list(ends) == [(pytest.approx(told_s.mean_s), 0)]
    assert scene.at(9.0).view.ends == ends and ends[0][0] == pytest.approx(told_s.mean_s)
    scene.at(15.0)
    assert ends[0][0] == pytest.approx(15.0 + told_s.left_s(15.0))
    scene.at(500.0)
    assert ends[0][0] == pytest.approx(500.0 + told_s.left_s(500.0))

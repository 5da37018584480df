"""Predictions: groups by hand, the forest's equal, trees, bands, and what must not be known."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from builders import Row, trace_of
from dovetail.core.errors import InputError
from dovetail.core.job import Floats
from dovetail.core.trace import COMPLETED, ENDS, Trace
from dovetail.forecast.accuracy import (
    evaluate,
    evaluate_limits,
    has_later_limits,
    moments_of,
    notes,
    predict_held_out,
    predict_online,
)
from dovetail.forecast.bands import EVIDENCE, NEW_USER, PLENTY, SOME, UNSEEN, Bands
from dovetail.forecast.boosted import FIRST, NOTHING_KNOWN_S, Boosted
from dovetail.forecast.forecasts import parse_forecast
from dovetail.forecast.forest import PairForest
from dovetail.forecast.predicted import METHODS, Predicted
from dovetail.forecast.running_statistics import FEATURES, OPEN, RunningStatistics
from dovetail.forecast.submissions import Submissions
from dovetail.forecast.trees import LEAST, LEAVES, RATE, Trees
from dovetail.traces.generate import Recipe, generate
from papers.a_srpt.whole_history import study


def ended(forecast: Predicted, job: int, ran_s: float, how: str = "completed") -> None:
    forecast.ended(job, ran_s, how, 100.0 + job)


def five_jobs_of_two_users() -> Trace:
    """Jobs 0, 1, 2 and 4 are alike; job 3 asks for as much, but is another user's."""
    return trace_of(
        Row(2, 10, 0, user="ann"),
        Row(2, 20, 1, user="ann"),
        Row(2, 60, 2, user="ann"),
        Row(2, 7, 3, user="bob"),
        Row(2, 5, 4, user="ann"),
    )


@pytest.mark.parametrize(
    ("method", "after"), [("mean", [10.0, 15.0, 30.0]), ("median", [10.0, 15.0, 20.0])]
)
def test_a_group_is_predicted_by_the_mean_or_median_of_its_ended_jobs(
    method: str, after: list[float]
) -> None:
    forecast = Predicted(five_jobs_of_two_users().jobs, method)
    assert forecast.length_s(4, 4.0) == 0.0  # as published: a group not seen takes no time
    for job, ran_s, expected in zip((0, 1, 2), (10.0, 20.0, 60.0), after, strict=True):
        ended(forecast, job, ran_s)
        assert forecast.length_s(4, 4.0) == expected
    assert forecast.length_s(3, 4.0) == 0.0


def test_a_recurrence_outweighs_what_is_asked_for() -> None:
    trace = generate(Recipe("pai-like", 500, 5.0, 3))
    known = Submissions(trace.jobs)
    for job in range(1, 500):
        same = known.key[:job] == known.key[job]
        alike = trace.jobs.recurrence.codes[:job] == trace.jobs.recurrence.codes[job]
        assert (same == alike).all()


def test_jobs_that_never_ran_teach_nothing_and_those_that_failed_do() -> None:
    forecast = Predicted(five_jobs_of_two_users().jobs, "mean")
    ended(forecast, 0, 0.0, "cancelled")
    assert forecast.length_s(4, 4.0) == 0.0
    ended(forecast, 1, 30.0, "failed")
    ended(forecast, 2, 50.0, "timeout")
    assert forecast.length_s(4, 4.0) == 40.0


def test_ours_falls_back_from_key_to_user_to_shape_to_all() -> None:
    trace = trace_of(
        Row(8, 100, 0, user="cid"),
        Row(2, 10, 1, user="ann"),
        Row(4, 40, 2, user="ann"),
        Row(1, 1, 3, user="dan"),
        Row(2, 1, 4, user="dan"),
        Row(1, 1, 5, user="ann"),
        Row(4, 1, 6, user="ann", model="vgg19"),
        Row(4, 1, 7, user="ann"),
    )
    forecast = Predicted(trace.jobs, "boosted")
    assert forecast.length_s(0, 0.0) == NOTHING_KNOWN_S
    for job, ran_s in ((0, 100.0), (1, 10.0), (2, 40.0)):
        ended(forecast, job, ran_s)
    # All medians here are of logarithms: of 10, 40 and 100 it is 40, of 10 and 40 it is 20.
    assert forecast.length_s(3, 9.0) == pytest.approx(40.0)  # nobody like dan: all jobs
    assert forecast.length_s(4, 9.0) == pytest.approx(10.0)  # as many GPUs
    assert forecast.length_s(5, 9.0) == pytest.approx(20.0)  # ann's
    assert forecast.length_s(6, 9.0) == pytest.approx(40.0)  # ann's on 4 GPUs
    assert forecast.length_s(7, 9.0) == pytest.approx(40.0)  # the same again


def test_ours_never_exceeds_the_time_limit_of_the_user() -> None:
    trace = trace_of(
        Row(1, 10, 0, time_limit_s=60.0), Row(1, 900, 0), Row(1, 10, 5, time_limit_s=50.0)
    )
    forecast = Predicted(trace.jobs)
    assert forecast.length_s(0, 0.0) == 60.0
    ended(forecast, 1, 900.0)
    assert forecast.length_s(2, 5.0) == 50.0


def test_running_statistics_worked_by_hand() -> None:
    trace = trace_of(*(Row(1, 10, t, user="ann") for t in range(4)))
    statistics = RunningStatistics(Submissions(trace.jobs))
    row: Floats = np.zeros(len(FEATURES))
    for job, log_s in enumerate((2.0, 4.0, 4.0)):
        statistics.submit(job, float(job))
        statistics.learn(job, log_s, job != 1, 10.0 + job)
    statistics.leave(0)
    statistics.describe(3, 20.0, row)
    said = dict(zip(FEATURES, row.tolist(), strict=True))
    assert said["guess"] == 4.0
    assert said["key count"] == pytest.approx(math.log(4))
    assert said["key mean"] == pytest.approx(10 / 3 - 4)
    assert said["key spread"] == pytest.approx(math.sqrt(8 / 9))
    assert said["key fading"] == pytest.approx(0.7 * (0.7 * 2 + 0.3 * 4) + 0.3 * 4 - 4)
    assert said["key repeats"] == 1.0
    assert said["key broken"] == pytest.approx(1 / 3)
    assert said["key age"] == pytest.approx(math.log1p(8.0))
    assert said["key open"] == pytest.approx(math.log1p(2.0))
    assert said["user idle"] == pytest.approx(math.log1p(18.0))


def test_the_forest_on_pairs_is_as_good_as_one_on_jobs() -> None:
    from sklearn.ensemble import RandomForestRegressor

    rng = np.random.default_rng(1)
    key = rng.integers(0, 30, 400)
    user = key % 7
    ran_s = np.exp(rng.normal(3.0 + key % 5, 0.5))
    ours = PairForest(key, user, ran_s, seed=0)
    plain = RandomForestRegressor(100, random_state=0).fit(np.stack((key, user), axis=1), ran_s)
    pairs = np.unique(np.stack((key, user), axis=1), axis=0)
    theirs = plain.predict(pairs)
    mine = np.array([ours.guess_s(int(k), int(u)) for k, u in pairs])
    # Two forests differ by their bootstrap draws alone.
    assert np.abs(mine - theirs).max() < 0.1 * theirs.max()
    assert np.abs(np.log(mine / theirs)).mean() < 0.03
    assert ours.guess_s(31, 3) == 0.0
    assert ours.guess_s(0, 100) == 0.0


@pytest.mark.parametrize("seed", range(6))
def test_trees_are_those_of_the_library_to_the_last_bit(seed: int) -> None:
    """Continuous and stepped columns, more values than bins, ties in the target, a constant."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    rng = np.random.default_rng(seed)
    count = int(rng.integers(LEAST, 900))
    rows = rng.normal(size=(count, 6))
    rows[:, 3:5] = np.round(rows[:, 3:5] * 3)
    rows[:, 5] = 1.0
    target = rows[:, 0] * rows[:, 3] + np.abs(rows[:, 2])
    if seed % 2:
        target = np.round(target, 1)
    model = HistGradientBoostingRegressor(
        loss="absolute_error",
        max_iter=20,
        max_leaf_nodes=LEAVES,
        learning_rate=RATE,
        early_stopping=False,
    ).fit(rows, target)
    trees = Trees.trained(rows, target, 0, rounds=20)
    unseen = rng.normal(size=(50, 6)) * 2
    base = float(np.ravel(model._baseline_prediction)[0])
    for row in (*rows[:50], *unseen):
        # The library adds its trees to the base one by one, we add their sum.
        assert trees.predict(row) == base + sum(_answer(t[0].nodes, row) for t in model._predictors)


def _answer(nodes: Any, row: Floats) -> float:
    """Returns the answer of one tree of the library."""
    at = 0
    while not nodes["is_leaf"][at]:
        left = row[nodes["feature_idx"][at]] <= nodes["num_threshold"][at]
        at = nodes["left" if left else "right"][at]
    return float(nodes["value"][at])


def test_bands_leave_out_a_tenth_on_either_side() -> None:
    bands = Bands()
    for off in range(1, 19):
        bands.learn(0, 10.0, 10.0 * off)
    assert bands.around(0, 10.0) == (0.0, math.inf)
    bands.learn(0, 10.0, 190.0)
    assert bands.around(0, 100.0) == pytest.approx((200.0, 1800.0))  # second and last but one
    assert bands.around(1, 100.0) == (0.0, math.inf)


def test_evidence_grows_from_new_user_to_plenty() -> None:
    trace = trace_of(*(Row(1, 10, t, user="ann") for t in range(7)), Row(2, 10, 9, user="ann"))
    forecast = Predicted(trace.jobs, "median")
    assert forecast.evidence(6) == NEW_USER
    ended(forecast, 0, 10.0)
    assert (forecast.evidence(6), forecast.evidence(7)) == (SOME, UNSEEN)
    for job in range(1, 5):
        ended(forecast, job, 10.0)
    assert EVIDENCE[forecast.evidence(6)] == EVIDENCE[PLENTY] == "key seen 5 times or more"


def shuffled_after(trace: Trace, first: int) -> Trace:
    """Returns the trace with other outcomes of all jobs from `first` on, requests unchanged."""
    rng = np.random.default_rng(8)
    duration_s, end = trace.duration_s.copy(), trace.end.copy()
    duration_s[first:] = rng.permutation(duration_s[first:]) * rng.uniform(0.1, 10.0)
    end[first:] = rng.permutation(end[first:])
    return Trace(trace.jobs, duration_s, trace.iterations, end)


@pytest.mark.parametrize("method", METHODS)
def test_nothing_that_happens_later_changes_a_prediction(method: str) -> None:
    trace = generate(Recipe("pai-like", 900, 9.0, 5))
    first = 700
    plain = predict_online(trace, Predicted(trace.jobs, method))
    other = predict_online(shuffled_after(trace, first), Predicted(trace.jobs, method))
    until = first + 1  # the first job with another run time is itself predicted alike
    for before, after in zip(
        (plain.guess_s, plain.low_s, plain.high_s, plain.evidence),
        (other.guess_s, other.low_s, other.high_s, other.evidence),
        strict=True,
    ):
        assert (before[:until] == after[:until]).all()
    assert (plain.guess_s[until:] != other.guess_s[until:]).any()


@pytest.mark.parametrize("method", METHODS)
def test_jobs_that_come_later_change_no_prediction(method: str) -> None:
    trace = generate(Recipe("pai-like", 600, 6.0, 5))
    part = trace.take(np.arange(400))
    whole = predict_online(trace, Predicted(trace.jobs, method))
    assert (predict_online(part, Predicted(part.jobs, method)).guess_s == whole.guess_s[:400]).all()


@pytest.mark.parametrize("method", METHODS)
def test_a_jobs_own_end_and_deadline_are_not_among_its_features(method: str) -> None:
    """Other outcomes for one job alone leave its own prediction as it is."""
    rows = [Row(1 + j % 3, 10.0 + j, 5.0 * j, user=f"u{j % 4}") for j in range(60)]
    trace = trace_of(*rows)
    plain = predict_online(trace, Predicted(trace.jobs, method)).guess_s
    for job in range(1, 60, 8 if method == "forest" else 2):
        duration_s, end = trace.duration_s.copy(), trace.end.copy()
        duration_s[job], end[job] = 5000.0, 1
        deadlines = np.asarray(trace.jobs.submit_s + 2.0 * duration_s)
        other = Trace(replace(trace.jobs, deadline_s=deadlines), duration_s, duration_s, end)
        assert predict_online(other, Predicted(other.jobs, method)).guess_s[job] == plain[job]


def test_deadlines_are_not_among_what_is_known_on_submission() -> None:
    """Trees may use every column of a request, so none of them may hold a deadline."""
    trace = generate(Recipe("pai-like", 300, 3.0, 5))
    due_s = np.asarray(trace.jobs.submit_s + 2.0 * trace.duration_s)
    plain = Submissions(trace.jobs)
    other = Submissions(replace(trace.jobs, deadline_s=due_s))
    for column in ("key", "user_size", "user", "shape", "has_user", "asked", "time_limit_s"):
        before, after = getattr(plain, column), getattr(other, column)
        assert np.array_equal(before, after), column


def test_a_job_that_is_over_is_no_longer_counted_among_those_on_their_way() -> None:
    trace = five_jobs_of_two_users()
    forecast = Predicted(trace.jobs, "boosted")
    open_jobs = forecast.learner.statistics.traffic.rows[:, OPEN]  # type: ignore[attr-defined]
    for job in (0, 1):
        forecast.length_s(job, float(job))
    assert open_jobs.max() == 2
    ended(forecast, 0, 10.0)
    ended(forecast, 1, 0.0)
    assert open_jobs.max() == 0


def test_the_same_seed_predicts_the_same() -> None:
    trace = generate(Recipe("pai-like", 600, 6.0, 2))
    for method in METHODS:
        once = evaluate(trace, method, "online", seed=4)
        again = evaluate(trace, method, "online", seed=4)
        assert (once.errors, once.by_evidence) == (again.errors, again.by_evidence)
        assert sum(e.jobs for e in once.by_evidence.values()) == once.errors.jobs == 120


def test_ours_has_the_smaller_mean_error_than_the_forest_on_later_jobs() -> None:
    trace = generate(Recipe("pai-like", 2000, 20.0, 1))
    ours, forest = (evaluate(trace, m, "held out").errors.mean_s for m in ("boosted", "forest"))
    assert ours is not None
    assert forest is not None
    assert ours < forest


def test_limits_are_scored_on_the_later_jobs_that_have_one() -> None:
    rows = [Row(1, 10.0 + 7 * i % 40, 100.0 * i, user="ann") for i in range(20)]
    trace = trace_of(*rows)
    assert not has_later_limits(trace)
    with pytest.raises(InputError, match="no job to be predicted has a time limit"):
        evaluate_limits(trace)
    # The last four jobs are predicted: one has no limit, the others twice their run time.
    limits_s = np.append(2 * trace.duration_s[:-1], np.inf)
    limited = replace(trace, jobs=replace(trace.jobs, time_limit_s=limits_s))
    found = evaluate_limits(limited).errors
    ran_s = trace.duration_s[16:19]
    assert (found.jobs, found.near, found.in_band) == (3, 0.0, None)
    assert (found.mean_s, found.median_s) == (ran_s.mean(), np.median(ran_s))
    assert found.rank_correlation == pytest.approx(1.0)
    online = evaluate(limited, "boosted", "online")
    assert (online.errors.jobs, online.with_limit.jobs) == (4, 3)
    told = " ".join(notes(limited, [online, evaluate_limits(limited)]))
    assert "a run uses boosted, online, and limit for policies that reserve GPUs: 95%" in told
    assert "Of the 4 jobs to predict, 1 have no limit" in told
    assert "limits rank jobs better than the predictions" in told and "--forecast limit" in told
    # Limits in the wrong order are not recommended.
    wrong = replace(trace, jobs=replace(trace.jobs, time_limit_s=1e4 / trace.duration_s))
    told = " ".join(notes(wrong, [evaluate(wrong, "boosted", "online"), evaluate_limits(wrong)]))
    assert "rank jobs better" not in told


def test_held_out_predictions_learn_nothing_from_the_later_jobs() -> None:
    trace = generate(Recipe("pai-like", 500, 5.0, 6))
    first = 400
    other = shuffled_after(trace, first)
    for method in METHODS:
        one = predict_held_out(trace, Predicted(trace.jobs, method), first).guess_s
        two = predict_held_out(other, Predicted(other.jobs, method), first).guess_s
        assert np.array_equal(one, two, equal_nan=True)


@pytest.mark.parametrize("method", ["boosted", "mean"])
def test_held_out_predictions_learn_nothing_from_jobs_still_there(method: str) -> None:
    trace = generate(Recipe("pai-like", 500, 0.5, 6))
    first = 400
    end_s = trace.jobs.submit_s + trace.duration_s
    there = (np.arange(500) < first) & (end_s > trace.jobs.submit_s[first])
    assert there.any()
    longer = Trace(
        trace.jobs,
        np.where(there, 3 * trace.duration_s, trace.duration_s),
        trace.iterations,
        trace.end,
    )
    one = predict_held_out(trace, Predicted(trace.jobs, method), first).guess_s
    two = predict_held_out(longer, Predicted(trace.jobs, method), first).guess_s
    assert np.array_equal(one, two, equal_nan=True)


def test_ours_trains_once_there_is_enough_and_repeats_are_met_exactly() -> None:
    rows = [
        Row(1 + j % 5, 100.0 * (1 + j % 5), 10.0 * j, user=f"u{j % 5}") for j in range(3 * FIRST)
    ]
    trace = trace_of(*rows)
    forecast = Predicted(trace.jobs)
    said = predict_online(trace, forecast)
    assert isinstance(forecast.learner, Boosted)
    late = slice(2 * FIRST, None)
    assert said.guess_s[late] == pytest.approx(trace.duration_s[late])
    assert said.low_s[late] == pytest.approx(trace.duration_s[late])
    assert said.high_s[late] == pytest.approx(trace.duration_s[late])


def test_a_history_studied_at_once_is_one_learned_job_by_job() -> None:
    trace = generate(Recipe("pai-like", 900, 9.0, 7))
    known = Submissions(trace.jobs)
    at_once, by_job = Boosted(known, 0), Boosted(known, 0)
    moments = moments_of(trace.take(np.arange(600)), float(trace.jobs.submit_s[600]))
    good = trace.end == COMPLETED
    study(at_once, moments, trace.duration_s, good)
    for now, job, over in zip(*(column.tolist() for column in moments), strict=True):
        if over:
            by_job.left(job)
            by_job.learn(job, float(trace.duration_s[job]), bool(good[job]), now)
        else:
            by_job.guess_s(job, now)
            by_job.submitted(job, now)
    by_job.train()
    now = float(trace.jobs.submit_s[600])
    assert [at_once.guess_s(j, now) for j in range(600, 900)] == [
        by_job.guess_s(j, now) for j in range(600, 900)
    ]


def test_words_of_the_forecast() -> None:
    trace = five_jobs_of_two_users()
    assert isinstance(parse_forecast("predicted", trace, 0), Predicted)
    first, second = (parse_forecast("predicted:mean", trace, 0) for _ in range(2))
    assert first is not second  # what one run learns is not known to the next
    for text in ("predicted:oracle", "predict", "known:0.5", "limit:3", "unknown:x"):
        with pytest.raises(InputError):
            parse_forecast(text, trace, 0)
    with pytest.raises(InputError):
        evaluate(trace, "mean", "online", share=1.0)
    assert set(ENDS) == {"completed", "failed", "cancelled", "timeout"}

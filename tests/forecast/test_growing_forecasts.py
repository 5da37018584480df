"""Forecasts of a live run: the same on a table that grows, and what owners say."""

import heapq

import pytest

from builders import Row, jobs_of
from dovetail.core.errors import InputError
from dovetail.core.job import JobRequest, JobTable
from dovetail.core.trace import Trace
from dovetail.forecast.forecasts import UNLIMITED_S, Unknown, parse_forecast, parse_live_forecast
from dovetail.forecast.predicted import METHODS, Predicted
from dovetail.traces.generate import Recipe, generate
from growing_world import empty_table


def lived(trace: Trace, method: str, *, growing: bool) -> list[tuple[float, tuple[float, float]]]:
    """Returns each prediction and its band when a job comes; each ends after its run time."""
    jobs = empty_table() if growing else trace.jobs
    forecast = Predicted(jobs, method, 1)
    said, due = [], list[tuple[float, int]]()
    for job in range(len(trace)):
        now = float(trace.jobs.submit_s[job])
        while due and due[0][0] <= now:
            end_s, other = heapq.heappop(due)
            forecast.ended(other, float(trace.duration_s[other]), "completed", end_s)
        if growing:
            jobs.append([trace.jobs.job(job)])
            forecast.admit(jobs)
        said.append((forecast.length_s(job, now), forecast.band_s(job, now)))
        heapq.heappush(due, (now + float(trace.duration_s[job]), job))
    return said


@pytest.mark.parametrize("method", METHODS)
def test_a_prediction_does_not_depend_on_jobs_yet_to_come(method: str) -> None:
    trace = generate(Recipe("pai-like", 420, 4.0, 6))
    assert lived(trace, method, growing=True) == lived(trace, method, growing=False)


def table(*jobs: JobRequest) -> JobTable:
    made = empty_table()
    made.append(jobs)
    return made


def test_the_owner_is_believed_then_the_limit_then_a_year() -> None:
    jobs = table(JobRequest("a", 0, 1, 1, 1, time_limit_s=50.0))
    said = {"a": 30.0, "c": 7.0}
    declared = parse_live_forecast("declared", jobs, lambda job_id: said.get(job_id, 0.0), 0)
    limit = parse_live_forecast("limit", jobs, lambda job_id: 0.0, 0)
    jobs.append(
        [
            JobRequest("b", 0, 1, 1, 1, time_limit_s=50.0),
            JobRequest("c", 0, 1, 1, 1),
            JobRequest("d", 0, 1, 1, 1),
        ]
    )
    for forecast in (declared, limit):
        forecast.admit(jobs)
    assert [declared.length_s(j, 0.0) for j in range(4)] == [30.0, 50.0, 7.0, UNLIMITED_S]
    assert [limit.length_s(j, 0.0) for j in range(4)] == [50.0, 50.0, UNLIMITED_S, UNLIMITED_S]


def test_a_trace_without_limits_counts_them_by_its_longest() -> None:
    jobs = jobs_of(Row(1, 5, time_limit_s=40.0), Row(1, 5))
    forecast = parse_forecast("limit", Trace.of(jobs, jobs.submit_s + 5.0), 0)
    assert [forecast.length_s(job, 0.0) for job in (0, 1)] == [40.0, 40.0]


def test_the_other_words_and_what_they_do_not_take() -> None:
    jobs = table()
    assert isinstance(parse_live_forecast("unknown", jobs, lambda _: 0.0, 0), Unknown)
    assert isinstance(parse_live_forecast("predicted:mean", jobs, lambda _: 0.0, 0), Predicted)
    with pytest.raises(InputError, match="'declared' takes no '3'"):
        parse_live_forecast("declared:3", jobs, lambda _: 0.0, 0)
    with pytest.raises(InputError, match="unknown 'known'"):
        parse_live_forecast("known", jobs, lambda _: 0.0, 0)

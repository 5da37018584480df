"""What a site would have: limits for policies that reserve, predictions for others, or nothing."""

import pytest

from builders import Row, trace_of
from dovetail.core.policy import parse_policy
from dovetail.forecast.available import available, lengths_missing, resolved

LIMITED = [Row(1, 5.0, time_limit_s=10.0, user="a")] * 19


@pytest.mark.parametrize(
    ("policy", "forecast"),
    [
        ("fifo", "unknown"),
        ("tiresias", "unknown"),
        ("backfill", "limit"),
        ("ticked:inner=backfill", "limit"),
        ("sjf", "predicted"),
        ("srtf", "predicted"),
    ],
)
def test_a_policy_gets_what_a_site_has_for_it(policy: str, forecast: str) -> None:
    jobs = trace_of(*LIMITED, *[Row(1, 5.0)] * 4).jobs
    assert available(parse_policy(policy), jobs) == forecast
    assert resolved("available", parse_policy(policy), jobs) == forecast
    assert resolved("known", parse_policy(policy), jobs) == "known"


def test_few_limits_are_no_plan() -> None:
    jobs = trace_of(*LIMITED, *[Row(1, 5.0)] * 6).jobs
    backfill = parse_policy("backfill")
    assert available(backfill, jobs) == "predicted"
    (said,) = lengths_missing("available", [backfill, parse_policy("fifo")], jobs)
    assert said.startswith("76% of jobs have a time limit, so backfill cannot plan by limits")
    assert lengths_missing("limit", [backfill], jobs) == []


def test_a_trace_without_users_says_what_predictions_rest_on() -> None:
    jobs = trace_of(Row(1, 5.0, time_limit_s=10.0)).jobs
    (said,) = lengths_missing("available", [parse_policy("sjf")], jobs)
    assert said.startswith("The trace names no users")
    assert lengths_missing("available", [parse_policy("fifo")], jobs) == []

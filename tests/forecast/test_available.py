"""What a site would have: limits for policies that reserve, predictions for others, or nothing."""

import pytest

from builders import Row, trace_of
from dovetail.core.cluster import Cluster
from dovetail.core.policy import parse_policy
from dovetail.forecast.available import (
    available,
    lengths_missing,
    lengths_words,
    resolved,
    told_words,
)
from dovetail.study.compare import compare
from dovetail.study.comparison_rows import compared_rows, told_lengths
from dovetail.study.options import Options

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


@pytest.mark.parametrize(
    ("policy", "forecast", "words"),
    [
        ("slurm", "available", "the users' time limits"),
        ("slurm", "known", "the users' time limits"),
        ("tenancy:inner=slurm", "predicted", "the users' time limits"),
        ("fifo", "known", "not used"),
        ("sjf", "available", "predicted from earlier jobs"),
        ("sjf", "known", "known (the true ones)"),
        ("backfill", "available", "the users' time limits"),
    ],
)
def test_every_command_says_alike_what_a_policy_is_told_of_lengths(
    policy: str, forecast: str, words: str
) -> None:
    jobs, chosen = trace_of(*LIMITED).jobs, parse_policy(policy)
    assert lengths_words(chosen, forecast, jobs) == words
    said = told_words(forecast, chosen, jobs)
    assert said == [] if forecast != "available" else said[0].startswith(f"Lengths are {words} (")
    rows = compared_rows([policy], forecast, jobs)
    (note,) = told_lengths(forecast, rows, jobs) or [""]
    assert (f"Lengths are {words} for {policy.partition(':')[0]}." in note) == bool(said)


def test_a_policy_around_slurm_knows_the_limits_in_the_table_of_a_comparison() -> None:
    compared = compare(
        trace_of(*LIMITED), ["fifo", "tenancy:inner=slurm"], Options(Cluster.parse("1x2")),
        processes=1,
    )  # fmt: skip
    knows = dict(compared.table.select("policy", "knows").iter_rows())
    assert [told for name, told in knows.items() if "tenancy" in name] == ["time limits"]
    assert knows["fifo:bypass=strict"] == "nothing"

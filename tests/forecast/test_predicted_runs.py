"""Runs on predicted lengths: each policy learns anew, and a recorded run decides the same again."""

from pathlib import Path

import pytest

from dovetail.core.cluster import Cluster
from dovetail.core.policy import parse_policy, spell
from dovetail.forecast.predicted import METHODS
from dovetail.replaying.decisions import replay
from dovetail.study.compare import compare
from dovetail.study.options import Options
from dovetail.study.run import simulate
from dovetail.traces.generate import Recipe, generate

TRACE = generate(Recipe("pai-like", 350, 2.0, 3, load=1.0, cluster_gpus=16))


def options(forecast: str) -> Options:
    return Options(Cluster.uniform(2, 8), forecast=forecast)


@pytest.mark.parametrize("method", METHODS)
def test_policies_do_not_share_what_they_learn(method: str) -> None:
    chosen = options(f"predicted:{method}")
    alone = simulate(TRACE, parse_policy("srtf"), chosen).number("avg_jct_s")
    after = compare(TRACE, ["sjf", "srtf"], chosen, processes=1)
    assert after.results[spell(parse_policy("srtf"))].number("avg_jct_s") == alone
    assert simulate(TRACE, parse_policy("srtf"), chosen).number("avg_jct_s") == alone


def test_knowing_more_is_better_for_shortest_first() -> None:
    known, ours, never = (
        simulate(TRACE, parse_policy("srtf"), options(f)).number("avg_jct_s") or 0.0
        for f in ("known", "predicted", "predicted:mean")
    )
    assert known < ours < never


@pytest.mark.parametrize("forecast", ["predicted", "predicted,expected"])
@pytest.mark.parametrize("policy", ["srtf", "backfill"])
def test_a_recorded_run_decides_the_same_again(policy: str, forecast: str, tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    simulate(TRACE, parse_policy(policy), options(forecast), log_to=log)
    assert not replay(log).differences

"""Start-ups that were timed, and the switching that takes them for what a start costs."""

from math import isnan

import pytest

from builders import Row, trace_of
from dovetail.core.cluster import Cluster
from dovetail.core.errors import InputError
from dovetail.core.messages import MOVE, RESIZE, RESUME, START
from dovetail.core.policy import parse_policy
from dovetail.core.switching import Switching
from dovetail.physics.placed import startups_s
from dovetail.physics.zoo.models import shipped
from dovetail.study.options import Options
from dovetail.study.run import simulate

A2C, VGG = "muri/a2c", "muri/vgg16"


def test_a_start_takes_as_long_as_it_was_timed_on_that_many_gpus() -> None:
    rows = [Row(g, 1.0, model=A2C) for g in (1, 3, 8, 64)]
    jobs = trace_of(*rows, Row(1, 1.0), Row(1, 1.0, model="pollux/bert")).jobs
    found = startups_s(jobs, shipped())
    assert found[:4] == (38.0, 39.0, 46.0, 46.0)
    assert isnan(found[4]) and isnan(found[5])


def test_it_stands_for_starts_and_moves_and_thirty_seconds_where_nobody_timed_it() -> None:
    by_profile = Switching.parse("per-start:profile")
    assert [by_profile.cost_s(how, 7.0) for how in (START, RESUME, MOVE)] == [7.0] * 3
    assert by_profile.cost_s(START) == by_profile.cost_s(MOVE, float("nan")) == 30.0
    assert by_profile.cost_s(RESIZE, 7.0) == 0.0
    assert by_profile.scaled(3.0).cost_s(START, 7.0) == 21.0
    assert "1 x the model's start-up" in str(by_profile)


def test_seconds_are_seconds_and_only_starts_go_by_profile() -> None:
    assert Switching.parse("per-start:7").cost_s(START, 40.0) == 7.0
    with pytest.raises(InputError, match="'restart:profile' wants a number of seconds"):
        Switching.parse("restart:profile")


def test_in_a_run_each_job_pays_its_own_models_start_up() -> None:
    trace = trace_of(Row(1, 100.0, model=A2C), Row(2, 100.0, model=VGG), Row(1, 100.0))
    options = Options(Cluster.parse("1x4"), switching=Switching.parse("per-start:profile"))
    jobs = simulate(trace, parse_policy("fifo"), options).jobs
    assert jobs["jct_s"].to_list() == [138.0, 107.0, 130.0]

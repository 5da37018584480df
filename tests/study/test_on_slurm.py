"""What of a policy a site with Slurm can have: what is said, and that the recipe does it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from builders import Row, trace_of
from dovetail.core.cluster import Cluster
from dovetail.core.policy import parse_policy
from dovetail.core.switching import Switching
from dovetail.record.result import Contrast
from dovetail.study.compare import compare
from dovetail.study.on_slurm import NO_PLANS, RECIPE, on_slurm
from dovetail.study.option_texts import split_policies
from dovetail.study.options import Options
from dovetail.study.run import simulate

OPTIONS = Options(Cluster.parse("1x4"), switching=Switching.parse("none"), forecast="limit")
NARROW = [Row(1, 3000.0, submit_s=20.0, time_limit_s=6000.0)] * 2


@pytest.mark.parametrize("policy", ["sjf", "srtf"])
def test_no_way_to_a_policy_promises_what_was_simulated(policy: str) -> None:
    comparison = compare(trace_of(NARROW[0]), ["fifo", policy], OPTIONS, processes=1)
    row = comparison.table["policy"][1]
    contrast = Contrast("today", row, comparison.baseline, 1, 1.0, None, None)
    (note,) = on_slurm(replace(comparison, contrasts=[contrast]))
    assert "in part" in note and "near it" not in note
    assert "As measured" not in note
    assert "Its order alone, while Slurm still decides who starts where" in note
    if policy == "sjf":
        (listed,) = re.findall(r"--forecast limit -p '([^']+)'", note)
        slurm, recipe, sjf = map(parse_policy, split_policies(listed))
        assert (slurm, recipe, sjf) == tuple(map(parse_policy, ("slurm", RECIPE, "sjf")))


@pytest.mark.parametrize(
    ("recipe", "at_once"), [(RECIPE, True), (RECIPE.replace(NO_PLANS, ""), False)]
)
def test_without_plans_narrow_jobs_start_beside_a_wide_one_that_waits(
    recipe: str, at_once: bool
) -> None:
    rows = [
        Row(2, 1000.0, time_limit_s=1000.0),
        Row(4, 1000.0, submit_s=10.0, time_limit_s=1000.0),
        *NARROW,
    ]
    jobs = simulate(trace_of(*rows), parse_policy(recipe.rstrip(",")), OPTIONS).jobs
    waits_s = jobs["wait_s"].to_list()
    assert (max(waits_s[2:]) < 100) == at_once
    assert (waits_s[1] > 2000) == at_once

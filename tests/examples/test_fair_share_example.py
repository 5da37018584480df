"""The example with fair share: a policy like any other, and its ranking follows usage."""

from pathlib import Path

import numpy as np

from dovetail.conformance import PolicyConformance
from dovetail.core.cluster import Cluster
from dovetail.core.job import JobTable, Labels
from dovetail.core.policy import parse_policy
from dovetail.core.trace import Trace
from dovetail.study.options import Options
from dovetail.study.run import simulate

POLICY = str(Path(__file__).resolve().parents[2] / "examples" / "fair_share.py")


class TestFairShare(PolicyConformance):
    policy = POLICY


def test_the_user_who_ran_less_goes_first() -> None:
    """Ann holds the GPU for an hour; then bob's job, submitted last, starts before hers."""
    jobs = JobTable.build(
        ("0", "1", "2"),
        np.array([0.0, 10.0, 20.0]),
        np.array([1, 1, 1]),
        user=Labels.of(["ann", "ann", "bob"]),
    )
    trace = Trace.of(jobs, np.array([3600.0, 100.0, 100.0]))
    run = simulate(trace, parse_policy(POLICY), Options(Cluster.uniform(1, 1)))
    assert run.jobs["start_s"].to_list() == [0.0, 3700.0, 3600.0]


def test_usage_halves_in_a_half_life() -> None:
    policy = parse_policy(POLICY)
    usage = type(policy.initial)(at_s=100.0, gpu_s={"ann": 8.0}, held_gpus={"bob": 2})
    assert usage.used_until(160.0, 60.0) == {"ann": 4.0, "bob": 120.0}

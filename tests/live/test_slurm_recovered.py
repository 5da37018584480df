"""The usage that the policy `slurm` has counted outlives its controller."""

from __future__ import annotations

import json

import pytest
from live_stage import Stage

from dovetail.core.cluster import Cluster, NodeGroup
from dovetail.core.messages import Started
from dovetail.core.policy import UNTIL_S, parse_policy
from dovetail.core.tenants import AccountSpec
from dovetail.live.edges.protocols import POLICY_MEMORY

CLUSTER = Cluster(
    (NodeGroup("all", 1, 2),),
    accounts=(AccountSpec("lab", users=(("ann", 1), ("bob", 1), ("cat", 1))),),
)
POLICY = (
    "slurm:priority_weight_fairshare=100000,priority_calc_period=1,priority_decay_half_life=60,"
    "bf_interval=5,sched_interval=5,batch_sched_delay=0"
)


def stage() -> Stage:
    """Ann uses the cluster for minutes; then she and bob ask for it by turns, she first."""
    s = Stage(POLICY, nodes=1, gpus=2)
    s.cluster = CLUSTER
    s.submit(1.0, 2, 300.0, user="ann", account="lab")
    s.submit(310.0, 2, 100.0, user="cat", account="lab")
    for n in range(4):
        user = "ann" if n % 2 == 0 else "bob"
        s.submit(320.0 + n, 2, 40.0, user=user, account="lab")
    return s


def order(s: Stage) -> list[int]:
    return [fact.job for fact in s.facts if isinstance(fact, Started)]


def used(s: Stage) -> dict[str, float]:
    """Returns the usage that is kept, by user."""
    kept = json.loads(s.store.queries.meta(POLICY_MEMORY) or "{}")["slurm"]
    return {user: value for _, user, value in kept["usage"]}


def test_who_used_much_waits_after_a_restart_of_the_controller_too() -> None:
    whole, killed = stage(), stage()
    whole.play(900.0)
    for until in (100.0, 309.0, 330.0, 900.0):
        killed.play(until)
    # Bob's jobs, 4 and 6, go before those that ann submitted earlier.
    assert order(whole) == [1, 2, 4, 6, 3, 5]
    assert list(dict.fromkeys(order(killed))) == order(whole)
    assert used(killed) == pytest.approx(used(whole), rel=0.02)
    killed.check()


def test_what_runs_is_charged_once_though_the_controller_was_away() -> None:
    s = stage()
    s.play(100.0)
    assert used(s) == {}
    s.play(305.0)
    s.play(309.0)
    # Two GPUs for 300 s, little of it decayed with a half-life of an hour.
    assert used(s)["ann"] == pytest.approx(600.0, rel=0.05)


def test_a_policy_in_between_is_not_counted() -> None:
    s = stage()
    s.play(100.0)
    s.policy = parse_policy("fifo:bypass=skip")
    s.play(400.0)
    kept = json.loads(s.store.queries.meta(POLICY_MEMORY) or "{}")
    assert kept[UNTIL_S] == pytest.approx(100.0, abs=1.5) and kept["slurm"]["running"]
    s.policy = parse_policy(POLICY)
    s.play(420.0)
    assert used(s)["ann"] == pytest.approx(2 * 99.0, rel=0.1)


def test_damaged_usage_keeps_no_controller_from_its_start() -> None:
    for text in ('{"slurm": {"usage": [[1]]}}', '{"slurm": 3}', '{"slurm": {"running": []}}'):
        s = stage()
        s.play(30.0)
        s.store.keep({POLICY_MEMORY: text})
        s.play(200.0)
        assert "slurm" in json.loads(s.store.queries.meta(POLICY_MEMORY) or "{}")
        s.check()

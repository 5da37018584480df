"""Slurm's multifactor priority: each factor by hand, usage, and the fair tree."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import Row, jobs_of
from dovetail.core.cluster import Cluster, NodeGroup
from dovetail.core.job import JobTable, Labels
from dovetail.core.tenants import AccountSpec, QosSpec, QueueSpec
from dovetail.mechanisms.slurm.fair_share import FairShares
from dovetail.mechanisms.slurm.fair_tree import FairTree, level_share
from dovetail.mechanisms.slurm.parameters import SlurmParameters, slurm_seconds
from dovetail.mechanisms.slurm.priority import age_factor, priorities, size_factor
from dovetail.mechanisms.slurm.site import Site
from dovetail.mechanisms.slurm.usage import RunningShare, decayed, used_since

HOUR, DAY = 3600.0, 86400.0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5", 300),
        ("1:30", 90),
        ("1:00:00", 3600),
        ("7-0", 7 * DAY),
        ("1-12", 1.5 * DAY),
        ("1-12:30", 1.5 * DAY + 1800),
        ("1-00:00:05", DAY + 5),
        ("UNLIMITED", float("inf")),
    ],
)
def test_times_are_read_as_in_slurm_conf(text: str, seconds: float) -> None:
    assert slurm_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "7d", "-1", "1-", "1:2:3:4"])
def test_a_time_that_slurm_would_not_read_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"a time is written as in slurm\.conf"):
        slurm_seconds(text)


def test_age_counts_up_to_the_maximum() -> None:
    waited = np.array([-60.0, 0.0, DAY, 7 * DAY, 30 * DAY])
    assert age_factor(waited, 7 * DAY) == pytest.approx([0, 0, 1 / 7, 1, 1])


def _size(nodes: float, share: float, limit_s: float = HOUR, **flags: bool) -> float:
    factor = size_factor(
        SlurmParameters(**flags),  # type: ignore[arg-type]
        np.array([nodes]),
        np.array([share]),
        np.array([limit_s]),
        4,
    )
    return float(factor[0])


def test_size_is_the_mean_of_the_shares_of_nodes_and_cpus() -> None:
    # 2 of 4 nodes and 3/4 of the CPUs; the whole machine has 1, as in the documentation.
    assert _size(2, 0.75) == (0.5 + 0.75) / 2
    assert _size(4, 1.0) == 1.0
    assert _size(4, 1.0, priority_favor_small=True) == 0.0
    assert _size(2, 0.75, priority_favor_small=True) == (0.5 + 0.25) / 2


def test_size_relative_to_time_divides_by_the_minutes_of_the_limit() -> None:
    # The larger share, 0.75, over 60 minutes.
    assert _size(2, 0.75, small_relative_to_time=True) == 0.75 / 60
    both = _size(2, 0.75, small_relative_to_time=True, priority_favor_small=True)
    assert both == 1 - 0.75 / 60


def _table(*rows: Row, **labels: list[str]) -> JobTable:
    table = jobs_of(*rows)
    for name, texts in labels.items():
        object.__setattr__(table, name, Labels.of(texts))
    return table


def _points(p: SlurmParameters, site: Site, table: JobTable, **known: list[float]) -> list[int]:
    n = len(table)
    return priorities(
        p,
        site,
        table,
        np.arange(n),
        waited_s=np.array(known.get("waited_s", [0.0] * n)),
        fair=np.array(known.get("fair", [0.0] * n)),
        limit_s=np.full(n, HOUR),
    ).tolist()


def test_the_priority_is_the_weighted_sum_in_whole_points() -> None:
    cluster = Cluster(
        (NodeGroup("all", 4, 4),),
        queues=(QueueSpec("short", priority=20), QueueSpec("long", priority=10)),
        qos=(QosSpec("high", priority=50), QosSpec("low", priority=5)),
    )
    p = SlurmParameters(
        priority_weight_age=1000,
        priority_weight_fairshare=100,
        priority_weight_job_size=10_000,
        priority_weight_partition=200,
        priority_weight_qos=300,
    )
    table = _table(
        Row(4, 1, queue="short"), Row(8, 1, queue="long"), qos=["high", "low"], account=["", ""]
    )
    points = _points(p, Site.of(cluster), table, waited_s=[DAY, 0.0], fair=[0.5, 0.25])
    # Age 1000/7, fair share 50, size 10,000 x 1/4, partition 200 x 20/20, QOS 300 x 50/50.
    assert points[0] == int(1000 / 7 + 50 + 2500 + 200 + 300)
    # No age, fair share 25, size 10,000 x 1/2, partition 200 x 10/20, QOS 300 x 5/50.
    assert points[1] == 25 + 5000 + 100 + 30


def test_without_weights_every_job_has_priority_one() -> None:
    site = Site.of(Cluster.uniform(2, 4))
    assert _points(SlurmParameters(), site, _table(Row(1, 1), Row(8, 1))) == [1, 1]


def test_the_size_factor_goes_by_cpus_where_they_are_known() -> None:
    site = Site.of(Cluster((NodeGroup("all", 2, 4, cpus=10),)))
    p = SlurmParameters(priority_weight_job_size=1000)
    # Both on one of two nodes; 2 GPUs of 8 stand for 1/4 of the CPUs, 15 of 20 CPUs for 3/4.
    points = _points(p, site, _table(Row(2, 1), Row(2, 1, cpus=15)))
    assert points == [int(1000 * (0.5 + 0.25) / 2), int(1000 * (0.5 + 0.75) / 2)]


def test_usage_is_halved_in_a_half_life() -> None:
    p = SlurmParameters(priority_decay_half_life="7-0")
    week = decayed(np.array([1000.0]), (), 0, 7 * DAY, p.decay_per_s)
    # Slurm takes 0.693 for ln 2.
    assert week == pytest.approx([1000 * np.exp(-0.693)], rel=1e-5)
    unlimited = SlurmParameters(priority_decay_half_life="0").decay_per_s
    assert decayed(np.array([1000.0]), (), 0, DAY, unlimited) == pytest.approx([1000])


def test_new_usage_counts_from_the_start_and_is_decayed_as_a_whole() -> None:
    share = RunningShare(start_s=200.0, leaf=0, billed_per_s=4.0)
    # 100 s of the 300 s period: 100 x 4, decayed over these 100 s.
    assert used_since(share, 0, 300, 0.999) == pytest.approx(400 * 0.999**100)
    assert decayed(np.array([50.0]), (share,), 0, 300, 0.999) == pytest.approx(
        [50 * 0.999**300 + 400 * 0.999**100]
    )


def test_the_usage_of_a_job_that_ends_is_booked_at_once() -> None:
    p = SlurmParameters(priority_weight_fairshare=1, priority_decay_half_life="0")
    table = _table(Row(2, 1, user="ann"))
    site = Site.of(Cluster.uniform(1, 4))
    shares = FairShares().with_running(p, site, table, [(0, 100.0)])
    # Billed at the computation of 300 s, and for 50 s more at its end.
    shares = shares.at(p, 350.0)
    assert shares.usage.tolist() == [400.0]
    assert shares.without(p, [0], 350.0).usage.tolist() == [500.0]


def test_the_usage_factor_of_a_qos_counts() -> None:
    p = SlurmParameters(priority_weight_fairshare=1, priority_decay_half_life="0")
    table = _table(Row(2, 1, user="ann"), qos=["idle"])
    site = Site.of(Cluster((NodeGroup("all", 1, 4),), qos=(QosSpec("idle", usage_factor=0.5),)))
    shares = FairShares().with_running(p, site, table, [(0, 0.0)]).at(p, 300.0)
    assert shares.usage.tolist() == [300.0]


def test_level_fair_share_is_shares_over_usage() -> None:
    # 40 of 100 shares and 80 of 100 used: half of what it deserves.
    assert level_share(40, 100, 80, 100) == 0.5
    assert level_share(40, 100, 0, 100) == float("inf")
    assert level_share(0, 100, 0, 100) == 0.0


LAB = (
    AccountSpec("physics", shares=40, users=(("ann", 1), ("bob", 1))),
    AccountSpec("biology", shares=60, users=(("cid", 3), ("dora", 1))),
)


def _factors(accounts: tuple[AccountSpec, ...], **usage: float) -> dict[str, float]:
    tree = FairTree.of(accounts, ())
    by_leaf = [0.0] * len(tree.leaf_of)
    for (_, user), leaf in tree.leaf_of.items():
        by_leaf[leaf] = usage.get(user, 0.0)
    factors = tree.factors(by_leaf)
    return {user: factors[leaf] for (_, user), leaf in tree.leaf_of.items()}


def test_users_are_ranked_level_by_level() -> None:
    # Physics used 20 of 100 with 40 % of the shares: LF 2; biology 80 with 60 %: LF 0.75.
    # Within physics bob (5 of 20, LF 2) is before ann (15 of 20, LF 0.67); within biology
    # cid (3/4 of the shares, 60 of 80, LF 1) ties with dora (1/4, 20 of 80, LF 1).
    factors = _factors(LAB, ann=15, bob=5, cid=60, dora=20)
    assert factors == {"bob": 1.0, "ann": 0.75, "cid": 0.5, "dora": 0.5}


def test_nobody_has_used_anything_and_all_are_first() -> None:
    assert set(_factors(LAB).values()) == {1.0}


def test_a_user_of_an_overserved_account_ranks_behind_all_of_the_other() -> None:
    # Dora has used nothing, but biology has used everything.
    factors = _factors(LAB, ann=1, cid=100)
    assert factors["dora"] == 0.5 and factors["ann"] == 0.75 and factors["cid"] == 0.25


def test_the_first_user_behind_tied_accounts_has_the_rank_of_the_one_before() -> None:
    # Both accounts have LF 1: they are not merged; cid ties with the last of physics.
    equal = (
        AccountSpec("physics", users=(("ann", 1), ("bob", 1))),
        AccountSpec("biology", users=(("cid", 1), ("dora", 1))),
    )
    factors = _factors(equal, ann=30, bob=20, cid=40, dora=10)
    assert factors == {"bob": 1.0, "ann": 0.75, "dora": 0.75, "cid": 0.25}


def test_a_user_beside_an_account_of_the_same_share_comes_first_and_ties() -> None:
    accounts = (
        AccountSpec("", users=(("root", 1),)),
        AccountSpec("lab", users=(("ann", 1), ("bob", 1))),
    )
    factors = _factors(accounts, root=50, ann=40, bob=10)
    assert factors == {"root": 1.0, "bob": 1.0, "ann": 1 / 3}


def test_accounts_that_the_cluster_does_not_name_are_of_one_share() -> None:
    tree = FairTree.of((), [("a", "x"), ("b", "y"), ("", "z")])
    factors = tree.factors([10.0, 30.0, 0.0])
    assert [factors[tree.leaf_of[p]] for p in (("", "z"), ("a", "x"), ("b", "y"))] == [
        1.0,
        2 / 3,
        1 / 3,
    ]


@given(
    used=st.lists(st.integers(0, 50), min_size=6, max_size=6),
    shares=st.lists(st.integers(1, 9), min_size=2, max_size=2),
)
def test_siblings_of_a_higher_account_are_all_before_those_of_a_lower(
    used: list[int], shares: list[int]
) -> None:
    users = [tuple((f"{account}{i}", 1) for i in range(3)) for account in "ab"]
    accounts = tuple(
        AccountSpec(name, shares=share, users=those)
        for name, share, those in zip("ab", shares, users, strict=True)
    )
    usage = {user: float(u) for (user, _), u in zip([*users[0], *users[1]], used, strict=True)}
    factors = _factors(accounts, **usage)
    whole = sum(used)
    level = [
        level_share(share, sum(shares), sum(usage[u] for u, _ in those), whole)
        for share, those in zip(shares, users, strict=True)
    ]
    if level[0] > level[1]:
        assert min(factors[u] for u, _ in users[0]) > max(factors[u] for u, _ in users[1])

"""Slurm's scheduler by hand: backfill and its parameters, partitions, limits, preemption."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import Row, Story, play, play_scene, scene_of, trace_of
from dovetail.core.cluster import Cluster, NodeGroup
from dovetail.core.errors import InputError
from dovetail.core.job import Labels
from dovetail.core.messages import Ended, Started
from dovetail.core.policy import heeded, parse_policy, reserves
from dovetail.core.tenants import AccountSpec, QosSpec, QueueSpec, ReservationSpec
from dovetail.policies.slurm import Slurm

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0


def hours(gpus: int, length: float, **more: object) -> Row:
    """Returns a job whose limit is its length."""
    return Row(gpus, length * HOUR, time_limit_s=length * HOUR, **more)  # type: ignore[arg-type]


def tenants(
    rows: list[Row], cluster: Cluster, policy: Slurm | str = "slurm", **labels: list[str]
) -> Story:
    """Runs rows whose text columns are given apart: account, qos, reservation."""
    trace = trace_of(*rows)
    columns = {name: Labels.of(texts) for name, texts in labels.items()}
    trace = replace(trace, jobs=replace(trace.jobs, **columns))  # type: ignore[arg-type]
    return play_scene(scene_of(trace, cluster, placing="strict"), policy)


def starts(story: Story) -> list[float]:
    """Returns when each job started first."""
    jobs = range(len(story.scene.trace.jobs))
    return [story.starts(job)[0][0] for job in jobs]


def of_parts(**changes: object) -> Cluster:
    """Returns two partitions of one node of four GPUs each."""
    groups = (NodeGroup("old", 1, 4, "t4"), NodeGroup("new", 1, 4, "a100"))
    queues = (QueueSpec("short", groups=("old",)), QueueSpec("long", groups=("new",)))
    return Cluster(groups, queues=queues, **changes)  # type: ignore[arg-type]


# Grace and exemption from preemption.


def graced(**low: float) -> Cluster:
    """Returns four GPUs, where jobs of `high` may stop those of `low`."""
    kinds = (QosSpec("low", **low), QosSpec("high", priority=10, preempts=("low",)))  # type: ignore[arg-type]
    return Cluster((NodeGroup("all", 1, 4),), qos=kinds)


TAKES = "slurm:preempt_mode=requeue"


def test_a_job_runs_on_for_its_grace_time_before_it_is_stopped() -> None:
    rows = [hours(4, 2), hours(4, 1, submit_s=600.0)]
    story = tenants(rows, graced(grace_s=300.0), TAKES, qos=["low", "high"])
    ((stopped_s, *_),) = story.stops(0)
    assert 900.0 <= stopped_s <= 905.0
    assert stopped_s <= starts(story)[1] <= stopped_s + 4
    # The one that ends by itself meanwhile is not stopped, and the other need not wait.
    rows = [Row(4, 700.0, time_limit_s=2 * HOUR), hours(4, 1, submit_s=600.0)]
    story = tenants(rows, graced(grace_s=300.0), TAKES, qos=["low", "high"])
    assert not story.stops(0) and starts(story)[1] == pytest.approx(700.0, abs=4)


def test_a_job_whose_grace_began_is_stopped_though_nobody_needs_its_gpus_any_more() -> None:
    # Two jobs of 2 GPUs; one is warned for job 2. The other ends, job 2 starts there.
    rows = [hours(2, 2), Row(2, 660.0, time_limit_s=2 * HOUR), hours(2, 1, submit_s=600.0)]
    story = tenants(rows, graced(grace_s=300.0), TAKES, qos=["low", "high", "high"])
    assert starts(story)[2] == pytest.approx(660.0, abs=31)
    assert [t for t, *_ in story.stops(0)] == pytest.approx([900.0], abs=5)


@pytest.mark.parametrize(
    ("policy", "low", "until_s"),
    [
        (f"{TAKES},preempt_exempt_time=30", {}, 1800.0),
        (f"{TAKES},preempt_exempt_time=30", {"exempt_s": 900.0}, 900.0),
        (f"{TAKES},preempt_exempt_time=30", {"exempt_s": 0.0}, 600.0),
        (TAKES, {"exempt_s": 900.0, "grace_s": 60.0}, 960.0),
    ],
)
def test_a_job_may_not_be_stopped_before_its_exempt_time_is_over(
    policy: str, low: dict[str, float], until_s: float
) -> None:
    rows = [hours(4, 2), hours(4, 1, submit_s=600.0)]
    story = tenants(rows, graced(**low), policy, qos=["low", "high"])
    # A pass over all jobs comes every 60 s.
    assert until_s <= starts(story)[1] <= until_s + 61


# Jobs in several partitions.


def tiered_parts(**limits: object) -> Cluster:
    """Returns `of_parts` with the jobs of `long` before those of `short`."""
    parts = of_parts()
    short, long = parts.queues
    long = replace(long, priority_tier=2, **limits)  # type: ignore[arg-type]
    return replace(parts, queues=(short, long))


def in_queues(rows: list[Row], queues: list[str], cluster: Cluster, policy: str = "slurm") -> Story:
    return tenants(rows, cluster, policy, queue=queues)


def test_a_job_of_several_partitions_starts_in_the_first_with_room() -> None:
    rows = [hours(4, 2), hours(4, 3), hours(2, 1), hours(2, 1), hours(4, 1)]
    story = in_queues(rows, ["short", "long", "short,long", "long,short", "long"], of_parts())
    # Jobs 2 and 3 start when the node of `short` is free, an hour before that of `long`.
    assert starts(story) == [0, 0, 2 * HOUR, 2 * HOUR, 3 * HOUR]


def test_a_gang_of_several_partitions_runs_in_one_of_them() -> None:
    # Two GPUs are free in each partition: not four in either.
    rows = [hours(2, 2), hours(2, 3), hours(4, 1)]
    for policy in ("slurm", "fifo", "backfill"):
        story = in_queues(rows, ["short", "long", "long,short"], of_parts(), policy)
        assert starts(story)[2] == 2 * HOUR, policy


def test_each_partition_of_a_job_has_its_own_tier_and_limits() -> None:
    rows = [hours(4, 1), hours(4, 1), hours(4, 1, submit_s=1.0), hours(4, 1, submit_s=2.0)]
    queues = ["short", "long", "short,long", "long"]
    # Its row in `long` is of the higher tier, so job 2 takes the node that job 3 waits for.
    assert starts(in_queues(rows, queues, tiered_parts())) == [0, 0, HOUR, 2 * HOUR]
    assert starts(in_queues(rows, queues, of_parts())) == [0, 0, HOUR, HOUR]
    limited = tiered_parts(limits=(("", 2),))
    rows = [hours(2, 1), hours(2, 2, submit_s=60.0), hours(2, 1, submit_s=120.0)]
    queues = ["long", "long,short", "long"]
    # Job 1 goes to `short`: `long` is at its limit. There it counts no more against it.
    found = starts(in_queues(rows, queues, limited))
    assert found[0] == 0 and found[1] < 120 and found[2] == pytest.approx(HOUR, abs=61)


def test_a_job_waits_where_some_of_its_partitions_lets_it_start_first() -> None:
    rows = [hours(4, 5), hours(4, 1), hours(4, 1, submit_s=60.0), hours(4, 1, submit_s=61.0)]
    queues = ["long", "short", "long,short", "short"]
    found = starts(in_queues(rows, queues, of_parts()))
    assert found[2] == pytest.approx(HOUR, abs=61) and found[3] == pytest.approx(2 * HOUR, abs=61)


# Backfill.


def test_a_short_job_fills_in_at_the_next_pass_of_backfill() -> None:
    # 4 GPUs. Job 0 holds 3 for 2 h, job 1 wants 4; job 2 ends before that. Backfill is at 30 s.
    story = play([hours(3, 2), hours(4, 1), hours(1, 1)], "slurm", "1x4")
    assert starts(story) == [0, 2 * HOUR, 30]
    story = play([hours(3, 2), hours(4, 1), hours(1, 1)], "slurm:bf_interval=5", "1x4")
    assert starts(story) == [0, 2 * HOUR, 5]


def test_a_long_job_does_not_delay_those_before_it() -> None:
    assert starts(play([hours(3, 2), hours(4, 1), hours(1, 3)], "slurm", "1x4")) == [
        0,
        2 * HOUR,
        3 * HOUR,
    ]


def test_every_job_has_a_plan_and_not_only_the_head() -> None:
    # Job 1 (4 GPUs) is planned at 2 h, job 2 (4 GPUs) at 3 h. Job 3 fits beside job 0 only
    # until 2 h, and job 4 behind it; job 5 would still run when the others are to start.
    rows = [hours(2, 2), hours(4, 1), hours(4, 1), hours(2, 1), hours(1, 0.5), hours(1, 3)]
    assert starts(play(rows, "slurm", "1x4")) == [
        0,
        2 * HOUR,
        3 * HOUR,
        30,
        HOUR + 30,
        4 * HOUR,
    ]


def test_whole_nodes_are_planned_even_if_a_job_leaves_gpus_over() -> None:
    # At 2 h the head takes 3 of 4 GPUs: EASY backfill gives the fourth away, Slurm does not.
    rows = [hours(2, 2), hours(3, 1), hours(1, 9)]
    assert starts(play(rows, "backfill", "1x4"))[2] == 0
    assert starts(play(rows, "slurm", "1x4"))[2] == 2 * HOUR


def test_a_job_without_a_limit_is_planned_for_a_year() -> None:
    rows = [Row(3, HOUR, time_limit_s=HOUR), hours(4, 1), Row(1, 60.0)]
    assert starts(play(rows, "slurm", "1x4"))[2] == 2 * HOUR
    assert starts(play(rows, "slurm:default_time=30", "1x4"))[2] == 30


def test_limits_are_whole_minutes() -> None:
    # 59 min 1 s is an hour: from 30 s on it would end behind the plan at 1 h.
    rows = [hours(3, 1), hours(4, 1), Row(1, 60, time_limit_s=58 * MINUTE + 1)]
    assert starts(play(rows, "slurm", "1x4"))[2] == 30
    rows[2] = Row(1, 60, time_limit_s=59 * MINUTE + 1)
    assert starts(play(rows, "slurm", "1x4"))[2] == 2 * HOUR


def test_plans_are_rounded_down_to_the_resolution() -> None:
    # Job 0 ends 10 min after 50 s, at 650 s. Backfill runs at 80 s; 9 min later it is 620 s.
    rows = [
        Row(3, 600, submit_s=50, time_limit_s=600),
        Row(4, 600, submit_s=51, time_limit_s=600),
        Row(1, 540, submit_s=52, time_limit_s=540),
    ]
    assert starts(play(rows, "slurm:bf_resolution=1", "1x4"))[2] == 80
    assert starts(play(rows, "slurm", "1x4"))[2] == 1250


def test_a_plan_beyond_the_window_holds_nothing_back() -> None:
    rows = [hours(3, 48), hours(4, 1), hours(1, 100)]
    assert starts(play(rows, "slurm:bf_window=1440", "1x4"))[2] == 30
    assert starts(play(rows, "slurm:bf_window=4320", "1x4"))[2] == 49 * HOUR


def test_backfill_tests_as_many_jobs_as_it_may() -> None:
    rows = [hours(3, 3), hours(4, 1), hours(4, 1), hours(1, 1)]
    assert starts(play(rows, "slurm:bf_node_space_size=9,bf_max_job_test=2", "1x4"))[3] == 5 * HOUR
    assert starts(play(rows, "slurm:bf_node_space_size=9,bf_max_job_test=3", "1x4"))[3] == 30


def test_backfill_tests_as_many_jobs_of_a_user_as_it_may() -> None:
    rows = [hours(3, 3), *(hours(4, 1, user="ann") for _ in range(2)), hours(1, 1, user="ann")]
    assert starts(play(rows, "slurm:bf_max_job_user=2", "1x4"))[3] == 5 * HOUR
    assert starts(play(rows, "slurm:bf_max_job_user=3", "1x4"))[3] == 30
    rows[3] = hours(1, 1, user="bob")
    assert starts(play(rows, "slurm:bf_max_job_user=2", "1x4"))[3] == 30


def test_backfill_starts_as_many_jobs_a_pass_as_it_may() -> None:
    rows = [hours(2, 3), hours(4, 1), hours(1, 1), hours(1, 1)]
    assert starts(play(rows, "slurm", "1x4"))[2:] == [30, 30]
    assert starts(play(rows, "slurm:bf_max_job_start=1", "1x4"))[2:] == [30, 60]


def test_low_priorities_and_young_jobs_get_no_plan() -> None:
    rows = [hours(3, 2), hours(4, 1), hours(1, 3)]
    # All have priority 1; the head neither holds up its partition nor gets a plan.
    assert starts(play(rows, "slurm:bf_min_prio_reserve=2", "1x4"))[2] == 0
    assert starts(play(rows, "slurm:bf_min_age_reserve=60", "1x4"))[2] == 0


def test_backfill_ends_when_its_map_is_full() -> None:
    # Each plan adds two intervals to the first; the map has as many as jobs are tested.
    rows = [hours(3, 3), hours(4, 1), hours(4, 1), hours(1, 1)]
    assert starts(play(rows, "slurm:bf_max_job_test=3", "1x4"))[3] == 5 * HOUR


# The main scheduler.


def test_the_head_holds_up_its_partition_and_no_other() -> None:
    rows = [
        hours(3, 2, queue="short", gpu_type="t4"),
        hours(4, 1, queue="short", gpu_type="t4"),
        hours(1, 1, queue="short", gpu_type="t4"),
        hours(1, 1, queue="long", gpu_type="a100"),
    ]
    assert starts(tenants(rows, of_parts())) == [0, 2 * HOUR, 30, 0]


def test_a_blocked_partition_takes_its_nodes_from_overlapping_ones() -> None:
    groups = (NodeGroup("all", 1, 4),)
    cluster = Cluster(groups, queues=(QueueSpec("one"), QueueSpec("two")))
    rows = [hours(3, 2, queue="one"), hours(4, 1, queue="one"), hours(1, 1, queue="two")]
    assert starts(tenants(rows, cluster)) == [0, 2 * HOUR, 30]


def test_a_partition_is_planned_on_its_own_nodes() -> None:
    # The head of `short` waits for node 0; the long job of `long` is not in its way.
    rows = [
        hours(3, 2, queue="short", gpu_type="t4"),
        hours(4, 1, queue="short", gpu_type="t4"),
        hours(3, 2, queue="long", gpu_type="a100"),
        hours(4, 1, queue="long", gpu_type="a100"),
        hours(1, 2, queue="long", gpu_type="a100"),
    ]
    assert starts(tenants(rows, of_parts()))[4] == 3 * HOUR
    assert starts(tenants([*rows[:3], rows[4]], of_parts()))[3] == 0


def test_submitted_jobs_wait_until_the_last_look_is_some_seconds_ago() -> None:
    rows = [hours(1, 1, submit_s=s) for s in (10, 10.2, 12, 17.5)]
    assert starts(play(rows, "slurm:bf_interval=300", "1x4")) == [10, 13, 13, 18]
    quick = "slurm:bf_interval=300,batch_sched_delay=0"
    assert starts(play(rows, quick, "1x4")) == [10, 11, 12, 18]


def test_the_end_of_a_job_is_answered_at_the_next_look_and_with_an_epilog_at_once() -> None:
    rows = [Row(4, 100.5, time_limit_s=120), hours(4, 1)]
    assert starts(play(rows, "slurm", "1x4")) == [0, 101]
    assert starts(play(rows, "slurm:epilog=true", "1x4")) == [0, 100.5]
    # A look within `batch_sched_delay` of the last pass is put off; one for an epilog is not.
    rows.append(hours(4, 1, submit_s=99))
    assert starts(play(rows, "slurm", "1x4"))[1] == 102
    assert starts(play(rows, "slurm:epilog=true", "1x4"))[1] == 100.5


def test_after_an_event_some_jobs_are_tested_and_every_interval_all() -> None:
    # Jobs 1-3 of ann are over her limit; job 4 is the fifth to be tested.
    cluster = Cluster(
        (NodeGroup("all", 1, 4),), accounts=(AccountSpec("lab", max_gpus_per_user=1),)
    )
    rows = [hours(1, 2, user="ann", submit_s=1) for _ in range(4)]
    rows.append(hours(1, 1, user="bob", submit_s=1))
    policy = "slurm:default_queue_depth={},bf_interval=300"
    story = tenants(rows, cluster, policy.format(4), account=["lab"] * 5)
    assert starts(story)[4] == 1
    story = tenants(rows, cluster, policy.format(3), account=["lab"] * 5)
    assert starts(story)[4] == 60


# Priorities.


def test_age_decides_between_sizes() -> None:
    # At 2 h, job 1 has waited 2 h of 10 h: 200 points; job 2 has 100, and 150 more for its size.
    rows = [hours(4, 2), hours(1, 1, submit_s=0.0), hours(4, 1, submit_s=HOUR)]
    age = "slurm:priority_weight_age=1000,priority_max_age=10:00:00"
    assert starts(play(rows, age, "1x4")) == [0, 2 * HOUR, 3 * HOUR]
    both = age + ",priority_weight_job_size=400"
    assert starts(play(rows, both, "1x4")) == [0, 3 * HOUR, 2 * HOUR]


def test_who_used_less_is_served_first() -> None:
    rows = [
        hours(4, 2, user="ann"),
        hours(4, 1, user="ann", submit_s=60),
        hours(4, 1, user="bob", submit_s=120),
    ]
    assert starts(play(rows, "slurm", "1x4"))[1:] == [2 * HOUR, 3 * HOUR]
    fair = "slurm:priority_weight_fairshare=1000"
    assert starts(play(rows, fair, "1x4"))[1:] == [3 * HOUR, 2 * HOUR]


def test_shares_of_accounts_count() -> None:
    # Both labs use four GPU-hours; the one with three shares of four deserves more.
    accounts = (AccountSpec("big", shares=3), AccountSpec("small", shares=1))
    cluster = Cluster((NodeGroup("all", 1, 8),), accounts=accounts)
    rows = [hours(4, 1), hours(4, 1), hours(8, 1), hours(8, 1)]
    story = tenants(
        rows,
        cluster,
        "slurm:priority_weight_fairshare=1000",
        account=["big", "small", "small", "big"],
    )
    assert starts(story) == [0, 0, 2 * HOUR, HOUR]


def test_the_qos_and_the_partition_count() -> None:
    cluster = Cluster(
        (NodeGroup("all", 1, 4),),
        queues=(QueueSpec("debug", priority=10), QueueSpec("batch", priority=1)),
        qos=(QosSpec("high", priority=10), QosSpec("low", priority=1)),
    )
    rows = [hours(4, 1, queue="batch"), hours(4, 1, queue="batch"), hours(4, 1, queue="debug")]
    kinds = ["low", "high", "low"]
    by_qos = tenants(rows, cluster, "slurm:priority_weight_qos=100", qos=kinds)
    assert starts(by_qos) == [HOUR, 0, 2 * HOUR]
    by_both = "slurm:priority_weight_qos=100,priority_weight_partition=200"
    assert starts(tenants(rows, cluster, by_both, qos=kinds)) == [2 * HOUR, HOUR, 0]


def test_priorities_stand_still_between_two_computations() -> None:
    # Ann's usage is booked every 5 min (or 3 h): when job 0 ends at 2 h she is not yet charged.
    rows = [
        hours(4, 2, user="ann"),
        hours(4, 1, user="ann", submit_s=60),
        hours(4, 1, user="bob", submit_s=120),
    ]
    late = "slurm:priority_weight_fairshare=1000,priority_calc_period=3:00:00"
    assert starts(play(rows, late, "1x4"))[1:] == [2 * HOUR, 3 * HOUR]


# Limits, reservations, preemption.


def test_a_job_over_a_limit_waits_and_holds_nobody_up() -> None:
    cluster = Cluster(
        (NodeGroup("all", 2, 4),),
        accounts=(AccountSpec("uni"), AccountSpec("lab", parent="uni", max_gpus=4)),
    )
    rows = [hours(4, 2), hours(2, 1), hours(4, 1)]
    story = tenants(rows, cluster, account=["lab", "lab", "uni"])
    assert starts(story) == [0, 2 * HOUR, 0]


def test_the_limit_of_an_account_holds_for_those_below_it() -> None:
    cluster = Cluster(
        (NodeGroup("all", 2, 4),),
        accounts=(AccountSpec("uni", max_gpus=5), AccountSpec("lab", parent="uni")),
    )
    story = tenants([hours(4, 2), hours(2, 1)], cluster, account=["lab", "uni"])
    assert starts(story) == [0, 2 * HOUR]


def test_a_qos_limits_gpus_and_jobs_of_each_user() -> None:
    kinds = ["qos"] * 4
    rows = [hours(1, 2, user=user) for user in ("ann", "ann", "ann", "bob")]
    for limit in ({"max_gpus_per_user": 2}, {"max_jobs_per_user": 2}):
        cluster = Cluster((NodeGroup("all", 1, 4),), qos=(QosSpec("qos", **limit),))  # type: ignore[arg-type]
        assert starts(tenants(rows, cluster, qos=kinds)) == [0, 0, 2 * HOUR, 0]
    cluster = Cluster((NodeGroup("all", 1, 4),), qos=(QosSpec("qos", max_gpus=3),))
    assert starts(tenants(rows, cluster, qos=kinds)) == [0, 0, 0, 2 * HOUR]


def test_the_limit_of_a_qos_is_the_limit_of_its_jobs() -> None:
    cluster = Cluster((NodeGroup("all", 1, 4),), qos=(QosSpec("qos", max_time_s=HOUR),))
    rows = [hours(3, 2), hours(4, 1), Row(1, HOUR)]
    assert starts(tenants(rows, cluster, qos=["", "", "qos"]))[2] == 30
    assert starts(tenants(rows, cluster, qos=["", "", ""]))[2] == 3 * HOUR


def _reserved(*specs: ReservationSpec) -> Cluster:
    return Cluster((NodeGroup("all", 2, 4),), reservations=specs)


def test_no_job_starts_that_would_run_into_a_maintenance() -> None:
    both = _reserved(ReservationSpec("repair", 2 * HOUR, 3 * HOUR, (0, 1)))
    rows = [hours(4, 1), hours(4, 3), hours(4, 2)]
    # Job 1 holds nobody up: it is not jobs that are in its way.
    assert starts(tenants(rows, both)) == [0, 3 * HOUR, 0]
    one = _reserved(ReservationSpec("repair", 2 * HOUR, 3 * HOUR, (0,)))
    assert starts(tenants(rows[1:2], one)) == [0]
    assert tenants(rows[1:2], one).of(Started)[0].placement.spans == ((1, 4),)  # type: ignore[attr-defined]


def test_reserved_nodes_are_for_jobs_that_name_the_reservation() -> None:
    class_ = ReservationSpec("class", 0, DAY, (0,), accounts=("school",))
    rows = [hours(4, 1), hours(4, 1), hours(4, 1)]
    story = tenants(
        rows,
        _reserved(class_),
        account=["school", "", "school"],
        reservation=["", "", "class"],
    )
    # Job 0 does not name it and takes node 1; job 2 has node 0.
    assert starts(story) == [0, HOUR, 0]


def test_a_reservation_is_for_those_who_may_use_it() -> None:
    class_ = ReservationSpec("class", 0, DAY, (0,), users=("ann",))
    rows = [hours(4, 1, user="bob"), hours(4, 1, user="bob"), hours(4, 1, user="ann")]
    story = tenants(rows, _reserved(class_), reservation=["class"] * 3)
    assert starts(story) == [0, HOUR, 0]


PREEMPTING = Cluster(
    (NodeGroup("all", 1, 4),),
    qos=(QosSpec("high", priority=10, preempts=("low",)), QosSpec("low"), QosSpec("normal")),
)


def test_a_qos_stops_jobs_of_another_which_start_anew_two_minutes_later() -> None:
    rows = [hours(4, 2), hours(4, 1, submit_s=HOUR)]
    story = tenants(rows, PREEMPTING, "slurm:preempt_mode=requeue", qos=["low", "high"])
    assert story.stops(0) == [(HOUR, "preempted")]
    assert starts(story) == [0, HOUR]
    assert story.starts(0)[1][0] == 2 * HOUR
    # An idle cluster does not help: the requeued job may begin after 121 s, which no event tells,
    # so the next pass of backfill starts it.
    rows = [hours(4, 2), Row(4, 60, HOUR, 60)]
    story = tenants(rows, PREEMPTING, "slurm:preempt_mode=requeue", qos=["low", "high"])
    assert story.starts(0)[1][0] == HOUR + 150


def test_nobody_is_stopped_without_the_mode_or_the_right() -> None:
    rows = [hours(4, 2), hours(4, 1, submit_s=HOUR)]
    assert starts(tenants(rows, PREEMPTING, qos=["low", "high"]))[1] == 2 * HOUR
    mode = "slurm:preempt_mode=requeue"
    assert starts(tenants(rows, PREEMPTING, mode, qos=["normal", "high"]))[1] == 2 * HOUR
    assert starts(tenants(rows, PREEMPTING, mode, qos=["low", "normal"]))[1] == 2 * HOUR


def test_preemptors_come_first_whatever_the_priority() -> None:
    rows = [hours(4, 1), hours(4, 1, submit_s=1), hours(4, 1, submit_s=2)]
    mode = "slurm:preempt_mode=requeue"
    story = tenants(rows, PREEMPTING, mode, qos=["normal", "low", "high"])
    assert starts(story) == [0, 2 * HOUR, HOUR]


def test_the_lowest_qos_or_the_youngest_job_is_stopped_first() -> None:
    cluster = Cluster(
        (NodeGroup("all", 1, 4),),
        qos=(
            QosSpec("high", priority=10, preempts=("low", "mid")),
            QosSpec("low", priority=1),
            QosSpec("mid", priority=5),
        ),
    )
    rows = [hours(2, 9), hours(2, 9, submit_s=60), hours(2, 1, submit_s=120)]
    kinds = ["low", "mid", "high"]
    story = tenants(rows, cluster, "slurm:preempt_mode=requeue", qos=kinds)
    assert [len(story.stops(job)) for job in (0, 1)] == [1, 0]
    youngest = "slurm:preempt_mode=requeue,preempt_youngest_first=true"
    story = tenants(rows, cluster, youngest, qos=kinds)
    assert [len(story.stops(job)) for job in (0, 1)] == [0, 1]


# What it knows, and what it refuses.


def test_it_knows_limits_and_no_lengths() -> None:
    assert Slurm().knows == frozenset()
    rows = [hours(3, 2), hours(4, 1), hours(1, 1)]
    assert starts(play(rows, "slurm", "1x4", forecast="unknown")) == [0, 2 * HOUR, 30]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("slurm:bf_interval=0", "bf_interval is at least 1"),
        ("slurm:priority_max_age=UNLIMITED", "priority_max_age is a finite time"),
        ("slurm:priority_max_age=soon", "a time is written as in slurm.conf"),
        ("slurm:preempt_mode=cancel", "a policy cannot end jobs; requeue stops the same ones"),
        ("slurm:preempt_mode=suspend", "a suspended job keeps its GPUs"),
        ("slurm:priority_weight_age=-1", "priority_weight_age is a number of 0 or more"),
        ("slurm:bf_continue=true", "no parameter 'bf_continue'"),
    ],
)
def test_what_cannot_be_meant_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_policy(text)


# Properties.

LIMITED = Cluster(
    (NodeGroup("all", 3, 4),),
    accounts=(
        AccountSpec("uni", max_gpus=10),
        AccountSpec("lab", parent="uni", max_gpus=6, max_gpus_per_user=4),
    ),
    qos=(
        QosSpec("high", priority=9, preempts=("low",), max_jobs_per_user=3),
        QosSpec("low", max_gpus=7, max_gpus_per_user=5),
    ),
)


@settings(max_examples=40)
@given(seed=st.integers(0, 10_000), preempts=st.booleans())
def test_nobody_is_ever_above_a_limit(seed: int, preempts: bool) -> None:
    rng = np.random.default_rng(seed)
    n = 30
    submit = np.sort(rng.integers(0, 4000, n)).tolist()
    users = rng.choice(["ann", "bob", "cid"], n).tolist()
    rows = [
        Row(int(rng.integers(1, 5)), float(rng.integers(60, 3000)), s, 3600, user=u)
        for s, u in zip(submit, users, strict=True)
    ]
    accounts, kinds = rng.choice(["uni", "lab"], n).tolist(), rng.choice(["high", "low"], n)
    policy = "slurm:priority_weight_age=100,priority_weight_fairshare=50,priority_weight_qos=9"
    policy += ",preempt_mode=" + ("requeue" if preempts else "off")
    story = tenants(rows, LIMITED, policy, account=accounts, qos=kinds.tolist())
    running: dict[int, int] = {}
    for batch in story.batches:
        for fact in batch:
            if isinstance(fact, Started):
                running[fact.job] = fact.placement.gpus
            elif isinstance(fact, Ended) or type(fact).__name__ == "Stopped":
                running.pop(fact.job, None)  # type: ignore[attr-defined]

        def held(jobs: dict[int, int] = running, **of: str) -> int:
            columns = {"user": users, "account": accounts, "qos": kinds}
            return sum(
                gpus
                for job, gpus in jobs.items()
                if all(columns[name][job] == value for name, value in of.items())
            )

        assert held() <= 10 and held(account="lab") <= 6 and held(qos="low") <= 7
        for user in ("ann", "bob", "cid"):
            assert held(account="lab", user=user) <= 4 and held(qos="low", user=user) <= 5
            high = [j for j in running if users[j] == user and kinds[j] == "high"]
            assert len(high) <= 3


@settings(max_examples=60)
@given(seed=st.integers(0, 10_000))
def test_backfill_never_delays_the_first_job_that_waits(seed: int) -> None:
    # Limits are exact and whole ten minutes, and expected starts are not grouped: the first job
    # that does not fit starts when it would if nobody had come behind it.
    rng = np.random.default_rng(seed)
    lengths = 600.0 * rng.integers(1, 12, 14)
    rows = [
        Row(int(g), float(s), time_limit_s=float(s))
        for g, s in zip(rng.choice([1, 2, 3, 4, 8], 14), lengths, strict=True)
    ]
    policy = "slurm:bf_window_linear=1,bf_window=43200"
    story = play(rows, policy, "2x4", placing="strict")
    waits = [job for job, at in enumerate(starts(story)) if at > 0]
    if waits:
        alone = play(rows[: waits[0] + 1], policy, "2x4", placing="strict")
        assert starts(story)[waits[0]] == starts(alone)[waits[0]]


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000))
def test_passes_that_are_left_out_would_have_started_nothing(seed: int) -> None:
    """Woken every second by its sites's clock, the policy decides the same."""
    rng = np.random.default_rng(seed)
    rows = sorted(
        (
            Row(
                int(rng.integers(1, 6)),
                float(rng.integers(10, 900)),
                float(rng.integers(0, 600)),
                float(rng.integers(1, 12)) * 60,
                user=str(rng.choice(["ann", "bob"])),
            )
            for _ in range(25)
        ),
        key=lambda row: row.submit_s,
    )
    text = "slurm:priority_weight_age=1000,priority_max_age=20,priority_weight_fairshare=300"
    text += ",priority_calc_period=1,bf_interval=7"
    often = Restless(parse_policy(text))  # type: ignore[arg-type]
    trace = trace_of(*rows)
    story = play_scene(scene_of(trace, "2x4"), text)
    restless = play_scene(scene_of(trace, "2x4"), often)  # type: ignore[arg-type]
    assert starts(story) == starts(restless)


class Restless:
    """A policy that is asked every second while jobs wait, and makes every pass of backfill."""

    def __init__(self, inner: Slurm) -> None:
        self.inner = inner
        self.knows, self.powers, self.order = inner.knows, inner.powers, inner.order
        self.initial = inner.initial

    def decide(self, view, memory):  # type: ignore[no-untyped-def]
        """Returns the decision of the inner policy, to be asked again in a second."""
        decision = self.inner.decide(view, replace(memory, dirty=True))
        wakes = min(decision.wake_at, view.now + 1) if len(view.waiting) else decision.wake_at
        return replace(decision, wake_at=wakes)


# What the policy says of itself.


def test_it_says_that_it_heeds_priorities_and_keeps_plans() -> None:
    assert heeded(Slurm()) == {"priority", "priority_tier"}
    assert reserves(Slurm())
    # A job of higher priority goes first, as one with a negative nice.
    rows = [hours(4, 1), hours(4, 1), hours(4, 1, priority=5)]
    assert starts(play(rows, "slurm", "1x4")) == [HOUR, 2 * HOUR, 0]


def test_jobs_of_a_partition_of_a_higher_tier_are_tested_first() -> None:
    queues = (QueueSpec("wide", priority=9), QueueSpec("fast", priority_tier=2))
    cluster = Cluster((NodeGroup("all", 1, 4),), queues=queues)
    rows = [hours(4, 1), hours(4, 1), hours(4, 1)]
    parts = ["wide", "wide", "fast"]
    for policy in ("slurm", "slurm:priority_weight_partition=1000"):
        assert starts(tenants(rows, cluster, policy, queue=parts)) == [HOUR, 2 * HOUR, 0]


def test_a_node_is_closed_while_it_completes() -> None:
    # Job 0 ends at 104.5; looks are at whole seconds, backfill is every 5 s.
    rows = [Row(4, 104.5, time_limit_s=120), hours(4, 1)]
    quick = "slurm:bf_interval=5,batch_sched_delay=0,completing="
    assert starts(play(rows, quick + "0", "1x4"))[1] == 105
    assert starts(play(rows, quick + "2", "1x4"))[1] == 107
    assert starts(play(rows, quick + "2,epilog=true", "1x4"))[1] == 106.5
    # Backfill finds the node completing at 105 and plans the job for the next pass.
    late = "slurm:bf_interval=5,batch_sched_delay=300,completing=2"
    assert starts(play([*rows[:1], hours(4, 1, submit_s=1)], late, "1x4"))[1] == 110

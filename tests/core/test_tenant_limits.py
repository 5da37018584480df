"""Hard limits of tenants: no plan breaks them, whatever the policy, and a pass finds its way."""

from dataclasses import replace

import pytest

from builders import Row, Story, play, trace_of
from dovetail.core.cluster import Cluster, NodeGroup
from dovetail.core.errors import IllegalPlan
from dovetail.core.messages import Started
from dovetail.core.occupancy import Occupancy
from dovetail.core.placement import Placement
from dovetail.core.plan import Plan
from dovetail.core.tenants import AccountSpec, QosSpec, QueueSpec, ReservationSpec, UserLimits
from dovetail.study.options import Options
from dovetail.study.run import placeable

GROUPS = (NodeGroup("big", 2, 4, "a100"), NodeGroup("small", 1, 4, "v100"))


def starts(story: Story) -> list[float]:
    return [story.starts(job)[0][0] for job in range(len(story.scene.trace))]


def test_a_limit_up_the_tree_holds_for_all_queues_below() -> None:
    queues = (QueueSpec("top", 4), QueueSpec("a", parent="top"), QueueSpec("b", parent="top"))
    rows = [Row(3, 10, queue="a"), Row(3, 10, queue="b"), Row(1, 10, queue="b"), Row(8, 10)]
    story = play(rows, "fifo:bypass=skip", Cluster(GROUPS, queues=queues))
    assert starts(story) == [0, 10, 0, 0]


def test_limits_by_type_leave_other_types_open() -> None:
    queues = (QueueSpec("q", limits=(("a100", 4), ("", 7))),)
    rows = [Row(3, 10, queue="q"), Row(3, 10, queue="q"), Row(2, 10, queue="q"), Row(4, 10)]
    story = play(rows, "fifo:bypass=skip", Cluster(GROUPS, queues=queues))
    placed = [f for batch in story.batches for f in batch if isinstance(f, Started)]
    kinds = ["v100" if f.placement.spans[0][0] == 2 else "a100" for f in placed]
    assert starts(story) == [0, 0, 10, 0]
    assert sorted(kinds[:2]) == ["a100", "v100"]


def test_limits_of_accounts_users_and_qos_count_what_is_held() -> None:
    cluster = Cluster(
        GROUPS,
        accounts=(AccountSpec("lab", max_gpus=6, max_gpus_per_user=4), AccountSpec("x", "lab")),
        qos=(QosSpec("one", max_jobs_per_user=1),),
    )
    rows = [
        Row(3, 10, account="x", user="ann"),
        Row(2, 10, account="x", user="ann"),  # 5 of ann's 4
        Row(3, 10, account="lab", user="bob"),
        Row(1, 10, account="lab", user="cy"),  # 7 of the lab's 6
        Row(1, 10, qos="one", user="dee"),
        Row(1, 10, qos="one", user="dee"),  # a second job
        Row(1, 10, qos="one", user="eve"),
    ]
    story = play(rows, "fifo:bypass=skip", cluster)
    assert starts(story) == [0, 10, 0, 10, 0, 10, 0]


@pytest.mark.parametrize("policy", ["fifo:bypass=skip", "sjf", "srtf", "backfill", "slurm"])
def test_limits_of_users_hold_over_all_queues_and_under_every_policy(policy: str) -> None:
    cluster = Cluster(GROUPS, users=(UserLimits("any", 4, 2), UserLimits("bob", max_jobs=1)))
    rows = [
        Row(3, 10, user="ann"),
        Row(2, 10, user="ann"),  # 5 of ann's 4 GPUs
        Row(1, 10, user="bob"),
        Row(1, 10, user="bob"),  # bob has limits of his own: one job
        Row(1, 10, user="cy"),
        Row(1, 10, user="cy"),
        Row(1, 10, user="cy"),  # a third job of cy's 2
        Row(2, 10),  # a job of nobody has no limits
    ]
    story = play(rows, policy, cluster)
    running: list[set[int]] = [
        {j for j in range(len(rows)) if (at := story.starts(j)[0][0]) <= t < at + 10}
        for t in {story.starts(j)[0][0] for j in range(len(rows))}
    ]
    for jobs in running:
        assert sum(rows[j].gpus for j in jobs if j < 2) <= 4
        assert len(jobs & {2, 3}) <= 1
        assert len(jobs & {4, 5, 6}) <= 2
    assert story.starts(7)[0][0] == 0


def test_jobs_of_a_queue_with_groups_run_nowhere_else() -> None:
    cluster = Cluster(GROUPS, queues=(QueueSpec("s", groups=("small",)),))
    rows = [Row(4, 10, queue="s"), Row(4, 10, queue="s"), Row(8, 10)]
    for policy in ("fifo:bypass=skip", "srtf", "sjf-bsbf", "muri-s:tick-s=0"):
        story = play(rows, policy, cluster)
        assert starts(story) == [0, 10, 0], policy


def test_the_tables_refuse_what_is_over_a_limit_and_undo_what_was_there() -> None:
    queues = (QueueSpec("q", 4),)
    jobs = trace_of(Row(3, 1, queue="q"), Row(3, 1, queue="q")).jobs
    plan = Plan(Occupancy(Cluster(GROUPS, queues=queues), jobs))
    plan.adopt(0, Placement(((0, 3),)))
    draft = plan.draft()
    with pytest.raises(IllegalPlan, match="queue q may hold 4 GPUs, and not more"):
        draft.place(1, ((1, 3),))
    draft.remove(0)
    draft.place(1, ((1, 3),))
    with pytest.raises(IllegalPlan):
        draft.place(0, ((0, 3),))
    plan.discard()
    assert plan.occupancy.tenants is not None
    assert plan.occupancy.tenants.booked() == (("queue q may hold 4 GPUs", 3),)
    assert plan.occupancy.tenants.faults(plan.placed) == []


def test_a_job_of_an_earlier_run_stays_though_its_limit_is_lower_now() -> None:
    jobs = trace_of(Row(3, 1, queue="q")).jobs
    plan = Plan(Occupancy(Cluster(GROUPS, queues=(QueueSpec("q", 2),)), jobs))
    plan.adopt(0, Placement(((0, 3),)))
    draft = plan.draft()
    draft.remove(0)
    plan.discard()
    assert 0 in plan.placed


def test_jobs_that_can_never_fit_their_limits_are_left_out() -> None:
    cluster = Cluster(GROUPS, queues=(QueueSpec("q", limits=(("a100", 0), ("v100", 2))),))
    trace = trace_of(Row(2, 1, queue="q"), Row(3, 1, queue="q"), Row(3, 1))
    kept, left_out = placeable(trace, Options(cluster))
    assert (kept.jobs.gpus.tolist(), left_out) == ([2, 3], 1)


def test_a_qos_shortens_time_limits() -> None:
    cluster = Cluster(GROUPS, qos=(QosSpec("short", max_time_s=60),))
    trace = trace_of(Row(2, 100, qos="short"), Row(2, 100))
    kept, _ = placeable(trace, Options(cluster))
    assert kept.jobs.time_limit_s.tolist() == [60, float("inf")]


MAINTENANCE = ReservationSpec("m", 100, 200, (0, 1, 2))


def test_no_job_starts_that_would_run_into_maintenance() -> None:
    rows = [
        Row(4, 90, submit_s=0),
        Row(4, 50, submit_s=60),  # would end at 110
        Row(4, 50, submit_s=60, time_limit_s=40),  # ends by 100 at its limit
        Row(1, 5, submit_s=150),
    ]
    cluster = Cluster(GROUPS, reservations=(MAINTENANCE,))
    for policy in ("fifo:bypass=skip", "backfill", "srtf"):
        assert starts(play(rows, policy, cluster)) == [0, 200, 60, 200], policy


def test_a_job_of_unknown_length_waits_for_the_end_of_maintenance() -> None:
    cluster = Cluster(GROUPS, reservations=(replace(MAINTENANCE, nodes=(0, 1)),))
    rows = [Row(4, 5), Row(4, 5), Row(4, 5, time_limit_s=50)]
    story = play(rows, "fifo:bypass=skip", cluster, forecast="unknown")
    assert starts(story) == [0, 5, 0]


def test_reserved_nodes_are_for_those_named() -> None:
    course = ReservationSpec("course", 100, 200, (0, 1, 2), accounts=("class",), users=("ann",))
    accounts = (AccountSpec("class"),)
    rows = [
        Row(2, 20, user="ann", reservation="course"),  # waits for it
        Row(4, 20, submit_s=90, user="bob"),  # would run into it
        Row(4, 20, submit_s=90, account="class"),  # may go on there
        Row(4, 20, submit_s=110, account="class"),
        Row(2, 20, submit_s=110, user="ann"),
        Row(2, 20, submit_s=110, user="bob"),
    ]
    cluster = Cluster(GROUPS, accounts=accounts, reservations=(course,))
    assert starts(play(rows, "fifo:bypass=skip", cluster)) == [100, 200, 90, 110, 110, 200]

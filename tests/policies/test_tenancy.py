"""Tenants around a policy: turns, guarantees that come back, the guard; else all as it was."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from builders import Row, Story, play, trace_of
from dovetail.core.cluster import Cluster, NodeGroup
from dovetail.core.messages import Explained, Stopped
from dovetail.core.policy import parse_policy, registered
from dovetail.core.tenants import AccountSpec, QosSpec, QueueSpec
from dovetail.study.options import Options
from dovetail.study.run import simulate

FOUR = (NodeGroup("all", 1, 4),)
EIGHT = (NodeGroup("all", 2, 4),)


def first_starts(story: Story) -> list[float]:
    return [story.starts(job)[0][0] for job in range(len(story.scene.trace))]


def whys(story: Story) -> list[tuple[int, str]]:
    facts = [f for batch in story.batches for f in batch if isinstance(f, Stopped)]
    return [(f.job, f.why) for f in facts]


def codes(story: Story) -> set[str]:
    facts = [f for batch in story.batches for f in batch if isinstance(f, Explained)]
    return {reason.code for f in facts for reason in f.reasons}


def test_queues_take_turns_by_weight() -> None:
    cluster = Cluster(FOUR, queues=(QueueSpec("a", weight=3), QueueSpec("b")))
    rows = [Row(1, 10, queue="a") for _ in range(8)] + [Row(1, 10, queue="b") for _ in range(8)]
    story = play(rows, "tenancy:half-life-s=1000000", cluster)
    at_once = [job for job in range(16) if first_starts(story)[job] == 0]
    assert at_once == [0, 1, 2, 8]


@pytest.mark.parametrize("inner", ["slurm", "fifo", "backfill"])
def test_every_inner_policy_starts_jobs_in_the_order_of_turns(inner: str) -> None:
    cluster = Cluster(FOUR, queues=(QueueSpec("a", weight=3), QueueSpec("b")))
    rows = [Row(4, 2000, queue="b") for _ in range(3)]
    rows += [Row(4, 2000, queue="a") for _ in range(6)]
    story = play(rows, f"tenancy:half-life-s=1000000,inner={inner}", cluster)
    order = sorted(range(9), key=lambda job: first_starts(story)[job])
    # Three of four turns are those of a, although all jobs of b were submitted before.
    assert ["b" if job < 3 else "a" for job in order].count("a") == 6
    assert sum(job >= 3 for job in order[:8]) == 6
    assert order != list(range(9))


def test_slurm_ranks_the_jobs_of_one_tenant() -> None:
    cluster = Cluster(FOUR, queues=(QueueSpec("a", weight=2), QueueSpec("b")))
    rows = [Row(4, 2000, queue="b"), Row(3, 2000, queue="a"), Row(4, 2000, queue="a")]
    for weight, first in ((0, 1), (1000, 2)):
        inner = f"slurm:priority-weight-job-size={weight}"
        story = play(rows, f"tenancy:inner={inner}", cluster)
        starts = first_starts(story)
        assert min((1, 2), key=lambda job: starts[job]) == first, weight


def test_terms_of_the_only_queue_hold_against_jobs_of_no_queue() -> None:
    rows = [Row(4, 10, queue="s"), Row(4, 10, queue="s"), Row(4, 10, queue="other")]
    plain = play(rows, "tenancy", Cluster(FOUR, queues=(QueueSpec("s"),)))
    spot = play(rows, "tenancy", Cluster(FOUR, queues=(QueueSpec("s", tier="spot"),)))
    assert first_starts(plain) == [0, 10, 20]
    assert first_starts(spot) == [10, 20, 0]


def test_who_used_less_goes_first_until_use_is_forgotten() -> None:
    cluster = Cluster(FOUR, queues=(QueueSpec("a"), QueueSpec("b")))
    rows = [
        Row(4, 100, queue="a"),
        Row(4, 10, submit_s=1, queue="a"),
        Row(4, 10, submit_s=2, queue="b"),
    ]
    assert first_starts(play(rows, "tenancy", cluster)) == [0, 110, 100]
    # Of what a used nothing is left, and its job came first.
    idle = [rows[0], replace(rows[1], submit_s=5000), replace(rows[2], submit_s=5000)]
    assert first_starts(play(idle, "tenancy:half-life-s=10", cluster))[1:] == [5000, 5010]


def test_tiers_and_priorities_of_queues_come_before_fair_shares() -> None:
    queues = (
        QueueSpec("spot", tier="spot", weight=100),
        QueueSpec("low"),
        QueueSpec("high", priority=5),
        QueueSpec("top", tier="guaranteed"),
    )
    rows = [Row(4, 10, queue=q.name) for q in queues]
    assert first_starts(play(rows, "tenancy", Cluster(FOUR, queues=queues))) == [30, 20, 10, 0]


def test_users_of_an_account_share_it_and_accounts_share_the_queue() -> None:
    accounts = (
        AccountSpec("lab", shares=1, users=(("ann", 1), ("bob", 1))),
        AccountSpec("x", shares=1),
    )
    who = [("lab", "ann")] * 4 + [("lab", "bob")] * 4 + [("x", "cy")] * 4
    rows = [Row(1, 10, account=account, user=user) for account, user in who]
    starts = first_starts(play(rows, "tenancy", Cluster(FOUR, accounts=accounts)))
    assert [job for job in range(12) if starts[job] == 0] == [0, 4, 8, 9]


def test_priorities_of_jobs_and_qos_decide_within_a_tenant() -> None:
    rows = [Row(4, 10), Row(4, 10, priority=1), Row(4, 10, qos="urgent")]
    cluster = Cluster(FOUR, qos=(QosSpec("urgent", priority=10),))
    for inner in ("fifo", "backfill", "sjf"):
        assert first_starts(play(rows, f"tenancy:inner={inner}", cluster)) == [20, 10, 0], inner


GUARANTEED = (
    QueueSpec("prod", guaranteed=(("", 4),), tier="guaranteed"),
    QueueSpec("dev"),
    QueueSpec("spot", tier="spot"),
)


def test_lent_gpus_come_back_and_spot_gives_first() -> None:
    rows = [
        Row(4, 1000, queue="dev"),
        Row(4, 1000, queue="spot"),
        Row(4, 10, submit_s=50, queue="prod"),
    ]
    for inner in ("fifo", "srtf", "backfill", "tiresias"):
        story = play(rows, f"tenancy:inner={inner}", Cluster(EIGHT, queues=GUARANTEED))
        assert story.starts(2)[0][0] == 50, inner
        assert whys(story)[0] == (1, "reclaimed"), inner


def test_of_borrowers_alike_the_furthest_above_its_share_and_the_youngest_gives() -> None:
    rows = [
        Row(2, 1000, queue="dev"),
        Row(2, 1000, submit_s=5, queue="dev"),
        Row(2, 1000, submit_s=6, queue="dev"),
        Row(2, 1000, submit_s=7, queue="other"),
        Row(2, 10, submit_s=50, queue="prod"),
    ]
    queues = (QueueSpec("prod", guaranteed=(("", 4),)), QueueSpec("dev"), QueueSpec("other"))
    story = play(rows, "tenancy", Cluster(EIGHT, queues=queues))
    assert whys(story) == [(2, "reclaimed")]


def test_no_job_is_stopped_before_its_time_its_notice_and_over_its_budget() -> None:
    rows = [Row(8, 1000, queue="dev"), Row(4, 10, submit_s=50, queue="prod")]
    cluster = Cluster(EIGHT, queues=GUARANTEED)
    story = play(rows, "tenancy:min-run-s=200", cluster)
    assert story.starts(1)[0][0] == 200
    story = play(rows, "tenancy:min-run-s=20,grace-s=30", cluster)
    assert story.starts(1)[0][0] == 80
    assert "GuaranteedGpusLent" in codes(story)
    twice = [*rows, Row(4, 10, submit_s=200, queue="prod")]
    story = play(twice, "tenancy:budget=1", cluster)
    assert [story.starts(job)[0][0] for job in (1, 2)] == [50, 1010]
    assert "PreemptionBudget" in codes(story)
    fixed = [replace(rows[0], preemptible=False), rows[1]]
    story = play(fixed, "tenancy", cluster)
    assert story.starts(1)[0][0] == 1000


def test_guarantees_are_by_type_of_gpu() -> None:
    groups = (NodeGroup("big", 1, 4, "a100"), NodeGroup("small", 1, 4, "v100"))
    queues = (QueueSpec("prod", guaranteed=(("a100", 4),)), QueueSpec("dev"))
    rows = [
        Row(4, 1000, queue="dev", gpu_type="v100"),
        Row(4, 1000, queue="dev", gpu_type="a100"),
        Row(4, 10, submit_s=5, queue="prod", gpu_type="a100"),
        Row(4, 10, submit_s=6, queue="prod", gpu_type="v100"),
    ]
    story = play(rows, "tenancy", Cluster(groups, queues=queues))
    assert whys(story) == [(1, "reclaimed")]
    assert [story.starts(job)[0][0] for job in (2, 3)] == [5, 1000]


def test_a_guarantee_of_a_parent_is_shared_by_its_queues() -> None:
    queues = (
        QueueSpec("org", guaranteed=(("", 4),)),
        QueueSpec("a", parent="org"),
        QueueSpec("b", parent="org"),
        QueueSpec("dev"),
    )
    rows = [
        Row(4, 1000, queue="dev"),
        Row(2, 1000, queue="a"),
        Row(2, 1000, queue="dev"),
        Row(2, 10, submit_s=5, queue="b"),
        Row(2, 10, submit_s=6, queue="b"),  # the parent has its four
    ]
    story = play(rows, "tenancy", Cluster(EIGHT, queues=queues))
    assert whys(story) == [(2, "reclaimed")]
    assert [story.starts(job)[0][0] for job in (3, 4)] == [5, 15]


def test_without_reclaim_nobody_is_stopped() -> None:
    rows = [Row(8, 1000, queue="dev"), Row(4, 10, submit_s=50, queue="prod")]
    policy = parse_policy("tenancy:reclaim=false")
    assert "preempt" not in policy.powers
    story = play(rows, policy, Cluster(EIGHT, queues=GUARANTEED))
    assert whys(story) == []


def test_a_starving_job_goes_first_and_gpus_are_kept_for_it() -> None:
    # Small jobs keep coming, so four GPUs are never free at once.
    small = [Row(1, 10, submit_s=2.5 * n, queue="a") for n in range(200)]
    rows = sorted([*small, Row(4, 10, submit_s=20, queue="a")], key=lambda row: row.submit_s)
    wide = next(n for n, row in enumerate(rows) if row.gpus == 4)
    cluster = Cluster(FOUR, queues=(QueueSpec("a"),))
    for inner in ("fifo:bypass=skip", "srtf", "tiresias"):
        text = inner.replace(",", ";")
        unguarded = play(rows, f"tenancy:inner={text}", cluster).starts(wide)[0][0]
        guarded = play(rows, f"tenancy:inner={text},guard-s=60", cluster).starts(wide)[0][0]
        assert guarded <= 20 + 60 + 10 + 1 < unguarded or inner == "tiresias", inner
        assert guarded <= 91, inner


@pytest.mark.parametrize("inner", sorted({*registered()} - {"tenancy", "no-op"}))
def test_one_queue_without_limits_changes_no_byte(inner: str, tmp_path: Path) -> None:
    rows = [
        Row(1 + n % 5, 10.0 + 7 * (n % 11), submit_s=3.0 * n, queue="q", shareable=True)
        for n in range(60)
    ]
    options = Options(Cluster(EIGHT, queues=(QueueSpec("q"),)))
    logs = []
    for number, policy in enumerate((inner, f"tenancy:inner={inner}")):
        log = tmp_path / f"{number}.jsonl"
        simulate(trace_of(*rows), parse_policy(policy), options, log_to=log)
        logs.append(log.read_text().splitlines())
    heads = [json.loads(lines[0])["manifest"] for lines in logs]
    assert logs[0][1:] == logs[1][1:]
    for head in heads:
        for name in ("policy", "name", "powers"):
            del head[name]
    assert heads[0] == heads[1]


def test_the_inner_policy_hears_of_each_job_once() -> None:
    """A job that is seen, hidden and seen again has ended and arrived for the inner policy."""
    rows = [
        Row(1 + n % 4, 15.0 + n % 7, submit_s=float(n), queue="ab"[n % 2], shareable=True)
        for n in range(80)
    ]
    cluster = Cluster(EIGHT, queues=(QueueSpec("a", weight=5), QueueSpec("b")))
    for inner in ("gittins", "themis", "a-srpt", "muri-l:tick-s=0", "antman", "afs-l", "pollux"):
        story = play(rows, f"tenancy:inner={inner.replace(',', ';')}", cluster)
        assert sorted(story.ended()) == list(range(80)), inner


def test_parameters_that_cannot_be_are_refused() -> None:
    from dovetail.core.errors import InputError

    for text in ("half-life-s=0", "guard-s=0.5", "min-run-s=-1", "budget=-1", "inner=tenancy"):
        with pytest.raises(InputError):
            parse_policy(f"tenancy:{text}")


def test_shares_over_a_day_are_those_of_the_weights() -> None:
    queues = (QueueSpec("a", weight=2), QueueSpec("b"), QueueSpec("c", weight=1))
    rows = [Row(1 + n % 2, 300.0, queue="abc"[n % 3]) for n in range(900)]
    story = play(rows, "tenancy:half-life-s=3600", Cluster(EIGHT, queues=queues))
    starts = first_starts(story)
    until_s = max(s for n, s in enumerate(starts) if n % 3 == 0)
    used = [
        sum(r.gpus for n, r in enumerate(rows) if n % 3 == q and starts[n] < until_s)
        for q in range(3)
    ]
    assert used[0] / sum(used) == pytest.approx(0.5, abs=0.03)
    assert all(a <= b for a, b in pairwise(sorted(starts)))


def test_a_limit_of_one_queue_does_not_hold_up_the_others() -> None:
    queues = (QueueSpec("a", weight=9, quota_gpus=2), QueueSpec("b"))
    rows = [Row(2, 100, queue="a"), Row(2, 10, queue="a"), Row(2, 10, submit_s=1, queue="b")]
    story = play(rows, "tenancy", Cluster(FOUR, queues=queues))
    assert first_starts(story) == [0, 100, 1]


def test_guaranteed_gpus_do_not_count_against_the_share_of_the_rest() -> None:
    """Of eight GPUs four are guaranteed to a queue; the other four are shared by weight."""
    queues = (QueueSpec("prod", guaranteed=(("", 4),)), QueueSpec("dev"))
    rows = [Row(1, 10, queue="prod") for _ in range(8)] + [Row(1, 10, queue="dev")] * 8
    story = play(rows, "tenancy", Cluster(EIGHT, queues=queues))
    at_once = [job for job in range(16) if first_starts(story)[job] == 0]
    assert at_once == [0, 1, 2, 3, 4, 5, 8, 9]


def test_tiers_count_among_siblings_and_reach_the_queues_below() -> None:
    queues = (
        QueueSpec("spot", tier="spot"),
        QueueSpec("batch", parent="spot"),
        QueueSpec("dev"),
        QueueSpec("idle", parent="dev", tier="spot"),
        QueueSpec("work", parent="dev"),
    )
    rows = [Row(4, 10, queue=name) for name in ("batch", "idle", "work")]
    story = play(rows, "tenancy", Cluster(FOUR, queues=queues))
    assert first_starts(story) == [20, 10, 0]


def test_a_policy_that_stops_jobs_keeps_its_order_within_each_queue() -> None:
    """Two GPUs each: srtf runs the shortest of each queue, though all of b are longer."""
    lengths = {"a": [50, 20, 30, 10], "b": [400, 300, 200, 100]}
    rows = [Row(1, float(s), queue=name) for name, all_s in lengths.items() for s in all_s]
    queues = (QueueSpec("a"), QueueSpec("b"))
    story = play(rows, "tenancy:inner=srtf", Cluster(FOUR, queues=queues))
    starts = first_starts(story)
    assert [job for job in range(8) if starts[job] == 0] == [1, 3, 6, 7]
    for first in (0, 4):
        mine = sorted(range(first, first + 4), key=lambda job: rows[job].duration_s)
        assert sorted(mine, key=lambda job: (starts[job], mine.index(job))) == mine


def test_a_short_job_takes_the_gpus_of_its_own_queue() -> None:
    queues = (QueueSpec("a"), QueueSpec("b"))
    rows = [
        *[Row(1, 100, queue="a")] * 2,
        *[Row(1, 1000, queue="b")] * 2,
        Row(1, 10, submit_s=5, queue="a"),
    ]
    story = play(rows, "tenancy:inner=srtf", Cluster(FOUR, queues=queues))
    assert story.starts(4)[0][0] == 5
    # Plain srtf would stop the longest, which is of the other queue.
    assert [job for job, _ in whys(story)] == [1]
    assert play(rows, "srtf", Cluster(FOUR, queues=queues)).stops(3)


@pytest.mark.parametrize("inner", ["srtf", "tiresias", "max-min", "afs-l"])
def test_one_tenant_with_a_guard_that_nobody_meets_is_the_inner_policy(inner: str) -> None:
    """The wrapper is at work, as it is not without a guard, and changes nothing."""
    rows = [Row(1 + n % 5, 10.0 + 7 * (n % 11), submit_s=3.0 * n, queue="q") for n in range(60)]
    cluster = Cluster(EIGHT, queues=(QueueSpec("q"),))
    plain = play(rows, inner, cluster)
    story = play(rows, f"tenancy:inner={inner},guard-s=1e9", cluster)
    assert [story.starts(job) for job in range(60)] == [plain.starts(job) for job in range(60)]
    assert story.finishes == plain.finishes

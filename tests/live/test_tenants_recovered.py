"""What tenants used, how often jobs were stopped and how long they wait outlives a controller."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from live_stage import Stage

from dovetail.core.cluster import Cluster, NodeGroup
from dovetail.core.messages import Started, Stopped
from dovetail.core.policy import UNTIL_S, parse_policy
from dovetail.core.tenants import AccountSpec, QueueSpec, ReservationSpec
from dovetail.live.edges.protocols import POLICY_MEMORY
from dovetail.live.jobs.status_snapshot import SnapshotIndex
from dovetail.live.server.explain import explain
from dovetail.live.server.messages.reason import ExplainReply
from dovetail.live.server.tenant_rows import stops_of, tenant_list
from dovetail.live.store.record_codec import record_text

CLUSTER = Cluster(
    (NodeGroup("all", 2, 2),),
    queues=(
        QueueSpec("prod", guaranteed=(("", 2),)),
        QueueSpec("dev"),
        QueueSpec("spot", weight=2),
    ),
    accounts=(AccountSpec("lab", users=(("ann", 1), ("bob", 1))),),
)
POLICY = "tenancy:inner=fifo,half-life-s=60,min-run-s=20,budget=2,grace-s=7,guard-s=90"


def stage(policy: str = POLICY) -> Stage:
    s = Stage(policy, nodes=2, gpus=2)
    s.cluster = CLUSTER
    jobs = [
        (1.0, 2, 200.0, "dev", "ann"),
        (2.0, 2, 200.0, "spot", "bob"),
        (10.0, 1, 30.0, "prod", "ann"),
        (11.0, 1, 150.0, "spot", "ann"),
        (12.0, 2, 25.0, "dev", "bob"),
        (95.0, 2, 40.0, "prod", "bob"),
        (96.0, 2, 30.0, "spot", "ann"),
        (190.0, 2, 20.0, "prod", "ann"),
    ]
    for t, gpus, duration_s, queue, user in jobs:
        words = {"queue": queue, "user": user, "account": "lab", "preemptible": True}
        s.submit(t, gpus, duration_s, **words)
    return s


def told(s: Stage) -> list[tuple[str, int, float]]:
    """Returns who started and who was stopped, and when."""
    facts = [f for f in s.facts if isinstance(f, Started | Stopped)]
    return [(type(f).__name__, f.job, f.t) for f in facts]


def test_tenants_get_the_same_whether_or_not_their_controller_is_killed() -> None:
    whole, killed = stage(), stage()
    whole.play(900.0)
    for until in (5.0, 13.0, 33.0, 34.0, 77.0, 97.0, 131.0, 192.0, 200.0, 260.0, 900.0):
        killed.play(until)
    assert any(kind == "Stopped" for kind, _, _ in told(whole))
    assert [each[:2] for each in told(killed)] == [each[:2] for each in told(whole)]
    for one, other in zip(told(whole), told(killed), strict=True):
        assert other[2] == pytest.approx(one[2], abs=1.5), (one, other)
    killed.check()


def kept(s: Stage) -> dict[str, object]:
    return dict(json.loads(s.store.queries.meta(POLICY_MEMORY) or "{}"))


def test_what_tenants_used_and_stops_are_shown_as_before() -> None:
    s = stage()
    s.play(60.0)
    stops = {job: stops_of(s.store.queries, job) for job in range(1, 9)}
    assert s.world is not None and s.world.status is not None
    rows = tenant_list(CLUSTER, s.world.status, s.store.queries, 61.0)
    s.play(60.4)
    assert {job: stops_of(s.store.queries, job) for job in range(1, 9)} == stops
    assert sum(stops.values()) > 0
    assert s.world is not None and s.world.status is not None
    after = tenant_list(CLUSTER, s.world.status, s.store.queries, 61.0)
    assert [row.used_gpus for row in after.tenants] == pytest.approx(
        [row.used_gpus for row in rows.tenants]
    )
    assert [replace(row, used_gpus=0.0) for row in after.tenants] == [
        replace(row, used_gpus=0.0) for row in rows.tenants
    ]
    used = {row.path[-1]: row.used_gpus for row in rows.tenants if len(row.path) == 1}
    assert used["dev"] > 0 and used["spot"] > 0 and rows.half_life_s == 60.0


def test_a_tenant_is_not_charged_for_the_time_under_another_policy() -> None:
    s = stage()
    s.play(30.0)
    s.policy = parse_policy("fifo:bypass=skip")
    s.play(32.0)
    assert kept(s)[UNTIL_S] == pytest.approx(30.0, abs=1.0)
    s.play(400.0)
    s.policy = parse_policy(POLICY)
    s.play(401.0)
    assert s.world is not None
    used = s.world.memory.usage.until(400.0, 60.0)  # type: ignore[attr-defined]
    assert max(used.values(), default=0.0) < 0.05


def test_damaged_accounts_keep_no_controller_from_its_start() -> None:
    for text in ('{"tenants": {"t": "x"}}', "{", '{"tenants": 3}', "[]"):
        s = stage()
        s.play(30.0)
        s.store.keep({POLICY_MEMORY: text})
        s.play(60.0)
        assert kept(s)["tenants"]
        s.check()


def test_waiting_and_running_ages_outlive_a_controller() -> None:
    s = stage("tenancy:inner=fifo,guard-s=1000")
    s.play(35.0)
    before = ages(s)
    s.play(36.0)
    s.play(37.0)
    assert ages(s) == pytest.approx(before)
    assert len(before) == 5 and len(set(before.values())) > 3


def ages(s: Stage) -> dict[int, float]:
    assert s.world is not None
    state, numbers = s.world.observe().progress, s.world._jobs.numbers
    view = s.world.observe()
    since = {numbers[row]: state.running_since_s(row) for row in view.running}
    return since | {numbers[row]: state.pending_since_s(row) for row in view.waiting}


def test_a_record_of_an_older_release_is_read_with_the_ages_it_has() -> None:
    s = stage("tenancy:inner=fifo,guard-s=1000")
    s.play(35.0)
    for number in range(1, 6):
        record = replace(s.record(number), pending_s=-1.0, placed_s=-1.0)
        text = record_text(record)
        assert "pending_s" not in text and "placed_s" not in text
        s.database.connection.execute("UPDATE jobs SET record = ? WHERE number = ?", (text, number))
    s.play(36.0)
    assert set(ages(s)) == {1, 2, 3, 4, 5}
    assert all(0 <= since <= 36 for since in ages(s).values())
    s.check()


def why(s: Stage, job: int) -> ExplainReply:
    assert s.world is not None and s.world.status is not None
    found = s.store.find(job)
    assert found is not None
    return explain(found, s.store.queries, SnapshotIndex(s.world.status), s.line.now)


def test_a_spent_budget_is_named_and_survives() -> None:
    s = Stage("tenancy:inner=fifo,budget=1", nodes=1, gpus=2)
    s.cluster = replace(CLUSTER, groups=(NodeGroup("all", 1, 2),), accounts=())
    s.submit(1.0, 1, 900.0, queue="dev", preemptible=True)
    s.submit(2.0, 1, 900.0, queue="spot", preemptible=True)
    for t in (10.0, 30.0, 50.0):
        s.submit(t, 1, 10.0, queue="prod")
    s.play(55.0)
    assert why(s, 5).code == "PreemptionBudget"
    s.play(58.0)
    assert why(s, 5).code == "PreemptionBudget"
    assert s.states()[5] == "PENDING"
    assert [stops_of(s.store.queries, job) for job in (1, 2)] == [1, 1]
    s.check()


def test_a_limit_and_a_reservation_that_keep_a_job_waiting_are_named() -> None:
    s = Stage("fifo:bypass=skip", nodes=2, gpus=2)
    kept = ReservationSpec("course", 50.0, 90.0, (0, 1), accounts=("x",))
    s.cluster = replace(
        CLUSTER,
        accounts=(AccountSpec("lab", max_gpus_per_user=1), AccountSpec("x")),
        reservations=(kept,),
    )
    for t, user, duration_s in ((1.0, "ann", 20.0), (2.0, "ann", 5.0), (3.0, "bob", 60.0)):
        s.submit(t, 1, duration_s, user=user, account="lab", queue="dev")
    s.play(10.0)
    limited = why(s, 2)
    assert limited.code == "AccountingPolicy"
    assert "user ann in account lab may hold 1 GPU and holds 1" in limited.evidence
    assert limited.would_start == "a job that counts to the limit must end"
    reserved = why(s, 3)
    assert reserved.code == "Reservation"
    assert "nodes that it could use are kept for course" in reserved.evidence
    s.play(200.0)
    assert s.record(3).first_start_s == pytest.approx(90.0, abs=1.0)

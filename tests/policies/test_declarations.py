"""What a wrapper declares is what its inner policy declares, but for what it changes on purpose."""

from __future__ import annotations

import pytest

import dovetail.policies
from builders import Row, play, trace_of
from dovetail.core.cluster import Cluster
from dovetail.core.errors import InputError
from dovetail.core.policy import Policy, heeded, parse_policy, registered, reserves
from dovetail.core.tenants import QosSpec, QueueSpec
from dovetail.live.controller.watchdog import Watchdog, WatchdogPolicy
from dovetail.live.store.submit_limits import SubmitLimits
from dovetail.study.tenant_notes import tenant_notes, unheeded
from dovetail.wire.spec import JobSpec

assert dovetail.policies

CATALOGUE = sorted(registered())
PLAIN = [name for name in CATALOGUE if name not in ("tenancy", "gimbal")]
SHARING = [name for name in PLAIN if "share" in parse_policy(name).powers]


def declared(policy: Policy) -> dict[str, object]:
    return {
        "knows": policy.knows,
        "powers": policy.powers,
        "by length": policy.order.by_length,
        "heeds": heeded(policy),
        "reserves": reserves(policy),
    }


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_tick_and_the_watchdog_declare_what_their_policy_does(name: str) -> None:
    inner = parse_policy(name)
    assert declared(parse_policy(f"ticked:inner={name}")) == declared(inner)
    with Watchdog(1.0) as watchdog:
        assert declared(WatchdogPolicy(inner, watchdog)) == declared(inner)


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("reclaim", ["true", "false"])
def test_tenants_add_priorities_and_the_power_to_reclaim_and_nothing_else(
    name: str, reclaim: str
) -> None:
    inner = declared(parse_policy(name))
    adds = {"preempt"} if reclaim == "true" else set()
    assert declared(parse_policy(f"tenancy:inner={name},reclaim={reclaim}")) == {
        **inner,
        "heeds": inner["heeds"] | {"priority", "guarantees"},  # type: ignore[operator]
        "powers": inner["powers"] | adds,  # type: ignore[operator]
    }


@pytest.mark.parametrize("name", SHARING)
def test_calibration_adds_limits_of_shares_and_what_it_must_know(name: str) -> None:
    inner = declared(parse_policy(name))
    assert declared(parse_policy(f"gimbal:inner={name}")) == {
        **inner,
        "knows": inner["knows"] | {"length", "interference", "memory"},  # type: ignore[operator]
        "powers": inner["powers"] | {"restrict"},  # type: ignore[operator]
    }


FILE = Cluster.uniform(1, 1)
RANKED = Cluster(
    FILE.groups,
    queues=(QueueSpec("prod", priority=5.0, weight=2, tier="guaranteed"), QueueSpec("dev")),
    qos=(QosSpec("high", priority=3.0),),
)
STOPPING = Cluster(FILE.groups, qos=(QosSpec("high", preempts=("low",)), QosSpec("low")))


@pytest.mark.parametrize("name", CATALOGUE)
def test_the_priority_of_a_job_is_used_or_refused(name: str) -> None:
    policy = parse_policy(name)
    spec = JobSpec("job", ("true",), "/", user="ann", priority=5.0)
    rows = [Row(1, 50), Row(1, 50, submit_s=1), Row(1, 50, submit_s=2, priority=5.0)]
    limits = SubmitLimits(FILE, policy)
    if "priority" not in heeded(policy):
        with pytest.raises(InputError, match="ignores priorities, and the job states 5"):
            limits.settled("job", spec, lambda: 0.0)
        notes = tenant_notes(trace_of(*rows).jobs, FILE, [policy])
        assert any("1 job states a priority" in note for note in notes)
        return
    assert limits.settled("job", spec, lambda: 0.0) == spec
    story = play(rows, policy, FILE)
    assert story.starts(2)[0][0] < story.starts(1)[0][0], name


@pytest.mark.parametrize("name", CATALOGUE)
def test_priorities_of_queues_are_used_or_named_as_ignored(name: str) -> None:
    policy = parse_policy(name)
    ignored = unheeded(RANKED, policy)
    wishes = (
        ("guarantees", "weight of queue 'prod'"),
        ("priority", "priority of queue 'prod'"),
        ("guarantees", "tier of queue 'prod'"),
        ("priority", "priority of qos 'high'"),
    )
    assert ignored == [words for wish, words in wishes if wish not in heeded(policy)]
    if not ignored:
        return
    notes = tenant_notes(trace_of(Row(1, 50)).jobs, RANKED, [policy])
    assert any("have no effect with" in note for note in notes)


@pytest.mark.parametrize(
    "name", [*CATALOGUE, "slurm:preempt_mode=requeue", "tenancy:inner=slurm:preempt_mode=requeue"]
)
def test_preemption_by_qos_is_used_or_named_as_ignored(name: str) -> None:
    policy = parse_policy(name)
    notes = tenant_notes(trace_of(Row(1, 50)).jobs, STOPPING, [policy])
    said = any("preempts of QOS is for slurm:preempt_mode=requeue" in note for note in notes)
    assert (unheeded(STOPPING, policy) == ["preempts of qos 'high'"]) == said
    assert said == (name != "slurm:preempt_mode=requeue")
    rows = [Row(1, 50, qos="low"), Row(1, 20, submit_s=10, qos="high")]
    if not said:
        stops = play(rows, policy, STOPPING).stops(0)
        assert stops and stops[0][0] < 50

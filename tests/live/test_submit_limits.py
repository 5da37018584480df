"""What users may name of a cluster's tenants at submission; what has no effect is refused."""

from typing import Any

import pytest

from dovetail.core.cluster import Cluster, NodeGroup
from dovetail.core.errors import InputError
from dovetail.core.policy import parse_policy
from dovetail.core.tenants import AccountSpec, QosSpec, QueueSpec, ReservationSpec
from dovetail.live.store.submit_limits import SubmitLimits
from dovetail.wire.spec import JobSpec

CLUSTER = Cluster(
    (NodeGroup("big", 2, 4, gpu_type="a100"), NodeGroup("small", 1, 2, gpu_type="t4")),
    queues=(
        QueueSpec("top", quota_gpus=6),
        QueueSpec("vision", parent="top", groups=("small",)),
        QueueSpec("typed", limits=(("a100", 2),)),
        QueueSpec("owned", accounts=("x",)),
    ),
    accounts=(
        AccountSpec("lab", users=(("ann", 1), ("bob", 1)), max_gpus_per_user=4),
        AccountSpec("x", users=(("bob", 1),)),
    ),
    qos=(QosSpec("short", max_time_s=3600.0),),
    reservations=(
        ReservationSpec("course", 0, 100, (0,), accounts=("x",)),
        ReservationSpec("maintenance1", 0, 100, (0,)),
    ),
)


def settled(
    policy: str = "fifo", cluster: Cluster = CLUSTER, now_s: float = 1.0, **f: Any
) -> JobSpec:
    spec = JobSpec("job", ("true",), "/", **{"user": "ann", **f})
    return SubmitLimits(cluster, parse_policy(policy)).settled("job", spec, lambda: now_s)


def gang(gpus: int) -> dict[str, int]:
    return {"gpus": gpus, "min_gpus": gpus, "max_gpus": gpus}


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"queue": "visoin"}, r"unknown queue 'visoin' \(did you mean 'vision'\?\)"),
        ({"account": "lib"}, r"unknown account 'lib'"),
        ({"qos": "long"}, r"unknown qos 'long'"),
        ({"reservation": "maintenance1"}, r"unknown reservation 'maintenance1'"),
        ({"account": "x"}, r"user 'ann' may not use account 'x' \(name one of: lab\)"),
        ({"user": "bob"}, r"it names no account \(name one of: lab, x\)"),
        ({"user": "eve"}, r"user 'eve' may use no account here \(ask an administrator\)"),
        ({"reservation": "course"}, r"'course' is not for account 'lab' or user 'ann'"),
        (
            {"user": "bob", "account": "x", "reservation": "course", "now_s": 200.0},
            r"reservation 'course' is over",
        ),
        ({"qos": "short", "time_limit_s": 7200.0}, r"qos 'short' allows 1 h"),
        ({"queue": "vision", "user": "bob", "account": "lab", **gang(7)}, r"queue top may hold 6"),
        (
            {"queue": "vision", "user": "bob", "account": "x"},
            r"jobs of user 'bob' and account 'x' belong to queue 'owned' \(leave --queue out\)",
        ),
        ({"queue": "vision", **gang(3)}, r"3 GPUs are more than queue 'vision' may have"),
        ({"queue": "typed", **gang(5)}, r"user ann in account lab may hold 4 GPUs"),
        ({"queue": "typed", **gang(4)}, r"4 GPUs are more than queue 'typed' may have"),
        (
            {"priority": 5.0},
            r"policy fifo ignores priorities, and the job states 5 "
            r"\(leave it out, or start with --policy tenancy:inner=fifo\)",
        ),
    ],
)
def test_what_one_may_not_name_is_refused_with_a_sentence(
    fields: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(InputError, match=complaint):
        settled(**fields)


@pytest.mark.parametrize("label", ["queue", "account", "qos", "reservation"])
def test_a_cluster_without_tenants_refuses_all_of_them(label: str) -> None:
    with pytest.raises(InputError, match=f"unknown {label} 'a' .*start the cluster with --cluster"):
        settled(cluster=Cluster.uniform(1, 4), **{label: "a"})


def test_what_is_not_named_is_implied() -> None:
    spec = settled(queue="vision", qos="short")
    assert (spec.account, spec.time_limit_s) == ("lab", 3600.0)
    assert settled(qos="short", time_limit_s=60.0).time_limit_s == 60.0
    plain = settled(cluster=Cluster.uniform(1, 4))
    assert plain == JobSpec("job", ("true",), "/", user="ann")


def test_a_job_of_an_account_with_a_queue_gets_that_queue() -> None:
    assert settled(user="bob", account="x").queue == "owned"
    assert settled(user="bob", account="x", queue="owned").queue == "owned"
    assert settled(user="bob", account="lab").queue == ""


def test_policies_that_heed_priorities_take_them() -> None:
    for policy in ("tenancy", "ticked:inner=tenancy", "antman:classes=priority"):
        assert settled(policy, priority=3.0).priority == 3.0
    for policy in ("srtf", "ticked", "antman"):
        with pytest.raises(InputError, match="ignores priorities"):
            settled(policy, priority=3.0)

"""A Slurm site as a cluster file and a policy: what is read, and what is said to be left out."""

import re
import tomllib
from dataclasses import fields
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from click.testing import CliRunner

from dovetail.cli.cluster import cluster
from dovetail.core.errors import InputError
from dovetail.core.policy import parse_policy
from dovetail.core.units import DAY_S
from dovetail.policies.slurm import Slurm
from dovetail.traces.cluster_file import read_cluster
from dovetail.traces.slurm_conf import hosts, read_slurm_conf
from dovetail.traces.slurm_reservations import read_reservations
from dovetail.traces.slurm_site import NUMBERS, SCHEDULER, WEIGHTS, read_sacctmgr, site_of

CONF = r"""
# A site.
ClusterName=test
SchedulerParameters=bf_interval=60,bf_window=4320,bf_continue,preempt_youngest_first
PriorityType=priority/multifactor
PriorityWeightAge=1000   # a week
priorityweightfairshare=5000
PriorityMaxAge=14-0
PriorityFlags=SMALL_RELATIVE_TO_TIME,MAX_TRES
PreemptType=preempt/qos
PreemptMode=REQUEUE
NodeName=DEFAULT CPUs=64 RealMemory=524288 Gres=gpu:a100:4(S:0-1)
NodeName=a[01-03]
NodeName=a04,v1 \
  Gres=gpu:v100:2
NodeName=login Gres= CPUs=8
PartitionName=DEFAULT MaxTime=7-0 TRESBillingWeights="GRES/gpu=2.0,CPU=0.25"
PartitionName=gpu Nodes=ALL Default=YES
PartitionName=big Nodes=a[01-03] PriorityJobFactor=10
"""
ASSOCIATIONS = """Account|User|Par Name|Share|GrpTRES
root|||1|
root|root||1|
uni||root|10|cpu=100,gres/gpu=12
lab||uni|3|
lab|ann||2|
lab|bob||parent|
"""
QOS = """Name|Priority|Preempt|UsageFactor|GrpTRES|MaxTRESPU|MaxJobsPU|MaxWall
high|100|low|1.000000|||3|1-00:00:00
low|0||0.500000|gres/gpu=8|gres/gpu=4||
"""


def _site():  # type: ignore[no-untyped-def]
    associations = read_sacctmgr("a.txt", ASSOCIATIONS, ("Account", "User", "Share"))
    qos = read_sacctmgr("q.txt", QOS, ("Name",))
    return site_of(read_slurm_conf("slurm.conf", CONF), associations, qos)


def test_host_lists_are_expanded_with_their_zeros() -> None:
    assert hosts("n[1-3,07],login,r[8-10]x") == [
        *("n1", "n2", "n3", "n07", "login"),
        *("r8x", "r9x", "r10x"),
    ]


def test_the_settings_become_the_policy() -> None:
    policy = parse_policy(_site().policy)
    assert policy == Slurm(
        priority_weight_age=1000,
        priority_weight_fairshare=5000,
        priority_max_age="14-0",
        small_relative_to_time=True,
        billing_gpu=2.0,
        billing_cpu=0.25,
        default_time="7-0",
        bf_interval=60,
        bf_window=4320,
        preempt_youngest_first=True,
        preempt_mode="requeue",
    )


def test_every_setting_that_is_read_is_a_parameter() -> None:
    known = {field.name for field in fields(Slurm)}
    assert {*WEIGHTS.values(), *NUMBERS.values(), *SCHEDULER} <= known


def test_what_the_policy_does_not_have_is_listed() -> None:
    left_out = _site().left_out
    assert "SchedulerParameters=bf_continue" in left_out
    assert "PriorityFlags=MAX_TRES" in left_out
    assert "1 nodes without GPUs" in left_out
    uneven = CONF.replace("PriorityJobFactor=10", "MaxTime=1-0 PriorityTier=2")
    left_out = site_of(read_slurm_conf("f", uneven), [], []).left_out
    assert "partition gpu: maxtime=7-0" in left_out
    assert "partition big: maxtime=1-0" in left_out
    mode = CONF.replace("PreemptMode=REQUEUE", "PreemptMode=CANCEL\nCompleteWait=8")
    rows = [{"Name": "spot", "Priority": "0", "GraceTime": "00:01:00", "PreemptMode": "cancel"}]
    site = site_of(read_slurm_conf("f", mode), [], rows)
    assert "preempt_mode=requeue" in site.policy
    assert "grace_s = 60" in site.cluster
    assert {
        "PreemptMode=CANCEL: stopped jobs wait again",
        "qos spot: PreemptMode=cancel",
        "CompleteWait=8",
    } <= set(site.left_out)


def test_an_epilog_and_tiers_of_partitions_are_read() -> None:
    conf = CONF.replace("PriorityJobFactor=10", "PriorityTier=2") + "Epilog=/etc/slurm/epilog.sh\n"
    site = site_of(read_slurm_conf("f", conf), [], [])
    assert "epilog=true" in site.policy
    queues = tomllib.loads(site.cluster)["queue"]
    assert [queue.get("priority_tier") for queue in queues] == [None, 2]


RESERVATIONS = """ReservationName=course StartTime=2026-01-12T08:00:00 EndTime=2026-01-12T12:00:00 \
Duration=04:00:00
   Nodes=a[02-03],login NodeCnt=3 CoreCnt=128 Features=(null) PartitionName=(null) Flags=DAILY
   TRES=cpu=128
   Users=ann,bob Groups=(null) Accounts=lab Licenses=(null) State=INACTIVE BurstBuffer=(null)

ReservationName=repair StartTime=2026-07-12T08:00:00 EndTime=2026-07-13T08:00:00 Duration=1-00:00:00
   Nodes=v1 NodeCnt=1 CoreCnt=64 Features=(null) PartitionName=(null) Flags=MAINT,SPEC_NODES
   Users=root Groups=(null) Accounts=(null) Licenses=(null) State=INACTIVE BurstBuffer=(null)
"""


def test_reservations_of_scontrol_are_tables_of_the_cluster_file(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text(CONF)
    (tmp_path / "res.txt").write_text(RESERVATIONS)
    out = tmp_path / "site.toml"
    arguments = [str(tmp_path / "slurm.conf"), "--reservations", str(tmp_path / "res.txt")]
    clock = ["--timezone", "Europe/Berlin", "--epoch", "2026-01-05"]
    done = CliRunner().invoke(cluster, [*arguments, *clock, "-o", str(out)])
    assert done.exit_code == 0, done.output
    assert "reservation course: Flags=DAILY" in done.output
    course, repair = read_cluster(str(out)).reservations
    assert (course.nodes, course.users, course.accounts) == ((1, 2), ("ann", "bob"), ("lab",))
    assert (course.start_s, course.end_s) == (7 * DAY_S + 8 * 3600, 7 * DAY_S + 12 * 3600)
    # Maintenance is nobody's, and its clock is that of summer.
    assert (repair.nodes, repair.users, repair.accounts) == ((4,), (), ())
    assert repair.start_s == 188 * DAY_S + 7 * 3600


def test_reservations_without_a_clock_say_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text(CONF)
    (tmp_path / "res.txt").write_text(RESERVATIONS)
    arguments = [str(tmp_path / "slurm.conf"), "--reservations", str(tmp_path / "res.txt")]
    done = CliRunner().invoke(cluster, [*arguments, "-o", str(tmp_path / "site.toml")])
    assert "needs --epoch" in done.output and "read as UTC" in done.output
    for wrong, what in ((["--epoch", "soon"], "no date"), (["--timezone", "Berlin"], "unknown")):
        done = CliRunner().invoke(cluster, [*arguments, *wrong, "-o", "x.toml"])
        assert isinstance(done.exception, InputError) and what in str(done.exception)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("Job 1", "no ReservationName"),
        ("ReservationName=a StartTime=2026-01-12T08:00:00 Nodes=n1", "no EndTime"),
        ("ReservationName=a StartTime=now EndTime=now Nodes=n1", "'now' is no time"),
        ("ReservationName=a StartTime=now EndTime=now Nodes=n[x]", "is no list of nodes"),
    ],
)
def test_an_output_that_is_none_of_reservations_is_refused(text: str, what: str) -> None:
    with pytest.raises(InputError, match=re.escape(what)):
        read_reservations("res.txt", text, ZoneInfo("UTC"))


def test_a_cluster_without_reservations_has_none() -> None:
    assert read_reservations("r", "No reservations in the system\n", ZoneInfo("UTC")) == []


def test_nodes_of_a_kind_and_of_the_same_partitions_are_a_group() -> None:
    table = tomllib.loads(_site().cluster)
    assert [(g["name"], g["nodes"], g["gpus_per_node"]) for g in table["group"]] == [
        ("a100-1", 3, 4),
        ("v100-2", 2, 2),
    ]
    assert table["group"][0]["memory_gb"] == 512 and table["group"][0]["cpus"] == 64
    assert table["queue"] == [
        {"name": "gpu", "priority": 1},
        {"name": "big", "priority": 10, "groups": ["a100-1"]},
    ]


def test_associations_become_a_tree_of_accounts_with_shares_and_limits() -> None:
    accounts = tomllib.loads(_site().cluster)["account"]
    assert accounts == [
        {"name": "root", "shares": 1, "users": {"root": 1}},
        {"name": "uni", "parent": "root", "shares": 10, "max_gpus": 12},
        {"name": "lab", "parent": "uni", "shares": 3, "users": {"ann": 2, "bob": 1}},
    ]


def test_qos_keep_priority_preemption_and_limits() -> None:
    assert tomllib.loads(_site().cluster)["qos"] == [
        {
            "name": "high",
            "priority": 100,
            "preempts": ["low"],
            "max_jobs_per_user": 3,
            "max_hours": 24,
        },
        {"name": "low", "usage_factor": 0.5, "max_gpus": 8, "max_gpus_per_user": 4},
    ]


def test_without_weights_slurm_bills_cpus_and_without_backfill_it_is_fifo() -> None:
    nodes = "NodeName=n Gres=gpu:1\nPartitionName=p Nodes=n\n"
    multifactor = read_slurm_conf("f", "PriorityType=priority/multifactor\n" + nodes)
    assert site_of(multifactor, [], []).policy == "slurm:billing_gpu=0,billing_cpu=1"
    assert site_of(read_slurm_conf("f", nodes), [], []).policy == "slurm"
    builtin = read_slurm_conf("f", "SchedulerType=sched/builtin\n" + nodes)
    assert site_of(builtin, [], []).policy == "fifo"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("NodeName=n CPUs=4\n", "f: no node has GPUs"),
        ("Include other.conf\n", "f, line 1: it includes another file"),
        ("NodeName=n[1-x] Gres=gpu:1\n", "line 1: 'n\\[1-x\\]' is no list of nodes"),
        ("NodeName=n Gres=gpu:1 CPUs=many\n", "line 1: 'cpus' must be a number, not 'many'"),
        ("NodeName=n Gres=gpu:a:1,gpu:b:1\n", "line 1: its nodes have several types of GPUs: a, b"),
        ("NodeName=n Gres=gpu:1\nPartitionName=p Nodes=m\n", "line 2: node 'm' has no NodeName"),
    ],
)
def test_what_cannot_be_read_is_named_by_line(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_slurm_conf("f", text)


def test_an_output_of_sacctmgr_without_its_columns_is_refused() -> None:
    with pytest.raises(InputError, match=r"a\.txt: it has no column 'Share'"):
        read_sacctmgr("a.txt", "Account|User\n", ("Account", "Share"))
    with pytest.raises(InputError, match=r"a\.txt, line 2: 1 columns, and the header has 2"):
        read_sacctmgr("a.txt", "Account|Share\nx\n", ("Account", "Share"))


def test_the_command_writes_the_file_and_prints_the_policy(tmp_path: Path) -> None:
    conf, out = tmp_path / "slurm.conf", tmp_path / "site.toml"
    conf.write_text(CONF)
    result = CliRunner().invoke(cluster, [str(conf), "-o", str(out)])
    assert result.exit_code == 0, result.output
    assert "(16 GPUs, 2 partitions)" in result.output
    assert "policy: slurm:priority_weight_age=1000" in result.output
    assert "no associations: every user has one share" in result.output
    assert [g["nodes"] for g in tomllib.loads(out.read_text())["group"]] == [3, 2]


LARGE = """SelectType=select/linear
NodeName=a[1-2] Gres=gpu:a100:4
NodeName=r[1-8] Gres=gpu:3090:8
NodeName=t1 Gres=gpu:2080ti:8(S:0,1)
NodeName=f[1-50] Gres=gpu:h100:8 State=FUTURE
PartitionName=a Nodes=a[1-2],f[1-50] AllowAccounts=lab QOS=part MaxNodes=2 OverSubscribe=EXCLUSIVE
PartitionName=r Nodes=r[1-8] State=DOWN Hidden=YES
"""
LIMITED = """Account|User|ParentName|Share|GrpTRES|MaxJobs
root|||1||
lab||root|1|cpu=64,gres/gpu:a100=8|
idle||root|1|gres/gpu=0|
lab|ann||1|gres/gpu=2|3
lab|bob||1||3
"""
LIMITS = """Name|Priority|GrpTRES|GrpJobs|MaxTRESPU
part|0|gres/gpu=6,gres/gpu:a100=4||
high|1||5|gres/gpu:a100=2
"""


def _large(conf: str = LARGE):  # type: ignore[no-untyped-def]
    associations = read_sacctmgr("a.txt", LIMITED, ("Account", "User", "Share"))
    qos = read_sacctmgr("q.txt", LIMITS, ("Name",))
    return site_of(read_slurm_conf("slurm.conf", conf), associations, qos)


def test_types_may_begin_with_digits_and_nodes_of_the_future_are_none() -> None:
    groups = tomllib.loads(_large().cluster)["group"]
    assert [(g["nodes"], g["gpus_per_node"], g["gpu_type"]) for g in groups] == [
        (2, 4, "a100"),
        (8, 8, "3090"),
        (1, 8, "2080ti"),
    ]
    assert "50 nodes that do not exist yet (State=FUTURE)" in _large().left_out


def test_the_qos_of_a_partition_limits_its_queue() -> None:
    table = tomllib.loads(_large().cluster)
    assert table["queue"][0]["limits"] == {"any": 6, "a100": 4}
    assert all("max_gpus" not in account for account in table["account"])


def test_every_limit_that_the_file_cannot_say_is_listed() -> None:
    assert set(_large().left_out) >= {
        "SelectType=select/linear: jobs get their GPUs, not whole nodes",
        "partition a: allowaccounts=lab",
        "partition a: maxnodes=2",
        "partition a: oversubscribe=EXCLUSIVE",
        "partition r: state=DOWN",
        "account lab: GrpTRES=cpu=64",
        "account lab: GrpTRES=gres/gpu:a100=8",
        "account idle: GrpTRES=gres/gpu=0 (its jobs may have no GPU)",
        "GrpTRES=gres/gpu=2 of lab/ann",
        "MaxJobs=3 of lab/ann, lab/bob",
        "qos high: GrpJobs=5",
        "qos high: MaxTRESPU=gres/gpu:a100=2",
    }


def test_a_limit_of_the_only_type_is_a_limit_of_any() -> None:
    conf = "NodeName=a[1-2] Gres=gpu:a100:4\nPartitionName=a Nodes=ALL\n"
    accounts = tomllib.loads(_large(conf).cluster)["account"]
    assert {a["name"]: a.get("max_gpus") for a in accounts} == {
        "root": None,
        "lab": 8,
        "idle": None,
    }

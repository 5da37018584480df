"""Queues, accounts, QOS and reservations of a cluster's file, and one sentence for each mistake."""

from pathlib import Path

import pytest

from dovetail.core.cluster import Cluster
from dovetail.core.errors import InputError
from dovetail.core.tenants import AccountSpec, QosSpec, QueueSpec, ReservationSpec, UserLimits
from dovetail.replaying.decisions import options_of
from dovetail.study.options import Options
from dovetail.traces.cluster_file import read_cluster, with_tenants

GROUPS = """
[[group]]
name = "big"
nodes = 4
gpus_per_node = 4
gpu_type = "a100"

[[group]]
name = "small"
nodes = 2
gpus_per_node = 4
gpu_type = "v100"
"""
WHOLE = (
    'epoch = "2026-01-05T00:00:00+01:00"\n'
    + GROUPS
    + """
[[queue]]
name = "science"
weight = 2
guaranteed = { a100 = 8 }
limits = { a100 = 12, any = 14 }

[[queue]]
name = "vision"
parent = "science"
guaranteed = { a100 = 4 }
groups = ["big"]
priority = 3
tier = "guaranteed"

[[queue]]
name = "spot"
tier = "spot"
quota_gpus = 6
accounts = ["students"]
users = ["eve"]

[[account]]
name = "lab"
shares = 3

[[account]]
name = "students"
parent = "lab"
users = { ann = 2, bob = 1 }
max_gpus = 8
max_gpus_per_user = 4

[[qos]]
name = "low"

[[qos]]
name = "high"
priority = 100
preempts = ["low"]
max_jobs_per_user = 2
max_hours = 24

[[user]]
name = "any"
max_gpus = 6
max_jobs = 3

[[reservation]]
name = "course"
start = 3600
duration = 7200
nodes = [0, 1]
accounts = ["students"]

[[maintenance]]
start = "2026-01-06T00:00:00+01:00"
end = 2026-01-06T06:00:00+01:00
groups = ["small"]
"""
)


def read(tmp_path: Path, text: str) -> Cluster:
    path = tmp_path / "c.toml"
    path.write_text(text)
    return read_cluster(str(path))


def test_a_file_states_all_who_share_the_cluster(tmp_path: Path) -> None:
    cluster = read(tmp_path, WHOLE)
    assert cluster.queues == (
        QueueSpec("science", weight=2, guaranteed=(("a100", 8),), limits=(("a100", 12), ("", 14))),
        QueueSpec(
            "vision",
            priority=3,
            parent="science",
            groups=("big",),
            guaranteed=(("a100", 4),),
            tier="guaranteed",
        ),
        QueueSpec("spot", quota_gpus=6, tier="spot", accounts=("students",), users=("eve",)),
    )
    assert cluster.accounts == (
        AccountSpec("lab", shares=3),
        AccountSpec("students", "lab", 1, (("ann", 2), ("bob", 1)), 8, 4),
    )
    assert cluster.qos == (
        QosSpec("low"),
        QosSpec("high", 100, ("low",), max_jobs_per_user=2, max_time_s=86400),
    )
    assert cluster.users == (UserLimits("any", 6, 3),)
    assert cluster.reservations == (
        ReservationSpec("course", 3600, 10800, (0, 1), ("students",)),
        ReservationSpec("maintenance1", 86400, 108000, (4, 5)),
    )


def test_the_manifest_carries_them_and_a_replay_reads_them_back(tmp_path: Path) -> None:
    options = Options(read(tmp_path, WHOLE))
    assert options_of(options.manifest()).cluster == options.cluster


def test_a_cluster_without_tenants_has_the_manifest_it_always_had() -> None:
    cluster = Options(Cluster.parse("2x4")).manifest()["cluster"]
    assert list(cluster) == ["nodes", "gpus", "groups", "links", "queues", "states"]  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('[[queue]]\nname = "a"\nparent = "b"', "queue 'a': unknown parent 'b'"),
        (
            '[[queue]]\nname = "a"\nparent = "b"\n[[queue]]\nname = "b"\nparent = "a"',
            "queue 'a': its parents form a cycle: a -> b -> a",
        ),
        ('[[queue]]\nname = "a"\nparent = "a"', "cycle: a -> a"),
        ('[[queue]]\nname = "a"\n[[queue]]\nname = "a"', "two have this name"),
        ('[[queue]]\nname = "a"\nguaranteed = { h100 = 1 }', "unknown GPU type 'h100'"),
        ('[[queue]]\nname = "a"\nguaranteed = { a100 = 17 }', "guaranteed 17 a100 GPUs, and may"),
        (
            '[[queue]]\nname = "a"\nguaranteed = { a100 = 9 }\nlimits = { a100 = 8 }',
            "at most 8",
        ),
        (
            '[[queue]]\nname = "top"\nlimits = { a100 = 4 }\n'
            '[[queue]]\nname = "a"\nparent = "top"\nguaranteed = { a100 = 5 }',
            "the queues below it are guaranteed 5 a100 GPUs, its limit is 4",
        ),
        (
            '[[queue]]\nname = "top"\nquota_gpus = 4\n'
            '[[queue]]\nname = "a"\nparent = "top"\nguaranteed = { a100 = 5 }',
            "the queues below it are guaranteed 5 GPUs, its limit is 4",
        ),
        (
            '[[queue]]\nname = "a"\nguaranteed = { a100 = 9 }\n'
            '[[queue]]\nname = "b"\nguaranteed = { a100 = 8 }',
            "the queues are guaranteed 17 a100 GPUs, the cluster has 16",
        ),
        (
            '[[queue]]\nname = "a"\nguaranteed = 20\n[[queue]]\nname = "b"\nguaranteed = 5',
            "guaranteed 25 GPUs, the cluster has 24",
        ),
        (
            '[[queue]]\nname = "a"\nguaranteed = 4\n'
            '[[queue]]\nname = "b"\nparent = "a"\nguaranteed = 5',
            "its queues are guaranteed 5 GPUs, it has 4 itself",
        ),
        ('[[queue]]\nname = "a"\nquota_gpus = 25', "it may hold 25 GPUs, and its nodes have 24"),
        (
            '[[queue]]\nname = "a"\ngroups = ["small"]\nlimits = { v100 = 9 }',
            "it may hold 9 v100 GPUs, and its nodes have 8",
        ),
        ('[[queue]]\nname = " "', "field 'name' is empty"),
        ("[[account]]\nweight = 2", "account 1: unknown field 'weight'"),
        ('[[queue]]\nname = "a"\ngroups = ["bigg"]', "unknown group 'bigg' (did you mean 'big'?)"),
        ('[[queue]]\nname = "a"\ntier = "gold"', "unknown tier 'gold'"),
        ('[[queue]]\nname = "a"\nweight = 0', "'weight' must be above 0"),
        ('[[queue]]\nname = "a"\nlimits = { a100 = -1 }', "'limits.a100' must be a whole number"),
        ("[[queue]]\nweight = 1", "queue 1: field 'name' is missing"),
        ('[[queue]]\nname = "a"\nwieght = 1', "unknown field 'wieght'"),
        ('[[account]]\nname = "a"\nusers = []', "names nobody"),
        ('[[account]]\nname = "a"\nusers = { ann = 0 }', "shares of a user must be 1 or more"),
        ('[[account]]\nname = "a"\nparent = "x"', "account 'a': unknown parent 'x'"),
        ('[[qos]]\nname = "a"\npreempts = ["x"]', "unknown qos 'x'"),
        ("[[maintenance]]\nstart = 5", "either 'end' or 'duration'"),
        ("[[maintenance]]\nstart = 5\nend = 5\nnodes = [0]", "it ends before it begins"),
        ("[[maintenance]]\nstart = 5\nend = 6", "it names no node"),
        ("[[maintenance]]\nstart = 5\nend = 6\nnodes = [6]", "node 6 does not exist (0..5)"),
        (
            '[[maintenance]]\nstart = "2026-01-06T00:00:00Z"\nend = 9\nnodes = [1]',
            "'start' is a date, and the file has no epoch",
        ),
        (
            '[[maintenance]]\nstart = "2026-01-06T00:00:00"\nend = 9\nnodes = [1]',
            "must be a date with its time zone",
        ),
        (
            '[[reservation]]\nname = "r"\nstart = 5\nend = 6\nnodes = [1]\naccounts = ["x"]',
            "reservation 'r': unknown account 'x'",
        ),
        ('[[quue]]\nname = "a"', "unknown table 'quue' (did you mean 'queue'?)"),
        ("queue = 3", "'queue' must be a list of tables"),
    ],
)
def test_each_mistake_has_a_sentence(tmp_path: Path, text: str, complaint: str) -> None:
    whole = text + GROUPS if text.startswith("queue =") else GROUPS + text
    with pytest.raises(InputError) as error:
        read(tmp_path, whole)
    assert complaint in str(error.value)
    assert "c.toml" in str(error.value)


def test_a_live_cluster_takes_tenants_for_the_nodes_it_has(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(
        '[[queue]]\nname = "a"\nguaranteed = 4\n'
        '[[maintenance]]\nstart = "1970-01-01T01:00:00+00:00"\nduration = 60\nnodes = [1]'
    )
    cluster = with_tenants(Cluster.uniform(2, 4), str(path), lambda unix_s: unix_s - 600)
    assert cluster.queues == (QueueSpec("a", guaranteed=(("", 4),)),)
    assert cluster.reservations == (ReservationSpec("maintenance1", 3000, 3060, (1,)),)


def test_a_live_cluster_refuses_other_nodes_and_times_without_a_date(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(GROUPS)
    with pytest.raises(InputError, match=r"are not the nodes of this cluster \(the engine has 2x4"):
        with_tenants(Cluster.uniform(2, 4), str(path), lambda unix_s: unix_s)
    path.write_text("[[maintenance]]\nstart = 5\nend = 6\nnodes = [0]")
    with pytest.raises(InputError, match="'start' must be a date in a live cluster"):
        with_tenants(Cluster.uniform(2, 4), str(path), lambda unix_s: unix_s)


WRONG = (
    *("-1", "nan", "[]", "[[1]]", "{ zz = 1 }", "{ any = -1 }", '["zz"]', "true", "1979-05-27"),
    *('"text"', '""', "1.5", "10000000000000000000"),
)
FIELDS = {
    "group": "nodes gpus_per_node gpu_type gpu_memory_gb cpus memory_gb price_per_gpu_h colour",
    "link": "name gbit_per_s latency_us nodes colour",
    "queue": "name parent groups weight priority tier guaranteed limits quota_gpus colour",
    "account": "name parent shares users max_gpus max_gpus_per_user colour",
    "qos": "name priority preempts usage_factor max_gpus max_jobs_per_user max_hours colour",
    "user": "name max_gpus max_jobs colour",
    "reservation": "name start end duration nodes groups accounts users colour",
    "maintenance": "name start end duration nodes groups colour",
}
NEEDED = {
    "group": {"nodes": "2", "gpus_per_node": "4"},
    "link": {"gbit_per_s": "100"},
    "reservation": {"name": '"n"', "start": "0", "duration": "10", "nodes": "[0]"},
    "maintenance": {"start": "0", "duration": "10", "nodes": "[0]"},
}


@pytest.mark.parametrize("kind", FIELDS)
def test_every_field_with_a_wrong_value_is_one_error_that_names_it(
    kind: str, tmp_path: Path
) -> None:
    file = tmp_path / "site.toml"
    for field in FIELDS[kind].split():
        said = []
        for value in WRONG:
            fields = {**NEEDED.get(kind, {"name": '"n"'}), field: value}
            if field == "end":
                del fields["duration"]
            rows = "\n".join(f"{name} = {text}" for name, text in fields.items())
            file.write_text(f"{GROUPS}\n[[{kind}]]\n{rows}\n")
            try:
                read_cluster(str(file))
            except InputError as error:
                said.append(str(error))
        assert all(text.startswith(str(file)) and kind in text for text in said), (field, said)
        assert len(said) >= (len(WRONG) if field == "colour" else 3), field

"""Turns slurm.conf and the output of sacctmgr into a cluster file and a policy.

What neither of them can say is listed, so that nobody takes the replay for more than it is.

Source: slurm.conf(5), sacctmgr(1) of Slurm 22.05.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from dovetail.core.errors import InputError
from dovetail.traces.slurm_conf import ConfNode, SlurmConf
from dovetail.traces.slurm_limits import (
    GpuLimits,
    ignored_of_associations,
    ignored_of_partition,
    ignored_of_qos,
    limits_of_partition,
    preemption_of_qos,
)
from dovetail.traces.slurm_reservations import SlurmReservation, reservation_tables

MB_PER_GB = 1024
WEIGHTS = {
    "priorityweightage": "priority_weight_age",
    "priorityweightfairshare": "priority_weight_fairshare",
    "priorityweightjobsize": "priority_weight_job_size",
    "priorityweightpartition": "priority_weight_partition",
    "priorityweightqos": "priority_weight_qos",
    "prioritymaxage": "priority_max_age",
    "prioritydecayhalflife": "priority_decay_half_life",
    "prioritycalcperiod": "priority_calc_period",
}
"""The settings that are parameters of the policy, with multifactor priority."""
NUMBERS = {"killwait": "kill_wait", "overtimelimit": "over_time_limit"}
SCHEDULER = (
    *("sched_interval", "batch_sched_delay", "default_queue_depth", "partition_job_depth"),
    *("sched_max_job_start", "assoc_limit_stop", "bf_interval", "bf_window", "bf_resolution"),
    *("bf_max_job_test", "bf_max_job_part", "bf_max_job_user", "bf_max_job_user_part"),
    *("bf_max_job_assoc", "bf_max_job_start", "bf_min_age_reserve", "bf_min_prio_reserve"),
    *("bf_job_part_count_reserve", "bf_node_space_size", "bf_window_linear"),
    *("preempt_youngest_first", "preempt_strict_order", "preempt_reorder_count"),
)
"""The keys of SchedulerParameters that are parameters of the policy."""
UNLIMITED = ("INFINITE", "UNLIMITED", "NONE")
PARENT = ("ParentName", "Par Name")
"""The column of an account's parent: as it is asked for, and as sacctmgr prints it."""
Row = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class SlurmSite:
    """The text of the cluster's file, the policy, and what they leave out."""

    cluster: str
    policy: str
    left_out: tuple[str, ...]


def site_of(
    conf: SlurmConf,
    associations: Sequence[Row],
    qos: Sequence[Row],
    reservations: Sequence[SlurmReservation] = (),
    epoch: str = "",
) -> SlurmSite:
    """Returns the site of a slurm.conf with its tenants.

    `epoch` is the time of second 0 of the trace, which the times of reservations need.
    """
    left_out: list[str] = []
    policy = _policy(conf, left_out)
    if associations and not any(column in associations[0] for column in PARENT):
        left_out.append("accounts above accounts: the associations have no column ParentName")
    left_out += [
        *preemption_of_qos(qos),
        *ignored_of_associations(associations),
        *ignored_of_qos(qos),
    ]
    types = {node.gpu_type for node in conf.nodes if node.gpus}
    lines = [f'epoch = "{epoch}"', ""] if epoch else []
    lines += [
        *_groups(conf, qos, left_out),
        *_accounts(associations, types, left_out),
        *_qos(qos, types, left_out),
    ]
    names = [node.name for node in conf.nodes if node.gpus]
    known = {row["Account"] for row in associations}
    for account in dict.fromkeys(name for each in reservations for name in each.accounts):
        if account not in known:
            lines += ["[[account]]", *_fields(name=account)]
    for kind, fields in reservation_tables(reservations, names, left_out):
        lines += [f"[[{kind}]]", *_fields(**fields)]
    return SlurmSite("\n".join(lines).strip() + "\n", policy, tuple(left_out))


def read_sacctmgr(file: str, text: str, needs: Sequence[str]) -> list[Row]:
    """Returns the rows of an output of `sacctmgr -P show ...`. Raises InputError."""
    lines = [line for line in text.splitlines() if line.strip()]
    header = lines[0].split("|") if lines else []
    missing = [name for name in needs if name not in header]
    if missing:
        mend = "it is the output of sacctmgr -P show assoc (or qos), with its header"
        raise InputError(file, f"it has no column '{missing[0]}'", mend)
    rows: list[Row] = []
    for number, line in enumerate(lines[1:], 2):
        values = [value.strip() for value in line.split("|")]
        if len(values) != len(header):
            where = f"{file}, line {number}"
            raise InputError(where, f"{len(values)} columns, and the header has {len(header)}")
        rows.append(dict(zip(header, values, strict=True)))
    return rows


def _policy(conf: SlurmConf, left_out: list[str]) -> str:
    """Returns the policy that the settings describe; adds what it leaves out."""
    if conf.settings.get("schedulertype", "sched/backfill") == "sched/builtin":
        left_out.append(
            "SchedulerType=sched/builtin: the policy is fifo, over all partitions at once"
        )
        return "fifo"
    given: dict[str, str] = {}
    multifactor = conf.settings.get("prioritytype", "").endswith("multifactor")
    for key, name in {**(WEIGHTS if multifactor else {}), **NUMBERS}.items():
        if key in conf.settings:
            given[name] = conf.settings[key]
    if multifactor:
        _read_flags(conf, given, left_out)
    for item in conf.items_of("SchedulerParameters"):
        name, equals, value = item.partition("=")
        if name in SCHEDULER:
            given[name] = value if equals else "true"
        else:
            left_out.append(f"SchedulerParameters={item}")
    if conf.settings.get("epilog", "none").lower() not in ("", "none"):
        given["epilog"] = "true"
    if conf.settings.get("completewait", "0") != "0":
        left_out.append(f"CompleteWait={conf.settings['completewait']}")
    if time := _default_time(conf):
        given["default_time"] = time
    given |= _preemption(conf, left_out)
    return "slurm" + (":" + ",".join(f"{k}={v}" for k, v in given.items()) if given else "")


_NO_TIME = ("-1", "0", "00:00:00", "INFINITE", "UNLIMITED")


def _preemption(conf: SlurmConf, left_out: list[str]) -> dict[str, str]:
    preempts = conf.settings.get("preempttype", "preempt/none")
    mode = conf.settings.get("preemptmode", "OFF").upper()
    if preempts == "preempt/qos" and mode in ("REQUEUE", "CANCEL"):
        if mode == "CANCEL":
            left_out.append("PreemptMode=CANCEL: stopped jobs wait again")
        exempt = conf.settings.get("preemptexempttime", "-1")
        given = {"preempt_mode": "requeue"}
        return given if exempt in _NO_TIME else given | {"preempt_exempt_time": exempt}
    if preempts != "preempt/none":
        left_out.append(f"PreemptType={preempts} with PreemptMode={mode}")
    return {}


def _read_flags(conf: SlurmConf, given: dict[str, str], left_out: list[str]) -> None:
    if conf.settings.get("priorityfavorsmall", "no").lower() in ("yes", "true", "1"):
        given["priority_favor_small"] = "true"
    for flag in conf.items_of("PriorityFlags"):
        if flag.upper() == "SMALL_RELATIVE_TO_TIME":
            given["small_relative_to_time"] = "true"
        elif flag.upper() != "FAIR_TREE":
            left_out.append(f"PriorityFlags={flag}")
    for key in ("PriorityWeightTRES", "PriorityWeightAssoc", "PriorityUsageResetPeriod"):
        value = conf.settings.get(key.lower(), "")
        if value.upper() not in ("", "0", "NONE"):
            left_out.append(f"{key}={value}")
    given |= _billing(conf, left_out)


def _billing(conf: SlurmConf, left_out: list[str]) -> dict[str, str]:
    """Returns what a GPU and a CPU are billed; without weights Slurm bills CPUs."""
    texts = sorted({p.values.get("tresbillingweights", "") for p in conf.partitions})
    if len(texts) > 1:
        left_out.append("TRESBillingWeights differ by partition: GPUs count")
        return {}
    weights = {"billing_gpu": "0", "billing_cpu": "0"} if texts != [""] else {"billing_gpu": "0"}
    if texts == [""]:
        return {**weights, "billing_cpu": "1"}
    for item in texts[0].split(","):
        name, _, weight = item.lower().partition("=")
        key = {"gres/gpu": "billing_gpu", "cpu": "billing_cpu"}.get(name.strip())
        if key is None:
            left_out.append(f"TRESBillingWeights {item}")
        else:
            weights[key] = weight
    return weights


def _groups(conf: SlurmConf, qos: Sequence[Row], left_out: list[str]) -> Iterator[str]:
    """Yields the groups of alike nodes, in the order of the file, and the partitions."""
    with_gpus = [node for node in conf.nodes if node.gpus]
    if conf.future:
        left_out.append(f"{len(conf.future)} nodes that do not exist yet (State=FUTURE)")
    if conf.settings.get("selecttype", "").lower() == "select/linear":
        left_out.append("SelectType=select/linear: jobs get their GPUs, not whole nodes")
    if len(with_gpus) < len(conf.nodes):
        left_out.append(f"{len(conf.nodes) - len(with_gpus)} nodes without GPUs")
    inside = {
        node.name: tuple(p.name for p in conf.partitions if node.name in p.nodes)
        for node in with_gpus
    }
    groups: dict[str, tuple[str, ...]] = {}
    kind: Callable[[ConfNode], tuple[object, ...]] = lambda node: (  # noqa: E731
        node.gpus,
        node.gpu_type,
        node.cpus,
        node.memory_mb,
        inside[node.name],
    )
    for number, (_, alike) in enumerate(groupby(with_gpus, kind), 1):
        nodes = list(alike)
        first = nodes[0]
        name = f"{first.gpu_type or 'gpu'}-{number}"
        groups[name] = inside[first.name]
        span = first.name if len(nodes) == 1 else f"{first.name} to {nodes[-1].name}"
        yield f"[[group]]  # {span}"
        yield from _fields(
            name=name,
            nodes=len(nodes),
            gpus_per_node=first.gpus,
            gpu_type=first.gpu_type,
            cpus=first.cpus,
            memory_gb=first.memory_mb / MB_PER_GB,
        )
    yield from _queues(conf, groups, qos, left_out)


def _queues(
    conf: SlurmConf,
    groups: Mapping[str, tuple[str, ...]],
    qos: Sequence[Row],
    left_out: list[str],
) -> Iterator[str]:
    """Yields the partitions, for groups and the partitions that each is in."""
    same_time = _default_time(conf) != ""
    types = {node.gpu_type for node in conf.nodes if node.gpus}
    qos_called = {row["Name"]: row for row in qos}
    for partition in conf.partitions:
        own = [name for name, those in groups.items() if partition.name in those]
        if not own:
            left_out.append(f"partition {partition.name}: no nodes with GPUs")
            continue
        yield "[[queue]]"
        if _tier(partition.values) == 0:
            left_out.append(f"partition {partition.name}: PriorityTier=0")
        factor = partition.values.get("priorityjobfactor", partition.values.get("priority", "1"))
        everywhere = len(own) == len(groups)
        of_qos = partition.values.get("qos", "")
        if of_qos and of_qos not in qos_called:
            left_out.append(f"partition {partition.name}: qos={of_qos}")
        limits = limits_of_partition(partition.name, qos_called.get(of_qos), types, left_out)
        yield from _fields(
            name=partition.name,
            priority=float(factor),
            priority_tier=_tier(partition.values),
            groups=None if everywhere else own,
            limits=limits,
        )
        left_out += ignored_of_partition(partition.name, partition.values)
        for key in () if same_time else ("maxtime", "defaulttime"):
            value = partition.values.get(key, "")
            if value.upper() not in ("", *UNLIMITED):
                left_out.append(f"partition {partition.name}: {key}={value}")


def _tier(values: Mapping[str, str]) -> int | None:
    """Returns the tier of a partition; `Priority` sets both its factor and its tier."""
    tier = int(values.get("prioritytier", values.get("priority", "1")))
    return None if tier == 1 else tier


def _default_time(conf: SlurmConf) -> str:
    """Returns the limit of jobs without one, if it is the same in all partitions."""
    times = {p.values.get("defaulttime") or p.values.get("maxtime", "") for p in conf.partitions}
    only = next(iter(times), "") if len(times) == 1 else ""
    return "" if only.upper() in UNLIMITED else only


def _accounts(rows: Sequence[Row], types: Collection[str], left_out: list[str]) -> Iterator[str]:
    """Yields the accounts with their users; associations of single partitions count once."""
    accounts: dict[str, dict[str, object]] = {}
    users: dict[str, dict[str, int]] = {}
    for row in rows:
        name, user = row["Account"], row["User"]
        shares = int(row["Share"]) if row["Share"].isdigit() else 1
        if user:
            users.setdefault(name, {})[user] = shares
            continue
        parent = next((row[column] for column in PARENT if column in row), "")
        accounts[name] = {
            "name": name,
            "parent": "" if name == "root" else parent or "root",
            "shares": shares,
            "max_gpus": GpuLimits.of(row.get("GrpTRES", "")).most(
                f"account {name}: GrpTRES", types, left_out
            ),
        }
    for name, fields in accounts.items():
        yield "[[account]]"
        yield from _fields(**fields, users=users.get(name))


def _qos(rows: Sequence[Row], types: Collection[str], left_out: list[str]) -> Iterator[str]:
    def most(row: Row, column: str) -> int:
        where = f"qos {row['Name']}: {column}"
        return GpuLimits.of(row.get(column, "")).most(where, types, left_out)

    names = [row["Name"] for row in rows]
    for row in rows:
        factor = float(row.get("UsageFactor") or 1.0)
        preempts = [name for name in row.get("Preempt", "").split(",") if name in names]
        yield "[[qos]]"
        yield from _fields(
            name=row["Name"],
            priority=float(row.get("Priority") or 0),
            preempts=preempts or None,
            usage_factor=None if factor == 1 else factor,
            max_gpus=most(row, "GrpTRES"),
            max_gpus_per_user=most(row, "MaxTRESPU"),
            max_jobs_per_user=int(row.get("MaxJobsPU") or 0),
            max_hours=_hours(row.get("MaxWall", "")),
            grace_s=_seconds(row.get("GraceTime", "")),
            exempt_s=_seconds(row.get("PreemptExemptTime", "")),
        )


def _seconds(span: str) -> float | None:
    hours = _hours(span if any(c.isdigit() for c in span) else "")
    return None if hours is None else hours * 3600.0


def _hours(wall: str) -> float | None:
    """Returns a MaxWall such as `1-00:00:00` in hours."""
    if not wall:
        return None
    days, _, clock = wall.rpartition("-")
    parts = [float(part) for part in clock.split(":")] + [0.0, 0.0]
    return 24 * float(days or 0) + parts[0] + parts[1] / 60 + parts[2] / 3600


def _fields(**values: object) -> Iterator[str]:
    """Yields the lines of a table, without what is empty."""
    for key, value in values.items():
        if value in (None, "", 0, [], {}):
            continue
        if isinstance(value, dict):
            pairs = ", ".join(f"{json.dumps(k)} = {v}" for k, v in value.items())
            yield f"{key} = {{ {pairs} }}"
        elif isinstance(value, float):
            yield f"{key} = {value:g}"
        else:
            yield f"{key} = {json.dumps(value)}"
    yield ""

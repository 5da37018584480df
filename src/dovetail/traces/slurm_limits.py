"""The limits of Slurm that a cluster file can say, and words for those that it cannot.

Source: sacctmgr(1), slurm.conf(5) of Slurm 22.05.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

Row = Mapping[str, str]

_OF_ASSOCIATIONS = frozenset(
    (
        *("Account", "User", "ParentName", "Par Name", "Share", "GrpTRES"),
        *("Cluster", "Partition", "ID", "LFT", "RGT", "Lineage", "Comment", "Flags"),
    )
)
"""Columns of associations that are read (GrpTRES of accounts), or limit nothing."""
_OF_QOS = frozenset(
    (
        *("Name", "Priority", "Preempt", "UsageFactor", "GrpTRES", "MaxTRESPU", "MaxJobsPU"),
        *("MaxWall", "GraceTime", "PreemptExemptTime", "PreemptMode", "ID", "Descr"),
        "Description",
    )
)
_OF_PARTITIONS = frozenset(
    (
        *("partitionname", "nodes", "default", "priority", "priorityjobfactor", "prioritytier"),
        *("maxtime", "defaulttime", "tresbillingweights", "qos", "hidden", "disablerootjobs"),
    )
)
_NEUTRAL = ("", "NO", "ALL", "UP", "UNLIMITED", "INFINITE", "YES:1", "OFF")
_NAMED = 3


@dataclass(frozen=True, slots=True)
class GpuLimits:
    """The GPUs of a list of TRES, of any type and by type; `rest` is what else it limits."""

    any_type: int | None
    by_type: Mapping[str, int]
    rest: tuple[str, ...]

    @staticmethod
    def of(tres: str) -> GpuLimits:
        """Returns the limits of a list such as `cpu=8,gres/gpu=4,gres/gpu:a100=2`."""
        any_type: int | None = None
        by_type: dict[str, int] = {}
        rest = []
        for item in filter(None, tres.split(",")):
            name, _, value = item.strip().lower().rpartition("=")
            if not value.isdecimal():
                rest.append(item)
            elif name == "gres/gpu":
                any_type = int(value)
            elif name.startswith("gres/gpu:"):
                by_type[name.removeprefix("gres/gpu:")] = int(value)
            else:
                rest.append(item)
        return GpuLimits(any_type, by_type, tuple(rest))

    def most(self, where: str, types: Collection[str], left_out: list[str]) -> int:
        """Returns the most GPUs of any type, 0 for no limit; adds what that does not say.

        `where` names the limit. A limit of the only type of a cluster is one of any type.
        """
        left_out += [f"{where}={text}" for text in self.rest]
        limits = [] if self.any_type is None else [self.any_type]
        for kind, gpus in self.by_type.items():
            if set(types) == {kind}:
                limits.append(gpus)
            else:
                left_out.append(f"{where}=gres/gpu:{kind}={gpus}")
        if limits and min(limits) == 0:
            left_out.append(f"{where}=gres/gpu=0 (its jobs may have no GPU)")
        return min(limits, default=0)


def limits_of_partition(
    name: str, qos: Row | None, types: Collection[str], left_out: list[str]
) -> dict[str, int] | None:
    """Returns the limits that the QOS of a partition sets for its queue, None for none."""
    if qos is None:
        return None
    where = f"partition {name}: QOS {qos['Name']}: "
    gpus = GpuLimits.of(qos.get("GrpTRES", ""))
    limits = {} if gpus.any_type is None else {"any": gpus.any_type}
    limits |= {kind: most for kind, most in gpus.by_type.items() if kind in types}
    left_out += [f"{where}GrpTRES={text}" for text in gpus.rest]
    known = ("Name", "GrpTRES", "Priority", "UsageFactor", "Preempt", "GraceTime", "PreemptMode")
    left_out += [f"{where}{k}={v}" for k, v in qos.items() if v and k not in known]
    return limits or None


def preemption_of_qos(rows: Sequence[Row]) -> list[str]:
    """Returns what QOS say about preemption that the policy does not have."""
    left_out = []
    for row in rows:
        mode = row.get("PreemptMode", "").lower()
        if mode not in ("", "cluster", "requeue"):
            left_out.append(f"qos {row['Name']}: PreemptMode={mode}")
    return left_out


def ignored_of_partition(name: str, values: Mapping[str, str]) -> list[str]:
    """Returns what a partition says that its queue does not."""
    return [
        f"partition {name}: {key}={value}"
        for key, value in values.items()
        if key not in _OF_PARTITIONS and value.upper() not in _NEUTRAL
    ]


def ignored_of_associations(rows: Sequence[Row]) -> list[str]:
    """Returns what associations say that accounts do not, each value once with who has it."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        name = "/".join(filter(None, (row["Account"], row["User"])))
        for key, value in row.items():
            if value and (key not in _OF_ASSOCIATIONS or (key == "GrpTRES" and row["User"])):
                found.setdefault((key, value), []).append(name)
    return [f"{key}={value} of {_some(names)}" for (key, value), names in found.items()]


def ignored_of_qos(rows: Sequence[Row]) -> Iterator[str]:
    """Yields what QOS say that those of a cluster file do not."""
    for row in rows:
        for key, value in row.items():
            if value and key not in _OF_QOS:
                yield f"qos {row['Name']}: {key}={value}"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more

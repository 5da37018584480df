"""The changes that `whatif` tries: clusters, nodes, time limits, quotas and policies.

A `Setting` is all that may differ between two cells of the grid. A change makes another setting
from one; the texts are those of the command line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from math import inf

from dovetail.core.cluster import Cluster, NodeGroup
from dovetail.core.errors import InputError, nearest
from dovetail.core.policy import parse_policy, spell
from dovetail.core.tenants import QueueSpec
from dovetail.core.trace import Trace
from dovetail.jobspec.values import seconds
from dovetail.physics.zoo.device import device_memory_bytes
from dovetail.traces.cluster_file import read_cluster

AS_IS = "as is"
CELLS_MAX = 500
_NODES = re.compile(r"(?P<sign>[+-]?)(?P<count>\d{1,7})(?::(?P<type>\S+))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Setting:
    """The machines, the policy and the longest time limit of one cell.

    `limit_s` is None for the limits of the trace, infinite for none at all.
    """

    cluster: Cluster
    policy: str
    limit_s: float | None = None


@dataclass(frozen=True, slots=True)
class GridCell:
    """One row of the grid: what differs from the base, in words, and the setting itself."""

    label: str
    setting: Setting


@dataclass(frozen=True, slots=True)
class GridChange:
    """One value of one dimension of the grid."""

    label: str
    made: Callable[[Setting], Setting]


@dataclass(frozen=True, slots=True)
class Grid:
    """The values of each dimension as texts of the command line, separated by commas."""

    other_clusters: str = ""
    nodes: str = ""
    add: str = ""
    time_limit: str = ""
    quota: str = ""
    policies: Sequence[str] = ()

    def dimensions(self, base: str) -> list[list[GridChange]]:
        """Returns the changes of each dimension, in the order of the rows; `base` is a policy.

        Raises InputError.
        """
        parsers: Sequence[tuple[str, Callable[[str], GridChange]]] = (
            (self.other_clusters, _instead),
            (self.nodes, _nodes),
            (self.add, _added),
            (self.time_limit, _limit),
            (self.quota, _quota),
        )
        found = [[parse(part) for part in _parts(text)] for text, parse in parsers]
        found.append([GridChange(n, partial(_with_policy, p)) for p, n in self._named(base)])
        return [changes for changes in found if changes]

    def _named(self, base: str) -> list[tuple[str, str]]:
        """Returns each policy with its name, or its whole text where a name is not enough."""
        spelled = [spell(parse_policy(text)) for text in (base, *self.policies)]
        for text, full in zip(self.policies, spelled[1:], strict=True):
            if spelled.count(full) > 1:
                raise InputError("--policies", f"'{text}' is named twice")
        names = [text.partition(":")[0] for text in (base, *self.policies)]
        alone = [not n.endswith(".py") and names.count(n) == 1 for n in names]
        texts = zip(self.policies, names[1:], alone[1:], strict=True)
        return [(text, name if short else text) for text, name, short in texts]


def cells_of(base: Setting, grid: Grid, *, cross: bool) -> list[GridCell]:
    """Returns the base, then one cell for each change; with `cross`, for each combination.

    Raises InputError for a change that cannot be made, and for more than `CELLS_MAX` cells.
    """
    dimensions = grid.dimensions(base.policy)
    combinations: list[tuple[GridChange, ...]]
    if cross:
        choices = [[(), *((c,) for c in changes)] for changes in dimensions]
        combinations = [sum(chosen, ()) for chosen in product(*choices)]
    else:
        combinations = [(), *((c,) for changes in dimensions for c in changes)]
    if len(combinations) > CELLS_MAX:
        raise InputError(
            "--cross", f"it makes {len(combinations)} rows", f"ask for at most {CELLS_MAX}"
        )
    cells = [_cell(base, chosen) for chosen in combinations]
    labels = [cell.label for cell in cells]
    for label in labels:
        if labels.count(label) > 1:
            raise InputError("whatif", f"'{label}' is asked for twice")
    return cells


def _cell(base: Setting, chosen: Sequence[GridChange]) -> GridCell:
    setting = base
    for change in chosen:
        setting = change.made(setting)
    return GridCell(", ".join(c.label for c in chosen) or AS_IS, setting)


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _with_policy(policy: str, setting: Setting) -> Setting:
    return replace(setting, policy=policy)


def _instead(text: str) -> GridChange:
    other = read_cluster(text, device_memory_bytes)

    def made(setting: Setting) -> Setting:
        queues = other.queues or setting.cluster.queues
        return replace(setting, cluster=replace(other, queues=queues))

    return GridChange(text, made)


def _nodes(text: str) -> GridChange:
    match = _NODES.fullmatch(text)
    if match is None:
        mend = "as in +2, -1, 12, or +2:a100 where the cluster has several types"
        raise InputError("--nodes", f"'{text}' is not a number of nodes", mend)
    count = int(match["count"]) * (-1 if match["sign"] == "-" else 1)
    gpu_type = (match["type"] or "").lower()

    def made(setting: Setting) -> Setting:
        at = group_called(setting.cluster, gpu_type, "--nodes", f"{text}:TYPE")
        before = setting.cluster.groups[at].nodes
        nodes = before + count if match["sign"] else count
        if nodes < 0:
            raise InputError("--nodes", f"'{text}' takes more nodes than the {before} there are")
        if not nodes and len(setting.cluster.groups) == 1:
            raise InputError("--nodes", f"'{text}' leaves no node", "keep at least one")
        return replace(setting, cluster=with_node_count(setting.cluster, at, nodes))

    unit = "node" if match["sign"] and abs(count) == 1 else "nodes"
    kind = f" {gpu_type}" if gpu_type else ""
    return GridChange(f"{match['sign']}{match['count']} {unit}{kind}", made)


def group_called(cluster: Cluster, gpu_type: str, option: str, as_in: str) -> int:
    """Returns the position of the node group of a type or a name; '' is the only group.

    Raises InputError, with `as_in` as the way to name one.
    """
    groups = cluster.groups
    known = [name for g in groups for name in dict.fromkeys((g.gpu_type, g.name)) if name]
    if not gpu_type:
        if len(groups) > 1:
            mend = f"as in {as_in.replace('TYPE', groups[0].gpu_type or groups[0].name)}"
            raise InputError(option, f"say of which type: {', '.join(known)}", mend)
        return 0
    found = [i for i, g in enumerate(groups) if gpu_type in (g.gpu_type.lower(), g.name.lower())]
    if not found:
        raise InputError(option, f"the cluster has no group '{gpu_type}'", nearest(gpu_type, known))
    if len(found) > 1:
        names = ", ".join(groups[i].name for i in found)
        raise InputError(option, f"several groups are '{gpu_type}'", f"name one of {names}")
    return found[0]


def with_node_count(cluster: Cluster, at: int, nodes: int) -> Cluster:
    """Returns the cluster with another number of nodes in one group. Raises InputError."""
    if cluster.reservations:
        raise InputError(
            "cluster",
            "its reservations name nodes by number, and another number of nodes renumbers them",
            "remove the reservations from the file",
        )
    groups = list(cluster.groups)
    groups[at] = replace(groups[at], nodes=nodes)
    return replace(cluster, groups=tuple(groups))


def _added(text: str) -> GridChange:
    more = Cluster.parse(text, device_memory_bytes).groups

    def made(setting: Setting) -> Setting:
        groups: list[NodeGroup] = list(setting.cluster.groups)
        for group in more:
            names = {g.name for g in groups}
            spare = (f"{group.name}-{n}" for n in range(2, len(names) + 3))
            name = (
                group.name if group.name not in names else next(n for n in spare if n not in names)
            )
            groups.append(replace(group, name=name))
        return replace(setting, cluster=replace(setting.cluster, groups=tuple(groups)))

    return GridChange(f"add {text}", made)


def _limit(text: str) -> GridChange:
    try:
        limit_s = inf if text.lower() == "none" else seconds(text)
    except ValueError as error:
        raise InputError("--time-limit", str(error), "or none for no limit") from None
    if not limit_s:
        raise InputError("--time-limit", f"'{text}' lets no job run", "as in 24h, or none")
    label = "no time limit" if limit_s == inf else f"limit {text}"
    return GridChange(label, lambda setting: replace(setting, limit_s=limit_s))


def _quota(text: str) -> GridChange:
    quotas: dict[str, int] = {}
    for part in text.split("+"):
        name, _, number = (word.strip() for word in part.rpartition("="))
        if not name or not (number == "none" or (number.isdecimal() and int(number) > 0)):
            mend = "as in research=32, research=none, or research=32+ml=16 at once"
            raise InputError("--quota", f"'{part}' is not QUEUE=GPUS", mend)
        quotas[name] = 0 if number == "none" else int(number)
    words = ", ".join(f"{q} {f'{n} GPUs' if n else 'no quota'}" for q, n in quotas.items())
    return GridChange(f"quota {words}", partial(_with_quotas, quotas))


def _with_quotas(quotas: Mapping[str, int], setting: Setting) -> Setting:
    queues = {queue.name: queue for queue in setting.cluster.queues}
    for name, gpus in quotas.items():
        queues[name] = replace(queues.get(name, QueueSpec(name)), quota_gpus=gpus)
    return replace(setting, cluster=replace(setting.cluster, queues=tuple(queues.values())))


def check_queues(trace: Trace, cells: Sequence[GridCell]) -> None:
    """Raises InputError for a quota of a queue that no job of the trace is in."""
    used = {name for name in trace.jobs.queue.texts() if name}
    filed = {queue.name for queue in cells[0].setting.cluster.queues}
    for queue in (q for cell in cells for q in cell.setting.cluster.queues):
        if queue.name not in used | filed:
            known = nearest(queue.name, used) if used else "its jobs name no queue"
            raise InputError("--quota", f"no job is in queue '{queue.name}'", known)

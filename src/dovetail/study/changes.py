"""The changes that `whatif` tries: clusters, nodes, time limits, quotas and policies.

A `Setting` is all that may differ between two cells of the grid. A change makes another setting
from one; the texts are those of the command line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, product
from math import inf

from dovetail.core.cluster import Cluster, NodeGroup
from dovetail.core.errors import InputError, nearest
from dovetail.core.job import Labels
from dovetail.core.policy import parse_policy, spell
from dovetail.core.tenants import AccountSpec, QueueSpec
from dovetail.core.trace import Trace
from dovetail.jobspec.values import seconds
from dovetail.physics.zoo.device import device_memory_bytes
from dovetail.study.demand import parse_demand
from dovetail.study.quotas import ACCOUNT, parse_quotas, with_quotas
from dovetail.study.spot import SpotTier, parse_spot
from dovetail.study.types_for import TypeFor, in_force, parse_types_for
from dovetail.traces.cluster_file import read_cluster

AS_IS = "as is"
CELLS_MAX = 500
_AS_IN = 'as in --together "--nodes +2 --time-limit 24h"'
_NODES = re.compile(r"(?P<sign>[+-]?)(?P<count>\d{1,7})(?::(?P<type>\S+))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Setting:
    """The machines, the policy, the longest time limit and the spot tier of one cell.

    `limit_s` is None for the limits of the trace, infinite for none at all; `demand` is the number
    of jobs over that of the trace. `also` are jobs that may use a second type of GPU.
    """

    cluster: Cluster
    policy: str
    limit_s: float | None = None
    spot: SpotTier | None = None
    demand: float = 1.0
    also: tuple[TypeFor, ...] = ()

    @property
    def types_for(self) -> tuple[TypeFor, ...]:
        """Returns those of `also` whose second type the cluster has."""
        return in_force(self.also, self.cluster)


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
    """The values of each dimension as texts of the command line, separated by commas.

    Each text of `together` is one row of several changes, as options: `--nodes +2 --quota ml=8`.
    `checkpoint_s` is how often spot jobs save, 0 if they save when they are told to stop.
    """

    other_clusters: str = ""
    nodes: str = ""
    add: str = ""
    time_limit: str = ""
    quota: str = ""
    guarantee: str = ""
    spot: str = ""
    demand: str = ""
    types_for: str = ""
    policies: Sequence[str] = ()
    together: Sequence[str] = ()
    checkpoint_s: float = 0.0

    def dimensions(self, base: str) -> list[list[GridChange]]:
        """Returns the changes of each dimension, in the order of the rows; `base` is a policy.

        Raises InputError.
        """
        parsers: Sequence[tuple[str, Callable[[str], GridChange]]] = (
            (self.other_clusters, _instead),
            (self.nodes, _nodes),
            (self.add, _added),
            (self.time_limit, _limit),
            (self.quota, partial(_quota, "--quota")),
            (self.guarantee, partial(_quota, "--guarantee")),
            (self.spot, partial(_spot, self.checkpoint_s)),
            (self.demand, _demand),
            (self.types_for, _type_for),
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
    base, grid = _with_carried_types(base, grid)
    dimensions = grid.dimensions(base.policy)
    alone: list[tuple[GridChange, ...]] = [(), *((change,) for change in chain(*dimensions))]
    combinations = _crossed(dimensions) if cross else alone
    if len(combinations) > CELLS_MAX:
        raise InputError(
            "--cross", f"it makes {len(combinations)} rows", f"ask for at most {CELLS_MAX}"
        )
    combinations += [_together(text, grid, base.policy) for text in grid.together]
    cells = [_cell(base, chosen) for chosen in combinations]
    _check_cells(base, cells)
    return cells


def _crossed(dimensions: Sequence[Sequence[GridChange]]) -> list[tuple[GridChange, ...]]:
    """Returns all combinations of the changes. Raises InputError if there is nothing to combine."""
    if len(dimensions) < 2:
        what = "there is one kind of change, so there is nothing to combine"
        raise InputError("--cross", what, "ask for changes of two kinds, or leave it out")
    choices = [[(), *((c,) for c in changes)] for changes in dimensions]
    return [sum(chosen, ()) for chosen in product(*choices)]


def _check_cells(base: Setting, cells: Sequence[GridCell]) -> None:
    """Raises InputError for two rows that are the same, and for a GPU type that no row has."""
    for one in base.also:
        if not any(one in cell.setting.types_for for cell in cells):
            mend = f"add some, as in --add 1x4:{one.other}"
            raise InputError("--types-for", f"no row has {one.other} GPUs", mend)
    labels = [cell.label for cell in cells]
    for label in labels:
        if labels.count(label) > 1:
            raise InputError("whatif", f"'{label}' is asked for twice")


def _with_carried_types(base: Setting, grid: Grid) -> tuple[Setting, Grid]:
    """Returns the base and the grid: a type that only some rows have makes no row of its own."""
    asked = [parse_types_for(part) for part in _parts(grid.types_for)]
    here = in_force(asked, base.cluster)
    texts = zip(asked, _parts(grid.types_for), strict=True)
    own = ",".join(text for one, text in texts if one in here)
    carried = tuple(one for one in asked if one not in here)
    return replace(base, also=carried), replace(grid, types_for=own)


def _cell(base: Setting, chosen: Sequence[GridChange]) -> GridCell:
    setting = base
    for change in chosen:
        before, setting = setting, change.made(setting)
        if _bare(setting) == _bare(before):
            mend = f"leave it out: that row is '{AS_IS}'"
            raise InputError("whatif", f"'{change.label}' changes nothing", mend)
    return GridCell(", ".join(c.label for c in chosen) or AS_IS, setting)


def _bare(setting: Setting) -> Setting:
    """Returns a setting without queues and accounts that a quota named and left as they were."""
    cluster = setting.cluster
    queues = tuple(queue for queue in cluster.queues if queue != QueueSpec(queue.name))
    accounts = tuple(a for a in cluster.accounts if a != AccountSpec(a.name))
    return replace(setting, cluster=replace(cluster, queues=queues, accounts=accounts))


_TOGETHER = (
    *("other_clusters", "nodes", "add", "time_limit", "quota", "guarantee", "spot"),
    *("demand", "types_for"),
)


def _together(text: str, grid: Grid, base: str) -> tuple[GridChange, ...]:
    """Returns the changes of a row that makes several at once. Raises InputError."""
    words = text.split()
    values: dict[str, str] = {}
    for option, value in zip(words[::2], words[1::2], strict=False):
        name = option.removeprefix("--").replace("-", "_")
        if not option.startswith("--") or name not in (*_TOGETHER, "policies") or name in values:
            raise InputError("--together", f"'{option}' is no change, or is given twice", _AS_IN)
        values[name] = value
    policies = [values.pop("policies")] if "policies" in values else []
    row = replace(Grid(checkpoint_s=grid.checkpoint_s, policies=policies), **values)  # type: ignore[arg-type]
    dimensions = row.dimensions(base)
    if len(words) % 2 or len(dimensions) < 2 or any(len(changes) > 1 for changes in dimensions):
        raise InputError("--together", f"'{text}' is not two changes or more, each once", _AS_IN)
    return tuple(changes[0] for changes in dimensions)


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
    try:
        more = Cluster.parse(text, device_memory_bytes).groups
    except InputError as error:
        raise InputError("--add", error.what, "as in 2x8:h100 for 2 nodes of 8 GPUs") from None

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


def _quota(option: str, text: str) -> GridChange:
    quotas = parse_quotas(option, text)
    words = f"{option.removeprefix('--')} {', '.join(str(quota) for quota in quotas)}"
    return GridChange(words, lambda s: replace(s, cluster=with_quotas(s.cluster, option, quotas)))


def _spot(checkpoint_s: float, text: str) -> GridChange:
    tier = parse_spot(text, checkpoint_s / 2)
    return GridChange(f"spot {text}", lambda setting: replace(setting, spot=tier))


def _demand(text: str) -> GridChange:
    factor = parse_demand(text)
    return GridChange(f"{text} jobs", lambda setting: replace(setting, demand=factor))


def _type_for(text: str) -> GridChange:
    one = parse_types_for(text)
    return GridChange(str(one), lambda setting: replace(setting, also=(*setting.also, one)))


def check_queues(trace: Trace, cells: Sequence[GridCell]) -> None:
    """Raises InputError for a quota of a queue or account that no job of the trace names."""
    clusters = [cell.setting.cluster for cell in cells]
    # A queue that owns accounts or users has their jobs, whatever queue these name.
    queues = [{q.name for q in c.queues if not (q.accounts or q.users)} for c in clusters]
    owned = [{name for q in c.queues for name in q.accounts} for c in clusters]
    accounts = [{account.name for account in cluster.accounts} for cluster in clusters]
    promised = {q.name for c in clusters for q in c.queues if q.guaranteed}
    _check_named("queue", trace.jobs.queue, queues, promised, trace.jobs.account)
    _check_named("account", trace.jobs.account, accounts)
    _check_named("account", trace.jobs.account, owned)


def _check_named(
    what: str,
    labels: Labels,
    named: Sequence[set[str]],
    promised: Collection[str] = (),
    accounts: Labels | None = None,
) -> None:
    """Raises InputError for a name that neither the jobs nor the base has, which comes first."""
    used = {name for name in labels.texts() if name}
    for name in sorted(set().union(*named) - named[0] - used):
        known = nearest(name, used) if used else f"its jobs name no {what}"
        if accounts is not None and name in accounts.names:
            known = f"it is an account: {ACCOUNT}{name}"
        option = "--guarantee" if name in promised else "--quota"
        raise InputError(option, f"no job is in {what} '{name}'", known)

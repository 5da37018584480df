"""Where tenants stand: from the live jobs, the cluster's file, and what the policy keeps.

The policy `tenancy` keeps the use of each tenant and the stops of each job in the store
(`live.controller.policy_memory`). Under other policies tenants have limits, and no use is counted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from dovetail.core.cluster import Cluster
from dovetail.core.job import Floats
from dovetail.core.tenant_tree import ROOT, TenantTree
from dovetail.core.tenants import TIERS, GpusByType
from dovetail.live.edges.protocols import POLICY_MEMORY
from dovetail.live.jobs.status_snapshot import StatusSnapshot
from dovetail.live.server.messages.tenants import TenantList, TenantRow
from dovetail.live.store.queries import LIVE, Queries

TENANTS = "tenants"
"""The name of the accounts in what the policy keeps."""


def tenant_list(
    cluster: Cluster, snapshot: StatusSnapshot, reader: Queries, now_s: float
) -> TenantList:
    """Returns all tenants that the cluster's file names, and the users who have jobs or use."""
    tree = TenantTree(cluster.queues, cluster.accounts)
    kept = _kept(reader)
    use = _use(kept, now_s)
    held, waiting = _demand(tree, reader)
    for path in use:
        _join(tree, path)
    size = len(tree)
    of_leaves, asked = _column(held, size), _column(held, size) + _column(waiting, size)
    used = np.array([use.get(t.path, 0.0) for t in tree.tenants])
    up = sum(len(n.gpus) for n in snapshot.nodes if n.state == "up")
    deserved, sums = tree.deserved(asked, float(up)), tree.sums(of_leaves)
    columns = (deserved, sums, tree.sums(asked) - sums, tree.sums(used) if kept else used - 1)
    return TenantList(now_s, _number(kept, "half_life_s"), tuple(_rows(tree, columns)))


def stops_of(reader: Queries, job: int) -> int:
    """Returns how often the policy has stopped a job that is not over, as far as it counts."""
    stops = _kept(reader).get("stops")
    count = stops.get(str(job), 0) if isinstance(stops, dict) else 0
    return count if isinstance(count, int) else 0


def _rows(tree: TenantTree, columns: Sequence[Floats]) -> Iterator[TenantRow]:
    numbers = sorted(range(1, len(tree)), key=lambda n: tree.tenants[n].path)
    for number in numbers:
        tenant = tree.tenants[number]
        deserves, held, waits, used = (float(column[number]) for column in columns)
        yield TenantRow(
            path=tenant.path,
            tier=TIERS[tenant.rank[0]],
            weight=tenant.weight,
            guaranteed=_text(tenant.guaranteed),
            most_gpus=float(tenant.most),
            deserves_gpus=deserves,
            held_gpus=round(held),
            waiting_gpus=round(waits),
            used_gpus=used,
        )


def _demand(tree: TenantTree, reader: Queries) -> tuple[dict[int, int], dict[int, int]]:
    """Returns the GPUs that jobs of each leaf hold, and those for which they wait in the queue."""
    held, waiting = dict[int, int](), dict[int, int]()
    for job in reader.rows(LIVE):
        spec, record = job.spec, job.record
        leaf = tree.leaf(spec.queue, spec.account, spec.user)
        if record.placement is not None:
            held[leaf] = held.get(leaf, 0) + record.placement.gpus
        elif record.state == "PENDING" and not record.reason and not record.held:
            waiting[leaf] = waiting.get(leaf, 0) + spec.gpus
    return held, waiting


def _join(tree: TenantTree, path: Sequence[str]) -> None:
    """Adds the leaf of a path that the policy counts, such as a user without jobs."""
    user = path[-1].removeprefix("user ") if path and path[-1].startswith("user ") else ""
    account = next((p[8:] for p in reversed(path) if p.startswith("account ")), "")
    queues = [p for p in path if not p.startswith(("user ", "account ")) and p]
    tree.leaf(queues[-1] if queues else "", account, user)


def _kept(reader: Queries) -> Mapping[str, object]:
    """Returns the accounts of tenants, empty if the policy keeps none or they are damaged."""
    try:
        kept = json.loads(reader.meta(POLICY_MEMORY) or "{}")
    except ValueError:
        return {}
    own = kept.get(TENANTS) if isinstance(kept, dict) and "until_s" not in kept else None
    return own if isinstance(own, dict) else {}


def _use(kept: Mapping[str, object], now_s: float) -> dict[tuple[str, ...], float]:
    """Returns the decayed mean GPUs of each leaf by now, as `mechanisms.tenancy.usage` does."""
    half_life_s = _number(kept, "half_life_s")
    if not half_life_s:
        return {}
    keep = 0.5 ** (max(0.0, now_s - _number(kept, "t")) / half_life_s)
    use: dict[tuple[str, ...], float] = {}
    for name, part in (("mean_gpus", keep), ("held_gpus", 1 - keep)):
        for path, gpus in _pairs(kept.get(name)):
            use[path] = use.get(path, 0.0) + gpus * part
    return use


def _pairs(rows: object) -> Iterator[tuple[tuple[str, ...], float]]:
    for row in rows if isinstance(rows, list) else ():
        yield tuple(map(str, row[0])), float(row[1])


def _number(kept: Mapping[str, object], name: str) -> float:
    value = kept.get(name)
    return float(value) if isinstance(value, int | float) else 0.0


def _column(values: Mapping[int, int], size: int) -> Floats:
    column = np.zeros(size)
    for number, value in values.items():
        column[number] = value
    column[ROOT] = 0.0
    return column


def _text(gpus: GpusByType) -> str:
    return " ".join(f"{kind or 'any'}={count}" for kind, count in gpus)

"""Notes on tenants of a run: wishes that a policy ignores, and names that the cluster lacks."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from dovetail.core.cluster import Cluster
from dovetail.core.errors import InputError
from dovetail.core.job import JobTable
from dovetail.core.node_sets import queues_of
from dovetail.core.policy import Policy, heeded, name_of
from dovetail.core.tenants import NORMAL, QueueSpec


def tenant_notes(jobs: JobTable, cluster: Cluster, policies: Iterable[Policy]) -> list[str]:
    """Returns a note for each wish or name that has no effect on some of the jobs."""
    named = list(policies)
    return [
        *_priorities(jobs, cluster, named),
        *_guarantees(cluster, named),
        *_priority_tiers(cluster, named),
        *_preemption_by_qos(cluster, named),
        *_strangers(jobs, cluster),
    ]


def unheeded(cluster: Cluster, policy: Policy) -> list[str]:
    """Returns what a cluster's file says of the turns of tenants, if a policy ignores it."""
    heeds = heeded(policy)
    said: list[tuple[str, str, bool]] = []
    for queue in cluster.queues:
        for wish, field, is_set in (
            ("guarantees", "guaranteed", bool(queue.guaranteed)),
            ("guarantees", "weight", queue.weight != 1),
            ("priority", "priority", queue.priority != 0),
            ("guarantees", "tier", queue.tier != NORMAL),
            ("priority_tier", "priority_tier", queue.priority_tier != 1),
        ):
            said.append((f"queue '{queue.name}'", field, is_set and wish not in heeds))
    for account in cluster.accounts if "priority" not in heeds else ():
        said.append((f"account '{account.name}'", "shares", account.shares != 1))
        uneven = len({shares for _, shares in account.users}) > 1
        said.append((f"account '{account.name}'", "users", uneven))
    for qos in cluster.qos if "priority" not in heeds else ():
        said.append((f"qos '{qos.name}'", "priority", qos.priority != 0))
        said.append((f"qos '{qos.name}'", "usage_factor", qos.usage_factor != 1))
    for qos in cluster.qos if "preempts" not in heeds else ():
        said.append((f"qos '{qos.name}'", "preempts", bool(qos.preempts)))
    return [f"{field} of {whose}" for whose, field, is_set in said if is_set]


def _priorities(jobs: JobTable, cluster: Cluster, policies: list[Policy]) -> list[str]:
    deaf = sorted({name_of(policy) for policy in policies if "priority" not in heeded(policy)})
    if not deaf:
        return []
    whom, ignore = ", ".join(deaf), "ignore" + "s" * (len(deaf) == 1)
    wrap = f"as in --policy tenancy:inner={deaf[0]}"
    notes = []
    count = int((jobs.priority != 0).sum())
    if count:
        jobs_state = "1 job states" if count == 1 else f"{count:,} jobs state"
        notes.append(f"{jobs_state} a priority, which {whom} {ignore} ({wrap}).")
    queues = [q for q in cluster.queues if q.priority or q.guaranteed or q.weight != 1]
    ranked = {name for p in policies for name in unheeded(cluster, p)}
    stops = {f"preempts of qos '{qos.name}'" for qos in cluster.qos}
    if queues or cluster.accounts or ranked - stops:
        what = "guarantees, weights, tiers, shares and priorities of the cluster's file"
        notes.append(f"{what[0].upper()}{what[1:]} have no effect with {whom} ({wrap}).")
    return notes


def _named_queues(jobs: JobTable) -> set[str]:
    """Returns the queues that jobs name, each of several too."""
    present = [jobs.queue.names[c] for c in np.unique(jobs.queue.codes).tolist() if c >= 0]
    return {name for listed in present for name in (listed, *queues_of(listed))}


def queues_without_jobs(jobs: JobTable, cluster: Cluster) -> list[str]:
    """Returns a sentence on queues with rights of their own that no job belongs to.

    Raises InputError if one has the name of an account or a user: that is whom it was meant for.
    """
    named = _named_queues(jobs)
    parent_of = {q.name: q.parent for q in cluster.queues}
    used: set[str] = set()
    for name in named:
        while name and name not in used:
            used.add(name)
            name = parent_of.get(name, "")
    idle = [q for q in cluster.queues if q.name not in used and _has_rights(q)]
    for queue in idle:
        for field, labels in (("accounts", jobs.account), ("users", jobs.user)):
            if queue.name in labels.names:
                raise InputError(
                    f"--cluster, queue '{queue.name}'",
                    f"no job is in this queue; the log has it among its {field}",
                    f'add {field} = ["{queue.name}"] to the queue',
                )
    if not idle:
        return []
    names = ", ".join(f"'{q.name}'" for q in idle)
    whose = "this queue" if len(idle) == 1 else "these queues"
    return [
        f"the cluster's file gives rights to {names}, and no job is in {whose}: name its accounts "
        "or users in the file"
    ]


def _has_rights(queue: QueueSpec) -> bool:
    limits = queue.quota_gpus or queue.limits
    return bool(queue.guaranteed or limits or queue.weight != 1 or queue.tier != NORMAL)


def _guarantees(cluster: Cluster, policies: list[Policy]) -> list[str]:
    """Returns a note on policies that heed priorities, and not the guarantees of queues."""
    heedful = [each for each in policies if "priority" in heeded(each)]
    deaf = sorted({name_of(each) for each in heedful if "guarantees" not in heeded(each)})
    claims = (q.guaranteed or q.weight != 1 or q.tier != NORMAL for q in cluster.queues)
    if not deaf or not any(claims):
        return []
    whom = f"{', '.join(deaf)} (as in --policy tenancy:inner={deaf[0]})"
    return [f"Guarantees, weights and tiers of queues have no effect with {whom}."]


def _priority_tiers(cluster: Cluster, policies: list[Policy]) -> list[str]:
    deaf = sorted({name_of(each) for each in policies if "priority_tier" not in heeded(each)})
    if not deaf or all(queue.priority_tier == 1 for queue in cluster.queues):
        return []
    return [f"priority_tier of queues is for slurm; {', '.join(deaf)} ignores it."]


def _preemption_by_qos(cluster: Cluster, policies: list[Policy]) -> list[str]:
    deaf = sorted({name_of(each) for each in policies if "preempts" not in heeded(each)})
    if not deaf or not any(qos.preempts for qos in cluster.qos):
        return []
    ignore = "ignores" if len(deaf) == 1 else "ignore"
    return [f"preempts of QOS is for slurm:preempt_mode=requeue; {', '.join(deaf)} {ignore} it."]


def _strangers(jobs: JobTable, cluster: Cluster) -> list[str]:
    notes = []
    for label, specs in (
        ("queue", cluster.queues),
        ("account", cluster.accounts),
        ("qos", cluster.qos),
        ("reservation", cluster.reservations),
    ):
        known = {spec.name for spec in specs}
        column = getattr(jobs, label)
        strange = {code for code, name in enumerate(column.names) if name not in known}
        count = sum(code in strange for code in column.codes.tolist()) if known else 0
        if count:
            names = sorted(column.names[code] for code in strange)
            some = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
            notes.append(
                f"{count:,} jobs name a {label} that the cluster's file lacks ({some}): "
                "none of its limits holds for them."
            )
    return notes

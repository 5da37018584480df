"""Notes on tenants of a run: wishes that a policy ignores, and names that the cluster lacks."""

from __future__ import annotations

from collections.abc import Iterable

from dovetail.core.cluster import Cluster
from dovetail.core.job import JobTable
from dovetail.core.policy import Policy, heeded, name_of


def tenant_notes(jobs: JobTable, cluster: Cluster, policies: Iterable[Policy]) -> list[str]:
    """Returns a note for each wish or name that has no effect on some of the jobs."""
    named = list(policies)
    return [*_priorities(jobs, cluster, named), *_strangers(jobs, cluster)]


def _priorities(jobs: JobTable, cluster: Cluster, policies: list[Policy]) -> list[str]:
    deaf = sorted({name_of(policy) for policy in policies if "priority" not in heeded(policy)})
    if not deaf:
        return []
    whom, ignore = ", ".join(deaf), "ignores" if len(deaf) == 1 else "ignore"
    wrap = f"as in --policy tenancy:inner={deaf[0]}"
    notes = []
    count = int((jobs.priority != 0).sum())
    if count:
        jobs_state = "1 job states" if count == 1 else f"{count:,} jobs state"
        notes.append(f"{jobs_state} a priority, which {whom} {ignore} ({wrap}).")
    queues = [q for q in cluster.queues if q.priority or q.guaranteed or q.weight != 1]
    if queues or cluster.accounts:
        what = "guarantees, weights, tiers, shares and priorities of the cluster's file"
        notes.append(f"{what[0].upper()}{what[1:]} have no effect with {whom} ({wrap}).")
    return notes


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

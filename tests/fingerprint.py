"""A fingerprint of everything a policy can see, to prove that deciding changes nothing."""

from __future__ import annotations

from dovetail.control.state import ClusterState
from dovetail.core.occupancy import Occupancy
from dovetail.core.view import View


def of_occupancy(occupancy: Occupancy) -> tuple[object, ...]:
    """Returns the content of the tables; the order of sharers on a GPU is no content."""
    return (
        tuple(occupancy.free),
        tuple(occupancy.levels),
        occupancy.level_mask,
        occupancy.free_gpus,
        tuple(sorted((gpu, tuple(sorted(jobs))) for gpu, jobs in occupancy.named.items())),
        tuple(sorted((j, p) for j, p in occupancy.placement_of.items())),
        () if occupancy.tenants is None else occupancy.tenants.booked(),
        tuple(sorted(occupancy.open_gpus.taken.items())),
        tuple((round(c, 6), round(m, 3)) for c, m in occupancy.host_free),
    )


def fingerprint(view: View, state: ClusterState) -> tuple[object, ...]:
    """Returns a value that differs whenever anything visible differs."""
    changes = view.changes
    return (
        view.now,
        view.plan.version,
        tuple(sorted(view.plan.placed.items())),
        of_occupancy(view.plan.occupancy),
        tuple((job, view.waiting.key(job)) for job in view.waiting),
        tuple(view.ends) if view.ends is not None else None,
        (tuple(changes.arrived), tuple(changes.ended), tuple(changes.evicted)),
        (changes.capacity, changes.woke),
        tuple(state.done),
        tuple(state.rate),
        tuple(state.since_s),
        tuple(state.attained),
        tuple(state.placed_s),
        tuple(state.length),
        view.cluster,
    )

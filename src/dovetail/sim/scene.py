"""Everything outside the policy that decides a run of the simulated world."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dovetail.core.beliefs import Forecast, Physics
from dovetail.core.cluster import Cluster
from dovetail.core.occupancy import Occupancy
from dovetail.core.placing import Placing
from dovetail.core.switching import Switching
from dovetail.core.trace import Trace

CapacityTimeline = Sequence[tuple[float, Sequence[tuple[int, str]]]]
"""(time, [(node, state), ...]) in order of time."""


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything outside the policy that decides a run.

    `startup_s` is what a start takes each job (`physics.startup`), if the switching asks for it.
    """

    trace: Trace
    cluster: Cluster
    truth: Physics
    belief: Physics
    forecast: Forecast
    placing: Placing = field(default_factory=Placing)
    switching: Switching = field(default_factory=Switching)
    cancelled_by_clock: bool = False
    capacity: CapacityTimeline = ()
    coalesce_s: float = 0.0
    audit_every: int = 0
    startup_s: Sequence[float] = ()


def with_reservations(timeline: CapacityTimeline, occupancy: Occupancy) -> CapacityTimeline:
    """Returns the timeline with an entry without nodes where a reservation begins or ends."""
    tenants = occupancy.tenants
    if tenants is None or not tenants.has_reservations:
        return timeline
    return sorted([*timeline, *((t, ()) for t in tenants.edges_s())], key=lambda entry: entry[0])

"""The pass of Muri: take jobs by slots, group them, admit groups by priority, place them.

Between ticks nothing is decided: freed GPUs stay idle, members whose partner ended go on in their
phases, and arrivals wait for the next tick. A tick of 0 s decides at every event.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import floor, inf
from typing import ClassVar

from dovetail.core.job import Floats
from dovetail.core.parameters import LEAST_PERIOD_S
from dovetail.core.passes import NO_ROOM
from dovetail.core.policy import Decision
from dovetail.core.units import RELATIVE_TOLERANCE
from dovetail.core.view import Running, View
from dovetail.mechanisms.interleaving.group_placing import Admitted, admit, put
from dovetail.mechanisms.interleaving.groups import (
    MATCHINGS,
    MERGE_ORDERS,
    Grouping,
    MergeNode,
    SizeBucket,
    group,
)
from dovetail.mechanisms.interleaving.rules import MEMBERS_MAX, Ordering, SetRules, rules_of
from dovetail.mechanisms.interleaving.slots import Priority, SizeQueue, StayingJobs, take

DIGITS = 6
"""Service counts in millionths of a GPU-second: sums that differ by rounding are equal."""


@dataclass(frozen=True, slots=True)
class Ticks:
    """The times of decisions: multiples of `tick_s`, or every event if it is 0."""

    tick_s: float

    def due(self, now: float) -> bool:
        """Returns whether now is a tick."""
        if not self.tick_s:
            return True
        nearest_s = round(now / self.tick_s) * self.tick_s
        return abs(now - nearest_s) <= RELATIVE_TOLERANCE * max(1.0, now)

    def next_s(self, now: float) -> float:
        """Returns the first tick after now; infinity where every event is one."""
        if not self.tick_s:
            return inf
        tick = round(now / self.tick_s) if self.due(now) else floor(now / self.tick_s)
        return (tick + 1) * self.tick_s


def check(grouping: Grouping, tick_s: float) -> None:
    """Raises ValueError unless the parameters make sense."""
    if tick_s and not LEAST_PERIOD_S <= tick_s < inf:
        least = f"{LEAST_PERIOD_S:g}"
        raise ValueError(
            f"tick-s is a number of seconds from {least} on, or 0 for every event, not {tick_s:g}"
        )
    if not 1 <= grouping.group_limit <= MEMBERS_MAX:
        raise ValueError(f"group-limit is 1 to {MEMBERS_MAX} members, not {grouping.group_limit}")
    if grouping.matching not in MATCHINGS:
        raise ValueError(f"matching is {' or '.join(MATCHINGS)}, not '{grouping.matching}'")
    if grouping.merge_order not in MERGE_ORDERS:
        raise ValueError(f"merge-order is {' or '.join(MERGE_ORDERS)}")


def decide(view: View, priority: Priority, grouping: Grouping, tick_s: float) -> Decision:
    """Returns the plan from now on; between ticks the plan stays."""
    ticks = Ticks(tick_s)
    if not ticks.due(view.now):
        return Decision(wake_at=ticks.next_s(view.now), because=NO_ROOM if view.waiting else ())
    if not view.waiting and not view.running:
        return Decision(because=())
    rules = rules_of(view, grouping.ordering)
    settled = StayingJobs.of(view, tick_s)
    admitted = _admitted(view, rules, priority, grouping, settled)
    draft = put(view, rules, settled, admitted)
    everybody = len(view.waiting) + len(view.running)
    waits = len(draft.placed) < everybody
    wake_at = ticks.next_s(view.now) if waits else inf
    return Decision(draft, None, wake_at, NO_ROOM if waits else ())


def _admitted(
    view: View, rules: SetRules, priority: Priority, grouping: Grouping, settled: StayingJobs
) -> list[Admitted]:
    capacity = settled.occupancy.free_gpus
    limit = min(grouping.group_limit, rules.members_max)
    lines = take(view, rules, priority, settled, limit)
    entries = sorted(entry for line in lines for entry in line.taken)
    jobs = [job for _, _, job in entries]
    place = {job: i for i, job in enumerate(jobs)}
    buckets = [_bucket(view, rules, line, place) for line in lines]
    groups = [node.members for _, node in group(rules, grouping, buckets, capacity)]
    groups.sort()
    return admit(view, settled, [tuple(jobs[i] for i in places) for places in groups])


def _bucket(view: View, rules: SetRules, line: SizeQueue, place: dict[int, int]) -> SizeBucket:
    """Returns the jobs taken from a line as nodes."""
    kind_of = rules.kind_of
    allowed = view.plan.occupancy.node_sets.groups(view.shape(line.entries[0][2]))
    groups = view.cluster.groups
    memory = min((groups[g].gpu_memory_bytes for one in allowed for g in one), default=inf)
    nodes = [MergeNode((place[job],), (kind_of[job],)) for _, _, job in line.taken]
    runs = ((job, view.running[job].interleave) for _, _, job in line.taken if job in view.running)
    together = {place[job]: seat.set_id for job, seat in runs if seat is not None}
    return SizeBucket(line.gpus, memory, line.alone, nodes, together)


@dataclass(frozen=True, slots=True)
class InterleavedPolicy:
    """The parameters of Muri-S and Muri-L, which choose `order` and `running_keys`; preemptive."""

    tick_s: float = 360.0
    group_limit: int = 4
    matching: str = "blossom"
    merge_order: str = "efficiency"
    autopack: bool = True
    always_group: bool = False
    ordering: str = "best"
    orderings: str = "all"
    ties: str = "submission"

    powers: ClassVar[frozenset[str]] = frozenset({"interleave", "preempt", "migrate"})
    initial: ClassVar[None] = None
    running_keys: ClassVar[Callable[[Running], Floats]]

    def __post_init__(self) -> None:
        check(self.grouping, self.tick_s)
        Priority(type(self).running_keys, self.ties)

    @property
    def priority(self) -> Priority:
        """Returns how running jobs rank, and which of equals goes first."""
        return Priority(type(self).running_keys, self.ties)

    @property
    def grouping(self) -> Grouping:
        """Returns how groups are made."""
        return Grouping(
            self.group_limit,
            self.matching,
            self.merge_order,
            self.autopack,
            self.always_group,
            Ordering.named(self.ordering, self.orderings),
        )

    def decide(self, view: View, memory: object) -> Decision:
        """Groups and places all jobs anew at a tick; between ticks nothing changes."""
        return decide(view, self.priority, self.grouping, self.tick_s)

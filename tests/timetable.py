"""A policy that places jobs as a timetable says, for scenes worked out by hand."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from dovetail.core.order import Order
from dovetail.core.placement import Placement, Spans
from dovetail.core.policy import POWERS, Decision
from dovetail.core.view import View

Orders = Sequence[tuple[float, Mapping[int, Placement | Spans]]]


@dataclass(frozen=True)
class Timetable:
    """Places jobs at given times, on spans or in a manner; an empty tuple stops a job."""

    orders: Orders
    powers: ClassVar[frozenset[str]] = frozenset(POWERS)
    knows: ClassVar[frozenset[str]] = frozenset()
    order: ClassVar[Order] = Order(lambda view, jobs: [0.0] * len(jobs))
    initial: ClassVar[int] = 0

    def decide(self, view: View, memory: object) -> Decision:
        assert isinstance(memory, int)
        draft = view.plan.draft()
        while memory < len(self.orders) and self.orders[memory][0] <= view.now:
            for job, where in self.orders[memory][1].items():
                alive = job in view.running or job in view.waiting
                if alive and where:
                    draft.place(job, where)
                elif job in draft.placed:
                    draft.remove(job)
            memory += 1
        due = self.orders[memory][0] if memory < len(self.orders) else float("inf")
        return Decision(draft, memory, wake_at=due)

"""A policy that decides only at ticks: `inner`, asked every `period_s` and at no other moment.

Schedulers of real clusters run periodically, to bound how often jobs are stopped. Here whatever
happens between two ticks waits for the next one: GPUs that become free stay idle, who arrives
waits, and `inner` sees all changes since its last decision at once. A change at the very moment
of a tick is seen by it, as the first arrival is at 0 s. A tick at which nothing has changed and
`inner` did not ask to be woken passes by: there `inner` would have been asked for nothing.

Source: the testbed of Muri, where all schedulers decide every six minutes (sections 5 and 6.1).
Knows: what `inner` knows. Stops running jobs: if `inner` does.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import ceil, inf

from dovetail.core.order import Order
from dovetail.core.parameters import check_period
from dovetail.core.policy import Decision, Policy, register
from dovetail.core.units import RELATIVE_TOLERANCE
from dovetail.core.view import Changes, View
from dovetail.policies.srtf import Srtf


@dataclass(frozen=True, slots=True)
class Seen:
    """What happened since the inner policy decided last, and when it wants to be woken."""

    memory: object
    wake_at: float = inf
    arrived: tuple[int, ...] = ()
    ended: tuple[int, ...] = ()
    evicted: tuple[int, ...] = ()
    capacity: bool = False

    @property
    def something(self) -> bool:
        """Tells whether anything happened."""
        return bool(self.arrived or self.ended or self.evicted or self.capacity)

    def and_then(self, new: Changes) -> Seen:
        """Returns the same with later changes; who came and went unseen is left out."""
        gone = set(new.ended)
        unseen = gone.intersection(self.arrived)
        stayed = tuple(j for j in (*self.arrived, *new.arrived) if j not in gone)
        evicted = dict.fromkeys(j for j in (*self.evicted, *new.evicted) if j not in gone)
        return replace(
            self,
            arrived=stayed,
            ended=(*self.ended, *(j for j in new.ended if j not in unseen)),
            evicted=tuple(evicted),
            capacity=self.capacity or new.capacity,
        )

    def changes(self, now: float) -> Changes:
        """Returns all of it as the changes of one instant."""
        return Changes(self.arrived, self.ended, self.evicted, self.capacity, self.wake_at <= now)


@register("ticked")
@dataclass(frozen=True, slots=True)
class Ticked:
    """`inner` at the multiples of `period_s`."""

    inner: Policy = field(default_factory=Srtf)
    period_s: float = 360.0

    def __post_init__(self) -> None:
        check_period("period-s", self.period_s)

    @property
    def knows(self) -> frozenset[str]:
        """Returns what the inner policy must know."""
        return self.inner.knows

    @property
    def powers(self) -> frozenset[str]:
        """Returns what the inner policy may do."""
        return self.inner.powers

    @property
    def order(self) -> Order:
        """Returns how the inner policy ranks jobs."""
        return self.inner.order

    @property
    def initial(self) -> Seen:
        """Returns the inner policy's first memory, and that nothing happened."""
        return Seen(self.inner.initial)

    def decide(self, view: View, memory: object) -> Decision:
        """Asks the inner policy if this is a tick, else notes what happened."""
        assert isinstance(memory, Seen)
        seen = memory.and_then(view.changes)
        tick_s = self._tick_s(view.now)
        if tick_s > view.now:
            due_s = tick_s if seen.something else self._next_due_s(view.now, seen.wake_at)
            return Decision(memory=seen, wake_at=due_s)
        decided = self._asked(view, seen)
        return replace(
            decided,
            memory=Seen(decided.memory, decided.wake_at),
            wake_at=self._next_due_s(view.now, decided.wake_at),
        )

    def _asked(self, view: View, seen: Seen) -> Decision:
        """Returns what the inner policy decides when shown all that happened as one change."""
        return self.inner.decide(replace(view, changes=seen.changes(view.now)), seen.memory)

    def _tick_s(self, now: float) -> float:
        """Returns the first tick that is not before a time, that time itself where it is one."""
        tick_s = ceil(now / self.period_s - RELATIVE_TOLERANCE) * self.period_s
        return now if abs(tick_s - now) <= RELATIVE_TOLERANCE * self.period_s else tick_s

    def _next_due_s(self, now: float, wake_at: float) -> float:
        """Returns the first tick after now at which the inner policy wants to be woken."""
        if wake_at == inf:
            return inf
        tick_s = self._tick_s(wake_at)
        return tick_s if tick_s > now else self._tick_s(now + self.period_s)

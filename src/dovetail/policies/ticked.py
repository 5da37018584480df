"""A policy that decides only at ticks: `inner`, called every `period_s` and at no other time.

Schedulers of real clusters run periodically, to limit how often jobs are stopped. Here events
between two ticks wait for the next one: freed GPUs stay idle, arrivals wait, and `inner` sees all
changes since its last decision at once. A change at the instant of a tick belongs to it, like the
first arrival at 0 s. A tick without changes, and without a wake time of `inner`, is skipped.

Source: the testbed of Muri, where all schedulers decide every six minutes (sections 5 and 6.1).
Knows: what `inner` knows. Stops running jobs: if `inner` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import ceil, inf

from dovetail.core.order import Order
from dovetail.core.parameters import check_period
from dovetail.core.policy import (
    Decision,
    Kept,
    Policy,
    heeded,
    kept_of,
    recalled,
    register,
    reserves,
    takes_parts,
)
from dovetail.core.units import RELATIVE_TOLERANCE
from dovetail.core.view import Changes, View
from dovetail.policies.srtf import Srtf


@dataclass(frozen=True, slots=True)
class Seen:
    """The changes since the last decision of the inner policy, and its wake time."""

    memory: object
    wake_at: float = inf
    arrived: tuple[int, ...] = ()
    ended: tuple[int, ...] = ()
    evicted: tuple[int, ...] = ()
    capacity: bool = False

    @property
    def something(self) -> bool:
        """Returns whether anything happened."""
        return bool(self.arrived or self.ended or self.evicted or self.capacity)

    def and_then(self, new: Changes) -> Seen:
        """Returns the memory with later changes, without jobs that came and went between ticks."""
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
        """Returns the knowledge of the inner policy."""
        return self.inner.knows

    @property
    def powers(self) -> frozenset[str]:
        """Returns the powers of the inner policy."""
        return self.inner.powers

    @property
    def heeds(self) -> frozenset[str]:
        """Returns the wishes of jobs that the inner policy heeds."""
        return heeded(self.inner)

    @property
    def reserves(self) -> bool:
        """Returns whether the inner policy keeps GPUs free until a time."""
        return reserves(self.inner)

    @property
    def takes_parts(self) -> bool:
        """Returns whether the inner policy serves parts of GPUs."""
        return takes_parts(self.inner)

    @property
    def order(self) -> Order:
        """Returns the order of the inner policy."""
        return self.inner.order

    @property
    def initial(self) -> Seen:
        """Returns the first memory of the inner policy, without changes."""
        return Seen(self.inner.initial)

    def keep(self, memory: object, name_of: Callable[[int], str]) -> Kept:
        """Returns what the inner policy keeps for its next controller."""
        assert isinstance(memory, Seen)
        return kept_of(self.inner, memory.memory, name_of)

    def recall(self, kept: Kept, row_of: Mapping[str, int]) -> Seen:
        """Returns the first memory, with what the inner policy kept."""
        return Seen(recalled(self.inner, kept, row_of))

    def decide(self, view: View, memory: object) -> Decision:
        """Calls the inner policy at a tick, otherwise stores the changes."""
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
        """Returns the decision of the inner policy on all changes as one."""
        return self.inner.decide(replace(view, changes=seen.changes(view.now)), seen.memory)

    def _tick_s(self, now: float) -> float:
        """Returns the first tick at or after a time."""
        tick_s = ceil(now / self.period_s - RELATIVE_TOLERANCE) * self.period_s
        return now if abs(tick_s - now) <= RELATIVE_TOLERANCE * self.period_s else tick_s

    def _next_due_s(self, now: float, wake_at: float) -> float:
        """Returns the first tick after now at or after the wake time of the inner policy."""
        if wake_at == inf:
            return inf
        tick_s = self._tick_s(wake_at)
        return tick_s if tick_s > now else self._tick_s(now + self.period_s)

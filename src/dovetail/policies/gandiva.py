"""Gandiva: jobs start soon: on free GPUs in order of submission, then packed, then in time slices.

Waiting jobs start on free GPUs in order of submission; a job that does not fit is skipped. While
some still wait, once in every `slice`:

1. Two jobs that have shared GPUs for a slice and together do less than one alone are separated: the
   guest waits again, and jobs of these two kinds are not packed again.
2. A waiting job joins a job of equal size on its GPUs, the least utilised first.
3. Other waiting jobs take GPUs from jobs that have run for a slice, the longest first.

A slice is running time: the time of a switch comes on top.

With `unequal` jobs of other sizes share as well, in co-location sets that are stars (GIMBAL).

When no job waits, guests move to free GPUs; jobs on more nodes than they need move to fewer when
there is room.

Source: Gandiva (OSDI 2018) sections 3 and 4, without grow-shrink; separation below 1 as in Gavel's
artifact; ALGORITHMS section 6. Knows: interference (of jobs it has packed), memory.
Stops running jobs: yes, after a slice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import inf
from typing import ClassVar

from dovetail.core.order import Order
from dovetail.core.plan import Draft
from dovetail.core.policy import Decision, register
from dovetail.core.view import View
from dovetail.mechanisms.elastic.shares import waits
from dovetail.mechanisms.sharing.candidates import SharingCandidates
from dovetail.mechanisms.sharing.gpu_groups import (
    GpuGroup,
    Kinds,
    defragment,
    gangs_of,
    kinds_of,
    pack,
    pack_stars,
    part,
    pays,
)
from dovetail.mechanisms.sharing.named_gpus import neighbours
from dovetail.mechanisms.sharing.time_slices import Turn, take_turns

Urgency = Callable[[View, int], float]
"""Returns the urgency of a job: the smaller the more urgent, infinite for none."""


@dataclass(frozen=True, slots=True)
class Slices:
    """When the slice and the trial of the last pair end, and the kinds not to pack again."""

    next_s: float = -inf
    trial_s: float = -inf
    bad: frozenset[Kinds] = frozenset()


def no_hurry(view: View, job: int) -> float:
    """Returns infinity: no job is more urgent than another."""
    return inf


@register("gandiva")
@dataclass(frozen=True, slots=True)
class Gandiva:
    """First come first served, packing and time slicing; preemptive. `slice` in seconds."""

    slice: float = 60.0
    unequal: bool = False

    knows: ClassVar[frozenset[str]] = frozenset({"interference", "memory"})
    powers: ClassVar[frozenset[str]] = frozenset({"preempt", "migrate", "share"})
    order: ClassVar[Order] = Order(lambda view, jobs: [0.0] * len(jobs))
    initial: ClassVar[Slices] = Slices()
    urgency: ClassVar[Urgency] = no_hurry

    def __post_init__(self) -> None:
        if not 0 < self.slice < inf:
            raise ValueError("a slice is a number of seconds above zero")

    def decide(self, view: View, memory: object) -> Decision:
        """Starts jobs in order; at the end of a slice separates, packs and rotates them."""
        assert isinstance(memory, Slices)
        return _decide(view, memory, self.slice, type(self).urgency, unequal=self.unequal)


def _decide(
    view: View, memory: Slices, slice_s: float, urgency: Urgency, *, unequal: bool
) -> Decision:
    # A slice is running time: with switches longer than a slice, jobs would make no progress.
    slice_s += max(view.switch_s.values(), default=0.0)
    draft, changes = view.plan.draft(), view.changes
    company = SharingCandidates(view, draft, lambda job: False)
    ends = view.now >= memory.next_s
    slices, gangs = memory, None
    if ends and -inf < memory.trial_s <= view.now:
        gangs = gangs_of(view)
        bad = memory.bad | _separate(view, draft, gangs, slice_s)
        slices = replace(memory, trial_s=-inf, bad=bad)
    _fill(view, draft, company)
    if ends and _somebody_waits(view, draft):
        slices = replace(slices, next_s=view.now + slice_s)
        gangs = gangs_of(view) if gangs is None else gangs
        hosts = _pack(view, draft, slices.bad, unequal)
        alone = [gang for gang in gangs if hosts.isdisjoint(gang.jobs)]
        line = _line(view, draft, urgency)
        take_turns(view, draft, company, line, _turns(view, draft, alone, slice_s, urgency))
        if _pack(view, draft, slices.bad, unequal) or hosts:
            slices = replace(slices, trial_s=view.now + slice_s)
    if ends or changes.ended or changes.capacity:
        defragment(view, draft)
        _fill(view, draft, company)
        _resume(view, draft, company)
    if not _somebody_waits(view, draft):
        part(view, draft)
    because = waits(view, draft)
    next_s = slices.next_s if because else inf
    trial_s = slices.trial_s if slices.trial_s > view.now else inf
    return Decision(draft, slices, min(next_s, trial_s), because)


def _separate(view: View, draft: Draft, gangs: list[GpuGroup], slice_s: float) -> set[Kinds]:
    """Stops guests that gained nothing in a shared slice; returns the pairs of kinds."""
    bad: set[Kinds] = set()
    for gang in gangs:
        if len(gang.jobs) < 2 or gang.since_s + slice_s > view.now or pays(view, *gang.jobs):
            continue
        stoppable = [job for job in reversed(gang.jobs) if view.preemptible[job]]
        if stoppable:
            guest = stoppable[0]
            hosts = neighbours(draft, guest, draft.placed[guest])
            draft.remove(guest)
            bad.update(kinds_of(view, guest, host) for host in hosts)
    return bad


def _pack(view: View, draft: Draft, bad: frozenset[Kinds], unequal: bool) -> set[int]:
    """Starts waiting jobs beside others; returns the hosts."""
    hosts = pack(view, draft, _waiting(view, draft), bad)
    if unequal:
        hosts |= pack_stars(view, draft, _waiting(view, draft), bad)
    return hosts


def _fill(view: View, draft: Draft, company: SharingCandidates) -> None:
    """Starts waiting jobs in order on free GPUs; a job that does not fit is skipped."""
    scan = view.waiting.scan(draft.free_gpus)
    while draft.free_gpus and (job := scan.next()) is not None:
        if job not in draft.placed and not company.start(job):
            scan.drop()


def _resume(view: View, draft: Draft, company: SharingCandidates) -> None:
    """Places jobs stopped by this decision where there is room after all."""
    if draft.free_gpus:
        for job in sorted(view.running.keys() - draft.placed.keys()):
            company.start(job)


def _somebody_waits(view: View, draft: Draft) -> bool:
    return len(draft.placed) < len(view.running) + len(view.waiting)


def _waiting(view: View, draft: Draft) -> Iterator[int]:
    return (job for job in view.waiting if job not in draft.placed)


def _line(view: View, draft: Draft, urgency: Urgency) -> list[tuple[float, int]]:
    """Returns (urgency, job) of waiting jobs: most urgent first, then longest waiting."""
    since_s = view.progress.pending_since_s
    line = sorted((urgency(view, job), since_s(job), job) for job in _waiting(view, draft))
    return [(urgent, job) for urgent, _, job in line]


def _turns(
    view: View, draft: Draft, gangs: list[GpuGroup], slice_s: float, urgency: Urgency
) -> list[Turn]:
    """Returns the groups that have run for a slice and whose jobs all may be stopped."""
    over = (gang for gang in gangs if gang.since_s + slice_s <= view.now)
    return [
        Turn(min(urgency(view, job) for job in gang.jobs), gang)
        for gang in over
        if all(job in draft.placed and view.preemptible[job] for job in gang.jobs)
    ]

"""A-SRPT: jobs start in the order in which a virtual machine as large as the cluster ends them.

1. A job enters the virtual machine (preemptive, shortest remaining first) on submission, with
   its predicted length times its share of the cluster's GPUs. When it completes there it joins
   the line, never before; the line is strict.
2. A communication-heavy job (worst over best iteration time at least `comm-heavy`) goes to the
   servers with most free GPUs. If it would run there slower than `comm-heavy` allows, it waits
   for a better placement, at most `tau` times its virtual length, and all behind it wait too.
3. Any other goes to the servers with least free GPUs, and starts at once.

Replicas go to servers by Heavy-Edge; `replicas=refined` then moves them while their iteration gets
shorter (ours). `nonblocking-delay` lets others start while one waits.

Source: A-SRPT section IV.C, Algorithm 1; ALGORITHMS section 5.3 (FIX-16).
Knows: length, scaling. Stops running jobs: no.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

from dovetail.algorithms.persistent_queue import left
from dovetail.algorithms.virtual_machine import NOBODY
from dovetail.core.messages import Reason
from dovetail.core.order import Order
from dovetail.core.passes import Because, behind
from dovetail.core.plan import Draft
from dovetail.core.policy import Decision, register
from dovetail.core.units import RELATIVE_TOLERANCE
from dovetail.core.view import View
from dovetail.mechanisms.pipelines.heavy_edge_placement import GraphSeats
from dovetail.mechanisms.pipelines.virtual_machine import EMPTY, Hold, VirtualLine, moved_on

IN_THE_MACHINE: Because = (Reason("BeginTime"),)
"""Slurm's reason before a job's earliest start: here its virtual completion."""
HEAVY_EDGE, REFINED = "heavy-edge", "refined"
NO_ROOM = Hold(NOBODY, 0.0, inf)
"""The hold of a job that finds too few free GPUs."""


@register("a-srpt")
@dataclass(frozen=True, slots=True)
class ASrpt:
    """Order of virtual completion, placement by how much a job communicates; non-preemptive."""

    tau: float = 1.0
    comm_heavy: float = 1.5
    nonblocking_delay: bool = False
    replicas: str = HEAVY_EDGE

    knows: ClassVar[frozenset[str]] = frozenset({"length", "scaling"})
    powers: ClassVar[frozenset[str]] = frozenset({"delay"})
    order: ClassVar[Order] = Order(lambda view, jobs: [0.0] * len(jobs))
    initial: ClassVar[VirtualLine] = EMPTY

    def __post_init__(self) -> None:
        if not 0 <= self.tau < inf:
            raise ValueError(f"tau is a number from 0 on, not {self.tau:g}")
        if not self.comm_heavy >= 1:
            raise ValueError(f"comm-heavy is a ratio from 1 on, not {self.comm_heavy:g}")
        if self.replicas not in (HEAVY_EDGE, REFINED):
            raise ValueError(f"replicas is {HEAVY_EDGE} or {REFINED}, not {self.replicas}")

    def decide(self, view: View, memory: object) -> Decision:
        """Starts the head of the line until one finds no room or waits for a better place."""
        assert isinstance(memory, VirtualLine)
        line = moved_on(memory, view)
        draft, because = None, IN_THE_MACHINE
        head = line.pending.first
        if line.holds or head is not None:
            if not line.holds and head is not None and _lacks_gpus(view, head):
                because = behind(head)
            else:
                start = _Start(self, view, line)
                line, because = start.all_in_order()
                draft = start.draft
        wake_at = line.machine.end_s
        for hold in line.holds:
            if view.now < hold.until_s < wake_at:
                wake_at = hold.until_s
        return Decision(draft, line, wake_at, because)


def _lacks_gpus(view: View, job: int) -> bool:
    """Returns whether a waiting job needs more GPUs than are free."""
    return view.shape(job).gpus > view.plan.free_gpus and job in view.waiting


class _Start:
    """One decision: jobs leave the line to start, or to wait for a better placement."""

    def __init__(self, policy: ASrpt, view: View, line: VirtualLine) -> None:
        self._policy = policy
        self._view = view
        self._line = line
        self._holds: list[Hold] = []
        self.draft: Draft = view.plan.draft()
        refined = policy.replicas == REFINED
        self._seats = GraphSeats(view, self.draft.occupancy, refined=refined)

    def all_in_order(self) -> tuple[VirtualLine, Because]:
        """Starts jobs in order; returns the rest of the line and why its jobs wait."""
        stopped_by = self._retry_holds()
        pending, waiting = self._line.pending, self._view.waiting
        no_room = False
        while stopped_by is None and (job := pending.first) is not None:
            if job in waiting:
                hold = self._start(job)
                if hold is NO_ROOM:
                    no_room, stopped_by = True, job
                    break
                if hold is not None:
                    self._holds.append(hold)
                    stopped_by = None if self._policy.nonblocking_delay else job
            pending = left(pending)
        line = self._line._replace(pending=pending, holds=tuple(self._holds))
        return line, self._because(stopped_by, no_room)

    def _because(self, stopped_by: int | None, no_room: bool) -> Because:
        if stopped_by is None and not self._holds:
            return IN_THE_MACHINE
        now = self._view.now
        held = [
            Reason("BetterPlacement" if now < hold.until_s else "Resources", job=hold.job)
            for hold in self._holds
        ]
        if stopped_by is None:
            return (*held, *IN_THE_MACHINE)
        if no_room:
            return (*held, *behind(stopped_by))
        return (*held, Reason("Priority", behind=stopped_by))

    def _retry_holds(self) -> int | None:
        """Tries jobs that wait for a better placement; returns the job that blocks all others."""
        stopped_by = None
        for hold in self._line.holds:
            if hold.job not in self._view.waiting:
                continue
            if stopped_by is None and self._start_held(hold):
                continue
            self._holds.append(hold)
            # A job whose time is over takes the next placement before all other jobs.
            over = self._view.now >= hold.until_s
            if stopped_by is None and (over or not self._policy.nonblocking_delay):
                stopped_by = hold.job
        return stopped_by

    def _start_held(self, hold: Hold) -> bool:
        """Starts a held job if its placement is better now, or its time is over."""
        mark = self.draft.savepoint()
        speed = self._place_heavy(hold.job)
        if speed is None:
            return False
        better = speed > hold.speed * (1.0 + RELATIVE_TOLERANCE)
        if better or self._view.now >= hold.until_s:
            return True
        self.draft.undo_to(mark)
        return False

    def _start(self, job: int) -> Hold | None:
        """Starts the head of the line, or returns its hold: NO_ROOM waits for any placement."""
        if not self._is_heavy(job):
            spans = self._seats.on_fullest(job)
            if spans is None:
                return NO_ROOM
            self.draft.place(job, spans)
            return None
        mark = self.draft.savepoint()
        speed = self._place_heavy(job)
        if speed is None:
            return NO_ROOM
        until_s = self._view.now + self._window_s(job)
        if speed * self._policy.comm_heavy >= 1.0 - RELATIVE_TOLERANCE or until_s <= self._view.now:
            return None
        self.draft.undo_to(mark)
        return Hold(job, speed, until_s)

    def _is_heavy(self, job: int) -> bool:
        """Returns whether spreading slows the job too much, exact ties included (line 8)."""
        if self._view.shape(job).gpus == 1:
            return False
        worst = self._view.physics.speed.spread(job)
        return worst * self._policy.comm_heavy <= 1.0 + RELATIVE_TOLERANCE

    def _window_s(self, job: int) -> float:
        """Returns the most seconds that a heavy job waits for a better placement (line 16)."""
        share = self._view.shape(job).gpus / self._line.machine.speed
        return self._policy.tau * share * self._view.progress.left_s((job,))[0]

    def _place_heavy(self, job: int) -> float | None:
        """Places a job on the emptiest servers; returns its speed there, None if it must wait."""
        spans = self._seats.on_emptiest(job)
        if spans is None:
            return None
        self.draft.place(job, spans)
        return self._view.physics.rate(job, self.draft.placed[job], ())

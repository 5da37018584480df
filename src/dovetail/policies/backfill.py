"""EASY backfill, as in Slurm: the head of the queue has a reservation, others may start before it.

Jobs start in order of submission. If the head finds no room, its earliest start is reserved, from
the forecast ends of the running jobs. A later job may start now if it ends before that start, or if
the head does not need its GPUs then.

A job waits only for jobs that could use its nodes: where the GPU types that jobs ask for, or the
nodes that their queues own, have no node in common, each part of the cluster has a head and a
reservation of its own. So Slurm gives up a partition at a time, and plans node by node.

With `--forecast known` lengths are true; with `--forecast limit` they are the users' time limits,
as in Slurm. If gangs may be spread, the reservation counts GPUs, which is exact; otherwise it is
checked node by node.

Source: ALGORITHMS section 6 (Slurm). Knows: length. Stops running jobs: no.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from dovetail.core.messages import START, Reason
from dovetail.core.order import Order
from dovetail.core.passes import behind, refuses
from dovetail.core.plan import Draft
from dovetail.core.policy import Decision, register
from dovetail.core.queue_part import BackfillQueue, disjoint_parts
from dovetail.core.units import NEVER_S
from dovetail.core.view import View


@dataclass(frozen=True, slots=True)
class Reservation:
    """The blocked head, its latest start, and the GPUs that it leaves free then.

    `plan_version` is the plan for which it was computed; while that runs, only arrivals matter.
    """

    head: int
    start_s: float
    extra_gpus: int
    plan_version: int

    def holds(self, view: View, head: int) -> bool:
        """Returns whether this is still the reservation of the head under the running plan."""
        assert view.ends is not None
        # A job that outran its forecast makes the reservation stale.
        overdue = self.start_s <= view.now or (bool(view.ends) and view.ends[0][0] <= view.now)
        same = (self.head, self.plan_version) == (head, view.plan.version)
        # Node by node, a job may find room later that it did not find before: all try again.
        return same and not overdue and _counts_suffice(view, head)


@register("backfill")
@dataclass(frozen=True, slots=True)
class Backfill:
    """Order of submission with one reservation, exclusive, non-preemptive."""

    knows: ClassVar[frozenset[str]] = frozenset({"length"})
    powers: ClassVar[frozenset[str]] = frozenset()
    reserves: ClassVar[bool] = True
    takes_parts: ClassVar[bool] = True
    order: ClassVar[Order] = Order(lambda view, jobs: [0.0] * len(jobs), by_length=True)
    initial: ClassVar[Reservation | None] = None

    def decide(self, view: View, memory: object) -> Decision:
        """Starts jobs from the head on while they fit, then backfills behind it."""
        parts = disjoint_parts(view)
        return self._decided(view, memory) if len(parts) < 2 else _decided_apart(view, parts)

    def _decided(self, view: View, memory: object) -> Decision:
        draft = view.plan.draft()
        head, started = _start_from_head(view, draft)
        if head is None:
            return Decision(draft if started else None, because=())
        because = behind(head)
        if not draft.may_hold_more:
            return Decision(draft if started else None, because=because)
        candidates: Sequence[int] | None = None
        if isinstance(memory, Reservation) and not started and memory.holds(view, head):
            reserved, candidates = memory, view.changes.arrived
        else:
            reserved = _reserve(view, draft, head, started)
        extra, late = _backfill(view, draft, reserved, candidates, started)
        changed = bool(started or late)
        version = view.plan.version + changed
        reserved = Reservation(head, reserved.start_s, extra, version)
        return Decision(draft if changed else None, reserved, because=because)


def _decided_apart(view: View, parts: Sequence[Sequence[int]]) -> Decision:
    """Starts jobs in each part of the cluster as if it were alone."""
    draft = view.plan.draft()
    heads: list[int] = []
    changed = False
    for shapes in parts:
        seen = replace(view, waiting=view.waiting.of_shapes(shapes))
        head, started = _start_from_head(seen, draft)
        changed |= bool(started)
        if head is None:
            continue
        heads.append(head)
        if draft.may_hold_more:
            reserved = _reserve(seen, draft, head, started)
            changed |= bool(_backfill(seen, draft, reserved, None, started)[1])
    because = tuple(Reason("Resources", job=head) for head in heads)
    if len(heads) == 1:
        because = behind(heads[0])
    elif heads:
        because += (Reason("Priority"),)
    return Decision(draft if changed else None, because=because)


def _start_from_head(view: View, draft: Draft) -> tuple[int | None, list[int]]:
    """Starts jobs in order; returns the first that finds no room, and the started ones."""
    started: list[int] = []
    head = view.waiting.first()
    if head is None or view.placing.find(draft.occupancy, view.shape(head)) is None:
        return head, started
    scan = view.waiting.scan()
    while (job := scan.next()) is not None:
        spans = view.placing.find(draft.occupancy, view.shape(job))
        if spans is None:
            return job, started
        draft.place(job, spans)
        started.append(job)
    return None, started


def _held_s(view: View, draft: Draft, job: int) -> float:
    """Returns the seconds that a job placed in this draft is expected to hold its GPUs."""
    speed = view.physics.rate(job, draft.placed[job], ())
    return view.switch_s[START] + view.progress.length_s((job,))[0] / speed


def _ends(view: View, draft: Draft, started: Sequence[int]) -> list[tuple[float, int]]:
    """Returns the forecast ends of the jobs started in this decision, in order."""
    return sorted((view.now + _held_s(view, draft, j), j) for j in started)


def _counts_suffice(view: View, head: int) -> bool:
    """Returns whether the head fits as soon as enough GPUs are free, wherever they are."""
    return not (refuses(view) or view.shape(head).gpu_type)


def _reserve(view: View, draft: Draft, head: int, started: Sequence[int]) -> Reservation:
    """Returns the head's earliest start, from the forecast ends of all running jobs."""
    assert view.ends is not None
    ends = heapq.merge(view.ends, _ends(view, draft, started))
    by_count = _counts_suffice(view, head)
    shape = view.shape(head)
    free = draft.free_gpus
    start_s = NEVER_S
    savepoint = draft.savepoint()
    for end_s, job in ends:
        end_s = max(end_s, view.now)
        if end_s > start_s:
            break
        free += _returned(draft, job)
        if not by_count:
            draft.remove(job)
            free = draft.free_gpus
        if (
            start_s == NEVER_S
            and free >= shape.whole_gpus
            and (by_count or view.placing.find(draft.occupancy, shape) is not None)
        ):
            start_s = end_s
    draft.undo_to(savepoint)
    return Reservation(head, start_s, free - shape.whole_gpus * (start_s < NEVER_S), -1)


def _returned(draft: Draft, job: int) -> int:
    """Returns the GPUs freed by the end of a job, without those of closed nodes."""
    closed = draft.occupancy.closed
    placement = draft.placed[job]
    if not closed:
        return placement.gpus
    return sum(gpus for node, gpus in placement.spans if node not in closed)


def _backfill(
    view: View,
    draft: Draft,
    reserved: Reservation,
    candidates: Sequence[int] | None,
    ahead: Sequence[int],
) -> tuple[int, list[int]]:
    """Starts jobs that do not delay the head; returns the GPUs still extra, and these jobs.

    `candidates` None means all waiting jobs behind the head, in order of submission; `ahead` are
    the jobs that this decision started from the head on.
    """
    extra = reserved.extra_gpus
    slack_s = reserved.start_s - view.now
    queue = BackfillQueue(view, reserved.head, slack_s, candidates)
    by_count = _counts_suffice(view, reserved.head)
    started: list[int] = []
    while draft.may_hold_more and (job := queue.next(draft.free_gpus, extra)) is not None:
        shape = view.shape(job)
        spans = view.placing.find(draft.occupancy, shape)
        if spans is None:
            queue.drop_shape(job)
            continue
        savepoint = draft.savepoint()
        draft.place(job, spans)
        outlives = _held_s(view, draft, job) > slack_s
        if outlives and (
            shape.whole_gpus > extra
            if by_count
            else _delays(view, draft, reserved, [*ahead, *started, job])
        ):
            draft.undo_to(savepoint)
            continue
        started.append(job)
        if outlives:
            extra -= shape.whole_gpus
    return extra, started


def _delays(view: View, draft: Draft, reserved: Reservation, started: Sequence[int]) -> bool:
    """Returns whether the head would find no room at its reserved start, node by node."""
    assert view.ends is not None
    savepoint = draft.savepoint()
    for end_s, job in heapq.merge(view.ends, _ends(view, draft, started)):
        if end_s > reserved.start_s:
            break
        draft.remove(job)
    room = view.placing.find(draft.occupancy, view.shape(reserved.head))
    draft.undo_to(savepoint)
    return room is None

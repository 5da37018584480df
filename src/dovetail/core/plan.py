"""Where jobs run: the current `Plan`, and the `Draft` of it that a policy edits.

A draft is a transaction on the plan: it changes the tables in place, remembers how to undo
each step, and offers savepoints for what-ifs. Nothing is copied for an ordinary decision. A
repack is a draft that starts from an empty cluster; only what differs from the running plan
becomes a change, so an unmoved job costs nothing.

This file and `core.legality` hold the only definition of a legal plan: here the tables refuse
at once what cannot be placed, there a finished decision is checked against its rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol

from dovetail.core.cluster import Cluster
from dovetail.core.errors import IllegalPlan
from dovetail.core.occupancy import Occupancy
from dovetail.core.placement import Placement, Spans


class Change(NamedTuple):
    """One job's step from one placement to another; None means not running."""

    job: int
    before: Placement | None
    after: Placement | None


class RunningPlan(Protocol):
    """The running plan as a policy sees it: to read, and to draft another one from."""

    @property
    def version(self) -> int:
        """Returns a number that grows with every change of the plan."""

    @property
    def placed(self) -> Mapping[int, Placement]:
        """Returns job -> placement."""

    @property
    def occupancy(self) -> Occupancy:
        """Returns the index of free GPUs; read only outside a draft."""

    @property
    def free_gpus(self) -> int:
        """Returns the number of free GPUs on nodes open for work."""

    def draft(self) -> Draft:
        """Returns a draft of the plan as it runs."""

    def repack(self) -> Draft:
        """Returns a draft that starts from an empty cluster."""

    def discard(self) -> None:
        """Rolls an open draft back."""

    def restore(self) -> None:
        """Rebuilds the tables from what runs, whatever a draft has left behind."""

    def is_open(self, draft: Draft) -> bool:
        """True if a draft is the last that was begun, and the plan has not changed since."""


class Plan:
    """The running plan: job -> placement, with its version and the GPUs it leaves free.

    Policies read it; only `commit` changes it, and only a world calls that.
    """

    def __init__(self, occupancy: Occupancy) -> None:
        self.version = 0
        self._occupancy = occupancy
        # Drafts edit a copy: a policy compares its draft with the running plan, which must not
        # change meanwhile.
        self._placed: dict[int, Placement] = {}
        self._shown = MappingProxyType(self._placed)
        occupancy.running = self._shown
        self._drafted: dict[int, Placement] = {}
        self._open: Draft | None = None

    @property
    def placed(self) -> Mapping[int, Placement]:
        """Returns job -> placement; read only."""
        return self._shown

    @property
    def occupancy(self) -> Occupancy:
        """Returns the free-GPU index of the plan; read only outside a draft."""
        return self._occupancy

    @property
    def free_gpus(self) -> int:
        """Returns the number of free GPUs on nodes open for work."""
        return self._occupancy.free_gpus

    def draft(self) -> Draft:
        """Returns a draft of the plan as it runs."""
        return self._begin(Draft(self.version, self._occupancy, self._drafted, None))

    def repack(self) -> Draft:
        """Returns a draft that starts from an empty cluster."""
        return self._begin(Draft(self.version, self._occupancy.emptied(), {}, self._placed))

    def _begin(self, draft: Draft) -> Draft:
        if self._open is not None:
            self._open.rollback()
        self._open = draft
        return draft

    def commit(self, draft: Draft) -> list[Change]:
        """Makes the draft the running plan and returns what changed.

        Raises IllegalPlan if the plan moved meanwhile.
        """
        if not self.is_open(draft):
            raise IllegalPlan(f"the plan moved from version {draft.version} to {self.version}")
        changes = draft.changes()
        self._occupancy, self._drafted = draft.occupancy, draft.placed
        for job, _, after in changes:
            if after is None:
                del self._placed[job]
            else:
                self._placed[job] = after
        self._open = None
        self.version += 1
        return changes

    def discard(self) -> None:
        """Rolls an open draft back."""
        if self._open is not None:
            self._open.rollback()
            self._open = None

    def restore(self) -> None:
        """Rebuilds the tables from what runs.

        A draft that was interrupted in the middle of a step, because the policy raised, cannot be
        rolled back.
        """
        self._open = None
        self._occupancy = self._occupancy.emptied()
        for job, placement in self._placed.items():
            self._occupancy.put_back(job, placement)
        self._drafted = dict(self._placed)

    def is_open(self, draft: Draft) -> bool:
        """True if a draft is the last that was begun, and the plan has not changed since."""
        return draft is self._open and draft.version == self.version

    def remove(self, job: int) -> Placement:
        """Takes a job that ended or was evicted off its GPUs."""
        self.discard()
        placement = self._placed.pop(job)
        del self._drafted[job]
        self._occupancy.release(job, placement)
        self.version += 1
        return placement

    def adopt(self, job: int, placement: Placement) -> None:
        """Adds a running job to the plan. Raises IllegalPlan if its GPUs are not free."""
        self.discard()
        placement = self._occupancy.on_islands(job, placement, None)
        self._occupancy.put_back(job, placement)
        self._placed[job] = self._drafted[job] = placement
        self.version += 1

    def shrink(self, job: int, placement: Placement) -> None:
        """Leaves a job on part of its GPUs, the others being lost with their node."""
        self.discard()
        self._occupancy.release(job, self._placed[job])
        self._occupancy.put_back(job, placement)
        self._placed[job] = self._drafted[job] = placement
        self.version += 1

    def change_nodes(self, cluster: Cluster, nodes: Iterable[int]) -> None:
        """Adopts a cluster in which some nodes changed state; no job may be on a lost node."""
        self.discard()
        self._occupancy.change_nodes(cluster, nodes)
        self.version += 1


class Draft:
    """An editable plan that records its changes and can go back to a savepoint.

    `why` has the jobs that stop for another reason than `messages.PREEMPTED`.
    """

    __slots__ = ("_net", "_origin", "_plain", "_steps", "occupancy", "placed", "version", "why")

    def __init__(
        self,
        version: int,
        occupancy: Occupancy,
        placed: dict[int, Placement],
        origin: dict[int, Placement] | None,
    ) -> None:
        self.version = version
        self.occupancy = occupancy
        self.placed = placed
        self._origin = origin
        self._steps: list[Change] = []
        self._net: tuple[int, list[Change]] = (-1, [])
        self._plain = occupancy.plain_placements
        self.why: dict[int, str] = {}

    @property
    def free_gpus(self) -> int:
        """Returns the number of free GPUs on nodes open for work, as drafted."""
        return self.occupancy.free_gpus

    @property
    def may_hold_more(self) -> bool:
        """True if a GPU is free, or jobs ask for parts: they may find room on GPUs in use."""
        return bool(self.occupancy.free_gpus or self.occupancy.takes_parts)

    def place(self, job: int, where: Placement | Spans) -> None:
        """Puts a job on its GPUs, moving it if it is placed already.

        Raises IllegalPlan when the GPUs are not free.
        """
        before = self.placed.get(job)
        if before is not None:
            self.occupancy.release(job, before)
        try:
            after = where if isinstance(where, Placement) else self._as_requested(job, where)
            if self.occupancy.islands is not None:
                after = self.occupancy.on_islands(job, after, before or self._before(job))
            self.occupancy.hold(job, after)
        except IllegalPlan:
            if before is not None:
                self.occupancy.put_back(job, before)
            raise
        self.placed[job] = after
        self._steps.append(Change(job, before, after))

    def remove(self, job: int) -> None:
        """Takes a job off its GPUs."""
        before = self.placed.pop(job)
        self.occupancy.release(job, before)
        self._steps.append(Change(job, before, None))

    def savepoint(self) -> int:
        """Returns a mark to undo to."""
        return len(self._steps)

    def undo_to(self, savepoint: int) -> None:
        """Undoes every step since the savepoint."""
        # As many other steps may follow, so the number of steps alone cannot show that the net
        # changes are stale.
        self._net = (-1, [])
        while len(self._steps) > savepoint:
            job, before, after = self._steps.pop()
            if after is not None:
                self.occupancy.release(job, after)
                del self.placed[job]
            if before is not None:
                self.occupancy.put_back(job, before)
                self.placed[job] = before

    def rollback(self) -> None:
        """Undoes every step."""
        self.undo_to(0)

    def changes(self) -> list[Change]:
        """Returns the net changes against the running plan, by job."""
        if self._net[0] != len(self._steps):
            self._net = (len(self._steps), self._compared())
        return self._net[1]

    def _compared(self) -> list[Change]:
        if self._origin is not None:
            return self._against(self._origin)
        steps = self._steps
        if len(steps) == 1:
            # NOTE: the usual draft holds one step; this path saves a dictionary.
            return [] if steps[0].before == steps[0].after else list(steps)
        first: dict[int, Placement | None] = {}
        for job, before, _ in steps:
            first.setdefault(job, before)
        placed = self.placed
        net = (Change(job, before, placed.get(job)) for job, before in sorted(first.items()))
        return [c for c in net if c.before != c.after]

    def _against(self, origin: dict[int, Placement]) -> list[Change]:
        placed = self.placed
        changes = []
        for job, before in origin.items():
            after = placed.get(job)
            if after is not before and after != before:
                changes.append(Change(job, before, after))
        changes += [Change(job, None, p) for job, p in placed.items() if job not in origin]
        changes.sort(key=_by_job)
        return changes

    def _as_requested(self, job: int, spans: Spans) -> Placement:
        """Returns the placement of a job: with the part of a GPU that it asked for, on GPUs named.

        It keeps the GPUs that it has on the same nodes, if they have room.
        """
        if self.occupancy.takes_parts:
            part = float(self.occupancy.jobs.gpu_part[job])
            if part < 1.0:
                before = self.placed.get(job) or self._before(job)
                ids = self.occupancy.seats(spans, part, before) if part else ()
                return Placement(spans, ids, gpu_part=part)
        return self._plainly(spans)

    def _before(self, job: int) -> Placement | None:
        """Returns where a repack found a job."""
        return (self._origin or {}).get(job)

    def _plainly(self, spans: Spans) -> Placement:
        # NOTE: most placements recur; sharing the value saves 1 us at each start and makes the
        # comparison of an unmoved job an identity test.
        placement = self._plain.get(spans)
        if placement is None:
            placement = self._plain[spans] = Placement(spans)
        return placement


def _by_job(change: Change) -> int:
    return change.job

"""The GPUs with one job, and starts of waiting jobs on them, for policies that weigh lengths.

A host is a running job that allows sharing and holds GPUs alone. A host without named GPUs gets
names before another job joins, which moves nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from dovetail.core.beliefs import Physics
from dovetail.core.growth import Growing
from dovetail.core.job import Bools, Floats, Ints
from dovetail.core.placement import Placement, Spans
from dovetail.core.plan import Draft
from dovetail.core.view import View
from dovetail.mechanisms.sharing.named_gpus import (
    Gpu,
    free_gpus,
    idle_gpus,
    is_too_spread,
    placement_on,
    try_place,
)
from dovetail.mechanisms.sharing.pair_rules import PairRules

NOT_RUNNING = -1


@dataclass(frozen=True, slots=True)
class Seat:
    """A place for a guest: (row, GPUs) of the hosts, or these GPUs by name.

    `steps` are its accumulation steps; the rest of its gang gets free GPUs.
    """

    hosts: tuple[tuple[int, int], ...]
    steps: int
    gpus: tuple[Gpu, ...] = ()


@dataclass(frozen=True, slots=True)
class Looked:
    """The memory of a decision: the plan for which all waiting jobs were tried.

    `alone` has, by job, the GPUs that it holds alone on open nodes, -1 if it does not run. It
    follows from the plan and saves the next decision the count. If the belief is no longer
    `physics`, all jobs must be tried again.
    """

    plan_version: int
    alone: Ints = field(compare=False, repr=False)
    physics: Physics = field(compare=False, repr=False)

    def holds(self, view: View) -> bool:
        """Returns whether neither plan nor belief has changed since."""
        return self.plan_version == view.plan.version and self.physics is view.physics


class SharedGpus:
    """The hosts of a draft as columns, updated as jobs start in it.

    Per row: `jobs`, their class (`hosts`), their solo seconds left at their placement (`left_s`),
    and the GPUs that they hold alone on open nodes (`alone`).
    """

    def __init__(
        self,
        view: View,
        draft: Draft,
        rules: PairRules,
        memory: object,
        *,
        beside: Bools | None = None,
    ) -> None:
        """Takes whom the policy lets be a host beside the owners, by job; None for all."""
        self.view, self.draft, self.rules = view, draft, rules
        running = view.progress.running()
        jobs = running.jobs
        alone_of = _after_ends(view, rules, memory)
        if alone_of is None:
            rules.learn_all(view, jobs.tolist(), view.running)
            alone_of = np.full(len(view.jobs), NOT_RUNNING, np.int64)
            alone_of[jobs] = running.gpus.astype(np.int64) - _unusable(view)[jobs]
        self._alone_of = alone_of
        alone = alone_of[jobs]
        may = rules.shareable if beside is None else rules.shareable & beside
        rows = np.flatnonzero(may[jobs] & (alone > 0))
        jobs = jobs[rows]
        self._jobs = Growing(jobs)
        self._hosts = Growing(rules.host_of[jobs])
        self._left_s = Growing(running.left_s[rows] / rules.speed_of[jobs])
        self._alone = Growing(alone[rows])
        self._all_named = False

    @property
    def jobs(self) -> Ints:
        """Returns the hosts."""
        return self._jobs.rows

    @property
    def hosts(self) -> Ints:
        """Returns the class of each host."""
        return self._hosts.rows

    @property
    def left_s(self) -> Floats:
        """Returns the solo seconds each host has left."""
        return self._left_s.rows

    @property
    def alone(self) -> Ints:
        """Returns the GPUs each host has alone."""
        return self._alone.rows

    def free_for(self, guest: int) -> int:
        """Returns the number of free GPUs for jobs of a class."""
        return free_gpus(self.draft, self.view.shape(self.rules.pairs.guests[guest].job))

    def gpus_alone(self, row: int) -> list[Gpu]:
        """Returns the named GPUs that the host of a row has alone, in order."""
        occupancy = self.draft.occupancy
        named = occupancy.placement_of[int(self.jobs[row])].named()
        return [g for g in named if g[0] not in occupancy.closed and len(occupancy.named[g]) == 1]

    def name_hosts(self) -> None:
        """Names the GPUs of the hosts that have none by name."""
        if self._all_named:
            return
        self._all_named = True
        for job in self.jobs.tolist():
            placement = self.draft.placed[job]
            if not placement.gpu_ids:
                named = self._named(placement.spans, placement.accumulation_steps)
                self.draft.place(job, named)
                self.rules.learn_all(self.view, (job,), self.draft.placed)

    def looked(self, plan_version: int) -> Looked:
        """Returns the memory for the next decision."""
        return Looked(plan_version, self._alone_of, self.view.physics)

    def single(self) -> Iterator[tuple[Gpu, int]]:
        """Yields the named GPUs with one job, and the job, by node and number."""
        occupancy = self.draft.occupancy
        for node, installed in enumerate(self.view.cluster.installed):
            for gpu in range(installed if node not in occupancy.closed else 0):
                jobs = occupancy.sharers(node, gpu)
                if len(jobs) == 1:
                    yield (node, gpu), jobs[0]

    def start_alone(self, job: int) -> bool:
        """Starts a job on free GPUs by the placement rule; False if it finds no room."""
        view, draft = self.view, self.draft
        spans = view.placing.find(draft.occupancy, view.shape(job))
        if spans is None:
            return False
        if not view.jobs.shareable[job]:
            draft.place(job, spans)
            self._alone_of[job] = self.view.shape(job).gpus
            return True
        memory = min(view.cluster.group_of(n).gpu_memory_bytes for n, _ in spans)
        guest = int(self.rules.guest_of[job])
        placement = self._named(spans, self.rules.pairs.steps_alone(guest, memory))
        draft.place(job, placement)
        self._add(job, placement, placement.gpus)
        return True

    def start_beside(self, job: int, seat: Seat) -> bool:
        """Starts a job on shared GPUs, and free ones for the rest of its gang.

        Returns False and changes nothing if that is not possible.
        """
        draft = self.draft
        # Naming moves no job, so it stays even if the start fails.
        self.name_hosts()
        savepoint = draft.savepoint()
        gpus = list(seat.gpus) or self._taken(seat.hosts)
        shared = len(gpus)
        rest = self.view.shape(job).gpus - shared
        more = self._idle(job, rest) if rest else []
        placement = placement_on([*gpus, *more], seat.steps)
        too_few = len(more) < rest or is_too_spread(self.view, placement)
        if too_few or not try_place(draft, job, placement):
            draft.undo_to(savepoint)
            return False
        for row, count in seat.hosts:
            self.alone[row] -= count
            self._alone_of[self.jobs[row]] -= count
        self._add(job, placement, rest)
        return True

    def _add(self, job: int, placement: Placement, alone: int) -> None:
        """Adds a job that has just started to the hosts."""
        rules = self.rules
        rules.learn_all(self.view, (job,), {job: placement})
        left_s = self.view.progress.left_s((job,))[0] / rules.speed_of[job]
        self._alone_of[job] = alone
        for column, value in (
            (self._jobs, job),
            (self._hosts, rules.host_of[job]),
            (self._left_s, left_s),
            (self._alone, alone),
        ):
            column.extend([value])

    def _named(self, spans: Spans, steps: int) -> Placement:
        """Returns a placement on the lowest idle GPUs of each node."""
        idle: dict[int, list[int]] = {}
        total: dict[int, int] = {}
        for node, count in spans:
            total[node] = total.get(node, 0) + count
        for node, count in total.items():
            idle[node] = list(self.draft.occupancy.idle_ids(node, count))
        ids = []
        for node, count in spans:
            ids.append(tuple(idle[node][:count]))
            del idle[node][:count]
        return Placement(spans, tuple(ids), steps)

    def _taken(self, hosts: Sequence[tuple[int, int]]) -> list[Gpu]:
        """Returns GPUs of each host; if only some of its GPUs, those on few nodes."""
        taken: list[Gpu] = []
        for row, count in hosts:
            gpus = self.gpus_alone(row)
            if count < len(gpus):
                used = {node for node, _ in taken}
                held = Counter(node for node, _ in gpus)
                gpus.sort(key=lambda g: (g[0] not in used, -held[g[0]], g))
            taken += gpus[:count]
        return taken

    def _idle(self, job: int, count: int) -> list[Gpu]:
        """Returns `count` free GPUs by the placement rule, none if there is no room."""
        spans = self.view.placing.find(self.draft.occupancy, self.view.shape(job), count)
        return idle_gpus(self.draft, spans or ())


def _after_ends(view: View, rules: PairRules, memory: object) -> Ints | None:
    """Returns `Looked.alone` updated for ended jobs, None if it must be counted anew."""
    changes, plan = view.changes, view.plan
    if not isinstance(memory, Looked) or memory.physics is not view.physics:
        return None
    if changes.capacity or changes.evicted:
        return None
    known = len(memory.alone)
    gone = [job for job in changes.ended if job < known and memory.alone[job] != NOT_RUNNING]
    if memory.plan_version + len(gone) != plan.version:
        return None
    newer = np.full(len(view.jobs) - known, NOT_RUNNING, np.int64)
    alone = np.concatenate([memory.alone, newer]) if len(newer) else memory.alone.copy()
    closed = plan.occupancy.closed
    for job in gone:
        alone[job] = NOT_RUNNING
        placement = rules.placement_of(job)
        if placement is None:
            if rules.shareable[job]:
                return None
            continue
        for node, gpu in placement.named():
            sharers = plan.occupancy.sharers(node, gpu)
            if len(sharers) == 1 and node not in closed:
                alone[sharers[0]] += 1
    return alone


def _unusable(view: View) -> Ints:
    """Returns, by job, its GPUs that are shared or on closed nodes."""
    occupancy = view.plan.occupancy
    lost = [j for jobs in occupancy.named.values() if len(jobs) > 1 for j in jobs]
    if occupancy.closed:
        lost += [
            jobs[0]
            for (node, _), jobs in occupancy.named.items()
            if len(jobs) == 1 and node in occupancy.closed
        ]
        for job, placement in view.running.items():
            if not placement.gpu_ids:
                held = placement.spans
                lost += [job for n, g in held if n in occupancy.closed for _ in range(g)]
    return np.bincount(np.array(lost, np.int64), minlength=len(view.jobs))

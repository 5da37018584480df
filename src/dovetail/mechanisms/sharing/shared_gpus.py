"""The GPUs that hold one job, whose they are, and how a waiting job gets onto them.

A host is a running job that allows sharing and holds GPUs alone. GPUs are shared by naming
them, so a job that allows sharing is started on named GPUs, and a host that holds a mere count
gets its GPUs named first, which moves nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from dovetail.core.beliefs import Physics
from dovetail.core.job import Floats, Ints
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
    """Where a guest goes: so many GPUs of these rows of the hosts, or these very GPUs.

    `steps` are its accumulation steps; what is missing to its gang comes from the free GPUs.
    """

    hosts: tuple[tuple[int, int], ...]
    steps: int
    gpus: tuple[Gpu, ...] = ()


@dataclass(frozen=True, slots=True)
class Looked:
    """What a decision leaves for the next: the plan for which all that waits was looked at.

    `alone` says, by job, how many GPUs it holds alone on nodes open for work, -1 where it does
    not run. It follows from the plan, which spares the next decision to count it again. Under
    another belief than `physics` all must be looked at again.
    """

    plan_version: int
    alone: Ints = field(compare=False, repr=False)
    physics: Physics = field(compare=False, repr=False)

    def holds(self, view: View) -> bool:
        """Tells whether nothing changed since: neither what runs nor what is believed."""
        return self.plan_version == view.plan.version and self.physics is view.physics


class SharedGpus:
    """The hosts of a draft as columns, kept up to date as jobs start in it.

    Per row: `jobs`, their class (`hosts`), the solo seconds they have left where they are
    (`left_s`), and how many GPUs they hold alone on nodes open for work (`alone`).
    """

    def __init__(self, view: View, draft: Draft, rules: PairRules, memory: object) -> None:
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
        rows = np.flatnonzero(rules.shareable[jobs] & (alone > 0))
        jobs = jobs[rows]
        self._count = len(rows)
        self._jobs: Ints = jobs
        self._hosts: Ints = rules.host_of[jobs]
        self._left_s: Floats = running.left_s[rows] / rules.speed_of[jobs]
        self._alone: Ints = alone[rows]
        self._all_named = False

    @property
    def jobs(self) -> Ints:
        """Returns the hosts."""
        return self._jobs[: self._count]

    @property
    def hosts(self) -> Ints:
        """Returns the class of each host."""
        return self._hosts[: self._count]

    @property
    def left_s(self) -> Floats:
        """Returns the solo seconds each host has left."""
        return self._left_s[: self._count]

    @property
    def alone(self) -> Ints:
        """Returns the GPUs each host holds alone."""
        return self._alone[: self._count]

    def free_for(self, guest: int) -> int:
        """Returns the free GPUs that jobs of a class may have, by count."""
        return free_gpus(self.view, self.draft, self.rules.pairs.guests[guest].gpu_type)

    def gpus_alone(self, row: int) -> list[Gpu]:
        """Returns the named GPUs that the host of a row holds alone, in order."""
        occupancy = self.draft.occupancy
        named = occupancy.placement_of[int(self._jobs[row])].named()
        return [g for g in named if g[0] not in occupancy.closed and len(occupancy.named[g]) == 1]

    def name_hosts(self) -> None:
        """Names the GPUs of the hosts that hold a mere count of them."""
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
        """Returns what the next decision needs to know of this one."""
        return Looked(plan_version, self._alone_of, self.view.physics)

    def single(self) -> Iterator[tuple[Gpu, int]]:
        """Yields the named GPUs that hold one job, and the job, by node and number."""
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

        False, and nothing changes, where that is not to be had.
        """
        draft = self.draft
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
            self._alone[row] -= count
            self._alone_of[self._jobs[row]] -= count
        self._add(job, placement, rest)
        return True

    def _add(self, job: int, placement: Placement, alone: int) -> None:
        """Makes a job that has just started a host."""
        rules, row = self.rules, self._count
        rules.learn_all(self.view, (job,), {job: placement})
        if row == len(self._jobs):
            more = max(64, row)
            self._jobs = np.concatenate([self._jobs, np.zeros(more, np.int64)])
            self._hosts = np.concatenate([self._hosts, np.zeros(more, np.int64)])
            self._left_s = np.concatenate([self._left_s, np.zeros(more)])
            self._alone = np.concatenate([self._alone, np.zeros(more, np.int64)])
        self._count += 1
        self._alone_of[job] = alone
        self._jobs[row] = job
        self._hosts[row] = rules.host_of[job]
        self._left_s[row] = self.view.progress.left_s((job,))[0] / rules.speed_of[job]
        self._alone[row] = alone

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
        """Returns GPUs of each host; one that gives only some gives them on few nodes."""
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
        """Returns free GPUs by the placement rule, fewer than `count` if there is no room."""
        spans = self.view.placing.find(self.draft.occupancy, self.view.shape(job), count)
        return idle_gpus(self.draft, spans or ())


def _after_ends(view: View, rules: PairRules, memory: object) -> Ints | None:
    """Returns `Looked.alone` as it is now that jobs have ended, or None if that cannot be told."""
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
            left = plan.occupancy.sharers(node, gpu)
            if len(left) == 1 and node not in closed:
                alone[left[0]] += 1
    return alone


def _unusable(view: View) -> Ints:
    """Returns, by job, the GPUs it shares already or holds on nodes closed for work."""
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

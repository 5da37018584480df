"""What is the same at every decision about who may share with whom: by classes, reckoned once.

Waiting jobs of one guest class, and running ones of one host class, are alike in everything
that sharing asks of physics; only how long they have left differs from job to job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from dovetail.algorithms.pair_sharing import NEVER, overlapped_many_s, pays, threshold
from dovetail.core.growth import Growing
from dovetail.core.job import Bools, Floats, Ints
from dovetail.core.kinds import Kinds
from dovetail.core.placement import Placement
from dovetail.core.queue import WaitingQueue
from dovetail.core.view import View

UNSEEN = -1
S = TypeVar("S", bound=np.generic)


class HostClass(NamedTuple):
    """Hosts alike: kind, accumulation steps, memory of their GPUs, and their type ("" if mixed)."""

    kind: int
    steps: int
    memory_bytes: float
    gpu_type: str


class GuestClass(NamedTuple):
    """Waiting jobs alike: kind, shape, and whether they share; `gpu_type` is what they ask for."""

    kind: int
    gpu_type: str
    shareable: bool


@dataclass(slots=True)
class GuestRow:
    """One guest class against the host classes met so far: columns are hosts, lines are steps.

    `cut` is what a second alone takes with each number of steps, `uncut` with those a job alone
    on such GPUs runs with. Where `fits` is false the two exceed the memory. `held_bytes` is what
    the guest holds on a GPU with each number of steps.
    """

    steps: list[int]
    held_bytes: list[float]
    cut: Floats
    uncut: Floats
    host_ratio: Floats
    guest_ratio: Floats
    fits: Bools


class PairRules:
    """The classes of a run, and what physics says of each pair of them.

    By guest and host class: `reach` is the longest guest, in seconds per second the host has
    left, for which sharing pays; `fewest` the fewest steps with which it fits, 0 if none do.
    Unless `weighs`, nothing is asked of speeds and ratios, which then count as 1.
    """

    def __init__(self, view: View, weighs: bool) -> None:
        self.weighs = weighs
        self.physics = view.physics
        self._classes = Kinds(_keys(view, 0))
        self.guests: list[GuestClass] = []
        self._host_of: Growing[np.int64] = Growing(np.empty(0, np.int64))
        self._speed_of: Growing[np.float64] = Growing(np.empty(0))
        self._seen: list[Placement | None] = []
        self._hosts: dict[HostClass, int] = {}
        self._host_example: list[int] = []
        self._host_bytes: list[float] = []
        self._rows: list[GuestRow | None] = []
        self._reach: Growing[np.float64] = Growing(np.empty((0, 16)))
        self._fewest: Growing[np.int64] = Growing(np.empty((0, 16), np.int64))
        self._make_room(view, range(len(self._classes)))

    def admit(self, view: View) -> None:
        """Takes note of jobs that were appended to the table since."""
        if len(self._seen) < len(view.jobs):
            self._make_room(view, self._classes.admit(_keys(view, len(self._seen))))

    def _make_room(self, view: View, classes: range) -> None:
        """Makes room for jobs not seen before, some of them of new classes."""
        self.shareable: Bools = view.jobs.shareable
        jobs = len(view.jobs) - len(self._seen)
        self.host_of = self._host_of.extend(np.full(jobs, UNSEEN, np.int64))
        self.speed_of = self._speed_of.extend(np.ones(jobs))
        self._seen += [None] * jobs
        for number in classes:
            job = self._classes.example[number]
            kind, shares = int(view.physics.kind_of[job]), bool(view.jobs.shareable[job])
            self.guests.append(GuestClass(kind, view.shape(job).gpu_type, shares))
        self.guest_of: Ints = self._classes.of
        self._guest_example = self._classes.example
        self.guest_gpus: Ints = view.jobs.gpus[self._guest_example]
        self._rows += [None] * len(classes)
        self.reach = self._reach.extend(np.zeros((len(classes), self._reach.rows.shape[1])))
        more = np.zeros((len(classes), self._fewest.rows.shape[1]), np.int64)
        self.fewest = self._fewest.extend(more)

    def learn_all(self, view: View, jobs: Sequence[int], placed: Mapping[int, Placement]) -> None:
        """Notes the host class of running jobs, and their speed alone, where they are now."""
        seen = self._seen
        for job in [j for j in jobs if seen[j] is not placed[j]]:
            self._learn(view, job, placed[job])

    def placement_of(self, job: int) -> Placement | None:
        """Returns where a job was when it was last learned."""
        return self._seen[job]

    def _learn(self, view: View, job: int, placement: Placement) -> None:
        groups = [view.cluster.group_of(node) for node, _ in placement.spans]
        types = {g.gpu_type for g in groups}
        host = HostClass(
            int(view.physics.kind_of[job]),
            placement.accumulation_steps,
            min(g.gpu_memory_bytes for g in groups),
            types.pop() if len(types) == 1 else "",
        )
        speed = view.physics.speed(job, placement, ()) if self.weighs else 1.0
        if host not in self._hosts:
            # Asked first: should physics raise, nothing is half noted.
            self._host_bytes.append(view.physics.footprint_bytes(job, host.steps))
            self._hosts[host] = len(self._hosts)
            self._host_example.append(job)
            if len(self._hosts) > self.reach.shape[1]:
                self._reach, self._fewest = _twice(self._reach), _twice(self._fewest)
                self.reach, self.fewest = self._reach.rows, self._fewest.rows
        self.host_of[job] = self._hosts[host]
        self.speed_of[job] = speed
        self._seen[job] = placement

    def meet(self, guests: Ints) -> None:
        """Reckons some guest classes against the host classes they have not met."""
        for guest in guests.tolist():
            row = self._rows[guest]
            if row is None or row.fits.shape[1] < len(self._hosts):
                self.row(guest)

    def row(self, guest: int) -> GuestRow:
        """Returns a guest class against all host classes known so far."""
        row = self._rows[guest]
        if row is None:
            row = self._rows[guest] = self._empty_row(guest)
        known = row.fits.shape[1]
        if known < len(self._hosts):
            hosts = list(zip(self._hosts, self._host_example, self._host_bytes, strict=True))
            columns = [self._column(guest, row, *host) for host in hosts[known:]]
            uncut, fits, host_ratio, guest_ratio = zip(*columns, strict=True)
            row.uncut = np.append(row.uncut, uncut)
            row.fits = np.column_stack([row.fits, *fits])
            row.host_ratio = np.column_stack([row.host_ratio, *host_ratio])
            row.guest_ratio = np.column_stack([row.guest_ratio, *guest_ratio])
            for column in range(known, len(hosts)):
                self._judge(guest, row, column)
        return row

    def steps_alone(self, job: int, memory_bytes: float) -> int:
        """Returns the fewest steps with which a job fits GPUs alone; 1 if it never does."""
        row = self.row(int(self.guest_of[job]))
        return _fewest(row, memory_bytes) or 1

    def _empty_row(self, guest: int) -> GuestRow:
        physics, job = self.physics, self._guest_example[guest]
        # Algorithm 2 halves the batch.
        steps = [1 << i for i in range(max(1, physics.most_steps(job)).bit_length())]
        none = np.zeros((len(steps), 0))
        return GuestRow(
            steps,
            [physics.footprint_bytes(job, s) for s in steps],
            np.array([1.0 / physics.accumulated(job, s) if self.weighs else 1.0 for s in steps]),
            np.zeros(0),
            none,
            none,
            none.astype(bool),
        )

    def _column(
        self, guest: int, row: GuestRow, host: HostClass, other: int, other_bytes: float
    ) -> tuple[float, Bools, Floats, Floats]:
        """Returns uncut, fits and both ratios of a guest class against one host class."""
        wanted, job = self.guests[guest], self._guest_example[guest]
        lines = len(row.steps)
        fits, host_ratio, guest_ratio = np.zeros(lines, bool), np.ones(lines), np.ones(lines)
        alone = _fewest(row, host.memory_bytes) or 1
        if wanted.shareable and wanted.gpu_type in ("", host.gpu_type):
            for line, steps in enumerate(row.steps):
                if other_bytes + row.held_bytes[line] > host.memory_bytes:
                    continue
                fits[line] = True
                if not self.weighs:
                    continue
                guest_ratio[line], host_ratio[line] = self.physics.interference(
                    job, steps, other, host.steps
                )
        return float(row.cut[row.steps.index(alone)]), fits, host_ratio, guest_ratio

    def _judge(self, guest: int, row: GuestRow, column: int) -> None:
        """Fills in `reach` and `fewest` of one pair of classes."""
        uncut = float(row.uncut[column])
        for line in np.flatnonzero(row.fits[:, column]).tolist():
            if not self.fewest[guest, column]:
                self.fewest[guest, column] = row.steps[line]
            ratios = float(row.host_ratio[line, column]), float(row.guest_ratio[line, column])
            longest = threshold(*ratios, float(row.cut[line]), uncut)
            self.reach[guest, column] = max(self.reach[guest, column], longest)


def _fewest(row: GuestRow, memory_bytes: float) -> int:
    """Returns the fewest steps with which a guest fits GPUs alone, 0 if none do."""
    fitting = (s for s, b in zip(row.steps, row.held_bytes, strict=True) if b <= memory_bytes)
    return next(fitting, 0)


@dataclass(frozen=True, slots=True)
class Offers:
    """Hosts that gain from one newcomer, with its steps, the pair's mean JCT and the benefit."""

    steps: Ints
    pair_s: Floats
    benefit_s: Floats
    pays: Bools


def offers(row: GuestRow, hosts: Ints, left_s: Floats, guest_s: float) -> Offers:
    """Returns `algorithms.pair_sharing.best_sub_batch` for many hosts at once.

    `hosts` are host classes, `left_s` what each has left, `guest_s` the newcomer's solo length.
    """
    both: NDArray[np.float64] = overlapped_many_s(
        left_s[None, :],
        guest_s * row.cut[:, None],
        row.host_ratio[:, hosts],
        row.guest_ratio[:, hosts],
    )
    both = np.where(row.fits[:, hosts], both, NEVER)
    line = np.argmin(both, axis=0)
    best = both[line, np.arange(len(hosts))]
    waits = 2.0 * left_s + guest_s * row.uncut[hosts]
    return Offers(np.array(row.steps)[line], best / 2.0, waits - best, pays_many(best, waits))


def pays_many(overlapped: Floats, sequential: Floats) -> Bools:
    """Returns `pays` of many pairs at once."""
    found: Bools = np.asarray(pays(overlapped, sequential))  # type: ignore[arg-type]
    return found


def _keys(view: View, first: int) -> Ints:
    """Returns what tells classes of guests apart, from one job on."""
    kinds, shapes = view.physics.kind_of[first:], np.array(view.shape_of[first:], np.int64)
    return np.stack([kinds, shapes, view.jobs.shareable[first:].astype(np.int64)])


def _twice(table: Growing[S]) -> Growing[S]:
    """Returns a table with as many empty columns again."""
    return Growing(np.concatenate([table.rows, np.zeros_like(table.rows)], axis=1))


_rules: WeakKeyDictionary[WaitingQueue, PairRules] = WeakKeyDictionary()
# NOTE: remembers what depends on the run alone, so deciding stays a pure function of the view;
# reckoned anew at each decision it would cost a hundred times the decision itself.


def rules_of(view: View, *, weighs: bool) -> PairRules:
    """Returns the rules of the run a view looks upon."""
    rules = _rules.get(view.waiting)
    if rules is None or rules.physics is not view.physics or rules.weighs != weighs:
        rules = _rules[view.waiting] = PairRules(view, weighs)
    rules.admit(view)
    return rules

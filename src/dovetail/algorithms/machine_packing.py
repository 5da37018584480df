"""Placement of regulated shares on whole machines (CoDDL: section 4.4, Proposition 1).

Jobs of whole machines get machines of their own, and every other job lies on one machine; so no
machine has two jobs that use the network. Among such placements the one is wanted in which the most
jobs keep a GPU they hold (the others migrate), and then the most GPUs are kept. The paper states
this aim but no method. Ours is exact for whole-machine jobs among themselves (assignment) and
greedy for the others; tests measure how often the result is optimal.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

import numpy as np

from dovetail.algorithms.regulation import is_allowed

Placement = tuple[tuple[int, int], ...]
"""(machine, GPUs on it) of a job, by machine."""
Held = Mapping[int, int]
"""The GPUs of a job now, by machine."""

WEIGHED_SLOTS_MAX = 400
"""Missing machines of whole-machine jobs up to which all are assigned by weight.

Assignment takes 5 ms at 600 x 1,250. Above this, only machines of jobs with part of a machine to
keep are; the other jobs take the machines where the fewest small jobs lose their place.
"""


def pack(
    shares: Sequence[int], held: Sequence[Held], gpus_per_machine: int, machines: Sequence[int]
) -> list[Placement]:
    """Returns the placement of each job's share on the open machines, near its present one.

    Shares are allowed ones (`regulation.regulate`) that fit the machines; GPUs held on other
    machines are lost. Each job uses as few machines as it can, and no machine has two jobs that
    use more than one.
    """
    _check(shares, held, gpus_per_machine, machines)
    left = set(machines)
    settled = [
        _settled(share, holding, gpus_per_machine, left)
        for share, holding in zip(shares, held, strict=True)
    ]
    if all(settled):
        placements: list[Placement] = [tuple(sorted(holding.items())) for holding in held]
    else:
        placements = [()] * len(shares)
        for job, own in _whole_machines(shares, held, gpus_per_machine, sorted(machines)).items():
            placements[job] = tuple((machine, gpus_per_machine) for machine in sorted(own))
            left.difference_update(own)
        for job, machine in _packed_parts(shares, held, settled, gpus_per_machine, left).items():
            placements[job] = ((machine, shares[job]),)
    assert_packed(placements, shares, gpus_per_machine)
    return placements


def assert_packed(
    placements: Sequence[Placement], shares: Sequence[int], gpus_per_machine: int
) -> None:
    """Asserts Proposition 1: fewest machines, one spread job per machine; and that all fit."""
    used: dict[int, int] = {}
    spread: set[int] = set()
    for place, share in zip(placements, shares, strict=True):
        assert len(place) == -(-share // gpus_per_machine)
        total = 0
        for machine, gpus in place:
            total += gpus
            used[machine] = used.get(machine, 0) + gpus
        assert total == share
        if len(place) > 1:
            assert all(machine not in spread for machine, _ in place)
            spread.update(machine for machine, _ in place)
    assert max(used.values(), default=0) <= gpus_per_machine


def _check(
    shares: Sequence[int], held: Sequence[Held], gpus_per_machine: int, machines: Sequence[int]
) -> None:
    if len(shares) != len(held):
        raise ValueError("every job needs a share and what it holds")
    if not all(is_allowed(share, gpus_per_machine) for share in shares):
        raise ValueError("only parts of a machine by halves, or whole machines, can be packed")
    if sum(shares) > gpus_per_machine * len(machines):
        raise ValueError("the shares are more than the machines have")


def _settled(share: int, holding: Held, gpus_per_machine: int, machines: set[int]) -> bool:
    """Returns whether the GPUs that a job holds are already a placement of its share."""
    if len(holding) != -(-share // gpus_per_machine) or sum(holding.values()) != share:
        return False
    return machines.issuperset(holding)


def _whole_machines(
    shares: Sequence[int], held: Sequence[Held], gpus_per_machine: int, machines: list[int]
) -> dict[int, list[int]]:
    """Returns the machines of each whole-machine job.

    A machine that a job holds alone stays with it: no other job has a GPU to keep there.
    """
    own: dict[int, list[int]] = {}
    free = set(machines)
    for job, share in enumerate(shares):
        if share >= gpus_per_machine:
            full = sorted(m for m, g in held[job].items() if g == gpus_per_machine and m in free)
            own[job] = full[: share // gpus_per_machine]
            free.difference_update(own[job])
    missing = {
        job: share // gpus_per_machine - len(own[job])
        for job, share in enumerate(shares)
        if job in own and share > len(own[job]) * gpus_per_machine
    }
    if missing:
        left = [m for m in machines if m in free]
        loss = _losses(shares, held, gpus_per_machine, left)
        for job, machine in _assigned(missing, own, held, loss):
            own[job].append(machine)
    return own


def _losses(
    shares: Sequence[int], held: Sequence[Held], gpus_per_machine: int, machines: list[int]
) -> dict[int, tuple[int, int]]:
    """Returns, by machine, how many jobs (and GPUs) of part of a machine could stay there."""
    staying: dict[int, list[tuple[int, int]]] = {machine: [] for machine in machines}
    for share, holding in zip(shares, held, strict=True):
        if 0 < share < gpus_per_machine:
            for machine, gpus in holding.items():
                if machine in staying:
                    staying[machine].append((share, min(share, gpus)))
    losses = {}
    for machine, jobs in staying.items():
        room, count, gpus = gpus_per_machine, 0, 0
        for share, keeps in sorted(jobs):
            if share <= room:
                room, count, gpus = room - share, count + 1, gpus + keeps
        losses[machine] = (count, gpus)
    return losses


def _assigned(
    missing: dict[int, int],
    own: dict[int, list[int]],
    held: Sequence[Held],
    losses: dict[int, tuple[int, int]],
) -> Iterable[tuple[int, int]]:
    """Yields (job, machine) for each missing machine, by an assignment of the greatest weight.

    A kept job weighs more than all GPUs together. It counts only at the first slot of the job,
    and only if the job has no machine yet.
    """
    from scipy.optimize import linear_sum_assignment

    machines = list(losses)
    column = {machine: c for c, machine in enumerate(machines)}
    a_job = 1 + sum(sum(holding.values()) for holding in held)
    loss = np.array([jobs * a_job + gpus for jobs, gpus in losses.values()], dtype=np.float64)
    slots, others = _weighed_slots(missing, held, column.keys())
    cost = np.tile(loss, (len(slots), 1))
    for slot, job in enumerate(slots):
        first = not own[job] and (slot == 0 or slots[slot - 1] != job)
        for machine, gpus in held[job].items():
            if machine in column and gpus:
                cost[slot, column[machine]] -= gpus + first * a_job
    rows, columns = linear_sum_assignment(cost)
    yield from (
        (slots[r], machines[c]) for r, c in zip(rows.tolist(), columns.tolist(), strict=True)
    )
    taken = set(columns.tolist())
    cheapest = (c for c in np.argsort(loss, kind="stable").tolist() if c not in taken)
    yield from ((job, machines[c]) for job, c in zip(others, cheapest, strict=False))


def _weighed_slots(
    missing: dict[int, int], held: Sequence[Held], machines: Set[int]
) -> tuple[list[int], list[int]]:
    """Returns the job of each missing machine that is assigned by weight, and of the others.

    Above `WEIGHED_SLOTS_MAX` a job has as many weighed slots as machines on which it has GPUs.
    """
    all_weighed = sum(missing.values()) <= WEIGHED_SLOTS_MAX
    slots: list[int] = []
    others: list[int] = []
    for job, count in missing.items():
        partly = sum(machine in machines for machine in held[job])
        weighed = count if all_weighed else min(count, partly)
        slots += [job] * weighed
        others += [job] * (count - weighed)
    return slots, others


def _packed_parts(
    shares: Sequence[int],
    held: Sequence[Held],
    settled: Sequence[bool],
    gpus_per_machine: int,
    machines: set[int],
) -> dict[int, int]:
    """Returns the machine of each job of part of one: the better of two greedy packings.

    Smallest first keeps the most jobs on their machine; largest first leaves fewer gaps. Machines
    with settled jobs only need no choice: their jobs are put back once for both packings.
    """
    parts = [j for j, share in enumerate(shares) if 0 < share < gpus_per_machine]
    contested = {machine for j in parts if not settled[j] for machine in held[j]}
    calm = _Shelf(
        gpus_per_machine,
        dict.fromkeys(machines, gpus_per_machine),
        {machine: {} for machine in machines},
    )
    movable = []
    for j in parts:
        if settled[j] and machines.issuperset(held[j]) and contested.isdisjoint(held[j]):
            calm.put(j, shares[j], *held[j])
        else:
            movable.append(j)
    tried: list[tuple[tuple[int, int], int, dict[int, int]]] = []
    for sign in (1, -1):
        shelf = calm.copied()
        for j in sorted(movable, key=lambda j: (sign * shares[j], j)):
            shelf.keep(j, shares[j], held[j])
        shelf.fit([j for j in movable if j not in shelf.machine_of], shares, held)
        tried.append((shelf.losses(movable, shares, held), len(tried), shelf.machine_of))
        if tried[0][0] == (0, 0):
            break  # no packing loses less
    return min(tried)[2]


@dataclass(slots=True)
class _Shelf:
    """Machines and the small jobs placed on them so far."""

    gpus_per_machine: int
    free: dict[int, int]
    on: dict[int, dict[int, int]]
    machine_of: dict[int, int] = field(default_factory=dict)
    evicted: set[int] = field(default_factory=set)
    with_free: list[list[int]] = field(default_factory=list)
    """Heaps of machines by free GPUs, built by `fit`; entries of other counts are stale."""

    def copied(self) -> _Shelf:
        """Returns an independent copy."""
        on = {machine: dict(jobs) for machine, jobs in self.on.items()}
        return _Shelf(self.gpus_per_machine, dict(self.free), on, dict(self.machine_of))

    def losses(
        self, movable: list[int], shares: Sequence[int], held: Sequence[Held]
    ) -> tuple[int, int]:
        """Returns the number of jobs (and GPUs) that could stay, each by itself, but do not."""
        jobs = gpus = 0
        for job in self.evicted.union(movable):
            could = max(
                (min(g, shares[job]) for m, g in held[job].items() if m in self.on), default=0
            )
            does = min(shares[job], held[job].get(self.machine_of[job], 0))
            jobs += (could > 0) - (does > 0)
            gpus += could - does
        return jobs, gpus

    def put(self, job: int, share: int, machine: int) -> None:
        self.machine_of[job] = machine
        self.on[machine][job] = share
        self._change(machine, -share)

    def take(self, job: int) -> None:
        machine = self.machine_of.pop(job)
        self._change(machine, self.on[machine].pop(job))

    def _change(self, machine: int, gpus: int) -> None:
        self.free[machine] += gpus
        if self.with_free:
            heapq.heappush(self.with_free[self.free[machine]], machine)

    def keep(self, job: int, share: int, holding: Held) -> bool:
        """Puts a job where it keeps the most GPUs and has room; False if nowhere."""
        rooms = [
            (-min(g, share), m) for m, g in holding.items() if g and self.free.get(m, 0) >= share
        ]
        if rooms:
            self.put(job, share, min(rooms)[1])
        return bool(rooms)

    def fit(self, jobs: list[int], shares: Sequence[int], held: Sequence[Held]) -> None:
        """Places the other jobs, largest first; a job that fits nowhere evicts smaller ones.

        Shares are halves of a machine, so larger jobs fill it evenly: evicting smaller jobs always
        makes room somewhere. The evicted jobs are smaller, so they are placed later.
        """
        self.with_free = [[] for _ in range(self.gpus_per_machine + 1)]
        for machine in sorted(self.free):
            self.with_free[self.free[machine]].append(machine)
        queue = [(-shares[job], job) for job in jobs]
        heapq.heapify(queue)
        while queue:
            share, job = -queue[0][0], heapq.heappop(queue)[1]
            if self.keep(job, share, held[job]):
                continue
            roomy = self._tightest(share)
            machine, out = self._cheapest_eviction(share, held) if roomy is None else (roomy, [])
            self.evicted.update(out)
            for other in out:
                self.take(other)
                heapq.heappush(queue, (-shares[other], other))
            self.put(job, share, machine)

    def _tightest(self, share: int) -> int | None:
        """Returns the machine with the fewest free GPUs that suffice, None if there is none."""
        for gpus in range(share, self.gpus_per_machine + 1):
            heap = self.with_free[gpus]
            while heap and self.free[heap[0]] != gpus:
                heapq.heappop(heap)
            if heap:
                return heap[0]
        return None

    def _cheapest_eviction(self, share: int, held: Sequence[Held]) -> tuple[int, list[int]]:
        """Returns the machine with the cheapest eviction for a share, and the jobs to evict."""
        choices = []
        for machine in sorted(self.free):
            room, out, lost = self.free[machine], [], 0
            smaller = [(s, j) for j, s in self.on[machine].items() if s < share]
            for other, job in sorted(smaller, key=lambda pair: (-pair[0], pair[1])):
                if room >= share:
                    break
                room += other
                out.append(job)
                lost += min(other, held[job].get(machine, 0))
            if room >= share:
                choices.append((len(out), lost, machine, out))
        _, _, machine, out = min(choices)
        return machine, out

"""Physics of guest classes beside host classes, many pairs at once.

NOTE: computed in blocks. Pair by pair, the 157 guest and 113 host classes of 10,000 waiting jobs
took nine tenths of a first decision, and of each one after the belief had changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dovetail.algorithms.pair_sharing import ends_many_s, overlapped_many_s, pays, threshold_many
from dovetail.core.beliefs import Physics, SizedJob
from dovetail.core.growth import Growing
from dovetail.core.job import Bools, Floats, Ints
from dovetail.core.units import NEVER_S

S = TypeVar("S", bound=np.generic)
ROOM = 16
"""Rows and columns of the smallest table; a full one doubles."""
NONE_FIT = np.iinfo(np.int64).max


class HostJob(NamedTuple):
    """A class of hosts: one of its jobs, its accumulation steps, and its GPUs.

    `groups` are the node groups of the GPUs; `held_bytes` is the job's memory on each.
    """

    job: int
    steps: int
    memory_bytes: float
    groups: frozenset[int]
    held_bytes: float


class Guest(NamedTuple):
    """A class of waiting jobs: one of them, the groups it may use, and whether it may share."""

    job: int
    groups: tuple[frozenset[int], ...]
    shareable: bool

    def may_join(self, host: HostJob) -> bool:
        """Returns whether owners and nodes allow sharing; memory may still not suffice."""
        return self.shareable and any(host.groups <= allowed for allowed in self.groups)


@dataclass(frozen=True, slots=True)
class GuestRow:
    """One guest class against the host classes: columns are hosts, rows are steps.

    `cut` is the time of one solo second with each number of steps, `uncut` with the steps of a job
    alone on such GPUs. Where `fits` is false, both jobs together exceed the memory.
    """

    steps: Ints
    cut: Floats
    uncut: Floats
    host_ratio: Floats
    guest_ratio: Floats
    fits: Bools


class PairTables:
    """Guest classes against host classes; each pair is computed when it is first needed.

    By guest and host class: `reach` is the longest guest for which sharing pays, in seconds per
    second that the host has left; `fewest` the fewest steps that fit, 0 if none. Unless it
    `weighs`, speeds and ratios are not computed and count as 1.
    """

    def __init__(self, physics: Physics, weighs: bool) -> None:
        self.physics, self.weighs = physics, weighs
        self.guests: list[Guest] = []
        self.hosts: list[HostJob] = []
        self.reach: Floats = np.zeros((ROOM, ROOM))
        self.fewest: Ints = np.zeros((ROOM, ROOM), np.int64)
        self._uncut: Floats = np.zeros((ROOM, ROOM))
        # By guest class, once needed: the number of host classes computed, and its lines.
        self._met: dict[int, int] = {}
        self._lines_of: dict[int, range] = {}
        # Of each line: steps, bytes with them, and the time of one solo second.
        self._lines: Growing[np.float64] = Growing(np.empty((0, 3)))
        self._host_ratio: Floats = np.zeros((ROOM, ROOM))
        self._guest_ratio: Floats = np.zeros((ROOM, ROOM))
        self._fits: Bools = np.zeros((ROOM, ROOM), bool)

    def add_guest(self, guest: Guest) -> None:
        """Adds a guest class."""
        self.guests.append(guest)
        self._make_room()

    def add_host(self, host: HostJob) -> None:
        """Adds a host class."""
        self.hosts.append(host)
        self._make_room()

    def meet(self, guests: Ints) -> None:
        """Computes guest classes against the host classes that are missing."""
        behind: dict[int, list[int]] = {}
        for guest in guests.tolist():
            met = self._met.get(guest, 0)
            if met < len(self.hosts):
                behind.setdefault(met, []).append(guest)
        for met, some in behind.items():
            self._introduce(some, met)

    def row(self, guest: int) -> GuestRow:
        """Returns a guest class against all host classes so far."""
        met, known = self._met.get(guest, 0), len(self.hosts)
        if met < known:
            self._introduce([guest], met)
        of = self._line_up(guest)
        lines = slice(of.start, of.stop)
        steps, _, cut = self._lines.rows[lines].T
        return GuestRow(
            steps.astype(np.int64),
            cut,
            self._uncut[guest, :known],
            self._host_ratio[lines, :known],
            self._guest_ratio[lines, :known],
            self._fits[lines, :known],
        )

    def steps_alone(self, guest: int, memory_bytes: float) -> int:
        """Returns the fewest steps with which a guest fits GPUs alone; 1 if none."""
        lines = self._line_up(guest)
        steps, held, _ = self._lines.rows[lines.start : lines.stop].T
        return int(steps[np.argmax(held <= memory_bytes)])

    def _line_up(self, guest: int) -> range:
        """Returns the lines of a guest class, created when they are first needed."""
        if guest not in self._lines_of:
            physics, job, first = self.physics, self.guests[guest].job, len(self._lines.rows)
            # Algorithm 2 halves the batch.
            steps = [1 << i for i in range(max(1, physics.batches.most_steps(job)).bit_length())]
            held = [physics.memory.footprint_bytes(job, s) for s in steps]
            cut = [1.0 / physics.batches.accumulated(job, s) if self.weighs else 1.0 for s in steps]
            self._lines.extend(np.array([steps, held, cut]).T)
            self._make_room()
            self._lines_of[guest] = range(first, first + len(steps))
        return self._lines_of[guest]

    def _introduce(self, guests: Sequence[int], met: int) -> None:
        """Computes guest classes against all host classes from `met` on."""
        hosts = self.hosts[met:]
        of_each = [self._line_up(guest) for guest in guests]
        counts = [len(lines) for lines in of_each]
        lines = np.fromiter(chain.from_iterable(of_each), np.int64, sum(counts))
        steps, held, cut = self._lines.rows[lines].T[:, :, None]
        may = np.array([[self.guests[g].may_join(host) for host in hosts] for g in guests])
        theirs, memory = np.array([(host.held_bytes, host.memory_bytes) for host in hosts]).T
        fits = (theirs + held <= memory) & np.repeat(may, counts, axis=0)
        jobs = np.repeat([self.guests[guest].job for guest in guests], counts)
        sides = list(map(SizedJob, jobs.tolist(), map(int, steps[:, 0].tolist())))
        host_ratio, guest_ratio = self._ratios(sides, hosts, fits)

        firsts = np.cumsum([0, *counts[:-1]])
        alone = np.where(held <= memory, np.arange(len(lines))[:, None], NONE_FIT)
        alone = np.minimum.reduceat(alone, firsts, axis=0)
        uncut = cut[np.where(alone == NONE_FIT, firsts[:, None], alone), 0]
        reach = threshold_many(host_ratio, guest_ratio, cut, np.repeat(uncut, counts, axis=0))
        fewest = np.minimum.reduceat(np.where(fits, steps, np.inf), firsts, axis=0)

        columns = slice(met, len(self.hosts))
        self._uncut[guests, columns] = uncut
        self.reach[guests, columns] = np.maximum.reduceat(
            np.where(fits, np.maximum(reach, 0.0), 0.0), firsts, axis=0
        )
        self.fewest[guests, columns] = np.where(fewest == np.inf, 0, fewest)
        self._fits[lines, columns] = fits
        self._host_ratio[lines, columns], self._guest_ratio[lines, columns] = (
            host_ratio,
            guest_ratio,
        )
        self._met.update(dict.fromkeys(guests, len(self.hosts)))

    def _ratios(
        self, sides: Sequence[SizedJob], hosts: Sequence[HostJob], fits: Bools
    ) -> tuple[Floats, Floats]:
        """Returns the slowdown ratios of hosts and guests, 1 where they do not fit."""
        host_ratio, guest_ratio = np.ones(fits.shape), np.ones(fits.shape)
        some = np.flatnonzero(fits.any(axis=1))
        if self.weighs and len(some):
            others = [SizedJob(host.job, host.steps) for host in hosts]
            mine, theirs = self.physics.sharing.interferences(
                [sides[n] for n in some.tolist()], others
            )
            guest_ratio[some] = np.where(fits[some], mine, 1.0)
            host_ratio[some] = np.where(fits[some], theirs, 1.0)
        return host_ratio, guest_ratio

    def _make_room(self) -> None:
        """Doubles the tables that are full."""
        guests, hosts, lines = len(self.guests), len(self.hosts), len(self._lines.rows)
        self.reach = _roomy(self.reach, guests, hosts)
        self.fewest = _roomy(self.fewest, guests, hosts)
        self._uncut = _roomy(self._uncut, guests, hosts)
        self._host_ratio = _roomy(self._host_ratio, lines, hosts)
        self._guest_ratio = _roomy(self._guest_ratio, lines, hosts)
        self._fits = _roomy(self._fits, lines, hosts)


def _roomy(table: NDArray[S], rows: int, columns: int) -> NDArray[S]:
    """Returns the table, or a copy with at least twice the room in each full dimension."""
    shape = table.shape
    if rows <= shape[0] and columns <= shape[1]:
        return table
    more = np.zeros([2 * n if n > h else h for n, h in zip((rows, columns), shape, strict=True)],
                    table.dtype)  # fmt: skip
    more[: shape[0], : shape[1]] = table
    return more


@dataclass(frozen=True, slots=True)
class Ends:
    """When both of a pair end, with the newcomer's steps for the earliest sum, host by host."""

    steps: Ints
    host_s: Floats
    guest_s: Floats


def ends(row: GuestRow, hosts: Ints, left_s: Floats, guest_s: float) -> Ends:
    """Returns the ends of a newcomer beside each of many hosts; infinite where both do not fit."""
    host, guest = ends_many_s(
        left_s[None, :],
        guest_s * row.cut[:, None],
        row.host_ratio[:, hosts],
        row.guest_ratio[:, hosts],
    )
    both = np.where(row.fits[:, hosts], host + guest, NEVER_S)
    line, each = np.argmin(both, axis=0), np.arange(len(hosts))
    fits = both[line, each] < NEVER_S
    host_s = np.where(fits, host[line, each], NEVER_S)
    return Ends(row.steps[line], host_s, np.where(fits, guest[line, each], NEVER_S))


@dataclass(frozen=True, slots=True)
class Offers:
    """One newcomer beside each host: its steps, the pair's mean JCT, and the benefit of sharing."""

    steps: Ints
    pair_s: Floats
    benefit_s: Floats
    pays: Bools


def offers(row: GuestRow, hosts: Ints, left_s: Floats, guest_s: float) -> Offers:
    """Returns the best sub-batch of a newcomer beside each of many hosts (Algorithm 2, corrected).

    `hosts` are host classes, `left_s` their seconds left, `guest_s` the newcomer's solo length.
    """
    both: NDArray[np.float64] = overlapped_many_s(
        left_s[None, :],
        guest_s * row.cut[:, None],
        row.host_ratio[:, hosts],
        row.guest_ratio[:, hosts],
    )
    both = np.where(row.fits[:, hosts], both, NEVER_S)
    line = np.argmin(both, axis=0)
    best = both[line, np.arange(len(hosts))]
    waits = 2.0 * left_s + guest_s * row.uncut[hosts]
    return Offers(row.steps[line], best / 2.0, waits - best, pays_many(best, waits))


def pays_many(overlapped: Floats, sequential: Floats) -> Bools:
    """Returns `pays` of many pairs at once."""
    better: Bools = np.asarray(pays(overlapped, sequential))  # type: ignore[arg-type]
    return better

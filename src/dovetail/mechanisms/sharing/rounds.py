"""Rounds turn time shares into plans: combinations that lack most of their share run next.

A combination's claim is its share over the part of the rounds it has run so far. The highest claims
that fit run, no job twice; left-over GPUs go to other waiting jobs. Gavel (OSDI 2020)
section 5; ALGORITHMS section 6.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from dovetail.core.plan import Draft
from dovetail.core.view import View
from dovetail.mechanisms.sharing.candidates import SharingCandidates
from dovetail.mechanisms.sharing.company_shares import ALONE, Alike, Combination
from dovetail.mechanisms.sharing.named_gpus import neighbours
from dovetail.mechanisms.sharing.stars import StarSeats

NEVER_HAD = 1e9
"""Factor of the share of a combination that has not run yet (Gavel's artifact)."""


@dataclass(frozen=True, slots=True)
class Had:
    """Rounds that each job was present, and rounds that it ran, by the kind of its partner."""

    next_s: float = -inf
    rounds: tuple[tuple[int, int], ...] = ()
    ran: tuple[tuple[int, int, int], ...] = ()

    def after(self, runs: Mapping[int, int], there: Sequence[int], next_s: float) -> Had:
        """Returns the memory after a round in which jobs ran with partners of these kinds."""
        rounds = dict(self.rounds)
        ran = {(job, kind): n for job, kind, n in self.ran}
        for job, kind in runs.items():
            ran[job, kind] = ran.get((job, kind), 0) + 1
        present = set(there)
        return Had(
            next_s,
            tuple((job, rounds.get(job, 0) + 1) for job in sorted(present)),
            tuple((job, kind, n) for (job, kind), n in sorted(ran.items()) if job in present),
        )


@dataclass(slots=True)
class RoundClaims:
    """The claims of jobs on combinations, given the rounds so far."""

    groups: Sequence[Alike]
    combinations: Sequence[Combination]
    had: Had
    _rounds: dict[int, int] = field(init=False)
    _ran: dict[tuple[int, int], int] = field(init=False)

    def __post_init__(self) -> None:
        self._rounds = dict(self.had.rounds)
        self._ran = {(job, kind): n for job, kind, n in self.had.ran}

    def chosen(self, gpus: int) -> list[tuple[int, tuple[int, ...]]]:
        """Returns (job, its guests) in order of claim, no job twice, on at most so many GPUs."""
        taken: set[int] = set()
        chosen: list[tuple[int, tuple[int, ...]]] = []
        for combination, job, is_guest in self._entries():
            host_group = self.groups[combination.host]
            if host_group.gpus > gpus or job in taken:
                continue
            hosts = [job] if not is_guest else self._best(combination, False, 1, taken, -1)
            if not hosts:
                continue
            wanted = combination.guests
            guests = [job] if is_guest else []
            if wanted > len(guests):
                more = wanted - len(guests)
                others = taken | {job}
                guests += self._best(combination, True, more, others, hosts[0])
            if wanted and not guests:
                continue
            chosen.append((hosts[0], tuple(guests)))
            taken.update(hosts, guests)
            gpus -= host_group.gpus
        return chosen

    def _entries(self) -> Iterator[tuple[Combination, int, bool]]:
        entries: list[tuple[float, int, int, bool]] = []
        for number, c in enumerate(self.combinations):
            for job in self.groups[c.host].jobs:
                entries.append((-self._claim(c, job, False), number, job, False))
            if c.guest not in (ALONE, c.host):
                for job in self.groups[c.guest].jobs:
                    entries.append((-self._claim(c, job, True), number, job, True))
        for _, number, job, is_guest in sorted(entries):
            yield self.combinations[number], job, is_guest

    def _claim(self, c: Combination, job: int, is_guest: bool) -> float:
        share = c.guest_share if is_guest else c.share
        partner = c.host if is_guest else c.guest
        kind = ALONE if partner == ALONE else self.groups[partner].kind
        ran = self._ran.get((job, kind), 0)
        return share * self._rounds.get(job, 0) / ran if ran else share * NEVER_HAD

    def _best(
        self, c: Combination, guest: bool, count: int, taken: set[int], beside: int
    ) -> list[int]:
        """Returns the jobs of one side of a combination with the highest claims, if not taken."""
        jobs = self.groups[c.guest if guest else c.host].jobs
        open_to = [job for job in jobs if job not in taken and job != beside]
        open_to.sort(key=lambda job: (-self._claim(c, job, guest), job))
        return open_to[:count]


def seat(view: View, draft: Draft, chosen: Sequence[tuple[int, tuple[int, ...]]]) -> None:
    """Runs exactly the chosen combinations in a draft, and moves few jobs.

    If some then find no room, all are placed anew, the largest first.
    """
    seated = _seated(view, draft, chosen, anew=False)
    if seated < len(chosen):
        savepoint = draft.savepoint()
        if _seated(view, draft, chosen, anew=True) <= seated:
            draft.undo_to(savepoint)


def _seated(
    view: View, draft: Draft, chosen: Sequence[tuple[int, tuple[int, ...]]], *, anew: bool
) -> int:
    """Places the chosen hosts and their guests beside them; returns the number of placed hosts."""
    guests_of = dict(chosen)
    host_of = {guest: host for host, guests in chosen for guest in guests}
    preemptible = view.preemptible
    stay = set() if anew else _staying(draft, guests_of, host_of)
    for job in sorted(draft.placed):
        if preemptible[job] and job not in stay:
            draft.remove(job)
    company = SharingCandidates(view, draft, lambda job: False)
    seats = StarSeats(view, draft, lambda job: 0.0, unequal=True)
    for host in sorted(guests_of, key=lambda j: (-view.shape(j).gpus, j)):
        if host not in draft.placed and not company.start(host):
            continue
        for guest in guests_of[host]:
            if guest not in draft.placed:
                seats.start(guest, host.__eq__)
    return sum(host in draft.placed for host in guests_of)


def _staying(
    draft: Draft, guests_of: Mapping[int, tuple[int, ...]], host_of: Mapping[int, int]
) -> set[int]:
    """Returns the jobs that stay: hosts, one of each shared set, and guests beside their host."""
    near = {job: neighbours(draft, job, p) for job, p in draft.placed.items()}
    stay: set[int] = set()
    for host in sorted(near.keys() & guests_of.keys(), key=lambda j: (-draft.placed[j].gpus, j)):
        if not near[host] & stay:
            stay.add(host)
    return stay | {j for j, host in host_of.items() if host in stay and near.get(j) == {host}}

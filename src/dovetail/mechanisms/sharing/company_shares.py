"""Time shares of jobs and pairs of jobs: a linear programme over groups.

A group is jobs of one kind and shape with about equal time left; the programme treats them as
identical. Gavel (OSDI 2020) section 3; ALGORITHMS section 6.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, log

from dovetail.algorithms.time_shares import Sharers, SharingGroup, time_shares
from dovetail.core.beliefs import SizedJob
from dovetail.core.placement import Placement
from dovetail.core.units import RELATIVE_TOLERANCE
from dovetail.core.view import View
from dovetail.mechanisms.sharing.named_gpus import fit_together
from dovetail.mechanisms.sharing.stars import MEMBERS_MAX

ALONE = -1
"""The partner of a job that runs alone."""
LEAST_SHARE = 1e-9
NEED_DIGITS = 9
OBJECTIVES = ("makespan", "fairness")


@dataclass(frozen=True, slots=True)
class Alike:
    """Jobs that are identical for the programme."""

    jobs: tuple[int, ...]
    kind: int
    gpus: int
    left_s: float
    shareable: bool


@dataclass(frozen=True, slots=True)
class Combination:
    """A job of one group, alone or with `guests` jobs of another, and its share of the time.

    `share` is for each job of `host`, `guest_share` for each of `guest` (an index, or ALONE).
    """

    host: int
    guest: int
    guests: int
    share: float
    guest_share: float


@dataclass(frozen=True, slots=True)
class Programme:
    """The objective, whether sizes may differ, and the tolerance of equal times left."""

    objective: str
    unequal: bool
    alike: float

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise ValueError(f"objective is {' or '.join(OBJECTIVES)}, not '{self.objective}'")
        if not 0 <= self.alike < float("inf"):
            raise ValueError("alike is 0 or more: the part by which times left may differ")

    def groups(self, view: View, jobs: Sequence[int]) -> list[Alike]:
        """Returns the jobs by kind, shape and time left."""
        kind_of, shareable = view.physics.kind_of, view.jobs.shareable
        members_of: dict[tuple[object, ...], list[int]] = {}
        left = dict(zip(jobs, view.progress.left_s(jobs), strict=True))
        longest_s = max(left.values(), default=0.0)
        for job in sorted(jobs):
            near = self._near(left[job], longest_s)
            key = (int(kind_of[job]), view.shape_of[job], bool(shareable[job]), near)
            members_of.setdefault(key, []).append(job)
        return [
            Alike(
                tuple(members),
                int(kind_of[members[0]]),
                view.shape(members[0]).gpus,
                max(left[j] for j in members),
                bool(shareable[members[0]]),
            )
            for members in members_of.values()
        ]

    def _near(self, left_s: float, longest_s: float) -> float:
        """Returns the bucket of a time left, counted down from the longest.

        The programme depends on quotients of times only, and so must the buckets: counted from
        one second, their edges would depend on the unit of time.
        """
        if not self.alike or left_s <= 0:
            return left_s
        return floor(log(longest_s / left_s) / log(1 + self.alike) + RELATIVE_TOLERANCE)

    def solve(self, view: View, groups: Sequence[Alike], gpus: int) -> list[Combination]:
        """Returns the combinations that get any time on this many GPUs."""
        companies = self._companies(view, groups)
        shares = time_shares([self._need(g, groups) for g in groups], companies, gpus)
        combinations = [
            Combination(i, ALONE, 0, float(share), 0.0)
            for i, share in enumerate(shares.alone)
            if share > LEAST_SHARE
        ]
        for company, together in zip(companies, shares.together, strict=True):
            if together > LEAST_SHARE:
                both = 2.0 if company.host == company.guest else 1.0
                share = both * float(together) / len(groups[company.host].jobs)
                guest_share = float(together) * company.guests / len(groups[company.guest].jobs)
                combinations.append(
                    Combination(
                        company.host, company.guest, company.guests, share, both * guest_share
                    )
                )
        return combinations

    def _need(self, group: Alike, groups: Sequence[Alike]) -> SharingGroup:
        if self.objective == "fairness":
            return SharingGroup(len(group.jobs), group.gpus, 1 / group.gpus)
        longest_s = max(g.left_s for g in groups)
        # All have outrun their forecasts: equal needs, since without any z is unbounded.
        need = _rounded(group.left_s / longest_s) if longest_s else 1.0
        return SharingGroup(len(group.jobs), group.gpus, need)

    def _companies(self, view: View, groups: Sequence[Alike]) -> list[Sharers]:
        """Returns the pairs that may share and do more together; the larger job is the host."""
        pairs: list[Sharers] = []
        speeds: dict[tuple[int, int], tuple[float, float] | None] = {}
        for i, host in enumerate(groups):
            for j, guest in enumerate(groups):
                if not self._may(host, guest, i, j):
                    continue
                kinds = (host.kind, guest.kind)
                if kinds not in speeds:
                    speeds[kinds] = _speeds(view, host, guest)
                pair = speeds[kinds]
                if pair is not None:
                    guests = self._guests(host, guest)
                    work = host.gpus * pair[0] + guests * guest.gpus * pair[1]
                    if work > host.gpus * (1 + RELATIVE_TOLERANCE):
                        pairs.append(Sharers(i, j, guests, *pair))
        return pairs

    def _may(self, host: Alike, guest: Alike, i: int, j: int) -> bool:
        if not (host.shareable and guest.shareable):
            return False
        if host.gpus == guest.gpus:
            return i < j or (i == j and len(host.jobs) > 1)
        return self.unequal and host.gpus > guest.gpus

    def _guests(self, host: Alike, guest: Alike) -> int:
        return min(host.gpus // guest.gpus, len(guest.jobs), MEMBERS_MAX - 1)


def _rounded(need: float) -> float:
    """Returns a need without its last bits.

    Among equally good solutions the last bit would decide, and differently for times in minutes.
    """
    return float(f"{need:.{NEED_DIGITS}g}")


def _speeds(view: View, host: Alike, guest: Alike) -> tuple[float, float] | None:
    """Returns the speeds of two jobs together, or None if they do not fit the memory."""
    one, other = host.jobs[0], guest.jobs[-1]
    memory = min(group.gpu_memory_bytes for group in view.cluster.groups)
    both = {one: Placement(((0, host.gpus),)), other: Placement(((0, guest.gpus),))}
    if not fit_together(view, both.items(), memory):
        return None
    mine, theirs = view.physics.sharing.interference(SizedJob(one), SizedJob(other))
    return 1 / mine, 1 / theirs

"""Finds jobs that share GPUs and must be separated, because the belief that paired them was wrong.

A pair is formed on a believed interference (SJF-BSBF section V.A). While it lasts both jobs are
slower by a measured ratio. If by the measured ratios one after the other is better (Theorem 1,
ALGORITHMS section 1.2), and they are worse than the believed ones, the guest (the job that came
later) waits again. The rule knows no policy. It ignores jobs with limits, uneven samples or turns:
these share on purpose without a gain for both sides.
"""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.algorithms.pair_sharing import overlapped_s, sequential_s
from dovetail.core.beliefs import Neighbour, SizedJob
from dovetail.core.placement import Placement
from dovetail.live.measuring.learner import LearningBelief

SURPRISE = 1.1
"""A ratio this many times the believed one is no noise: measurements go in steps of 5 %."""


@dataclass(frozen=True, slots=True)
class PairMember:
    """One job of a pair: solo seconds left (None: not known), and its ratios, at least 1.

    `measured` is 0 while it is not known.
    """

    left_s: float | None
    believed: float
    measured: float

    @property
    def is_slower(self) -> bool:
        """Returns whether the job is clearly slower beside the other than was believed."""
        return self.measured > SURPRISE * self.believed


def must_separate(host: PairMember, guest: PairMember, cost_s: float = 0.0) -> bool:
    """Returns whether the guest must wait for the host; stopping it costs `cost_s` in all.

    A ratio that could not be measured is taken to be the other's. Jobs of unknown length are taken
    to be equally long, so ratios above 1.5 on both sides separate them.
    """
    if not (host.is_slower or guest.is_slower):
        return False
    host_ratio = host.measured or guest.measured
    guest_ratio = guest.measured or host.measured
    # A job of unknown length is taken to be as long as the other; of two, any length will do.
    known_s = next((side.left_s for side in (host, guest) if side.left_s is not None), 1.0)
    host_s = known_s if host.left_s is None else host.left_s
    guest_s = known_s if guest.left_s is None else guest.left_s
    together_s = overlapped_s(host_s, guest_s, host_ratio, guest_ratio)
    return together_s > sequential_s(host_s, guest_s) + cost_s


class PairGuard:
    """Owns the interference believed of each pair when it was first seen, and finds wrong pairs."""

    def __init__(self, learner: LearningBelief) -> None:
        self._learner = learner
        self._noted: dict[frozenset[int], _Note] = {}

    def note(self, one: Neighbour, two: Neighbour) -> None:
        """Notes the belief about a pair, unless it has been noted for these placements."""
        pair = frozenset((one[0], two[0]))
        placements = {one[0]: one[1], two[0]: two[1]}
        known = self._noted.get(pair)
        if known is not None and known.placements == placements:
            return
        (a, here), (b, there) = one, two
        ratios = self._learner.physics.sharing.interference(
            SizedJob(a, here.accumulation_steps, here.gpus),
            SizedJob(b, there.accumulation_steps, there.gpus),
        )
        self._noted[pair] = _Note(placements, dict(zip((a, b), ratios, strict=True)))

    def undo(
        self,
        host: Neighbour,
        guest: Neighbour,
        host_s: float | None,
        guest_s: float | None,
        cost_s: float = 0.0,
    ) -> bool:
        """Returns whether the guest must wait, and then forgets the pair.

        `host_s` and `guest_s` are the seconds that are left of each, None if not known.
        """
        pair = frozenset((host[0], guest[0]))
        known = self._noted.get(pair)
        if known is None or not all(_is_plain(p) for p in known.placements.values()):
            return False
        here = PairMember(host_s, known.believed[host[0]], self._measured(host, guest))
        there = PairMember(guest_s, known.believed[guest[0]], self._measured(guest, host))
        if not must_separate(here, there, cost_s):
            return False
        # A policy that pairs them again has seen the measured ratio, and is not overruled.
        del self._noted[pair]
        return True

    def forget(self, job: int) -> None:
        """Drops the pairs of a job that is over."""
        for pair in [pair for pair in self._noted if job in pair]:
            del self._noted[pair]

    def _measured(self, mine: Neighbour, other: Neighbour) -> float:
        return self._learner.ratio(
            mine[0], mine[1].accumulation_steps, other[0], other[1].accumulation_steps
        )


@dataclass(frozen=True, slots=True)
class _Note:
    """The placements of a pair, and the interference that was believed of each job."""

    placements: dict[int, Placement]
    believed: dict[int, float]


def _is_plain(placement: Placement) -> bool:
    return not (placement.fractions or placement.samples or placement.interleave)

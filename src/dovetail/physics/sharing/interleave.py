"""Jobs that take turns on the resources of the same GPUs: the cycle of a set (Muri section 4.1).

A member's speed is its iteration alone over the cycle of its set. When one ends, the others keep
their phases. Where a member's stages are not known the set takes turns on the GPU as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.algorithms.stage_cycle import BARRIER, CYCLES, OVERLAPPED, cycle_s
from dovetail.core.beliefs import Interleaving
from dovetail.core.errors import InputError, nearest
from dovetail.core.growth import Growing
from dovetail.core.job import Floats
from dovetail.physics.speed.throughput import iteration_s
from dovetail.physics.zoo.profile import ModelProfile

MEASURED_FACTORS = (1.0, 1.31, 1.48, 1.35)
"""Measured over computed cycle of 1 to 4 members, of Muri's authors (ALGORITHMS section 4.1)."""
ALONE = (1.0, 1.0, 1.0, 1.0)
Seat = tuple[int, int]
"""A kind of job, and the phase it sits in."""


@dataclass(frozen=True, slots=True)
class InterleaveRule:
    """How the cycle of an interleave set follows from its members' stages.

    The factors of contention are those of the overlapped cycle: on equation 3, whose barriers
    wait already, they count twice (docs/concepts/physics.md).
    """

    cycle: str = OVERLAPPED
    contention: tuple[float, ...] = MEASURED_FACTORS
    floor: bool = True
    resources: int = 4

    @staticmethod
    def parse(text: str) -> InterleaveRule:
        """Returns the rule of words such as `overlapped,no-contention,no-floor,three-stages`.

        The defaults are `overlapped,contention,floor,four-stages`. Raises InputError.
        """
        words = {
            **{cycle: ("cycle", cycle) for cycle in CYCLES},
            "contention": ("contention", MEASURED_FACTORS),
            "no-contention": ("contention", ALONE),
            "floor": ("floor", True),
            "no-floor": ("floor", False),
            "three-stages": ("resources", 3),
            "four-stages": ("resources", 4),
        }
        chosen: dict[str, object] = {}
        for word in text.split(","):
            if word not in words:
                raise InputError("--cycle", f"unknown word '{word}'", nearest(word, words))
            field, value = words[word]
            if field in chosen:
                raise InputError("--cycle", f"'{word}' contradicts an earlier word")
            chosen[field] = value
        return InterleaveRule(**chosen)  # type: ignore[arg-type]


def interleaving_of(
    profiles: Sequence[tuple[ModelProfile | None, int]], rule: InterleaveRule
) -> Interleaving:
    """Returns the stages of each kind, by its profile and its requested GPUs."""
    stage_s = np.zeros((len(profiles), rule.resources))
    iteration = np.zeros(len(profiles))
    for kind, (profile, gpus) in enumerate(profiles):
        times = profile.stage_times(gpus) if profile is not None else None
        if profile is None or times is None:
            continue
        storage, cpu, *others = times.of_resources()
        stage_s[kind] = [storage, cpu, *others] if rule.resources == 4 else [storage + cpu, *others]
        iteration[kind] = iteration_s(profile, gpus=gpus)
    for array in (stage_s, iteration):
        array.setflags(write=False)
    return Interleaving(stage_s, iteration, rule.cycle, rule.contention, rule.floor)


class GrowingStages:
    """The stages of kinds that are added as they appear."""

    def __init__(self, rule: InterleaveRule) -> None:
        self._rule = rule
        self.known = interleaving_of((), rule)
        self._stage_s = Growing(self.known.stage_s)
        self._iteration_s = Growing(self.known.iteration_s)

    def admit(self, profiles: Sequence[tuple[ModelProfile | None, int]]) -> None:
        """Adds kinds, each by its profile and its requested GPUs."""
        more = interleaving_of(profiles, self._rule)
        stage_s = self._stage_s.extend(more.stage_s)
        iteration = self._iteration_s.extend(more.iteration_s)
        for array in (stage_s, iteration):
            array.setflags(write=False)
        self.known = self.known._replace(stage_s=stage_s, iteration_s=iteration)


def exclusive_s(known: Interleaving) -> Floats:
    """Returns the stages [kinds, resources] that no two members of a set are in at once.

    Loading spans two slots of an overlapped cycle, so there only the GPU and the network are.
    """
    return known.stage_s if known.cycle == BARRIER else known.stage_s[:, -2:]


class InterleaveCycles:
    """The cycles of interleave sets, each computed once.

    `stages` returns the stages of all kinds so far; the rows of known kinds stay as they are.
    """

    def __init__(self, stages: Callable[[], Interleaving]) -> None:
        self._stages = stages
        self._slowdown: dict[tuple[Seat, ...], dict[int, float]] = {}

    def slowdown(self, kind: int, seats: Sequence[Seat]) -> float:
        """Returns the cycle of the set over the iteration alone of one of its kinds."""
        # A set has one cycle in whatever order its members are listed.
        key = tuple(sorted(seats))
        slowdowns = self._slowdown.get(key)
        if slowdowns is None:
            slowdowns = self._slowdown[key] = self._slowdowns(key)
        return slowdowns[kind]

    def _slowdowns(self, seats: Sequence[Seat]) -> dict[int, float]:
        known = self._stages()
        alone = {kind: float(known.iteration_s[kind]) for kind, _ in seats}
        if not all(alone.values()):
            return dict.fromkeys(alone, float(len(seats)))
        rows = [known.stage_s[kind].tolist() for kind, _ in seats]
        cycle = cycle_s(rows, [phase for _, phase in seats], known.cycle)
        cycle *= known.contention[len(seats) - 1]
        if known.floor:
            cycle = max(cycle, *alone.values())
        return {kind: cycle / alone_s for kind, alone_s in alone.items()}

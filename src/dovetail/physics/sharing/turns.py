"""Jobs that take turns on the resources of the same GPUs: the cycle of a set (Muri section 4.1).

A member's speed is its iteration alone over the cycle of its set, both at the GPUs that it holds;
of a chain, in which it meets others on each GPU, over the longest cycle there. When one ends, the
others keep their phases. Where a member's stages are not known the set takes
turns on the GPU as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dovetail.algorithms.stage_cycle import BARRIER, CYCLES, OVERLAPPED, cycle_s
from dovetail.core.beliefs import Interleaving, Neighbour
from dovetail.core.errors import InputError, nearest
from dovetail.core.growth import Growing
from dovetail.core.job import Floats
from dovetail.core.placement import Placement
from dovetail.physics.sharing.service_demand import RESOURCES, ServiceDemand

MEASURED_FACTORS = (1.0, 1.31, 1.48, 1.35)
"""Measured over computed cycle of 1 to 4 members, of Muri's authors (ALGORITHMS section 4.1)."""
ALONE = (1.0, 1.0, 1.0, 1.0)


@dataclass(frozen=True, slots=True)
class InterleaveRule:
    """How the cycle of an interleave set follows from its members' stages.

    The factors of contention are those of the overlapped cycle: on equation 3, whose barriers
    wait already, they count twice (docs/concepts/physics.md).
    """

    cycle: str = OVERLAPPED
    contention: tuple[float, ...] = MEASURED_FACTORS
    floor: bool = True
    resources: int = RESOURCES

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


def interleaving_of(demands: Sequence[ServiceDemand], rule: InterleaveRule) -> Interleaving:
    """Returns the stages of each kind, by its demands as requested."""
    turns = [turn_of(demand, rule) for demand in demands]
    stage_s = np.array([turn.stage_s for turn in turns]).reshape(len(turns), rule.resources)
    iteration = np.array([turn.iteration_s for turn in turns], np.float64)
    for array in (stage_s, iteration):
        array.setflags(write=False)
    return Interleaving(stage_s, iteration, rule.cycle, rule.contention, rule.floor)


class MemberStages(NamedTuple):
    """A member of a set: its seconds by resource, its iteration alone, and its phase.

    Both times are 0 where the stages are not known.
    """

    stage_s: tuple[float, ...]
    iteration_s: float
    phase: int = 0


def turn_of(demand: ServiceDemand, rule: InterleaveRule) -> MemberStages:
    """Returns the stages of a job at the size of its demands, by the resources of the rule."""
    if demand.model is None or demand.model.stages is None:
        return MemberStages((0.0,) * rule.resources, 0.0)
    storage, cpu, gpu, network = demand.stage_s
    loading = (storage, cpu) if rule.resources == RESOURCES else (storage + cpu,)
    return MemberStages((*loading, gpu, network), demand.iteration_s)


def in_turns(
    placement: Placement, neighbours: Sequence[Neighbour]
) -> tuple[list[Neighbour], list[Neighbour]]:
    """Returns the neighbours that a job takes turns with, and those in free competition."""
    seats = [there for there in neighbours if placement.interleave and there[1].interleave]
    return seats, [there for there in neighbours if there not in seats] if seats else [*neighbours]


def sets_of(placement: Placement, members: Sequence[Neighbour]) -> list[list[Neighbour]]:
    """Returns the members of a job's set on each of its GPUs, equal lists once.

    They may differ: of a chain of jobs each meets the next on some of its GPUs.
    """
    if all(there.gpu_ids == placement.gpu_ids for _, there in members):
        return [list(members)]
    held = [set(there.named()) for _, there in members]
    sets: list[list[Neighbour]] = []
    for gpu in placement.named():
        here = [one for one, gpus in zip(members, held, strict=True) if gpu in gpus]
        if here not in sets:
            sets.append(here)
    return sets or [list(members)]


class GrowingStages:
    """The stages of kinds that are added as they appear."""

    def __init__(self, rule: InterleaveRule) -> None:
        self.rule = rule
        self.known = interleaving_of((), rule)
        self._stage_s = Growing(self.known.stage_s)
        self._iteration_s = Growing(self.known.iteration_s)

    def admit(self, demands: Sequence[ServiceDemand]) -> None:
        """Adds kinds, each by its demands as requested."""
        more = interleaving_of(demands, self.rule)
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
    """The cycles of interleave sets, each computed once, by the rule of a run."""

    def __init__(self, known: Interleaving) -> None:
        """Takes the rule from `known`; its stages do not matter."""
        self._known = known
        self._cycles: dict[tuple[MemberStages, ...], float] = {}

    def slowdown(self, mine: MemberStages, others: Sequence[MemberStages]) -> float:
        """Returns the cycle of the set over the iteration alone of one of its members."""
        # A set has one cycle in whatever order its members are listed.
        turns = tuple(sorted((mine, *others)))
        if not all(turn.iteration_s for turn in turns):
            return float(len(turns))
        cycle = self._cycles.get(turns)
        if cycle is None:
            cycle = self._cycles[turns] = self._cycle_s(turns)
        return cycle / mine.iteration_s

    def _cycle_s(self, turns: Sequence[MemberStages]) -> float:
        known = self._known
        rows = [turn.stage_s for turn in turns]
        cycle = cycle_s(rows, [turn.phase for turn in turns], known.cycle)
        cycle *= known.contention[len(turns) - 1]
        if known.floor:
            cycle = max(cycle, *(turn.iteration_s for turn in turns))
        return cycle

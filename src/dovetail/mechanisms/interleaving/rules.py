"""Cycles and efficiencies of interleave sets by kinds of jobs, computed once per run.

A set of jobs is identified by the sorted kinds of its members. Its cycle is that of its best
ordering (or of its worst, to show the value of orderings), with contention and floor.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from weakref import WeakKeyDictionary

import numpy as np

from dovetail.algorithms.matching import Pairing, heaviest_by_type
from dovetail.algorithms.stage_cycle import cycles, orderings
from dovetail.core.job import Floats
from dovetail.core.placement import Interleave, Placement
from dovetail.core.queue import ReadableQueue
from dovetail.core.units import RELATIVE_TOLERANCE
from dovetail.core.view import View

Kinds = tuple[int, ...]
"""The kinds of the members of a set, in order."""

WHOLE = 10**9
"""Efficiencies count in billionths: as whole numbers their sums are exact, and ties are ties."""
MEMBERS_MAX = 4
FEW_KINDS = 10
"""Up to this many kinds all sets are computed at once; of 10 there are 990."""
PAIRINGS_KEPT = 10_000


@dataclass(frozen=True, slots=True)
class Ordering:
    """The orderings of a set to try, and whether to take the best or the worst of them."""

    worst: bool = False
    consecutive: bool = False

    @staticmethod
    def named(ordering: str, orderings: str) -> Ordering:
        """Returns the choice for best or worst of all or consecutive ones. Raises ValueError."""
        if ordering not in ("best", "worst"):
            raise ValueError(f"ordering is best or worst, not '{ordering}'")
        if orderings not in ("all", "consecutive"):
            raise ValueError(f"orderings is all or consecutive, not '{orderings}'")
        return Ordering(ordering == "worst", orderings == "consecutive")


BEST = Ordering()


class SetRules:
    """The physics of sets of kinds, computed when first needed.

    `interleaves[job]` is whether a job may be in a set: its owner allows sharing and its stages
    are known.
    """

    def __init__(self, view: View, ordering: Ordering) -> None:
        known = view.physics.sharing.interleaving
        self._ordering = ordering
        self._cycle, self._floor = known.cycle, known.floor
        self._contention = known.contention
        self._physics = view.physics
        self._gpus: list[int] = []
        self.kind_of: list[int] = []
        self.interleaves: list[bool] = []
        self.sorts: list[bool] = []
        self._alone_s: list[float] = []
        self._busy_s: list[float] = []
        self._example: dict[int, int] = {}
        self.members_max = min(MEMBERS_MAX, len(known.contention), known.stage_s.shape[1])
        if known.cycle != "barrier":
            self.members_max = min(MEMBERS_MAX, len(known.contention))
        self._of_set: dict[Kinds, tuple[float, tuple[int, ...]]] = {}
        self._weight: dict[float, dict[Kinds, int]] = {}
        self._weights: dict[tuple[tuple[Kinds, ...], float, int], list[list[int]]] = {}
        self._pairings: dict[tuple[object, ...], Pairing] = {}
        self._of_gpus: dict[int, list[int]] = {}
        self.admit(view)

    def admit(self, view: View) -> None:
        """Adds the jobs appended to the table since the last call."""
        first = len(self.kind_of)
        if first == len(view.jobs):
            return
        known, kind_of = view.physics.sharing.interleaving, view.physics.kind_of[first:]
        self._stage_s: Floats = known.stage_s
        kinds = len(self._alone_s)
        self._alone_s += known.iteration_s[kinds:].tolist()
        self._busy_s += known.stage_s[kinds:].sum(axis=1).tolist()
        self._gpus += view.jobs.gpus[first:].tolist()
        self.kind_of += kind_of.tolist()
        stages_known = [self._alone_s[k] > 0 and self._busy_s[k] > 0 for k in kind_of.tolist()]
        self.interleaves += (view.jobs.shareable[first:] & stages_known).tolist()
        self.sorts = sorted({*self.sorts, *self.interleaves[first:]})
        for job in range(first, len(view.jobs)):
            kind = self.kind_of[job]
            if self._example.setdefault(kind, job) == job and stages_known[job - first]:
                self._of_gpus.setdefault(self._gpus[job], []).append(kind)

    def learn(self, sets: Iterable[Kinds]) -> None:
        """Computes the cycles of new sets, all of one size at once."""
        by_size: dict[int, dict[Kinds, None]] = {}
        for kinds in sets:
            if kinds not in self._of_set:
                by_size.setdefault(len(kinds), {})[kinds] = None
        for size, new in by_size.items():
            self._reckon(list(new), size)

    def _reckon(self, sets: list[Kinds], size: int) -> None:
        rows = np.array(sets, np.int64)
        tried = orderings(
            size, self._stage_s.shape[1], self._cycle, consecutive=self._ordering.consecutive
        )
        cycle_of = np.stack(
            [cycles(self._stage_s, rows, offsets, self._cycle) for offsets in tried]
        )
        # Ties up to rounding go to the first ordering.
        rounded = np.round(cycle_of, 12)
        which = rounded.argmax(axis=0) if self._ordering.worst else rounded.argmin(axis=0)
        factor = self._contention[size - 1]
        for i, kinds in enumerate(sets):
            cycle_s = float(cycle_of[which[i], i]) * factor
            if self._floor:
                cycle_s = max(cycle_s, *(self._alone_s[kind] for kind in kinds))
            self._of_set[kinds] = (cycle_s, tried[int(which[i])])

    def cycle_s(self, kinds: Kinds) -> float:
        """Returns the seconds in which each member makes one iteration."""
        self.learn((kinds,))
        return self._of_set[kinds][0]

    def phases(self, kinds: Kinds) -> tuple[int, ...]:
        """Returns the offset of each member."""
        self.learn((kinds,))
        return self._of_set[kinds][1]

    def pays(self, kinds: Kinds) -> bool:
        """Returns whether the members together do at least as much as one of them alone."""
        cycle_s = self.cycle_s(kinds)
        total = sum(self._alone_s[kind] for kind in kinds) / cycle_s
        return total >= 1 - RELATIVE_TOLERANCE

    def weight(self, kinds: Kinds, memory_bytes: float) -> int:
        """Returns the efficiency (equation 4) of a set in billionths; 0 if memory is too small."""
        known = self._weight.setdefault(memory_bytes, {})
        weight = known.get(kinds)
        if weight is None:
            self.learn((kinds,))
            weight = self._efficiency(kinds) if self._fits(kinds, memory_bytes) else 0
            known[kinds] = weight
        return weight

    def pairing(
        self, types: Sequence[Kinds], counts: Sequence[int], memory_bytes: float, limit: int
    ) -> Pairing:
        """Returns the numbers of pairs by types with the greatest sum of weights.

        No union has more than `limit` members.
        """
        key = (tuple(types), memory_bytes, limit)
        weights = self._weights.get(key)
        if weights is None:
            weights = self._weights[key] = self._matrix(types, memory_bytes, limit)
        seen = (*key, tuple(counts))
        pairing = self._pairings.get(seen)
        if pairing is None:
            if len(self._pairings) >= PAIRINGS_KEPT:
                self._pairings.clear()
            pairing = self._pairings[seen] = heaviest_by_type(counts, weights)
        return pairing

    def _matrix(self, types: Sequence[Kinds], memory_bytes: float, limit: int) -> list[list[int]]:
        self._learn_alike(types[0][0], limit)
        count = len(types)
        unions = {
            (a, b): tuple(sorted(types[a] + types[b]))
            for a in range(count)
            for b in range(a, count)
            if len(types[a]) + len(types[b]) <= limit
        }
        self.learn(unions.values())
        weights = [[0] * count for _ in range(count)]
        for (a, b), kinds in unions.items():
            weights[a][b] = weights[b][a] = self.weight(kinds, memory_bytes)
        return weights

    def _learn_alike(self, kind: int, limit: int) -> None:
        """Computes all sets of kinds of the same size, if there are few."""
        gpus = self._gpus[self._example[kind]]
        kinds = self._of_gpus.pop(gpus, ())
        if 0 < len(kinds) <= FEW_KINDS:
            for size in range(2, limit + 1):
                self.learn(combinations_with_replacement(kinds, size))

    def _efficiency(self, kinds: Kinds) -> int:
        cycle_s = self._of_set[kinds][0]
        busy_s = sum(self._busy_s[kind] for kind in kinds)
        return round(WHOLE * busy_s / (self._stage_s.shape[1] * cycle_s)) if cycle_s > 0 else 0

    def _fits(self, kinds: Kinds, memory_bytes: float) -> bool:
        """Returns whether all fixed parts and the largest activations fit (section 4.1)."""
        members = []
        for phase, kind in enumerate(kinds):
            job = self._example[kind]
            there = Placement(((0, self._gpus[job]),), interleave=Interleave(0, phase))
            members.append((job, there))
        return self._physics.memory.fits(members, memory_bytes)


_rules: WeakKeyDictionary[ReadableQueue, dict[Ordering, SetRules]] = WeakKeyDictionary()


def rules_of(view: View, ordering: Ordering) -> SetRules:
    """Returns the rules of a run, cached by its queue and physics."""
    of_run = _rules.setdefault(view.waiting, {})
    rules = of_run.get(ordering)
    if rules is None or rules._physics is not view.physics:
        rules = of_run[ordering] = SetRules(view, ordering)
    rules.admit(view)
    return rules

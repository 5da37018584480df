"""Which generations of a gang still hold: no member died in them, and nobody hangs.

A worker whose collectives fail says that the generation is lost. Dead ones are reported by their
agents; of those who live, whoever does not answer an `Abandon` hangs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from dovetail.live.workers.worker_state import NEVER, Worker

ReachedSince = Callable[[int], float]
"""Returns since when the agent of a node can be spoken to; at most the present."""

KEPT_GENERATIONS = 8
"""Generations before the newest that are remembered, though nobody is known to be in them."""


class FailureDetector:
    """What is known against the generations of one gang."""

    def __init__(self, lost_s: float, hung_s: float) -> None:
        self._suspect_s = lost_s
        self._hung_s = hung_s
        self._groups: dict[int, tuple[int, ...]] = {}
        self._dead: set[int] = set()
        self._given_up: set[int] = set()
        self._lost_s: dict[int, float] = {}
        self._silent_s: list[float] = []

    def begin(self, generation: int, members: tuple[int, ...], entered: Collection[int]) -> None:
        """Takes note of a new generation; `entered` are those that workers are in."""
        self._groups[generation] = members
        oldest = min(entered, default=generation)
        for old in [g for g in self._groups if g < min(oldest, generation - KEPT_GENERATIONS)]:
            del self._groups[old]

    def group(self, generation: int) -> tuple[int, ...]:
        """Returns the members of a generation."""
        return self._groups.get(generation, ())

    def mark_dead(self, number: int) -> None:
        """Takes note that a worker died; generations with it are broken."""
        self._dead.add(number)

    def suspect(self, generation: int, now: float) -> None:
        """Takes note that somebody lost the collectives of a generation."""
        self._lost_s.setdefault(generation, now)

    def forget(self, generation: int) -> None:
        """Forgets everything, after the newest generation: all its workers are gone."""
        self._groups = {generation: ()}
        self._dead.clear()
        self._given_up.clear()
        self._lost_s.clear()
        self._silent_s.clear()

    def is_broken(self, generation: int) -> bool:
        """Tells whether a generation cannot go on."""
        if generation in self._given_up:
            return True
        return not self._dead.isdisjoint(self._groups.get(generation, ()))

    def must_abandon(self, generation: int, now: float) -> bool:
        """Tells whether those in a generation are to leave it, or to show that they live."""
        doubted = self._lost_s.get(generation, NEVER) + self._suspect_s <= now
        return generation >= 0 and (doubted or self.is_broken(generation))

    def evaluate(
        self, workers: Sequence[Worker], now: float, reached: ReachedSince
    ) -> list[Worker]:
        """Returns who hangs in a lost generation; distrusts those in which all have answered.

        Nobody is silent before somebody could ask him.
        """
        hung: list[Worker] = []
        self._silent_s.clear()
        for generation, first_s in sorted(self._lost_s.items()):
            inside = [w for w in workers if generation in (w.entered, w.regroup_sent)]
            if not inside or self.is_broken(generation):
                del self._lost_s[generation]
                continue
            silent = [w for w in inside if w.lost < generation]
            if not silent:
                self._given_up.add(generation)
            for worker in silent:
                since_s = max(first_s, worker.since_s, reached(worker.node))
                if now >= since_s + self._hung_s:
                    hung.append(worker)
                else:
                    self._silent_s.append(since_s)
        return hung

    def due_s(self) -> list[float]:
        """Returns when to judge again."""
        doubted = [t + self._suspect_s for t in self._lost_s.values()]
        return doubted + [t + self._hung_s for t in self._silent_s]

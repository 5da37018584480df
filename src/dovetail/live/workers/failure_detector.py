"""The failure detector: which workers are dead or hang, and which generations they break.

Agents report dead workers. A worker whose collectives fail reports that its generation is lost;
then all workers in it are sent an `Abandon`, and one that does not answer hangs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence, Set

from dovetail.core.units import NEVER_S
from dovetail.live.workers.worker_state import Worker

ReachedSince = Callable[[int], float]
"""Returns since when the agent of a node can be reached; at most the present."""

KEPT_GENERATIONS = 8
"""Generations before the newest that are remembered, though no worker is known to be in them."""


class FailureDetector:
    """What is known of the failures in one gang.

    A lost generation is suspected for `lost_s` before its workers are asked to show that they
    live; a worker that has not answered `hung_s` after the suspicion hangs.
    """

    def __init__(self, lost_s: float, hung_s: float) -> None:
        self._lost_s = lost_s
        self._hung_s = hung_s
        self._groups: dict[int, tuple[int, ...]] = {}
        self._dead: set[int] = set()
        self._given_up: set[int] = set()
        self._suspected_s: dict[int, float] = {}
        self._silent_s: list[float] = []

    def begin(self, generation: int, members: tuple[int, ...], entered: Collection[int]) -> None:
        """Adds a new generation; `entered` are the generations that workers are in."""
        self._groups[generation] = members
        oldest = min(entered, default=generation)
        for old in [g for g in self._groups if g < min(oldest, generation - KEPT_GENERATIONS)]:
            del self._groups[old]

    def mark_dead(self, number: int) -> None:
        """Marks a worker as dead: every generation that it is a member of is broken."""
        self._dead.add(number)

    def suspect(self, generation: int, now: float) -> None:
        """Suspects a generation: a worker lost its collectives, or it has not formed in time."""
        self._suspected_s.setdefault(generation, now)

    def forget(self, generation: int) -> None:
        """Forgets everything up to the newest generation: all its workers are gone."""
        self._groups = {generation: ()}
        self._dead.clear()
        self._given_up.clear()
        self._suspected_s.clear()
        self._silent_s.clear()

    @property
    def is_calm(self) -> bool:
        """Returns whether no generation is suspected."""
        return not self._suspected_s

    def is_broken(self, generation: int) -> bool:
        """Returns whether a generation cannot go on."""
        if generation in self._given_up:
            return True
        return not self._dead.isdisjoint(self._groups.get(generation, ()))

    def may_be_alone(self, workers: Set[int], first: int, last: int) -> bool:
        """Returns whether some workers may be all members of one of these generations.

        An earlier controller may have ordered one that is not known here.
        """
        # One by one: after a restored backup there is a gap of a million that nobody knows.
        groups = (self._groups.get(generation, ()) for generation in range(first, last + 1))
        return any(not members or workers >= set(members) for members in groups)

    def known_from(self, first: int) -> list[tuple[int, tuple[int, ...]]]:
        """Returns the generations from one on that this controller knows, with their members."""
        return [(g, members) for g, members in sorted(self._groups.items()) if g >= first]

    def must_abandon(self, generation: int, now: float) -> bool:
        """Returns whether the workers in a generation must leave it, or show that they live."""
        suspected = self._suspected_s.get(generation, NEVER_S) + self._lost_s <= now
        return generation >= 0 and (suspected or self.is_broken(generation))

    def evaluate(
        self, workers: Sequence[Worker], now: float, reached: ReachedSince
    ) -> list[Worker]:
        """Returns the workers that hang; gives up generations in which all have answered."""
        hung: list[Worker] = []
        self._silent_s.clear()
        for generation, first_s in sorted(self._suspected_s.items()):
            inside = [w for w in workers if generation in (w.entered, w.regroup_sent)]
            if not inside or self.is_broken(generation):
                # Its workers are gone, or the one that broke it is known: nobody is to be found.
                del self._suspected_s[generation]
                continue
            # Every worker that lives answers an Abandon with `Lost`, also one that still computes.
            silent = [w for w in inside if w.lost < generation]
            if not silent:
                # All live, and yet it does not work: they try again in a new generation.
                self._given_up.add(generation)
            for worker in silent:
                # A worker cannot answer before it runs, nor while its node cannot be reached.
                since_s = max(first_s, worker.since_s, reached(worker.node))
                if now >= since_s + self._hung_s:
                    hung.append(worker)
                else:
                    self._silent_s.append(since_s)
        return hung

    def due_s(self) -> list[float]:
        """Returns when to evaluate again."""
        suspected = [t + self._lost_s for t in self._suspected_s.values()]
        return suspected + [t + self._hung_s for t in self._silent_s]

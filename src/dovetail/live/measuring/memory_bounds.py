"""How much of a GPU's memory each of the jobs on it may hold (SJF-BSBF section IV, Algorithm 2).

Each job on a shared GPU may hold what it is believed to hold, and an even part of what is left
over. So no job can take memory from the other. Alone a job has no bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dovetail.control.state import ClusterState
from dovetail.core.placement import Placement


def bounds(held_bytes: Sequence[float], memory_bytes: float) -> tuple[int, ...]:
    """Returns the most that each job may hold; 0 for no bound.

    Even parts where it is not known what a job holds (0), or where they do not fit together.
    """
    jobs = len(held_bytes)
    if jobs < 2:
        return (0,) * jobs
    spare = memory_bytes - sum(held_bytes)
    if spare < 0 or not all(held_bytes):
        return (int(memory_bytes / jobs),) * jobs
    return tuple(int(held + spare / jobs) for held in held_bytes)


class MemoryBounds:
    """Owns the bounds of the jobs on each shared GPU, worked out when one comes, goes or moves.

    In between they stay, whatever is learned: parts from different times would not add up to the
    memory, and each change of a bound costs a new generation.
    """

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._kept: dict[tuple[int, int], tuple[Mapping[int, Placement], Mapping[int, int]]] = {}

    def of(self, row: int) -> int:
        """Returns the most that each worker of a placed job may hold: the least of its GPUs."""
        named = self._state.plan.placed[row].named()
        on_each = [self._on(gpu).get(row, 0) for gpu in named]
        return min((bound for bound in on_each if bound), default=0)

    def _on(self, gpu: tuple[int, int]) -> Mapping[int, int]:
        """Returns what each job on a GPU may hold, by row."""
        plan, view = self._state.plan, self._state.view
        there = {row: plan.placed[row] for row in sorted(plan.occupancy.sharers(*gpu))}
        if len(there) < 2:
            self._kept.pop(gpu, None)
            return {}
        known = self._kept.get(gpu)
        if known is None or known[0] != there:
            held = [
                view.physics.memory.held_bytes(row, placement) for row, placement in there.items()
            ]
            memory = view.cluster.group_of(gpu[0]).gpu_memory_bytes
            parts = dict(zip(there, bounds(held, memory), strict=True))
            self._kept[gpu] = known = there, parts
        return known[1]

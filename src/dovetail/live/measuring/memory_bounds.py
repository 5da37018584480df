"""Memory bounds of jobs that share a GPU (SJF-BSBF section IV, Algorithm 2).

Each job may use its believed memory and an even part of the spare memory, so no job can take
memory from another. A job alone has no bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dovetail.control.state import ClusterState
from dovetail.core.placement import Placement


def bounds(held_bytes: Sequence[float], memory_bytes: float) -> tuple[int, ...]:
    """Returns the most bytes that each job may use; 0 for no bound.

    The parts are even if the memory of a job is not known (0), or if the jobs do not fit together.
    """
    jobs = len(held_bytes)
    if jobs < 2:
        return (0,) * jobs
    spare = memory_bytes - sum(held_bytes)
    if spare < 0 or not all(held_bytes):
        return (int(memory_bytes / jobs),) * jobs
    return tuple(int(held + spare / jobs) for held in held_bytes)


class MemoryBounds:
    """Owns the bounds of the jobs on each shared GPU, computed when a job comes, goes or moves.

    In between they stay, whatever is learned: parts from different times would not add up to the
    memory, and each change of a bound costs a new generation.
    """

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._bounds_on: dict[
            tuple[int, int], tuple[Mapping[int, Placement], Mapping[int, int]]
        ] = {}

    def of(self, row: int) -> int:
        """Returns the bound of each worker of a placed job: the smallest of its GPUs."""
        named = self._state.plan.placed[row].named()
        on_each = [self._on(gpu).get(row, 0) for gpu in named]
        return min((bound for bound in on_each if bound), default=0)

    def _on(self, gpu: tuple[int, int]) -> Mapping[int, int]:
        """Returns the bound of each job on a GPU, by row."""
        plan, view = self._state.plan, self._state.view
        there = {row: plan.placed[row] for row in sorted(plan.occupancy.sharers(*gpu))}
        if len(there) < 2:
            self._bounds_on.pop(gpu, None)
            return {}
        known = self._bounds_on.get(gpu)
        if known is None or known[0] != there:
            held = [
                view.physics.memory.held_bytes(row, placement) for row, placement in there.items()
            ]
            memory = view.cluster.group_of(gpu[0]).gpu_memory_bytes
            parts = dict(zip(there, bounds(held, memory), strict=True))
            self._bounds_on[gpu] = known = there, parts
        return known[1]

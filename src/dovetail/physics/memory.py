"""The memory of a job on each of its GPUs, and which jobs fit there together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dovetail.core.beliefs import Memory, Neighbour


@dataclass(frozen=True, slots=True)
class MemoryLaw:
    """`mem(b) = fixed + per_sample * b` (ALGORITHMS section 1.3).

    Fixed: weights, gradients, optimiser state, framework. Per sample: activations.
    """

    fixed_bytes: float
    per_sample_bytes: float

    def __post_init__(self) -> None:
        if not (self.fixed_bytes >= 0 and self.per_sample_bytes >= 0):
            raise ValueError(f"memory must not be negative: {self}")

    def used_bytes(self, micro_batch: float) -> float:
        """Returns the bytes held on each GPU with micro-batches of this size."""
        return self.fixed_bytes + self.per_sample_bytes * micro_batch


def interleaved_bytes(members: Iterable[tuple[float, float]]) -> float:
    """Returns the bytes of an interleave set on a GPU, for members with fixed and whole footprint.

    Activations take turns: all fixed parts and the largest activation part (section 4.1).
    """
    pairs = list(members)
    return sum(fixed for fixed, _ in pairs) + max((w - f for f, w in pairs), default=0.0)


def fit_together(memory: Memory, occupants: Sequence[Neighbour], gpu_memory_bytes: float) -> bool:
    """True if the known footprints of the jobs fit into one GPU."""
    held = [memory.held_bytes(job, placement) for job, placement in occupants]
    if len(occupants) > 1 and all(p.interleave is not None for _, p in occupants):
        fixed = (memory.fixed_bytes(job) for job, _ in occupants)
        return interleaved_bytes(zip(fixed, held, strict=True)) <= gpu_memory_bytes
    return sum(held) <= gpu_memory_bytes

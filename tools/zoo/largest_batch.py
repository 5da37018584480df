"""The largest micro-batch of a model that fits into the memory of a GPU."""

from __future__ import annotations

import math

from dovetail.physics.memory import MemoryLaw


def largest_batch(memory: MemoryLaw, gpu_memory_bytes: float) -> int | None:
    """Returns the largest whole micro-batch that fits; 0: none does; None: any does."""
    room = gpu_memory_bytes - memory.fixed_bytes
    if room < memory.per_sample_bytes or room < 0:
        return 0
    if memory.per_sample_bytes == 0:
        return None
    # NOTE: the quotient may round up across an integer; the comparison decides.
    batch = math.floor(room / memory.per_sample_bytes)
    return batch if memory.used_bytes(batch) <= gpu_memory_bytes else batch - 1

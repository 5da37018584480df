"""How much of a GPU a job asks for, in three steps, so that it is quick to say who may share.

A job counts 0 (tiny), 1 (medium) or 2 (jumbo) by its utilisation of the GPU and the share of the
GPU's memory it holds, whichever is more. Lucid (ASPLOS 2023) section 3.3.
"""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.core.view import View

TINY, MEDIUM, JUMBO = 0, 1, 2


@dataclass(frozen=True, slots=True)
class ScoreRule:
    """A job is tiny up to `tiny` of a GPU and jumbo above `jumbo`, both in 0..1."""

    tiny: float
    jumbo: float

    def __post_init__(self) -> None:
        if not 0 <= self.tiny <= self.jumbo <= 1:
            raise ValueError("0 <= tiny <= jumbo <= 1 must hold: they are parts of a GPU")

    def score(self, view: View, job: int) -> int:
        """Returns the score of a job on the smallest GPUs of the cluster."""
        memory = min(group.gpu_memory_bytes for group in view.cluster.groups)
        held = view.physics.footprint_bytes(job, 1) / memory if memory else 0.0
        asked = max(view.physics.utilization(job), held)
        return TINY if asked <= self.tiny else MEDIUM if asked <= self.jumbo else JUMBO

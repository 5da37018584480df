"""How much of a GPU a job asks for, in three steps, so that it is quick to say who may share.

A job counts 0 (tiny), 1 (medium) or 2 (jumbo) by its utilisation of the GPU and the share of the
GPU's memory it holds, whichever is more. Lucid (ASPLOS 2023) section 3.3.
"""

from __future__ import annotations

from collections.abc import Callable
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

    def scores(self, view: View) -> Callable[[int], int]:
        """Returns what tells the score of a job on the smallest GPUs, reckoned once a kind."""
        memory = min(group.gpu_memory_bytes for group in view.cluster.groups)
        kind_of, known = view.physics.kind_of, dict[int, int]()

        def score(job: int) -> int:
            kind = int(kind_of[job])
            if kind not in known:
                held = view.physics.memory.footprint_bytes(job, 1) / memory if memory else 0.0
                asked = max(view.physics.sharing.utilization(job), held)
                known[kind] = (
                    TINY if asked <= self.tiny else MEDIUM if asked <= self.jumbo else JUMBO
                )
            return known[kind]

        return score

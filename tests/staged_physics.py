"""Jobs whose stage times are written down in a test, and how long their iterations take alone."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dovetail.core.beliefs import Interleaving, Neighbour, Physics
from dovetail.core.job import Ints, JobTable
from dovetail.core.placement import Placement
from dovetail.physics.linear import LinearSharing, LinearStructure, UnknownMemory, linear_physics
from dovetail.physics.sharing.interference import Injected
from dovetail.physics.sharing.turns import InterleaveCycles, InterleaveRule, MemberStages

PLAIN = InterleaveRule.parse("barrier,no-contention,no-floor")


class StagedStructure(LinearStructure):
    """Job i is of kind `kinds[i]`."""

    def __init__(self, jobs: JobTable, kinds: Sequence[int] | None) -> None:
        super().__init__(jobs)
        numbers = np.arange(len(jobs)) if kinds is None else np.array(kinds)
        self._kind = numbers.astype(np.int64)

    @property
    def kind_of(self) -> Ints:
        return self._kind


class StagedSharing(LinearSharing):
    """Interleave sets take turns by the stages of their kinds."""

    def __init__(self, structure: StagedStructure, stages: Interleaving) -> None:
        super().__init__(structure, Injected())
        self._structure, self._stages = structure, stages
        self._turns = InterleaveCycles(stages)

    @property
    def interleaving(self) -> Interleaving:
        return self._stages

    def slowdown(self, job: int, placement: Placement, neighbours: Sequence[Neighbour]) -> float:
        if not neighbours:
            return 1.0
        mine, *others = (self._turn(*member) for member in ((job, placement), *neighbours))
        return self._turns.slowdown(mine, others)

    def stages(self, job: int, placement: Placement) -> tuple[tuple[float, ...], float]:
        kind, known = self._structure.kind_of[job], self._stages
        return tuple(known.stage_s[kind].tolist()), float(known.iteration_s[kind])

    def _turn(self, job: int, placement: Placement) -> MemberStages:
        assert placement.interleave is not None, "only interleave sets are asked for"
        return MemberStages(*self.stages(job, placement), placement.interleave.phase)


class StagedMemory(UnknownMemory):
    """Kind k holds (fixed, activations) on each GPU."""

    def __init__(
        self, structure: StagedStructure, held_bytes: Sequence[tuple[float, float]]
    ) -> None:
        self._structure, self._held = structure, list(held_bytes)

    def fits(self, occupants: Sequence[Neighbour], gpu_memory_bytes: float) -> bool:
        if not self._held:
            return True
        parts = [self._held[self._structure.kind_of[job]] for job, _ in occupants]
        return sum(fixed for fixed, _ in parts) + max(a for _, a in parts) <= gpu_memory_bytes


def staged_physics(
    jobs: JobTable,
    stage_s: Sequence[Sequence[float]],
    kinds: Sequence[int] | None = None,
    *,
    alone_s: Sequence[float] = (),
    rule: InterleaveRule = PLAIN,
    held_bytes: Sequence[tuple[float, float]] = (),
) -> Physics:
    """Returns the physics of jobs of kind `kinds[i]`, which keep resources busy for `stage_s[k]`.

    An iteration alone takes `alone_s[k]` seconds, by default the sum of the stages.
    """
    rows = np.array(stage_s, np.float64)
    alone = np.array(alone_s, np.float64) if len(alone_s) else rows.sum(axis=1)
    stages = Interleaving(rows, alone, rule.cycle, rule.contention, rule.floor)
    structure = StagedStructure(jobs, kinds)
    return replace(
        linear_physics(jobs),
        sharing=StagedSharing(structure, stages),
        memory=StagedMemory(structure, held_bytes),
        structure=structure,
    )

"""Jobs whose stage times are written down in a test, and how long their iterations take alone."""

from collections.abc import Sequence

import numpy as np

from dovetail.core.beliefs import Interleaving, Neighbour
from dovetail.core.job import Ints, JobTable
from dovetail.core.placement import Placement
from dovetail.physics.linear import LinearPhysics
from dovetail.physics.sharing.interleave import InterleaveRule, Turns

PLAIN = InterleaveRule.parse("barrier,no-contention,no-floor")


class StagedPhysics(LinearPhysics):
    """Job i is of kind `kinds[i]`; kind k keeps the resources busy for `stage_s[k]`.

    An iteration alone takes `alone_s[k]` seconds, by default the sum of the stages. Where
    `held_bytes` is given, kind k holds (fixed, activations) on each GPU.
    """

    def __init__(
        self,
        jobs: JobTable,
        stage_s: Sequence[Sequence[float]],
        kinds: Sequence[int] | None = None,
        *,
        alone_s: Sequence[float] = (),
        rule: InterleaveRule = PLAIN,
        held_bytes: Sequence[tuple[float, float]] = (),
    ) -> None:
        super().__init__(jobs)
        rows = np.array(stage_s, np.float64)
        alone = np.array(alone_s, np.float64) if len(alone_s) else rows.sum(axis=1)
        told = Interleaving(rows, alone, rule.cycle, rule.contention, rule.floor)
        object.__setattr__(self, "_told", told)
        object.__setattr__(self, "_turns", Turns(told))
        kind_of = np.arange(len(jobs)) if kinds is None else np.array(kinds)
        object.__setattr__(self, "_kind", kind_of.astype(np.int64))
        object.__setattr__(self, "_held", list(held_bytes))

    @property
    def kind_of(self) -> Ints:
        return self._kind  # type: ignore[attr-defined,no-any-return]

    @property
    def interleaving(self) -> Interleaving:
        return self._told  # type: ignore[attr-defined,no-any-return]

    def fits_memory(self, occupants: Sequence[Neighbour], gpu_memory_bytes: float) -> bool:
        held: list[tuple[float, float]] = self._held  # type: ignore[attr-defined]
        if not held:
            return True
        parts = [held[self.kind_of[job]] for job, _ in occupants]
        return sum(fixed for fixed, _ in parts) + max(a for _, a in parts) <= gpu_memory_bytes

    def speed(
        self,
        job: int,
        placement: Placement,
        neighbours: Sequence[Neighbour],
        done_s: float = 0.0,
    ) -> float:
        if not neighbours:
            return placement.gpus / int(self.jobs.gpus[job])
        members = [(job, placement), *neighbours]
        seats = [(int(self.kind_of[j]), p.interleave.phase) for j, p in members if p.interleave]
        assert len(seats) == len(members), "only interleave sets are asked for"
        return 1.0 / self._turns.slowdown(seats[0][0], seats)  # type: ignore[attr-defined,no-any-return]

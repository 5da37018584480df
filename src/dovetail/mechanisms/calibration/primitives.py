"""One step of GIMBAL's search: limits and samples for slow and fast workers.

Squeeze and swell make workers slower and faster. On some workers of a job they change the limit of
their share of a GPU, by ten points (LGRR), and if that makes stragglers, samples move too; both on
workers of one job move samples only (LISS).
GIMBAL sections 4.1, 4.2 and Algorithm 1; ALGORITHMS 3.1, 3.3.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from math import ceil
from statistics import median

from dovetail.algorithms.sample_split import split
from dovetail.core.beliefs import Neighbour
from dovetail.core.placement import Placement
from dovetail.core.units import RELATIVE_TOLERANCE
from dovetail.core.view import View
from dovetail.mechanisms.sharing.named_gpus import fit_together, least_memory_bytes
from dovetail.mechanisms.sharing.stars import Star

STEP, WHOLE = 10, 100
"""Points of a GPU: the grain of limits (GIMBAL section 7.4), and no limit."""
SLOW = 1.05
"""A worker is slow above this many times the median forward time of its job (ALGORITHMS 3.1)."""
CONTEXT_BYTES = 200e6
"""One more CUDA context while limits are being searched (GIMBAL section 6)."""


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """The limit of each worker of a job in points, and its samples; () for even samples."""

    limits: tuple[int, ...]
    samples: tuple[int, ...] = ()

    def on(self, bare: Placement) -> Placement:
        """Returns a placement with these limits and samples."""
        whole = all(limit == WHOLE for limit in self.limits)
        fractions = () if whole else tuple(limit / WHOLE for limit in self.limits)
        return replace(bare, fractions=fractions, samples=self.samples)


Setting = tuple[WorkerLimits, ...]
"""The limits and samples of each member of a star, the centre first."""


def free_competition(bare: tuple[Placement, ...]) -> Setting:
    """Returns no limits and even samples."""
    return tuple(WorkerLimits((WHOLE,) * p.gpus) for p in bare)


@dataclass(frozen=True, slots=True)
class Bench:
    """A placed star, and the mechanisms that may be used on it."""

    view: View
    star: Star
    bare: tuple[Placement, ...]
    limits: bool
    samples: bool

    def step(self, setting: Setting, low: Collection[int]) -> Setting | None:
        """Returns the next setting of Algorithm 1, None if nothing can be changed.

        `low` are the members of lower priority, by position.
        """
        slow = self.slow(setting, 0)
        if not slow:
            wanted = {i: self._shared(i) for i in low}
        elif 0 in low:
            balanced = self._balanced(setting, [0])
            if balanced != setting:
                return balanced
            # No sample can move, so the other workers are squeezed.
            wanted = {0: self._shared(0) - slow}
        else:
            with_slow = {gpu for i, gpu in enumerate(self.bare[0].named()) if i in slow}
            wanted = {
                i: {w for w, gpu in enumerate(self.bare[i].named()) if gpu in with_slow}
                for i in low
            }
        squeezed = self._squeezed(setting, wanted)
        stragglers = [i for i in range(len(setting)) if self.slow(squeezed, i)]
        after = self._balanced(squeezed, stragglers)
        return None if after == setting else after

    def slow(self, setting: Setting, member: int) -> set[int]:
        """Returns the workers of a member with forward passes `SLOW` times the median or longer."""
        lines = self._workers(setting, member)
        samples = setting[member].samples
        if not samples:
            batch = self._batch(member)
            samples_each = batch / len(lines) if batch else 1.0
            times = [fixed + per * samples_each for fixed, per in lines]
        else:
            times = [fixed + per * b for (fixed, per), b in zip(lines, samples, strict=True)]
        middle = median(times)
        return {w for w, t in enumerate(times) if t > SLOW * middle}

    def _workers(self, setting: Setting, member: int) -> tuple[tuple[float, float], ...]:
        members = self.star.members
        near = range(1, len(members)) if member == 0 else (0,)
        neighbours: list[Neighbour] = [(members[i], self._placed(setting, i)) for i in near]
        here = self._placed(setting, member)
        return self.view.physics.batches.workers(members[member], here, neighbours)

    def _placed(self, setting: Setting, member: int) -> Placement:
        return setting[member].on(self.bare[member])

    def _batch(self, member: int) -> int:
        changed = self.bare[member].batch_size
        return changed or self.view.physics.batches.samples(self.star.members[member])

    def _shared(self, member: int) -> set[int]:
        """Returns the workers of a member that share a GPU; squeezing others helps no job."""
        others = [p for i, p in enumerate(self.bare) if (i == 0) != (member == 0)]
        held = {gpu for p in others for gpu in p.named()}
        return {w for w, gpu in enumerate(self.bare[member].named()) if gpu in held}

    def _squeezed(self, setting: Setting, workers: Mapping[int, set[int]]) -> Setting:
        """Returns the setting with limits ten points lower for some workers, if possible.

        A limit above the job's utilisation has no effect, so the first one starts below it.
        """
        if not self.limits:
            return setting
        squeezed = list(setting)
        for member, which in workers.items():
            used = self.view.physics.sharing.utilization(self.star.members[member])
            top = min(WHOLE, STEP * ceil(WHOLE * used / STEP - RELATIVE_TOLERANCE))
            limits = tuple(
                max(STEP, min(limit, top) - STEP) if w in which else limit
                for w, limit in enumerate(setting[member].limits)
            )
            squeezed[member] = replace(setting[member], limits=limits)
        return tuple(squeezed)

    def _balanced(self, setting: Setting, members: Collection[int]) -> Setting:
        """Returns the setting with samples of these members moved to their fast workers."""
        if not self.samples:
            return setting
        for member in members:
            lines, batch = self._workers(setting, member), self._batch(member)
            if batch < len(lines) or min(per for _, per in lines) <= 0:
                continue
            split_now = replace(setting[member], samples=split(lines, batch))
            tried = (*setting[:member], split_now, *setting[member + 1 :])
            if self._fits(tried):
                setting = tried
        return setting

    def fits_contexts(self) -> bool:
        """Returns whether each shared GPU has memory for one more context."""
        return self._fits(free_competition(self.bare), CONTEXT_BYTES)

    def _fits(self, setting: Setting, extra_bytes: float = 0.0) -> bool:
        centre = (self.star.centre, self._placed(setting, 0))
        return all(
            fit_together(
                self.view,
                [centre, (job, self._placed(setting, i))],
                least_memory_bytes(self.view, self.bare[i]) - extra_bytes,
            )
            for i, job in enumerate(self.star.others, start=1)
        )

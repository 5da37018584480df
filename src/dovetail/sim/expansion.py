"""Expansions under way: jobs that train on the GPUs they had while new ones are made ready.

The plan has the new GPUs of a job at once; this file has the GPUs that train until the switch
(AFS section 4.3; ALGORITHMS section 2.4).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from dovetail.core.job import JobTable
from dovetail.core.placement import Placement
from dovetail.core.switching import Switching
from dovetail.core.units import NEVER_S


class ExpansionStep(NamedTuple):
    """From `due_s` on a job trains on `training`."""

    due_s: float
    training: Placement


class Expansions:
    """The part that trains now, and the steps under way, of each job that grows."""

    def __init__(self, switching: Switching) -> None:
        self._switching = switching
        self._training: dict[int, Placement] = {}
        self.steps: dict[int, list[ExpansionStep]] = {}
        """The steps under way of each job that grows, in order of time. Others only read it."""

    def serve(self, jobs: JobTable, job: int) -> bool:
        """Returns whether a job trains on while GPUs it did not have are made ready for it."""
        prepares = self._switching.prepare_s > 0
        return bool(prepares and jobs.elastic[job] and not jobs.restart_s[job])

    def due_s(self, job: int) -> float:
        """Returns when the next switch of a job is due, never if none is under way."""
        steps = self.steps.get(job)
        return steps[0].due_s if steps else NEVER_S

    def done_s(self, job: int) -> float:
        """Returns when all orders for a job will be carried out; in the past if none is open."""
        steps = self.steps.get(job)
        return steps[-1].due_s + self._switching.resize_s if steps else -NEVER_S

    def training(self, job: int, placed: Placement) -> Placement:
        """Returns the part of a job's placement that trains now."""
        return self._training.get(job, placed)

    def order(
        self,
        job: int,
        before: Placement,
        after: Placement,
        how: str,
        *,
        now: float,
        begin_s: float,
    ) -> tuple[Placement, float]:
        """Accepts a new order for a running job.

        Returns the part that trains from now on, and the pause before it, in seconds. `begin_s` is
        when the GPUs that the job gains are free. The order replaces the steps under way, or, if
        orders do not cancel, follows them, as far as the job keeps those GPUs. A job that keeps
        none of the GPUs on which it trains starts anew elsewhere.
        """
        switching = self._switching
        trained = self.training(job, before)
        steps = [] if switching.cancels else self.steps.get(job, [])
        self.forget(job)
        kept = trained.kept_in(after)
        if kept is None:
            return after, begin_s - now + switching.move_s
        pause_s = switching.pause_s(how, same_gpus=kept.gpus == trained.gpus)
        steps = _growing(
            kept, [ExpansionStep(s.due_s, s.training.kept_in(after) or kept) for s in steps]
        )
        reached = steps[-1].training if steps else kept
        if reached.gpus < after.gpus:
            if steps:
                begin_s = max(begin_s, steps[-1].due_s + switching.resize_s)
            steps.append(ExpansionStep(begin_s + switching.prepare_s, after))
        if not steps:
            return after, pause_s
        self._training[job], self.steps[job] = kept, steps
        return kept, pause_s

    def carry_out(self, job: int) -> None:
        """Starts the next step of a job: it trains on more GPUs from now on."""
        step = self.steps[job].pop(0)
        self._training[job] = step.training
        if not self.steps[job]:
            self.forget(job)

    def lose(self, job: int, nodes: Collection[int]) -> None:
        """Removes lost nodes from all steps; part of what trains must be left."""
        if job not in self.steps:
            return
        kept = self._training[job].without(nodes)
        assert kept is not None
        left = [ExpansionStep(s.due_s, s.training.without(nodes) or kept) for s in self.steps[job]]
        self.forget(job)
        steps = _growing(kept, left)
        if steps:
            self._training[job], self.steps[job] = kept, steps

    def forget(self, job: int) -> None:
        """Drops the steps of a job that stops, ends or has switched."""
        self._training.pop(job, None)
        self.steps.pop(job, None)


def _growing(training: Placement, steps: list[ExpansionStep]) -> list[ExpansionStep]:
    """Returns the steps that still add GPUs to the step before."""
    growing: list[ExpansionStep] = []
    for step in steps:
        if step.training.gpus > (growing[-1].training if growing else training).gpus:
            growing.append(step)
    return growing

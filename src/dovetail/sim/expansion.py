"""Expansions under way: jobs that train on the GPUs they had while new ones are made ready.

The plan says at once who holds which GPUs; here is which of them train until the switch is due
(AFS section 4.3; ALGORITHMS section 2.4).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from dovetail.core.placement import Placement
from dovetail.core.switching import Switching
from dovetail.core.units import NEVER_S


class ExpansionStep(NamedTuple):
    """From `due_s` on a job trains as `training` says."""

    due_s: float
    training: Placement


class Expansions:
    """What trains now, and the steps under way, of each job that is growing."""

    def __init__(self, switching: Switching) -> None:
        self._switching = switching
        self._training: dict[int, Placement] = {}
        self.steps: dict[int, list[ExpansionStep]] = {}
        """The steps under way of each job that grows, in order of time. Others only read it."""

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
        """Takes a new order for a running job; returns what trains from now on, after what pause.

        `begin_s` is when the GPUs it gains are free. What is under way is given up for the
        order, or, if orders do not cancel, carried out first, as far as the job keeps the
        GPUs. A job that keeps none of the GPUs it trains on starts anew elsewhere.
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
        """Takes lost nodes out of what trains and is to train; some of what trains must be left."""
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
    """Returns the steps that still add GPUs to what trains before them."""
    left: list[ExpansionStep] = []
    for step in steps:
        if step.training.gpus > (left[-1].training if left else training).gpus:
            left.append(step)
    return left

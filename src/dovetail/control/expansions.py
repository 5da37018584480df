"""Expansions under way: jobs that train on the GPUs they had while new ones are made ready.

The plan has the new GPUs of a job at once; this file has the GPUs that train until the switch
(AFS section 4.3; ALGORITHMS section 2.4). A GPU that a newer order keeps goes on being made ready,
as a worker that loads does not depend on how many others there will be.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from dovetail.core.placement import Placement
from dovetail.core.switching import Expansion, SwitchCost, Switching
from dovetail.core.units import NEVER_S


class ExpansionStep(NamedTuple):
    """The GPUs of `training` are ready at `due_s`, the last of them made ready since `begin_s`."""

    begin_s: float
    due_s: float
    training: Placement


class Switch(NamedTuple):
    """What an order does to a running job: a pause, then a part trains, until all `steps` are due.

    Each step has the GPUs of those before it. If orders cancel, GPUs join at the last one only,
    else at each.
    """

    training: Placement
    pause_s: float
    steps: list[ExpansionStep]


class Expansions:
    """The part that trains now, and the steps under way, of each job that grows."""

    def __init__(self, switching: Switching) -> None:
        self._switching = switching
        self._follows = False
        self._took_s: dict[int, float] = {}
        self._last_s = switching.prepare_s
        self._steps: dict[int, list[ExpansionStep]] = {}
        self._shown: dict[int, Expansion] = {}
        self.shown: Mapping[int, Expansion] = MappingProxyType(self._shown)
        """The expansion of each job that grows, as policies see it."""

    def follow_workers(self) -> None:
        """Goes by real workers from now on: those a job keeps train on at every resize.

        New ones join when they say so, and are expected to take as long as the last of the same
        job, else of any.
        """
        self._follows, self._switching = True, self._switching.overlapped()
        self._last_s = self._switching.prepare_s

    @property
    def overlaps(self) -> bool:
        """True if an elastic job trains on while new GPUs are made ready."""
        return self._follows or self._switching.prepare_s > 0

    def prepare_s(self, job: int) -> float:
        """Returns how long it takes to make new GPUs of a job ready, as far as it is known."""
        return self._took_s.get(job, self._last_s)

    def due_s(self, job: int) -> float:
        """Returns when the next switch of a job is due, never if none is under way."""
        steps = self._steps.get(job)
        if not steps:
            return NEVER_S
        return steps[-1 if self._switching.cancels else 0].due_s

    def done_s(self, job: int) -> float:
        """Returns when all orders for a job will be carried out; in the past if none is open."""
        steps = self._steps.get(job)
        return steps[-1].due_s + self._switching.resize_s if steps else -NEVER_S

    def training(self, job: int, placed: Placement) -> Placement:
        """Returns the part of a job's placement that trains now."""
        expansion = self._shown.get(job)
        return placed if expansion is None else expansion.training

    def foreseen(
        self,
        job: int,
        before: Placement,
        after: Placement,
        how: str,
        *,
        now: float,
        begin_s: float,
    ) -> Switch:
        """Returns what an order does to a running job; it is not given yet.

        `begin_s` is when the GPUs that the job gains are free. If orders cancel, it replaces the
        one under way, else it follows that, as far as the job keeps those GPUs. A job that keeps
        none of the GPUs on which it trains starts anew elsewhere.
        """
        switching, trained = self._switching, self.training(job, before)
        kept = trained.kept_in(after)
        if kept is None:
            return Switch(after, begin_s - now + switching.move_s, [])
        steps = self._kept_steps(job, kept, after)
        reached = steps[-1].training if steps else kept
        if reached.gpus < after.gpus:
            if steps and not switching.cancels:
                begin_s = max(begin_s, steps[-1].due_s + switching.resize_s)
            due_s = begin_s + self.prepare_s(job)
            due_s = max(due_s, steps[-1].due_s) if steps else due_s
            steps.append(ExpansionStep(begin_s, due_s, after))
        elif steps and switching.cancels and steps[-1].due_s <= now and not self._follows:
            # They waited for others that this order does without: they join at once.
            steps, kept = [], after
        pause_s = switching.pause_s(how, same_gpus=kept.gpus == trained.gpus)
        return Switch(kept if steps else after, pause_s, steps)

    def _kept_steps(self, job: int, kept: Placement, after: Placement) -> list[ExpansionStep]:
        """Returns the steps under way, as far as `after` has their GPUs."""
        steps = self._steps.get(job, ())
        return _growing(
            kept, [s._replace(training=s.training.kept_in(after) or kept) for s in steps]
        )

    def begin(self, job: int, switch: Switch) -> None:
        """Begins what an order does, in place of what is under way."""
        self.forget(job)
        if switch.steps:
            self._steps[job] = switch.steps
            self._show(job, switch.training)

    def cost(self, switch: Switch, *, now: float, busy_s: float) -> SwitchCost:
        """Returns what a switch costs a job that stands still for `busy_s` from now on anyway."""
        return self._cost(switch.pause_s, switch.steps, now, busy_s)

    def _cost(
        self, pause_s: float, steps: Sequence[ExpansionStep], now: float, busy_s: float
    ) -> SwitchCost:
        pause_s = max(pause_s, busy_s)
        if not steps:
            return SwitchCost(pause_s, pause_s)
        joins = 1 if self._switching.cancels else len(steps)
        effect_s = max(steps[-1].due_s - now, pause_s) + self._switching.resize_s
        return SwitchCost(pause_s + joins * self._switching.resize_s, effect_s)

    def left(self, job: int, *, now: float, busy_s: float) -> SwitchCost:
        """Returns what is left of the switch of a job under way."""
        return self._cost(0.0, self._steps.get(job, ()), now, busy_s)

    def carry_out(self, job: int, now: float) -> None:
        """Lets GPUs that are ready join; the job may have begun no expansion, or lost it."""
        steps = self._steps.get(job)
        if not steps:
            return
        if self._follows:
            self._took_s[job] = self._last_s = now - steps[-1].begin_s
        if self._switching.cancels or len(steps) == 1:
            self.forget(job)
        else:
            self._show(job, steps.pop(0).training)

    def lose(self, job: int, nodes: Collection[int]) -> None:
        """Removes lost nodes from all steps; without a GPU that trains nothing is under way."""
        steps = self._steps.get(job)
        if steps is None:
            return
        kept = self._shown[job].training.without(nodes)
        if kept is None:
            self.forget(job)
            return
        left = [s._replace(training=s.training.without(nodes) or kept) for s in steps]
        self.begin(job, Switch(kept, 0.0, _growing(kept, left)))

    def forget(self, job: int) -> None:
        """Drops the steps of a job that stops, ends or has switched."""
        if job in self._steps:
            del self._steps[job], self._shown[job]

    def _show(self, job: int, training: Placement) -> None:
        self._shown[job] = Expansion(training, self._steps[job][-1].due_s)


def _growing(training: Placement, steps: list[ExpansionStep]) -> list[ExpansionStep]:
    """Returns the steps that still add GPUs to the step before."""
    growing: list[ExpansionStep] = []
    for step in steps:
        if step.training.gpus > (growing[-1].training if growing else training).gpus:
            growing.append(step)
    return growing

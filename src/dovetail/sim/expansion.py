"""Expansions under way: jobs that train on the GPUs they had while new ones are made ready.

The plan says at once who holds which GPUs; here is which of them train until the switch is due
(AFS section 4.3; ALGORITHMS section 2.4).
"""

from __future__ import annotations

from typing import NamedTuple

from dovetail.core.placement import Placement
from dovetail.physics.switching import Switching

NEVER = float("inf")


class Expansion(NamedTuple):
    """A job trains as `training` says until `due_s`; then all GPUs of its placement do."""

    training: Placement
    due_s: float


class Expansions:
    """The expansions under way, by job."""

    def __init__(self, switching: Switching) -> None:
        self._switching = switching
        self._under_way: dict[int, Expansion] = {}

    def due_s(self, job: int) -> float:
        """Returns when the switch of a job is due, never if none is under way."""
        found = self._under_way.get(job)
        return NEVER if found is None else found.due_s

    def training(self, job: int, placed: Placement) -> Placement:
        """Returns the part of a job's placement that trains now."""
        found = self._under_way.get(job)
        return placed if found is None else found.training

    def order(
        self, job: int, before: Placement, after: Placement, now: float, begin_s: float
    ) -> tuple[Placement, float]:
        """Takes a new order for a running job; returns what trains from now on, after what pause.

        `begin_s` is when the GPUs it gains are free. An expansion under way is given up for the
        order, or, if orders do not cancel, only delays it. A job that keeps none of the GPUs it
        trains on starts anew elsewhere.
        """
        switching = self._switching
        earlier = self._under_way.pop(job, None)
        trained = before if earlier is None else earlier.training
        kept = trained.kept_in(after)
        if kept is None:
            return after, begin_s - now + switching.move_s
        pause_s = 0.0 if kept.gpus == trained.gpus else switching.resize_s
        if kept.gpus == after.gpus:
            return after, pause_s
        if earlier is not None and not switching.cancels:
            begin_s = max(begin_s, earlier.due_s + switching.resize_s)
        self._under_way[job] = Expansion(kept, begin_s + switching.prepare_s)
        return kept, pause_s

    def forget(self, job: int) -> None:
        """Gives up the expansion of a job that stops, ends or has switched."""
        self._under_way.pop(job, None)

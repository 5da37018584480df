"""The protocol between the loop and a world: simulated, live, replayed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dovetail.core.plan import Draft
from dovetail.core.policy import Decision, Policy
from dovetail.core.view import View


class World(Protocol):
    """A place where jobs arrive, run and end."""

    def advance(self, until: float) -> bool:
        """Moves to the next instant with events, or to `until`; False when nothing is left."""

    def observe(self) -> View:
        """Returns the view at the present instant."""

    def apply(self, draft: Draft) -> None:
        """Carries a legal draft out. Raises IllegalPlan if the plan moved meanwhile."""

    def in_time(self, took_s: float) -> bool:
        """True if a decision that took `took_s` still counts."""

    def refuse(self, policy: Policy, why: Sequence[str], cause: Exception | None = None) -> float:
        """Refuses a decision; `cause` is the exception of the policy, if it raised one.

        Raises, or keeps the last plan, records the refusal and returns when to ask again.
        """

    def note(self, decision: Decision) -> None:
        """Records why jobs wait, and adopts a new order of the queue."""

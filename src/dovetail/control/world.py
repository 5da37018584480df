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
        """Tells whether a decision that took so long still counts."""

    def refuse(self, policy: Policy, why: Sequence[str], cause: Exception | None = None) -> float:
        """Reacts to a decision that cannot stand, `cause` being what the policy raised.

        Raises, or keeps the last good plan, records it and returns when to ask again.
        """

    def note(self, decision: Decision) -> None:
        """Takes note of why jobs wait, and of a new order of the queue."""

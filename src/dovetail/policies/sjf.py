"""Shortest job first: waiting jobs start in order of their forecast length; none is stopped.

Source: ALGORITHMS section 6. Knows: length. Stops running jobs: no.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dovetail.core.order import Order
from dovetail.core.passes import check_bypass, fill
from dovetail.core.policy import Decision, register
from dovetail.core.view import View


@register("sjf")
@dataclass(frozen=True, slots=True)
class Sjf:
    """Order of length alone, exclusive, non-preemptive, skips what does not fit."""

    bypass: str = "skip"

    knows: ClassVar[frozenset[str]] = frozenset({"length"})
    powers: ClassVar[frozenset[str]] = frozenset()
    order: ClassVar[Order] = Order(lambda view, jobs: view.progress.length_s(jobs))
    initial: ClassVar[None] = None
    takes_parts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_bypass(self.bypass)

    def decide(self, view: View, memory: object) -> Decision:
        """Starts the shortest jobs that fit."""
        draft, because = fill(view, self.bypass)
        return Decision(draft, because=because)

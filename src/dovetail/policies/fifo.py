"""First in, first out: jobs start in order of submission and are never stopped.

Strict by default: a job that finds no room blocks all jobs behind it. Public simulators often skip
it, which is in effect another policy: `bypass=skip`.

Source: ALGORITHMS section 6. Knows: no lengths. Stops running jobs: no.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dovetail.core.order import Order
from dovetail.core.passes import check_bypass, fill
from dovetail.core.policy import Decision, register
from dovetail.core.view import View


@register("fifo")
@dataclass(frozen=True, slots=True)
class Fifo:
    """Order of submission, exclusive, non-preemptive."""

    bypass: str = "strict"

    knows: ClassVar[frozenset[str]] = frozenset()
    powers: ClassVar[frozenset[str]] = frozenset()
    order: ClassVar[Order] = Order(lambda view, jobs: [0.0] * len(jobs))
    initial: ClassVar[None] = None
    takes_parts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_bypass(self.bypass)

    def decide(self, view: View, memory: object) -> Decision:
        """Starts the jobs at the head of the queue that fit."""
        draft, because = fill(view, self.bypass)
        return Decision(draft, because=because)

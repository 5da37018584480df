"""Shortest remaining time first: the jobs of least remaining solo time at the requested GPUs run.

At each event all jobs are ranked anew and placed greedily; a job that does not fit is passed
over, a running one that loses its GPUs waits and pays the switching cost when it resumes.

Source: ALGORITHMS section 6. Knows: length. Stops running jobs: yes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dovetail.core.order import Order
from dovetail.core.passes import check_bypass, rank
from dovetail.core.policy import Decision, register
from dovetail.core.view import View


@register("srtf")
@dataclass(frozen=True, slots=True)
class Srtf:
    """Shortest remaining time first, preemptive."""

    bypass: str = "skip"

    knows: ClassVar[frozenset[str]] = frozenset({"length"})
    powers: ClassVar[frozenset[str]] = frozenset({"preempt", "migrate"})
    order: ClassVar[Order] = Order(lambda view, jobs: view.progress.left_s(jobs))
    initial: ClassVar[None] = None

    def __post_init__(self) -> None:
        check_bypass(self.bypass)

    def decide(self, view: View, memory: object) -> Decision:
        """Ranks waiting and running jobs and stops those that lose."""
        draft, because = rank(view, lambda running: running.left_s, self.bypass)
        return Decision(draft, because=because)

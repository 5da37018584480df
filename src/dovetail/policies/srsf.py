"""Shortest remaining service first: the jobs of least remaining solo time times requested GPUs run.

At each event all jobs are ranked anew and placed greedily; a job that does not fit is passed
over, a running one that loses its GPUs waits and pays the switching cost when it resumes.

Source: ALGORITHMS section 6. Knows: length. Stops running jobs: yes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from dovetail.core.order import Order
from dovetail.core.passes import check_bypass, rank
from dovetail.core.policy import Decision, register
from dovetail.core.view import View


def _keys(view: View, jobs: Sequence[int]) -> list[float]:
    gpus = view.jobs.gpus
    return [s * float(gpus[j]) for s, j in zip(view.progress.left_s(jobs), jobs, strict=True)]


@register("srsf")
@dataclass(frozen=True, slots=True)
class Srsf:
    """Shortest remaining service first, preemptive."""

    bypass: str = "skip"

    knows: ClassVar[frozenset[str]] = frozenset({"length"})
    powers: ClassVar[frozenset[str]] = frozenset({"preempt", "migrate"})
    order: ClassVar[Order] = Order(_keys)
    initial: ClassVar[None] = None

    def __post_init__(self) -> None:
        check_bypass(self.bypass)

    def decide(self, view: View, memory: object) -> Decision:
        """Ranks waiting and running jobs and stops those that lose."""
        draft, because = rank(view, lambda running: running.left_s * running.gpus, self.bypass)
        return Decision(draft, because=because)

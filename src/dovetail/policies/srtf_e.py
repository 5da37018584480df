"""SRTF-E: shortest remaining time first at the requested sizes; who runs shares what is left.

The GPUs that no waiting job could take go one at a time to the elastic job that runs and gains
most, `(p(c+1) - p(c)) / p(1)`, up to its most. They are taken back as soon as a job wants them.

Source: AFS section 5.5; ALGORITHMS section 6. Knows: length, scaling. Stops running jobs: yes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dovetail.core.order import Order
from dovetail.core.passes import check_bypass
from dovetail.core.policy import Decision, register
from dovetail.core.view import View
from dovetail.mechanisms.elastic.altruistic import share_left_over


@register("srtf-e")
@dataclass(frozen=True, slots=True)
class SrtfE:
    """Shortest remaining time first, with left-over GPUs for elastic jobs; preemptive."""

    bypass: str = "skip"

    knows: ClassVar[frozenset[str]] = frozenset({"length", "scaling"})
    powers: ClassVar[frozenset[str]] = frozenset({"preempt", "migrate", "resize"})
    order: ClassVar[Order] = Order(lambda view, jobs: view.progress.left_s(jobs))
    initial: ClassVar[None] = None

    def __post_init__(self) -> None:
        check_bypass(self.bypass)

    def decide(self, view: View, memory: object) -> Decision:
        """Ranks everybody by the time left on the requested GPUs and shares out the rest."""
        draft, because = share_left_over(view, lambda running: running.left_s, self.bypass)
        return Decision(draft, because=because)

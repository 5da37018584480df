"""SRSF-E: shortest remaining service first at the requested sizes; who runs shares what is left.

Remaining service is the time left on the requested GPUs times their number, whatever the job
holds. The GPUs that no waiting job could take go one at a time to the elastic job that runs and
gains most, `(p(c+1) - p(c)) / p(1)`, up to its most; they are taken back when a job wants them.

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
from dovetail.policies.srsf import Srsf


@register("srsf-e")
@dataclass(frozen=True, slots=True)
class SrsfE:
    """Shortest remaining service first, with left-over GPUs for elastic jobs; preemptive."""

    bypass: str = "skip"

    knows: ClassVar[frozenset[str]] = frozenset({"length", "scaling"})
    powers: ClassVar[frozenset[str]] = frozenset({"preempt", "migrate", "resize"})
    order: ClassVar[Order] = Srsf.order
    initial: ClassVar[None] = None

    def __post_init__(self) -> None:
        check_bypass(self.bypass)

    def decide(self, view: View, memory: object) -> Decision:
        """Ranks everybody by the service left on the requested GPUs and shares out the rest."""
        requested = view.jobs.gpus
        draft, because = share_left_over(
            view, lambda running: running.left_s * requested[running.jobs], self.bypass
        )
        return Decision(draft, because=because)

"""Gandiva by deadlines: like `gandiva`, but jobs with the least slack come first.

Slack is the time to the deadline less the time left alone. It ranks starts, packing and turns; a
group is stopped only for a job of less slack. Jobs without a deadline are not urgent: they take
turns as in `gandiva`. `unequal` is as in `gandiva`.

Source: the deadline-aware Gandiva of GIMBAL section 6.1; ALGORITHMS section 6. Knows: length,
interference (of jobs it has packed), memory.
Stops running jobs: yes, after a slice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from dovetail.core.order import Order
from dovetail.core.policy import register
from dovetail.core.view import View
from dovetail.policies.gandiva import Gandiva, Urgency


def _latest_starts_s(view: View, jobs: Sequence[int]) -> list[float]:
    """Returns the latest start of each job to meet its deadline, which ranks like slack."""
    left_s = view.progress.left_s(jobs)
    due_s = view.jobs.deadline_s
    return [float(due_s[job]) - left for job, left in zip(jobs, left_s, strict=True)]


def _urgency(view: View, job: int) -> float:
    return _latest_starts_s(view, (job,))[0]


@register("gandiva-deadline")
@dataclass(frozen=True, slots=True)
class GandivaDeadline(Gandiva):
    """Least slack first, packing and time slicing; preemptive. `slice` in seconds."""

    knows: ClassVar[frozenset[str]] = frozenset({"length", "interference", "memory"})
    order: ClassVar[Order] = Order(_latest_starts_s)
    urgency: ClassVar[Urgency] = _urgency

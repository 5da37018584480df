"""Tiresias-L: least attained service in two dimensions, discretised into queues (2D-LAS).

A job's attained service is the GPU-seconds it has held. It starts in the first queue and falls
to the next when its service passes a threshold, which is an event of its own. A lower queue is
served before a higher one; jobs are stopped only for jobs of a lower queue. A job that does not
fit is skipped.

Inside a queue `inside=submission` serves running jobs first, then by submission.
`inside=list` keeps each queue as a list, as the public artifacts do: a job joins at the end, and
after every decision running jobs move before waiting ones. The two differ by tens of per cent on
one trace, because a stopped job keeps its place before jobs that never ran.

Under `sizes=peak` each elastic job runs on as many GPUs as it can use, or waits (AFS section 5.2,
Figure 6); a larger size spends the GPU-seconds of a queue faster.

Source: ALGORITHMS section 6; threshold 3250 GPU-s as in the public artifacts; starvation
promotion is off there and absent here. Knows: attained service (and scaling, for peak sizes).
Stops running jobs: yes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from math import nextafter

import numpy as np

from dovetail.core.job import Floats
from dovetail.core.order import Order
from dovetail.core.passes import check_bypass, rank, runs_on, serve
from dovetail.core.plan import Draft
from dovetail.core.policy import Decision, Preset, register
from dovetail.core.units import RELATIVE_TOLERANCE
from dovetail.core.view import Running, View
from dovetail.mechanisms.elastic.sizes import PEAK, REQUESTED, check_sizes, declared, serve_at_peak

INSIDE = ("submission", "list")
Queues = tuple[tuple[int, ...], ...]
PRESETS = {
    "tiresias-max": Preset(
        "Tiresias-max: Tiresias-L, each elastic job on as many GPUs as it can use.",
        {"sizes": PEAK},
    )
}


@register("tiresias", PRESETS)
@dataclass(frozen=True, slots=True)
class Tiresias:
    """Discretised 2D-LAS, preemptive between queues. Thresholds in GPU-seconds."""

    thresholds: tuple[float, ...] = (3250.0,)
    inside: str = "submission"
    bypass: str = "skip"
    sizes: str = "requested"

    def __post_init__(self) -> None:
        check_bypass(self.bypass)
        check_sizes(self.sizes, (REQUESTED, PEAK))
        if self.inside not in INSIDE:
            raise ValueError(f"inside is submission or list, not '{self.inside}'")
        if self.inside == "list" and self.bypass != "skip":
            raise ValueError("inside=list always skips what does not fit")
        if self.inside == "list" and self.sizes != REQUESTED:
            raise ValueError("inside=list serves jobs at the requested sizes")
        ordered = list(self.thresholds) == sorted(set(self.thresholds))
        if not self.thresholds or self.thresholds[0] <= 0 or not ordered:
            raise ValueError("thresholds must be positive and increasing, as in 3250/7200")

    @property
    def knows(self) -> frozenset[str]:
        """Returns attained service, and scaling where sizes differ from the request."""
        return declared(frozenset({"attained service"}), self.sizes, "scaling")

    @property
    def powers(self) -> frozenset[str]:
        """Returns preempt and migrate, and resize where sizes differ from the request."""
        return declared(frozenset({"preempt", "migrate"}), self.sizes, "resize")

    @property
    def takes_parts(self) -> bool:
        """Returns whether jobs are placed as requested; lists and peak sizes count whole GPUs."""
        return self.sizes == REQUESTED and self.inside == "submission"

    @property
    def order(self) -> Order:
        """Ranks a waiting job behind the running ones of its queue."""
        return Order(lambda view, jobs: [2.0 * q + 1 for q in self._queues(view, jobs)])

    @property
    def initial(self) -> Queues | None:
        """Returns empty lists if queues are lists, otherwise None."""
        return ((),) * (len(self.thresholds) + 1) if self.inside == "list" else None

    def decide(self, view: View, memory: object) -> Decision:
        """Ranks all jobs by queue; wakes when the next running job falls to the next queue."""
        if self.inside == "list":
            return self._decide_by_lists(view, memory)
        serve_all = serve_at_peak if self.sizes == PEAK else rank
        draft, because = serve_all(view, self.running_keys, self.bypass)
        return Decision(draft, wake_at=self.next_fall_s(view, draft), because=because)

    def running_keys(self, running: Running) -> Floats:
        """Returns the keys of running jobs, which come before the waiting ones of their queue."""
        limits = np.array(self.thresholds) * (1 - RELATIVE_TOLERANCE)
        queues = np.searchsorted(limits, running.attained_gpu_s, side="right")
        return queues.astype(np.float64) * 2.0

    def _queues(self, view: View, jobs: Sequence[int]) -> list[int]:
        """Returns the queue of each job: the number of thresholds its service has reached."""
        limits = [t * (1 - RELATIVE_TOLERANCE) for t in self.thresholds]
        return [bisect_right(limits, a) for a in view.progress.attained_gpu_s(jobs)]

    def next_fall_s(self, view: View, draft: Draft | None) -> float:
        """Returns when the first job that runs from now on reaches its next threshold."""
        left_s = self._left_s(*runs_on(view, draft))
        soonest_s = float(left_s.min()) if len(left_s) else float("inf")
        # The rest can be shorter than one step of the clock, but time must advance.
        return max(view.now + soonest_s, nextafter(view.now, float("inf")))

    def _left_s(self, attained: Floats, gpus: Floats) -> Floats:
        """Returns the seconds until each job reaches its next threshold."""
        limits = np.array([*self.thresholds, np.inf])
        queue = np.searchsorted(limits * (1 - RELATIVE_TOLERANCE), attained, side="right")
        # A job without GPU attains no service.
        with np.errstate(divide="ignore"):
            return np.asarray((limits[queue] - attained) / gpus)

    def _decide_by_lists(self, view: View, memory: object) -> Decision:
        assert isinstance(memory, tuple)
        lists = self._fallen(view, memory)
        order = [job for queue in lists for job in queue]
        draft, because = serve(view, order)
        runs = draft.placed
        queues: Queues = tuple(
            (*[j for j in queue if j in runs], *[j for j in queue if j not in runs])
            for queue in lists
        )
        return Decision(draft, queues, self.next_fall_s(view, draft), because)

    def _fallen(self, view: View, memory: Queues) -> list[list[int]]:
        """Returns the lists after ends, falls, and arrivals at the end.

        Running jobs in no list, and arrivals with service, are older than the memory.
        """
        ended = set(view.changes.ended)
        lists = [[j for j in queue if j not in ended] for queue in memory]
        listed = {j for queue in lists for j in queue}
        new = [*sorted(j for j in view.running if j not in listed), *view.changes.arrived]
        for job, number in zip(new, self._queues(view, new), strict=True):
            lists[number].append(job)
        falls: list[tuple[int, int]] = []
        for number, queue in enumerate(lists[:-1]):
            held = [j for j in queue if j in view.running]
            falls += [
                (j, number)
                for j, q in zip(held, self._queues(view, held), strict=True)
                if q > number
            ]
        for job, number in sorted(falls):
            lists[number].remove(job)
            lists[number + 1].append(job)
        return lists

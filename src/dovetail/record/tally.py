"""Accumulates facts into numbers: per job, over time, and the use of GPU-seconds.

The facts may come from a running simulation or from a log; the results are the same.
Each fact costs O(1): the blocking index is linear between events, so two sums suffice.
"""

from __future__ import annotations

import heapq
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dovetail.core.cluster import DOWN, Cluster
from dovetail.core.gpu_parts import exact_sum
from dovetail.core.job import Floats
from dovetail.core.messages import (
    MOVE,
    RECLAIMED,
    RESIZE,
    Ended,
    Fact,
    GpusChanged,
    Measured,
    NodeChanged,
    Retimed,
    Shrunk,
    Started,
    Stopped,
    Submitted,
    Switched,
    Withdrawn,
)
from dovetail.core.placement import Placement
from dovetail.core.units import NEVER_S
from dovetail.record.result import SERIES_COLUMNS


class Segment(NamedTuple):
    """One uninterrupted stay of a job on its GPUs; `progress_s` in solo seconds.

    `preparing` of its GPUs are being prepared and do not work yet.
    """

    job: int
    placement: Placement
    start_s: float
    from_s: float
    end_s: float
    progress_s: float
    preparing: int


@dataclass(slots=True)
class _Stay:
    """The open segment of a running job: progress counts up to `mark_s`, at `rate` from then on."""

    placement: Placement
    start_s: float
    from_s: float
    rate: float
    mark_s: float
    preparing: int
    progress_s: float = 0.0


class Tally:
    """Accumulates facts. Per job: GPUs asked for, `work_s` (solo seconds), `scale` (its speed-up
    over one GPU, below 1 on a part of one).
    """

    def __init__(
        self,
        cluster: Cluster,
        gpus: Sequence[float],
        work_s: Sequence[float],
        scale: Sequence[float],
    ) -> None:
        n = len(gpus)
        self._installed = cluster.installed
        self._down = {node for node, state in cluster.state_of.items() if state == DOWN}
        self._out = Counter(node for node, _ in cluster.gpus_down)
        self.installed_gpus = sum(cluster.installed)
        self.capacity_gpus = cluster.gpus
        self.gpus, self.work_s, self.scale = gpus, work_s, scale
        self.start_s = [NEVER_S] * n
        self.finish_s = [NEVER_S] * n
        self.how: list[str] = [""] * n
        self.preemptions = [0] * n
        self.reclaims: dict[int, int] = {}
        self.resizes = [0] * n
        self.moves = 0
        self.service_gpu_s = [0.0] * n
        self.running_s = [0.0] * n
        self.done_s = [0.0] * n
        self.segments: list[Segment] = []
        self._points = array("d")
        self._last_point_s = NEVER_S
        self.facts = 0
        self.integrals = dict.fromkeys(
            ("waiting", "blocking", "held", "capacity", "idle_waiting", "idle_empty", "down"), 0.0
        )
        self.integrals_efficiency = 0.0
        self._t = 0.0
        self._begun = False
        self._waiting = 0
        self._blocked, self._blocked_since = 0.0, 0.0
        self._weight: dict[int, tuple[float, float]] = {}
        self._running: dict[int, _Stay] = {}
        self._named: dict[tuple[int, int], int] = {}
        self._held: float = 0
        self._speed = 0.0
        self._ramps: list[tuple[float, int, float]] = []
        self._books: dict[type, Callable[..., object]] = {
            Started: self._started,
            Submitted: self._submitted,
            Ended: self._ended,
            Stopped: self._stopped,
            Switched: self._switched,
            Shrunk: self._shrunk,
            Retimed: self._retimed,
            Measured: self._measured,
            Withdrawn: lambda fact: self._unwait(fact.job),
            NodeChanged: self._change_node,
            GpusChanged: self._change_gpus,
        }

    def record(self, facts: Sequence[Fact]) -> None:
        """Adds the facts of one instant."""
        self.facts += len(facts)
        if not self._begun and not self._begins(facts):
            return
        self._advance(facts[0].t)
        for fact in facts:
            book = self._books.get(type(fact))
            if book is not None:
                book(fact)
        self._point()

    def _begins(self, facts: Sequence[Fact]) -> bool:
        """True if the first job arrives here; before it, only changes of capacity apply."""
        if any(type(fact) is Submitted for fact in facts):
            self._begun, self._t = True, facts[0].t
            return True
        for fact in facts:
            if isinstance(fact, NodeChanged):
                self._change_node(fact)
            elif isinstance(fact, GpusChanged):
                self._change_gpus(fact)
        return False

    def _change_gpus(self, fact: GpusChanged) -> None:
        """Books which GPUs are out of service; those that jobs still hold are not."""
        before, self._out = self._out, Counter(n for n, _, state in fact.gpus if state == DOWN)
        for node in before.keys() | self._out.keys():
            if node not in self._down:
                self.capacity_gpus += before[node] - self._out[node]

    def _change_node(self, fact: NodeChanged) -> None:
        gpus = self._installed[fact.node] - self._out[fact.node]
        if fact.state == DOWN and fact.node not in self._down:
            self._down.add(fact.node)
            self.capacity_gpus -= gpus
        elif fact.state != DOWN and fact.node in self._down:
            self._down.remove(fact.node)
            self.capacity_gpus += gpus

    def _advance(self, now: float) -> None:
        while self._ramps and self._ramps[0][0] <= now:
            at, job, since = heapq.heappop(self._ramps)
            stay = self._running.get(job)
            if stay is not None and stay.start_s == since:
                self._integrate(at)
                self._speed += stay.rate * self.scale[job]
                self._point()
        self._integrate(now)

    def _integrate(self, now: float) -> None:
        dt = now - self._t
        if dt <= 0:
            return
        sums = self.integrals
        idle = (self.capacity_gpus - self._held) * dt
        if self._waiting:
            sums["waiting"] += self._waiting * dt
            middle = 0.5 * (now + self._t)
            sums["blocking"] += (middle * self._blocked - self._blocked_since) / self._waiting * dt
            sums["idle_waiting"] += idle
        else:
            sums["idle_empty"] += idle
        sums["held"] += self._held * dt
        sums["capacity"] += self.capacity_gpus * dt
        sums["down"] += (self.installed_gpus - self.capacity_gpus) * dt
        self.integrals_efficiency += self._speed * dt
        self._t = now

    def _point(self) -> None:
        # NOTE: an array of doubles costs half of what a list of tuples does, to write and to read.
        t, waiting, capacity = self._t, self._waiting, self.capacity_gpus
        row = (
            t,
            waiting,
            len(self._running),
            self._held,
            capacity,
            self._speed / capacity if capacity else 0.0,
            max(0.0, (t * self._blocked - self._blocked_since) / waiting) if waiting else 0.0,
        )
        if t == self._last_point_s:
            del self._points[-len(row) :]
        self._last_point_s = t
        self._points.extend(row)

    @property
    def columns(self) -> tuple[Floats, ...]:
        """Returns the states of the cluster over time, as `SERIES_COLUMNS`."""
        return tuple(np.array(self._points).reshape(-1, len(SERIES_COLUMNS)).T.copy())

    def segments_until(self, t: float) -> list[Segment]:
        """Returns all segments in order of their end; jobs that still run are cut at `t`."""
        still = [
            Segment(job, s.placement, s.start_s, s.from_s, t, s.progress_s, s.preparing)
            for job, s in sorted(self._running.items())
        ]
        return [*self.segments, *still]

    def _wait(self, job: int, t: float, left_s: float) -> None:
        # A job without GPU has no speed on one: it counts by its length.
        alone_s = max(left_s, 1e-9) * (self.scale[job] or 1.0)
        weight = (1 / alone_s, t / alone_s)
        self._weight[job] = weight
        self._waiting += 1
        self._blocked += weight[0]
        self._blocked_since += weight[1]

    def _submitted(self, fact: Submitted) -> None:
        job = fact.job
        if self.how[job]:
            # It begins anew after its end: whatever a user counts from its submission.
            self.start_s[job] = self.finish_s[job] = NEVER_S
            self.how[job], self.running_s[job] = "", 0.0
        self._wait(job, fact.t, self.work_s[job])

    def _unwait(self, job: int) -> bool:
        weight = self._weight.pop(job, None)
        if weight is None:
            return False
        self._waiting -= 1
        if self._waiting:
            self._blocked -= weight[0]
            self._blocked_since -= weight[1]
        else:
            self._blocked = self._blocked_since = 0.0
        return True

    def _started(self, fact: Started) -> None:
        t, job, how, placement, rate, from_s, preparing = fact
        if not self._unwait(job):
            self._leave(job, t)
        if self.start_s[job] == NEVER_S:
            self.start_s[job] = t
        if how == RESIZE:
            self.resizes[job] += 1
        elif how == MOVE:
            self.moves += 1
        self._enter(job, placement, t, rate, from_s, preparing)

    def _switched(self, fact: Switched) -> None:
        t, job, rate, from_s, preparing = fact
        placement = self._running[job].placement
        self._leave(job, t)
        self._enter(job, placement, t, rate, from_s, preparing)

    def _shrunk(self, fact: Shrunk) -> None:
        t, job, placement, rate, from_s, preparing = fact
        self._leave(job, t)
        self.resizes[job] += 1
        self._enter(job, placement, t, rate, from_s, preparing)

    def _enter(
        self, job: int, placement: Placement, t: float, rate: float, from_s: float, preparing: int
    ) -> None:
        """Opens a segment of a running job."""
        self._running[job] = _Stay(placement, t, from_s, rate, from_s, preparing)
        self._hold(placement, 1)
        if from_s > t:
            heapq.heappush(self._ramps, (from_s, job, t))
        else:
            self._speed += rate * self.scale[job]

    def _leave(self, job: int, t: float) -> None:
        """Closes the segment of a running job and accounts for its use."""
        stay = self._running.pop(job)
        _book(stay, t)
        placement, start_s, from_s = stay.placement, stay.start_s, stay.from_s
        if from_s <= t and not (from_s > start_s and self._pending_ramp(job, start_s)):
            self._speed -= stay.rate * self.scale[job]
        if not self._running:
            self._speed = 0.0
        progress = stay.progress_s
        self.done_s[job] += progress
        self.running_s[job] += t - start_s
        self.service_gpu_s[job] += placement.held_gpus * (t - start_s)
        self._hold(placement, -1)
        self.segments.append(Segment(job, placement, start_s, from_s, t, progress, stay.preparing))

    def _pending_ramp(self, job: int, start_s: float) -> bool:
        return any(j == job and since == start_s for _, j, since in self._ramps)

    def _retimed(self, fact: Retimed) -> None:
        t, job, rate = fact
        stay = self._running[job]
        _book(stay, t)
        if stay.from_s <= t:
            self._speed += (rate - stay.rate) * self.scale[job]
        stay.rate = rate

    def _measured(self, fact: Measured) -> None:
        t, job, done_s, rate = fact
        stay = self._running[job]
        if stay.from_s > t:
            # It trains before it was expected to.
            self._leave(job, t)
            self._enter(job, stay.placement, t, rate, t, stay.preparing)
        else:
            self._retimed(Retimed(t, job, rate))
        # What is booked of earlier stays is no more in doubt.
        self._running[job].progress_s = done_s - self.done_s[job]

    def _stopped(self, fact: Stopped) -> None:
        t, job, why, done_s = fact
        self._leave(job, t)
        self.preemptions[job] += 1
        if why == RECLAIMED:
            self.reclaims[job] = self.reclaims.get(job, 0) + 1
        self._wait(job, t, self.work_s[job] - done_s)

    def _ended(self, fact: Ended) -> None:
        t, job, how = fact
        if not self._unwait(job):
            self._leave(job, t)
        self.finish_s[job] = t
        self.how[job] = how

    def _hold(self, placement: Placement, sign: int) -> None:
        if not placement.gpu_ids:
            self._held += sign * placement.held_gpus
            return
        if placement.gpu_part < 1.0:
            self._held = exact_sum(self._held + sign * placement.held_gpus)
            return
        for gpu in placement.named():
            count = self._named.get(gpu, 0) + sign
            self._named[gpu] = count
            if count == (1 if sign > 0 else 0):
                self._held += sign


def _book(stay: _Stay, t: float) -> None:
    """Adds the progress made up to a time."""
    if t > stay.mark_s:
        stay.progress_s += stay.rate * (t - stay.mark_s)
        stay.mark_s = t

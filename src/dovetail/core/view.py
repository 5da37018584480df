"""What a policy sees: a read-only window on the world's tables, valid during one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Protocol

from sortedcontainers import SortedList

from dovetail.core.beliefs import Physics
from dovetail.core.cluster import Cluster
from dovetail.core.job import Bools, Floats, Ints, JobTable, Shape
from dovetail.core.placement import Placement
from dovetail.core.placing import Placing
from dovetail.core.plan import Plan
from dovetail.core.queue import WaitingQueue


@dataclass(slots=True)
class Changes:
    """What happened since the last decision that stood."""

    arrived: Sequence[int] = ()
    ended: Sequence[int] = ()
    evicted: Sequence[int] = ()
    capacity: bool = False
    woke: bool = False

    def then(self, later: Changes) -> Changes:
        """Returns these changes and later ones as one."""
        return Changes(
            arrived=[*self.arrived, *later.arrived],
            ended=[*self.ended, *later.ended],
            evicted=[*self.evicted, *later.evicted],
            capacity=self.capacity or later.capacity,
            woke=self.woke or later.woke,
        )

    def net(self, waiting: WaitingQueue | Set[int]) -> Changes:
        """Returns what is left of changes that came one after another: once each, and in effect.

        Who came or was evicted and does not wait is gone again; who left the queue and came back
        has ended and arrived anew.
        """
        arrived = [job for job in dict.fromkeys(self.arrived) if job in waiting]
        ended = dict.fromkeys(self.ended)
        evicted = dict.fromkeys(self.evicted)
        stays = [job for job in evicted if job in waiting and job not in ended]
        return Changes(arrived, list(ended), stays, self.capacity, self.woke)


class Running(Protocol):
    """The running jobs as columns, row by row, in no particular order; read only."""

    @property
    def jobs(self) -> Ints:
        """Returns the running jobs."""
        ...

    @property
    def gpus(self) -> Floats:
        """Returns the GPUs each job holds."""
        ...

    @property
    def left_s(self) -> Floats:
        """Returns the forecast length less the progress, never below zero."""
        ...

    @property
    def attained_gpu_s(self) -> Floats:
        """Returns the GPU-seconds held so far, switching included."""
        ...


class Progress(Protocol):
    """What is known of each job's life so far. Jobs are given and answered in lists."""

    def done_s(self, jobs: Sequence[int]) -> list[float]:
        """Returns the progress made, in solo seconds on the requested GPUs."""
        ...

    def left_s(self, jobs: Sequence[int]) -> list[float]:
        """Returns the forecast length less the progress made, never below zero."""
        ...

    def length_s(self, jobs: Sequence[int]) -> list[float]:
        """Returns the forecast lengths, in solo seconds on the requested GPUs."""
        ...

    def attained_gpu_s(self, jobs: Sequence[int]) -> list[float]:
        """Returns the GPU-seconds held so far, switching included."""
        ...

    def running(self) -> Running:
        """Returns the running jobs as columns."""
        ...

    def pending_since_s(self, job: int) -> float:
        """Returns when a waiting job last became pending."""
        ...

    def running_since_s(self, job: int) -> float:
        """Returns when a running job was last placed."""
        ...


class View:
    """The state of the cluster at one instant, as the policy may know it.

    `switch_s` says what placing a job costs, by why it is placed (`core.messages`).
    `ends` holds (forecast end, job) of the running jobs in order when the policy's order asks
    for lengths, else None. Nothing here may be kept after `decide` returns.
    """

    __slots__ = (
        "_leave",
        "_leave_as_of",
        "changes",
        "cluster",
        "ends",
        "jobs",
        "now",
        "physics",
        "placing",
        "plan",
        "progress",
        "shape_of",
        "shapes",
        "switch_s",
        "waiting",
    )

    def __init__(
        self,
        *,
        jobs: JobTable,
        cluster: Cluster,
        plan: Plan,
        waiting: WaitingQueue,
        progress: Progress,
        physics: Physics,
        placing: Placing,
        ends: SortedList | None,
        switch_s: Mapping[str, float],
    ) -> None:
        self.now = 0.0
        self.jobs = jobs
        self.cluster = cluster
        self.plan = plan
        self.waiting = waiting
        self.progress = progress
        self.physics = physics
        self.placing = placing
        self.ends = ends
        self.switch_s = switch_s
        self.changes = Changes()
        self.shape_of = waiting.shape_of
        self.shapes = waiting.shapes
        self._leave, self._leave_as_of = jobs.preemptible, (-1, -1)

    @property
    def running(self) -> Mapping[int, Placement]:
        """Returns the running jobs and their placements."""
        return self.plan.placed

    @property
    def preemptible(self) -> Bools:
        """Returns, by job, whether it may be stopped or moved now.

        What runs on a draining node may finish there, and so may not; else it is as the owner says.
        """
        draining = self.cluster.draining
        if not draining:
            return self.jobs.preemptible
        as_of = (self.plan.version, len(self.jobs))
        if self._leave_as_of != as_of:
            stays = [j for j, p in self.running.items() if any(n in draining for n, _ in p.spans)]
            self._leave, self._leave_as_of = self.jobs.preemptible, as_of
            if stays:
                self._leave = self._leave.copy()
                self._leave[stays] = False
        return self._leave

    @property
    def all_preemptible(self) -> bool:
        """Tells whether every job may be stopped or moved now."""
        if not self.cluster.draining:
            return self.jobs.all_preemptible
        return bool(self.preemptible.all())

    def shape(self, job: int) -> Shape:
        """Returns the shape of a job."""
        return self.shapes[self.shape_of[job]]

"""What the two passes of Slurm's scheduler share: where a job may run, and starting it now."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType

from dovetail.core.errors import IllegalPlan
from dovetail.core.placement import Spans
from dovetail.core.plan import Draft
from dovetail.core.view import View
from dovetail.mechanisms.slurm.cycles import ROUNDING_S
from dovetail.mechanisms.slurm.limits import Limits
from dovetail.mechanisms.slurm.node_choice import FreeNodes, choose
from dovetail.mechanisms.slurm.parameters import SlurmParameters
from dovetail.mechanisms.slurm.preemption import Candidate, Takeover, candidates, takeover
from dovetail.mechanisms.slurm.ranked_queue import limit_of
from dovetail.mechanisms.slurm.site import NodesSetAside, Site

STARTED, BUSY, OVER_LIMIT = "started", "busy", "over limit"
"""What came of trying to start a job."""


class SchedulingPass:
    """The draft of one decision, and what it has started and stopped."""

    def __init__(
        self,
        view: View,
        draft: Draft,
        p: SlurmParameters,
        site: Site,
        completing: int = 0,
        partitions: Mapping[int, str] = MappingProxyType({}),
        ending: Mapping[int, float] = MappingProxyType({}),
    ) -> None:
        self.view = view
        self.draft = draft
        self.p = p
        self.site = site
        self.completing = completing
        # Of jobs that name several: where each runs, or is tried now.
        self.partitions = dict(partitions)
        self.now_s = int(view.now)
        self.started: list[int] = []
        self.stopped: list[int] = []
        # Jobs in their GraceTime, and when it is over.
        self.ending = dict(ending)
        self._end_grace()
        self.state = FreeNodes.now(draft.occupancy)

    def _end_grace(self) -> None:
        """Stops the jobs whose grace is over, whoever asked for them (`job_time_limit`)."""
        for job, end_s in sorted(self.ending.items()):
            if end_s <= self.view.now + ROUNDING_S and self.view.preemptible[job]:
                self.draft.remove(job)
                self.stopped.append(job)
                del self.ending[job]

    @cached_property
    def limits(self) -> Limits:
        """The limits, with what the draft holds of them."""
        return Limits.of(self.site, self.view.jobs, self.draft.placed, self.partitions)

    @cached_property
    def open_nodes(self) -> int:
        """The nodes that are neither draining nor down."""
        closed = self.draft.occupancy.closed
        return self.site.nodes & ~sum(1 << node for node in closed)

    def partition_of(self, job: int) -> str:
        """Returns the name of a job's partition, of several that which is tried."""
        return self.partitions.get(job) or self.view.jobs.queue[job]

    def try_in(self, job: int, choice: int) -> None:
        """Lets a job that names several partitions be tried in one of them."""
        listed = self.site.partitions_of(self.view.jobs.queue[job])
        if len(listed) > 1:
            self.partitions[job] = listed[choice]

    def nodes_of(self, job: int) -> int:
        """Returns the nodes of a job's partition that have its type of GPUs.

        Of several types or places it takes the first that has room, now or else ever.
        """
        occupancy, shape = self.draft.occupancy, self.view.shape(job)
        sets = [one & self.site.nodes for one in occupancy.node_sets.near(shape)]
        if job in self.partitions:
            own = self.site.nodes_for(self.partitions[job])
            sets = list(dict.fromkeys(filter(None, (one & own for one in sets))))
        if len(sets) < 2:
            return sets[0] if sets else 0
        for gpus in (occupancy.free, self.view.cluster.capacity):
            for one in sets:
                if sum(n for node, n in enumerate(gpus) if one >> node & 1) >= shape.gpus:
                    return one
        return sets[0]

    def limit_s(self, job: int) -> float:
        """Returns a job's time limit."""
        return limit_of(self.p, self.site, self.view.jobs, job)

    def reservation_of(self, job: int) -> NodesSetAside | None:
        """Returns the reservation that a job names and may use, until that is over."""
        return self.site.reservation_of(self.view.jobs, job, self.view.now)

    @cached_property
    def _idle(self) -> FreeNodes:
        return FreeNodes.idle(self.draft.occupancy)

    def could_ever_run(self, job: int, nodes: int) -> bool:
        """True if some nodes could hold a job if nothing ran on them."""
        return choose(self._idle, self.view.placing, self.view.shape(job), nodes) is not None

    def outside_reservations(
        self, job: int, nodes: int, start_s: float, limit_s: float
    ) -> tuple[int, bool]:
        """Returns which nodes reservations leave to a job, and whether they take any away."""
        own = self.reservation_of(job)
        if own is not None:
            if start_s < own.start_s:
                return 0, True
            nodes &= own.nodes
        touched = False
        for other in self.site.reservations:
            overlaps = other.start_s < start_s + limit_s and start_s < other.end_s
            if other is not own and overlaps and other.nodes & nodes:
                nodes &= ~other.nodes
                touched = True
        return nodes, touched

    def try_start(self, job: int, among: int) -> str:
        """Starts a job on some of the nodes if it can start now, and says what came of it."""
        view, placing = self.view, self.view.placing
        spans = choose(self.state, placing, view.shape(job), among)
        takes: Takeover | None = None
        if spans is None and (victims := self.victims(job)):
            takes = takeover(self.p, self.state, placing, view.shape(job), among, victims)
            spans = takes.spans if takes is not None else None
        # The limits count the jobs that would be stopped, too, as in Slurm.
        if not self.limits.has_jobs_and_gpus_left(job):
            return OVER_LIMIT
        if spans is None or (takes is not None and self._in_grace(takes)):
            return BUSY
        return STARTED if self._place(job, spans, takes) else OVER_LIMIT

    def _in_grace(self, takes: Takeover) -> bool:
        """True if a job that is to be stopped may run on for a while; its grace begins now."""
        qos = self.view.jobs.qos
        for victim in takes.jobs:
            grace_s = self.site.qos[qos[victim]].grace_s
            if grace_s:
                self.ending.setdefault(victim, self.view.now + grace_s)
        return any(victim in self.ending for victim in takes.jobs)

    def _place(self, job: int, spans: Spans, takes: Takeover | None) -> bool:
        savepoint = self.draft.savepoint()
        stopped = list(takes.jobs) if takes is not None else []
        for victim in stopped:
            self.draft.remove(victim)
        try:
            self.draft.place(job, spans)
        except IllegalPlan:
            # A limit of the core that Slurm does not have.
            self.draft.undo_to(savepoint)
            return False
        for victim in stopped:
            self.limits.book(victim, -1)
        self.limits.book(job, 1)
        self.started.append(job)
        self.stopped += stopped
        return True

    def victims(self, job: int) -> list[Candidate]:
        """Returns the running jobs that a job may preempt, in the order in which it does."""
        if not self.p.preempts:
            return []
        mine = self.view.jobs.qos[job]
        if not self.site.qos or not self.site.qos.get(mine) or not self.site.qos[mine].preempts:
            return []
        return candidates(self.p, self.site, self.view, self._stoppable(), job, self.nodes_of(job))

    def _stoppable(self) -> Mapping[int, Spans]:
        gone = {*self.started, *self.stopped}
        preemptible = self.view.preemptible
        return {
            job: placement.spans
            for job, placement in self.view.running.items()
            if preemptible[job] and job not in gone
        }

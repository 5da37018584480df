"""What a job may leave behind on nodes that nobody hears, and what that forbids it.

A node that is down may be cut off: its workers live until its lease is over. A job that cannot go
on without it keeps its place there until then. Nothing of a job may start from scratch while an
older copy of it may train. A copy may if no worker that the controller still reaches must take part
in its steps: then the job waits until the node is back, its lease is over, or it is gone. What is
left of a job that trains on without the node is stranded: it makes no step, but may still write a
checkpoint. So a later fresh start of the job gets a new lineage.
"""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.core.messages import NODE_DOWN
from dovetail.core.replacing import replace
from dovetail.live.controller.admission import Admission
from dovetail.live.controller.live_gangs import LiveGangs
from dovetail.live.controller.live_jobs import LiveJob, LiveJobs
from dovetail.live.controller.node_monitor import NodeMonitor
from dovetail.live.controller.terminations import Terminations
from dovetail.live.workers.elastic_gang import ElasticGang


@dataclass(frozen=True, slots=True)
class Leases:
    """Keeps `nodes`, `stranded` and `lineage` of records, and makes jobs wait for lost nodes."""

    jobs: LiveJobs
    gangs: LiveGangs
    monitor: NodeMonitor
    terminations: Terminations
    admission: Admission

    def restore(self, *, anywhere: bool = False) -> None:
        """Adds where the workers of placed jobs may be, for records that do not say it.

        After a backup was put back those of any job may be `anywhere`.
        """
        every = range(len(self.monitor.nodes)) if anywhere else ()
        for job in self.jobs:
            may_be = (*every, *(m.node for m in job.record.members))
            placed = {node for node in may_be if self.monitor.has_lease(node)}
            if not placed <= set(job.record.nodes):
                nodes = tuple(sorted(placed.union(job.record.nodes)))
                self.jobs.write(job, replace(job.record, nodes=nodes))

    def note(self, job: LiveJob) -> None:
        """Notes where workers of a job may live, before any order that changes it is sent."""
        if not self.monitor.has_leases:
            return
        record, monitor = job.record, self.monitor
        workers = job.gang.roster.workers.values() if job.gang is not None else ()
        nodes = {w.node for w in workers if monitor.has_lease(w.node)}
        nodes.update(n for n in record.nodes if not monitor.is_proven(n))
        stranded = tuple(s for s in record.stranded if not monitor.is_proven(s[0]))
        if (record.nodes, record.stranded) != (tuple(sorted(nodes)), stranded):
            noted = replace(record, nodes=tuple(sorted(nodes)), stranded=stranded)
            self.jobs.write(job, noted)

    def strand(self, node: int) -> None:
        """Notes what can train no more on a node, while the workers there are still known."""
        if not self.monitor.has_lease(node):
            return
        for job in self.jobs:
            record, gang = job.record, job.gang
            if node not in record.nodes or not isinstance(gang, ElasticGang):
                continue
            is_seen = any(w.node == node for w in gang.roster.workers.values())
            if not is_seen and (record.stranded or not job.is_placed):
                # Others that nobody hears may be all that a step takes beside those there.
                continue
            if gang.can_do_without(node):
                gang.lose_unseen(node)
                nodes = tuple(n for n in record.nodes if n != node)
                stranded = (*record.stranded, (node, record.lineage))
                self.jobs.write(job, replace(record, nodes=nodes, stranded=stranded))

    def keeps(self, job: LiveJob) -> bool:
        """Returns whether a job keeps its place on a node that is down and not yet lost.

        A plain job does if any of its workers may be there, a job that trains if all of them may:
        with others it would train on. A job that leaves the node does not keep its place, nor does
        one that never started a worker there.
        """
        if not job.is_placed or self.gangs.of(job).roster.is_leaving:
            return False
        on = {member.node for member in job.record.members}
        awaited = self.monitor.awaited(on.intersection(job.record.nodes))
        if not job.uses_train_protocol:
            return bool(awaited)
        workers = self.gangs.of(job).roster.workers.values()
        return len(awaited) == len(on.union(w.node for w in workers))

    def part_leaving(self, job: LiveJob) -> None:
        """Makes a job wait that leaves a node which is down: it may still run there.

        One that has ended is COMPLETING until the node is back or lost.
        """
        if self.awaits_workers(job):
            self._part(job)
            self.monitor.update_states(self.monitor.awaited(job.record.nodes))

    def awaits_workers(self, job: LiveJob) -> bool:
        """Returns whether workers that leave may be on a node that is down and not yet lost."""
        is_leaving = job.gang is not None and job.gang.roster.is_leaving
        return is_leaving and bool(self.monitor.awaited(job.record.nodes))

    def may_train_on(self, job: LiveJob, node: int) -> bool:
        """Returns whether a job may train on a node that is down: nothing else of it may then."""
        return self.gangs.settled and node in job.record.nodes

    def part(self, node: int) -> None:
        """Makes the jobs wait that may train on a node that is down, now that none is heard."""
        for job in list(self.jobs):
            if node in job.record.nodes and not self.keeps(job):
                self._part(job)

    def _part(self, job: LiveJob) -> None:
        if job.is_placed:
            # It was to go on elsewhere, from what may still change on the node.
            self.terminations.requeue(job, NODE_DOWN, job.spec.grace_s)
        self.admission.consider(job)

    def settle(self) -> None:
        """Parts all nodes that are down, once the workers on all others are known."""
        for node, health in enumerate(self.monitor.nodes):
            if health.is_down and self.monitor.has_lease(node):
                self.strand(node)
                self.part(node)

    def release(self, node: int) -> None:
        """Lets the jobs go on that waited for a node: it is back, or it is lost."""
        if not self.monitor.has_lease(node):
            return
        for job in list(self.jobs):
            if node in job.record.nodes:
                self.gangs.touch(job)
                self.admission.consider(job)

    def begin(self, job: LiveJob) -> None:
        """Gives a job that starts from scratch a new lineage if it left something behind."""
        record, monitor = job.record, self.monitor
        left = tuple((n, record.lineage) for n in record.nodes if not monitor.is_proven(n))
        stranded = tuple(s for s in (*record.stranded, *left) if not monitor.is_proven(s[0]))
        nodes = tuple(n for n in record.nodes if monitor.is_proven(n))
        is_shared = any(lineage == record.lineage for _, lineage in stranded)
        if not job.spec.trains:
            # Its files are its own affair: it was not started before nothing of it could live.
            stranded, is_shared = (), False
        lineage = record.lineage + is_shared
        if (nodes, stranded, lineage) != (record.nodes, record.stranded, record.lineage):
            begun = replace(record, nodes=nodes, stranded=stranded, lineage=lineage)
            self.jobs.write(job, begun)

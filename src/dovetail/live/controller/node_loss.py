"""What follows when a node is declared down: its jobs train on without it, or wait.

On a node with a lease a job that cannot go on elsewhere keeps its place: the node may only be cut
off, and then its workers run on. When the node is back they are found as they are, or how they
ended. The job is stopped when the node is lost: from then on nothing of it can live there.
"""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.core.messages import NODE_DOWN
from dovetail.core.placement import Placement
from dovetail.core.policy import Policy
from dovetail.live.controller.agent_reports import AgentReports
from dovetail.live.controller.gang_members import GangMembers
from dovetail.live.controller.gpu_map import GpuMap
from dovetail.live.controller.leases import Leases
from dovetail.live.controller.live_gangs import LiveGangs
from dovetail.live.controller.live_jobs import LiveJob, LiveJobs
from dovetail.live.controller.node_monitor import NodeMonitor
from dovetail.live.controller.recorded_tables import RecordedTables
from dovetail.live.controller.terminations import Terminations
from dovetail.live.jobs.lifecycle import State
from dovetail.live.workers.roster import END


@dataclass(frozen=True, slots=True)
class NodeLoss:
    """Takes a dead node out of the tables, and its workers out of gangs and GPU usage.

    Elastic jobs shrink to the GPUs that are left to them if the policy may resize jobs.
    """

    jobs: LiveJobs
    gangs: LiveGangs
    tables: RecordedTables
    gpus: GpuMap
    members: GangMembers
    terminations: Terminations
    leases: Leases
    reports: AgentReports
    policy: Policy

    @property
    def monitor(self) -> NodeMonitor:
        """Returns the health of the nodes."""
        return self.leases.monitor

    def declare_down(self, node: int) -> None:
        """Declares a silent node down, with all that follows for its jobs."""
        self.monitor.mark_down(node)
        self.leases.strand(node)
        self._take_jobs_off(node)
        if self.gangs.settled and self.monitor.has_lease(node):
            self.leases.part(node)
        # Nobody waits for the inventory of a node that is down.
        self.reports.settle()

    def declare_lost(self, node: int) -> None:
        """Takes the last jobs off a node that is down: its lease is over, or it is gone."""
        if self.monitor.nodes[node].is_down:
            # Jobs that kept their place went on ordering starts.
            self.monitor.void_orders(node)
            self._take_jobs_off(node, waited=True)
        self.leases.release(node)

    def _take_jobs_off(self, node: int, *, waited: bool = False) -> None:
        """Shrinks or stops the jobs on a node that is down, but for those that keep their place."""
        plan = self.tables.state.plan
        rows = sorted(
            row
            for row, placement in plan.placed.items()
            if any(n == node for n, _ in placement.spans)
            and not self.leases.keeps(self.jobs.of_row(row))
        )
        sharers: set[int] = set()
        shrunk: list[LiveJob] = []
        stopped: list[LiveJob] = []
        # Jobs leave the node before its state changes: a plan never has a job on a node down.
        for row in rows:
            job, placement = self.jobs.of_row(row), plan.placed[row]
            sharers.update(self.gpus.sharers(placement))
            parts = self.leases.may_train_on(job, node)
            smaller = None if parts else self._smaller(job, node)
            if smaller is not None:
                self.tables.state.expansions.lose(row, {node})
                plan.shrink(row, smaller)
                shrunk.append(job)
            else:
                self.terminations.stop(job, NODE_DOWN)
                stopped.append(job)
        self.monitor.update_states([node])
        for job in shrunk:
            self._shrink(job)
        self._lose_workers(node)
        # After the loss of its workers a gang waits only for those on other nodes.
        for job in stopped:
            self.gangs.of(job).roster.vacate(self.tables.now, job.spec.grace_s, END)
            detail = f"node {node} was silent for too long"
            self.terminations.retry(job, "NodeFail", detail, failed_by=(node,), waited=waited)
        self.gpus.drop_unknown(node)
        self.members.update_sharers(sharers.difference(rows))

    def take_gone(self, node: int, asked_s: float) -> None:
        """Takes the word of whoever started a node that it is dead: nothing there is awaited.

        The word may come late, and the node be back already, with new workers. So it counts if
        nothing was heard since it was asked for, and nothing is heard for `resend_s` after that.
        """
        if not 0 <= node < len(self.monitor.nodes) or self.monitor.is_heard_since(node, asked_s):
            return
        if not self.monitor.nodes[node].is_down:
            self.monitor.doubt(node, asked_s)
            return
        self.monitor.mark_gone(node)
        self.declare_lost(node)

    def take_silence(self, node: int) -> None:
        """Declares a node down that was silent for too long, or is gone and is heard no more."""
        if self.monitor.is_doubted(node):
            self.declare_down(node)
            self.take_gone(node, self.monitor.nodes[node].doubted_s)
        elif self.monitor.is_overdue(node):
            self.declare_down(node)
        self.monitor.watch(node)

    def _smaller(self, job: LiveJob, node: int) -> Placement | None:
        """Returns where an elastic job can train on without a node, None if it cannot."""
        placement = self.tables.placement(job.row)
        if placement is None or not (job.uses_train_protocol and job.spec.elastic):
            return None
        if "resize" not in self.policy.powers or job.record.state is not State.RUNNING:
            return None
        smaller = placement.without({node})
        return smaller if smaller is not None and smaller.gpus >= job.spec.min_gpus else None

    def _shrink(self, job: LiveJob) -> None:
        """Trains a job on with the GPUs that the plan leaves to it."""
        placement = self.tables.state.plan.placed[job.row]
        rate = self.gpus.speed(job.row, self.tables.training(job.row, placement))
        self.tables.shrink(job.row, placement, rate)
        self.members.keep(job, placement)

    def _lose_workers(self, node: int) -> None:
        """Takes the workers on a node out of their gangs: nobody will report their end."""
        count = len(self.monitor.nodes[node].gpus)
        for number in self.gpus.usage.jobs_on(node, count):
            job = self.jobs.get(number)
            if job is not None and job.gang is not None and not self.leases.keeps(job):
                # They may run on unseen. Should the node come back, its inventory ends them.
                job.gang.lose(node)
                self.gangs.touch(job)

"""What follows when a node is declared down: its jobs train on without it, or wait again."""

from __future__ import annotations

from dovetail.core.messages import NODE_DOWN
from dovetail.core.placement import Placement
from dovetail.live.controller.gang_members import GangMembers
from dovetail.live.controller.gpu_map import GpuMap
from dovetail.live.controller.inventories import Inventories
from dovetail.live.controller.live_gangs import LiveGangs
from dovetail.live.controller.live_jobs import LiveJob, LiveJobs
from dovetail.live.controller.node_monitor import NodeMonitor
from dovetail.live.controller.recorded_tables import RecordedTables
from dovetail.live.controller.sharer_updates import SharerUpdates
from dovetail.live.controller.terminations import Terminations
from dovetail.live.jobs.lifecycle import State
from dovetail.live.workers.roster import END


class NodeLoss:
    """Takes a dead node out of the tables, and its workers out of gangs and GPU usage.

    Elastic jobs shrink to the GPUs that are left to them if the policy `may_resize` jobs.
    """

    def __init__(
        self,
        jobs: LiveJobs,
        gangs: LiveGangs,
        tables: RecordedTables,
        gpus: GpuMap,
        members: GangMembers,
        sharers: SharerUpdates,
        terminations: Terminations,
        monitor: NodeMonitor,
        inventories: Inventories,
        *,
        may_resize: bool,
    ) -> None:
        self._jobs = jobs
        self._gangs = gangs
        self._tables = tables
        self._gpus = gpus
        self._members = members
        self._sharers = sharers
        self._terminations = terminations
        self._monitor = monitor
        self._inventories = inventories
        self._may_resize = may_resize

    def declare_down(self, node: int) -> None:
        """Declares a silent node down, with all that follows for its jobs."""
        self._monitor.mark_down(node)
        plan = self._tables.state.plan
        hit = sorted(row for row, p in plan.placed.items() if any(n == node for n, _ in p.spans))
        sharers: set[int] = set()
        shrunk: list[LiveJob] = []
        stopped: list[LiveJob] = []
        # Jobs leave the node before its state changes: a plan never has a job on a node down.
        for row in hit:
            job, placement = self._jobs.of_row(row), plan.placed[row]
            sharers.update(self._gpus.sharers(placement))
            left = self._left_for(job, node)
            if left is not None:
                plan.shrink(row, left)
                shrunk.append(job)
            else:
                self._terminations.stop(job, NODE_DOWN)
                stopped.append(job)
        self._monitor.update_states([node])
        for job in shrunk:
            self._shrink(job)
        self._lose_workers(node)
        # After the loss of its workers a gang waits only for those on other nodes.
        for job in stopped:
            self._gangs.of(job).roster.vacate(self._tables.now, job.spec.grace_s, END)
            detail = f"node {node} was silent for too long"
            self._terminations.retry(job, "NodeFail", detail)
        self._lose_strays(node)
        self._sharers.apply(sharers.difference(hit))
        # Nobody waits for the inventory of a node that is down.
        self._inventories.settle()

    def _left_for(self, job: LiveJob, node: int) -> Placement | None:
        """Returns where an elastic job can train on without a node, None if it cannot."""
        placement = self._tables.placement(job.row)
        if placement is None or not (job.uses_train_protocol and job.spec.elastic):
            return None
        if not self._may_resize or job.record.state is not State.RUNNING:
            return None
        left = placement.without({node})
        return left if left is not None and left.gpus >= job.spec.min_gpus else None

    def _shrink(self, job: LiveJob) -> None:
        """Trains a job on with the GPUs that the plan leaves to it."""
        placement = self._tables.state.plan.placed[job.row]
        rate = self._gpus.speed(job.row, placement)
        self._tables.shrink(job.row, placement, rate)
        self._members.keep(job, placement)

    def _lose_workers(self, node: int) -> None:
        """Takes the workers on a node out of their gangs: nobody will report their end."""
        count = len(self._monitor.nodes[node].gpus)
        for number in self._gpus.usage.jobs_on(node, count):
            job = self._jobs.get(number)
            if job is not None and job.gang is not None:
                # They may run on unseen. Should the node come back, its inventory ends them.
                job.gang.lose(node)
                self._gangs.touch(job)

    def _lose_strays(self, node: int) -> None:
        usage = self._gpus.usage
        for key in [k for k, stray in usage.unknown.items() if stray.node == node]:
            usage.drop_unknown(key)

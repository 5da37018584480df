"""What agents report: workers that start, end or train, and the inventories of their nodes.

After a restart the inventories come first. Until every node has sent one, or is down, a gang does
not know whether a worker that it lacks runs somewhere, so no gang acts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dovetail.core.messages import READY, ControllerChanged
from dovetail.live.controller.gang_members import GangMembers
from dovetail.live.controller.gpu_map import GpuMap
from dovetail.live.controller.instant_log import InstantLog
from dovetail.live.controller.leases import Leases
from dovetail.live.controller.live_gangs import LiveGangs
from dovetail.live.controller.live_jobs import LiveJob, LiveJobs
from dovetail.live.controller.node_monitor import NodeMonitor
from dovetail.live.controller.outbox import Outbox
from dovetail.live.controller.recorded_tables import RecordedTables
from dovetail.live.controller.report_guard import ReportGuard
from dovetail.live.controller.status_publisher import StatusPublisher
from dovetail.live.controller.terminations import Terminations
from dovetail.live.workers.gang import Gang
from dovetail.live.workers.inventory_check import check_inventory, confirms, take_training
from dovetail.wire.agent import (
    AgentReport,
    Forget,
    Inventory,
    PortFound,
    WorkerEnded,
    WorkerReport,
    WorkerStarted,
    WorkerState,
)


@dataclass(slots=True)
class AgentReports:
    """Passes reports to the gangs that they concern; inventories first settle the gangs.

    It owns the unfound jobs: placed by an earlier controller on nodes that were not heard since.
    """

    jobs: LiveJobs
    gangs: LiveGangs
    tables: RecordedTables
    gpus: GpuMap
    log: InstantLog
    members: GangMembers
    terminations: Terminations
    leases: Leases
    publisher: StatusPublisher
    outbox: Outbox
    guard: ReportGuard
    _unfound: set[int] = field(default_factory=set, init=False)

    @property
    def monitor(self) -> NodeMonitor:
        """Returns the health of the nodes."""
        return self.leases.monitor

    def take(self, report: AgentReport) -> None:
        """Takes in one report of a node of this cluster."""
        if report.inventory is not None:
            self._take_inventory(report.inventory)
            return
        if report.alive is not None:
            self.monitor.take_beat(report.node, report.alive)
        if not self.gangs.settled:
            # Its gang does not know its workers yet, so this one would be ended as unknown.
            return
        if not self.guard.allows(report) or self._is_of_unfound(report):
            return
        if report.started is not None:
            self._started(report.node, report.started)
        if report.ended is not None:
            self._ended(report.node, report.ended)
        if report.deferred is not None:
            self._defer(report.deferred.job, report.deferred.worker, report.deferred.why)
        if report.said is not None:
            self._heard(report.said)
        for said in report.progress:
            if self.guard.is_own(report.node, said.job, said.worker):
                self._heard(said)
        if report.port is not None:
            self._found(report.port)

    def _is_of_unfound(self, report: AgentReport) -> bool:
        """Returns whether a gang does not know its worker yet: the inventory repeats the report."""
        said = report.started or report.ended or report.deferred or report.said
        return said is not None and said.job in self._unfound

    # Workers.

    def _started(self, node: int, started: WorkerStarted) -> None:
        job, worker, now = self.jobs.get(started.job), started.worker, self.tables.now
        self._defer(started.job, worker, "")
        if job is not None and self.gangs.of(job).roster.started(worker, started.generation, now):
            self.gangs.touch(job)
        else:
            # Its order came from an earlier controller, or was withdrawn: it will be ended.
            self.gpus.usage.add_unknown((started.job, worker), node, started.all_gpus)

    def _ended(self, node: int, ended: WorkerEnded) -> None:
        self.gpus.usage.drop_unknown((ended.job, ended.worker))
        job = self.jobs.get(ended.job)
        if job is None or job.gang is None:
            # No record needs it any more, so its agent need not remember the end.
            self.outbox.add((node, Forget(ended.job, ended.worker)))
        else:
            job.gang.ended(node, ended, self.tables.now)
            self.gangs.touch(job)

    def _heard(self, message: WorkerReport) -> None:
        job = self.jobs.get(message.job)
        if job is not None and job.gang is not None:
            is_steady = job.gang.trains_on(message)
            job.gang.receive(message, self.tables.now)
            self.gangs.hear(job) if is_steady else self.gangs.touch(job)

    def _found(self, found: PortFound) -> None:
        """Takes the port at which the processes of a job meet; they start when it is known."""
        job = self.jobs.get(found.job)
        if job is None or job.gang is None:
            return
        roster = job.gang.roster
        if roster.master.take(found):
            self.gangs.touch(job)
        elif found.why and not roster.master.address:
            for worker in roster.workers:
                self._defer(job.number, worker, found.why)

    def _defer(self, number: int, worker_number: int, why: str) -> None:
        """Notes for users why a worker is not started yet; to its gang it is only late."""
        job = self.jobs.get(number)
        if job is None or job.gang is None:
            return
        worker = job.gang.roster.workers.get(worker_number)
        if worker is not None and worker.deferred != why:
            worker.deferred = why
            self.publisher.changed = True

    # Inventories.

    def _take_inventory(self, inventory: Inventory) -> None:
        """Compares what an agent has with what is wanted of it."""
        node = inventory.node
        if not self.monitor.is_current(node, inventory.epoch, inventory.serial):
            return
        if inventory.gpus:
            self.monitor.nodes[node].gpus = inventory.gpus
        self.gangs.hosts.learn(node, inventory.host)
        workers = self.guard.own(node, inventory.workers)
        self._check_jobs(node, workers)
        self.gpus.drop_unknown(node, {(w.job, w.worker) for w in workers})
        # Last: gangs must know their workers there before the policy may use the node.
        if self.monitor.mark_up(node):
            self.leases.release(node)
            self._find_unfound()
        self.settle()

    def _check_jobs(self, node: int, workers: Sequence[WorkerState]) -> None:
        by_job: dict[int, list[WorkerState]] = {}
        for worker in workers:
            by_job.setdefault(worker.job, []).append(worker)
        for number, rows in by_job.items():
            job = self.jobs.get(number)
            if job is not None:
                self._check_gang(job, node, rows)
            else:
                for worker in rows:
                    self._take_unknown(node, worker)
        # Jobs that are thought to have workers here, of which the agent has none.
        count = len(self.monitor.nodes[node].gpus)
        for number in self.gpus.usage.jobs_on(node, count):
            job = self.jobs.get(number)
            if job is not None and number not in by_job:
                self._check_gang(job, node, ())

    def _check_gang(self, job: LiveJob, node: int, rows: Sequence[WorkerState]) -> None:
        gang, now = self.gangs.of(job), self.tables.now
        if self.gangs.settled and confirms(gang, node, rows, job.record.saved_step):
            for row in rows:
                take_training(gang, row, now)
            self.gangs.hear(job)
            return
        check_inventory(gang, node, rows, now)
        self.gangs.touch(job)

    def _take_unknown(self, node: int, worker: WorkerState) -> None:
        """Notes a worker that no live job has: one that runs will be ended."""
        if worker.exit_code is None:
            key = worker.job, worker.worker
            self.gpus.usage.add_unknown(key, node, worker.all_gpus)
        else:
            # It has ended, and no record waits for that: its agent may forget it.
            self.outbox.add((node, Forget(worker.job, worker.worker)))

    def settle(self) -> None:
        """Allows the gangs to act once all nodes have reported their workers, or are down."""
        if self.gangs.settled or not self.monitor.all_surveyed:
            return
        self.gangs.settled = True
        self.log.fact(ControllerChanged(self.tables.now, self.outbox.epoch, READY))
        # The log still has what an earlier controller closed only for its own end.
        self.monitor.record_states(range(len(self.monitor.nodes)))
        for job in self.jobs:
            if job.gang is not None:
                self._find_missing(job, job.gang)
                self.gangs.touch(job)
        self.leases.settle()

    def _find_unfound(self) -> None:
        """Looks again for the workers of jobs that kept their place on nodes that are back now."""
        for number in sorted(self._unfound):
            job = self.jobs.get(number)
            if job is not None and self.leases.keeps(job):
                continue
            self._unfound.discard(number)
            if job is not None and job.gang is not None and job.is_placed:
                self._find_missing(job, job.gang)
                self.gangs.touch(job)

    def _find_missing(self, job: LiveJob, gang: Gang) -> None:
        """Replaces the wanted workers of a job that no node has, or starts the job anew."""
        if self.leases.keeps(job):
            # What it has where nobody is heard is found when the node is back.
            self._unfound.add(job.number)
            return
        absent = gang.find_missing(self.tables.now)
        if absent and gang.has_lost_run():
            self.terminations.lost(job, absent)
        else:
            self.members.renumber(job, absent)

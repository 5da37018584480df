"""Passes the reports of agents to the gangs that they concern."""

from __future__ import annotations

from dovetail.live.controller.gpu_map import GpuMap
from dovetail.live.controller.instant_log import InstantLog
from dovetail.live.controller.inventories import Inventories
from dovetail.live.controller.live_gangs import LiveGangs
from dovetail.live.controller.live_jobs import LiveJobs
from dovetail.live.controller.recorded_tables import RecordedTables
from dovetail.live.controller.status_publisher import StatusPublisher
from dovetail.wire.agent import AgentReport, Forget, WorkerEnded, WorkerReport, WorkerStarted


class AgentReports:
    """Takes in what agents report of their nodes and workers."""

    def __init__(
        self,
        jobs: LiveJobs,
        gangs: LiveGangs,
        tables: RecordedTables,
        gpus: GpuMap,
        log: InstantLog,
        inventories: Inventories,
        publisher: StatusPublisher,
    ) -> None:
        self._jobs = jobs
        self._gangs = gangs
        self._tables = tables
        self._gpus = gpus
        self._log = log
        self._inventories = inventories
        self._publisher = publisher

    def take(self, report: AgentReport) -> None:
        """Takes in one report of a node of this cluster."""
        if report.inventory is not None:
            self._inventories.take(report.inventory)
            return
        if not self._gangs.settled:
            # A worker that is reported now cannot be told from one that no job has.
            return
        if report.started is not None:
            self._started(report.node, report.started)
        if report.ended is not None:
            self._ended(report.node, report.ended)
        if report.deferred is not None:
            self._defer(report.deferred.job, report.deferred.worker, report.deferred.why)
        if report.said is not None:
            self._heard(report.said)

    def _started(self, node: int, started: WorkerStarted) -> None:
        job, worker = self._jobs.get(started.job), started.worker
        gang = self._gangs.of(job) if job is not None else None
        is_known = gang is not None and gang.roster.started(
            worker, started.generation, self._tables.now
        )
        self._defer(started.job, worker, "")
        if job is not None and is_known:
            self._gangs.touch(job)
        else:
            # Its order came from an earlier controller, or was withdrawn: it will be ended.
            self._gpus.usage.add_unknown((started.job, worker), node, started.all_gpus)

    def _ended(self, node: int, ended: WorkerEnded) -> None:
        self._gpus.usage.drop_unknown((ended.job, ended.worker))
        job = self._jobs.get(ended.job)
        if job is None or job.gang is None:
            # No record needs it any more, so its agent need not remember the end.
            self._log.send((node, Forget(ended.job, ended.worker)))
        else:
            job.gang.ended(node, ended, self._tables.now)
            self._gangs.touch(job)

    def _heard(self, message: WorkerReport) -> None:
        job = self._jobs.get(message.job)
        if job is not None and job.gang is not None:
            job.gang.receive(message, self._tables.now)
            self._gangs.touch(job)

    def _defer(self, number: int, worker_number: int, why: str) -> None:
        """Notes for users why a worker is not started yet; to its gang it is only late."""
        job = self._jobs.get(number)
        worker = (
            job.gang.roster.workers.get(worker_number) if job is not None and job.gang else None
        )
        if worker is not None and worker.deferred != why:
            worker.deferred = why
            self._publisher.changed = True

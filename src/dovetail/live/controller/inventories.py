"""What agents have, compared with what their node is to have; after a restart, all of it first."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.core.messages import READY, ControllerChanged
from dovetail.live.controller.gang_members import GangMembers
from dovetail.live.controller.gpu_map import GpuMap
from dovetail.live.controller.instant_log import InstantLog
from dovetail.live.controller.live_gangs import LiveGangs
from dovetail.live.controller.live_jobs import LiveJob, LiveJobs
from dovetail.live.controller.node_monitor import NodeMonitor
from dovetail.live.controller.recorded_tables import RecordedTables
from dovetail.live.controller.terminations import Terminations
from dovetail.live.workers.gang import Gang
from dovetail.live.workers.inventory_check import check_inventory
from dovetail.wire.agent import Forget, Inventory, WorkerState


class Inventories:
    """Takes inventories in, and settles the gangs of an earlier controller once all are known."""

    def __init__(
        self,
        jobs: LiveJobs,
        gangs: LiveGangs,
        tables: RecordedTables,
        gpus: GpuMap,
        log: InstantLog,
        members: GangMembers,
        terminations: Terminations,
        monitor: NodeMonitor,
        *,
        epoch: int,
    ) -> None:
        self._jobs = jobs
        self._gangs = gangs
        self._tables = tables
        self._gpus = gpus
        self._log = log
        self._members = members
        self._terminations = terminations
        self._monitor = monitor
        self._epoch = epoch

    def take(self, inventory: Inventory) -> None:
        """Compares what an agent has with what is wanted of it."""
        node = inventory.node
        if not self._monitor.is_current(node, inventory.epoch, inventory.serial):
            return
        health = self._monitor.nodes[node]
        if inventory.gpus:
            health.gpus = inventory.gpus
        self._check_jobs(node, inventory.workers)
        self._drop_ended_strays(node, inventory.workers)
        # Last: gangs must know their workers there before the policy may use the node.
        self._monitor.mark_up(node)
        self.settle()

    def _check_jobs(self, node: int, workers: Sequence[WorkerState]) -> None:
        by_job: dict[int, list[WorkerState]] = {}
        for worker in workers:
            by_job.setdefault(worker.job, []).append(worker)
        for number, rows in by_job.items():
            job = self._jobs.get(number)
            if job is not None:
                self._check_gang(job, node, rows)
            else:
                for worker in rows:
                    self._take_unknown(node, worker)
        # Jobs that are thought to have workers here, of which the agent has none.
        count = len(self._monitor.nodes[node].gpus)
        for number in self._gpus.usage.jobs_on(node, count):
            job = self._jobs.get(number)
            if job is not None and number not in by_job:
                self._check_gang(job, node, ())

    def _check_gang(self, job: LiveJob, node: int, rows: Sequence[WorkerState]) -> None:
        check_inventory(self._gangs.of(job), node, rows, self._tables.now)
        self._gangs.touch(job)

    def _take_unknown(self, node: int, worker: WorkerState) -> None:
        """Notes a worker that no live job has: one that runs will be ended."""
        if worker.exit_code is None:
            key = worker.job, worker.worker
            self._gpus.usage.add_unknown(key, node, worker.all_gpus)
        else:
            # It has ended, and no record waits for that: its agent may forget it.
            self._log.send((node, Forget(worker.job, worker.worker)))

    def _drop_ended_strays(self, node: int, workers: Sequence[WorkerState]) -> None:
        usage, listed = self._gpus.usage, {(w.job, w.worker) for w in workers}
        here = [key for key, stray in usage.unknown.items() if stray.node == node]
        for key in here:
            if key not in listed:
                usage.drop_unknown(key)

    def settle(self) -> None:
        """Lets the gangs act once all nodes have reported their workers, or are down."""
        if self._gangs.settled or not self._monitor.all_surveyed:
            return
        self._gangs.settled = True
        self._log.fact(ControllerChanged(self._tables.now, self._epoch, READY))
        # The log still has what an earlier controller closed only for its own end.
        self._monitor.record_states(range(len(self._monitor.nodes)))
        for job in self._jobs:
            if job.gang is not None:
                self._find_missing(job, job.gang)
                self._gangs.touch(job)

    def _find_missing(self, job: LiveJob, gang: Gang) -> None:
        """Replaces the wanted workers of a job that no node has, or starts the job anew."""
        absent = gang.find_missing(self._tables.now)
        if absent and gang.has_lost_run():
            self._terminations.lost(job, absent)
        else:
            self._members.renumber(job, absent)

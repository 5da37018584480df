"""What a node may report: of its own workers, and of no others.

Whoever has one machine must not end, finish or move the jobs of other machines. A worker has one
node for life, as its number is never used twice. So a report of a worker that is known on another
node is refused, and so is any of a job that never came to the node, if its agent has joined: agents
of this machine are one process.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from dovetail.core.units import LONG_AGO_S
from dovetail.live.controller.gpu_map import GpuMap
from dovetail.live.controller.live_jobs import LiveJob, LiveJobs
from dovetail.live.controller.node_monitor import NodeMonitor
from dovetail.live.controller.outbox import Outbox
from dovetail.live.controller.recorded_tables import RecordedTables
from dovetail.wire.agent import AgentReport, EndWorker, Forget, OnGpus, PortFound, WorkerState

LOG = logging.getLogger(__name__)
LOGGED_EVERY_S = 60.0
"""How often the refusal of a node's reports is logged."""
UNKNOWN_MAX = 10_000
"""Workers that no job wants: beyond these an agent makes them up."""


@dataclass(slots=True)
class ReportGuard:
    """Refuses and logs what a node reports of the workers of other nodes."""

    jobs: LiveJobs
    tables: RecordedTables
    gpus: GpuMap
    monitor: NodeMonitor
    outbox: Outbox
    _logged_s: dict[tuple[int, int], float] = field(default_factory=dict, init=False)

    def allows(self, report: AgentReport) -> bool:
        """Returns whether a node may say this, but for inventories."""
        # A liar may set several fields of one report.
        for said in (report.started, report.ended, report.deferred, report.said):
            if said is not None and not self.is_own(report.node, said.job, said.worker):
                return False
        if report.started is not None and not self._has(report.node, report.started):
            self._refuse(report.node, report.started.job, logging.WARNING)
            return False
        if report.port is not None and not self._may_answer(report.node, report.port):
            self._refuse(report.node, report.port.job, logging.WARNING)
            return False
        return True

    def own(self, node: int, workers: Sequence[WorkerState]) -> list[WorkerState]:
        """Returns the workers in an inventory that may be of this node; it must end all others."""
        own = [
            row
            for row in workers
            if self.is_own(node, row.job, row.worker) and self._has(node, row)
        ]
        if len(own) < len(workers):
            kept = {(row.job, row.worker) for row in own}
            for row in workers:
                key = row.job, row.worker
                if key not in kept:
                    ends = row.exit_code is None
                    self.outbox.add((node, EndWorker(*key, 0.0) if ends else Forget(*key)))
        return own

    def _has(self, node: int, worker: OnGpus) -> bool:
        """Returns whether a node has the GPUs that a worker of it is said to be on."""
        gpus = worker.all_gpus
        count = self.tables.state.view.cluster.installed[node]
        return len(set(gpus)) == len(gpus) and all(0 <= gpu < count for gpu in gpus)

    def is_own(self, node: int, number: int, worker: int) -> bool:
        """Returns whether a node may report on a worker, and logs it if not."""
        job = self.jobs.get(number)
        place = None if job is None else _node_of(job, worker)
        if place not in (None, node):
            self._refuse(node, number, logging.WARNING)
            return False
        if job is not None:
            may_be = place == node or self._came_to(job, node)
            if not may_be:
                # Made up, or late: of a worker whose end is on record.
                self._refuse(node, number, logging.INFO)
            return may_be
        unknown = self.gpus.usage.unknown
        known = unknown.get((number, worker))
        return len(unknown) < UNKNOWN_MAX if known is None else known.node == node

    def _came_to(self, job: LiveJob, node: int) -> bool:
        """Returns whether workers of a job may be on a node, as far as that is on record."""
        if not self.monitor.has_lease(node):
            return True
        record = job.record
        return node in record.nodes or any(node == stranded for stranded, _ in record.stranded)

    def _may_answer(self, node: int, found: PortFound) -> bool:
        """Returns whether a node is the one that was asked where a job's processes meet."""
        job = self.jobs.get(found.job)
        wanted = None if job is None or job.gang is None else job.gang.roster.wanted
        return wanted is None or wanted.member(wanted.numbers[0]).node == node

    def _refuse(self, node: int, job: int, level: int) -> None:
        now = self.tables.now
        if now - self._logged_s.get((node, level), LONG_AGO_S) >= LOGGED_EVERY_S:
            self._logged_s[node, level] = now
            LOG.log(level, "node %d reports on job %d, of which it has no such worker", node, job)


def _node_of(job: LiveJob, worker: int) -> int | None:
    """Returns the node of a worker, None if it is not known."""
    known = None if job.gang is None else job.gang.roster.workers.get(worker)
    if known is not None:
        return known.node
    return next((m.node for m in job.record.members if m.worker == worker), None)

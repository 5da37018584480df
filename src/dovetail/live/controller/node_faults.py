"""What follows from the faults that agents report of their nodes and GPUs.

A fault that is more than a warning drains its GPU or its node. A fatal one also puts the jobs there
back, by no fault of their own. A user may take a drain back: only another fault drains again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Set
from dataclasses import dataclass, field, replace

from dovetail.live.controller.drains import Drains
from dovetail.live.controller.gpu_map import GpuMap
from dovetail.live.controller.instant_log import InstantLog
from dovetail.live.controller.live_jobs import LiveJob, LiveJobs
from dovetail.live.controller.recorded_tables import RecordedTables
from dovetail.live.controller.terminations import Terminations
from dovetail.live.jobs.drain_reason import DrainReason
from dovetail.live.workers.roster import END, SAVE
from dovetail.wire.agent import CHECK, DRAIN, FATAL, WARNING, HealthReport, NodeFault
from dovetail.wire.codec import WireError, build_nested, plain

LOG = logging.getLogger(__name__)
FAULTS = "faults"
"""The name in the journal of the faults that nodes have."""

FAILED_GPU = "failed"
"""Why a job was stopped whose GPU failed, in the event log."""
FAULTS_MAX, TEXT_MAX = 1000, 2000
"""The most faults of a node, and characters of one."""


@dataclass(slots=True)
class NodeFailures:
    """Owns the last reported faults of each node."""

    jobs: LiveJobs
    tables: RecordedTables
    log: InstantLog
    gpus: GpuMap
    drains: Drains
    terminations: Terminations
    _last: dict[int, frozenset[NodeFault]] = field(default_factory=dict, init=False)

    def begin(self, meta: dict[str, str]) -> None:
        """Restores the faults that were known: they have drained what they drain."""
        try:
            stored = json.loads(meta.get(FAULTS, "{}"))
            self._last = {
                int(node): frozenset(build_nested(fault, NodeFault, FAULTS) for fault in faults)
                for node, faults in stored.items()
            }
        except (ValueError, TypeError, AttributeError, WireError):
            LOG.error("'%s' is damaged in the store and left out", FAULTS)

    def take(self, node: int, report: HealthReport) -> None:
        """Takes in all faults that a node has now."""
        before = self._last.get(node, frozenset())
        faults = frozenset(f for f in report.faults[:FAULTS_MAX] if self._can_be(node, f))
        if faults == before:
            return
        self._last[node] = faults
        stored = {n: [plain(f) for f in _in_order(of)] for n, of in self._last.items() if of}
        self.log.keep(FAULTS, json.dumps(stored))
        new = [fault for fault in _in_order(faults - before) if fault.severity != WARNING]
        for gpu, source in dict.fromkeys((fault.gpu, fault.source) for fault in new):
            self._drain(node, gpu, source)
        for fault in new:
            if fault.severity == FATAL and fault.gpu >= 0:
                self._free(node, fault)
        if not any(f.source == CHECK for f in faults):
            self.drains.remove(node, -1, CHECK)

    def _can_be(self, node: int, fault: NodeFault) -> bool:
        """Returns whether an agent that is no liar may report a fault: it is kept, and shown."""
        gpus = self.tables.state.view.cluster.installed[node]
        has_gpu, is_known = -1 <= fault.gpu < gpus, fault.severity in (FATAL, DRAIN, WARNING)
        return has_gpu and is_known and len(fault.what + fault.source) <= TEXT_MAX

    def warnings(self, node: int) -> tuple[str, ...]:
        """Returns what an operator should know of a node that goes on."""
        faults = _in_order(self._last.get(node, frozenset()))
        return tuple(f"GPU {f.gpu}: {f.what}" for f in faults if f.severity == WARNING)

    def _drain(self, node: int, gpu: int, source: str) -> None:
        faults = [
            f
            for f in _in_order(self._last[node])
            if (f.gpu, f.source) == (gpu, source) and f.severity != WARNING
        ]
        by = "driver" if gpu >= 0 else source
        reason = "; ".join(fault.what for fault in faults)
        self.drains.add(node, DrainReason(gpu, source, reason, by, self.tables.now))

    def _free(self, node: int, fault: NodeFault) -> None:
        """Puts back the jobs on a GPU that failed."""
        for number in sorted(self.gpus.assignment.on.get((node, fault.gpu), ())):
            job = self.jobs.get(number)
            if job is not None and job.is_placed:
                self._put_back(job, f"GPU {fault.gpu} of node {node}: {fault.what}")

    def _put_back(self, job: LiveJob, detail: str) -> None:
        """Puts a job back into the queue: it saves first what it can, and no retry counts."""
        how = SAVE if job.uses_train_protocol else END
        self.terminations.requeue(job, FAILED_GPU, job.spec.grace_s, how)
        if job.spec.requeue:
            self.jobs.write(job, replace(job.record, detail=detail))
        else:
            self.terminations.retry(job, "NodeFail", detail)


def _in_order(faults: Set[NodeFault]) -> list[NodeFault]:
    """Returns faults by GPU, the fatal ones first."""
    return sorted(faults, key=lambda f: (f.gpu, f.source, f.severity != FATAL, f.what))

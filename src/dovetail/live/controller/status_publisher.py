"""Publishes the frozen snapshots that readers see, a few times a second at most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dovetail.core.messages import Reason
from dovetail.core.units import NEVER_S
from dovetail.live.controller.gpu_map import GpuMap
from dovetail.live.controller.live_jobs import LiveJob, LiveJobs
from dovetail.live.controller.node_monitor import NodeMonitor
from dovetail.live.controller.recorded_tables import RecordedTables
from dovetail.live.jobs.status_snapshot import NodeStatus, RunningStatus, StatusSnapshot


class StatusPublisher:
    """Owns the `latest` snapshot and what it says of decisions; `changed` asks for a new one."""

    def __init__(
        self,
        jobs: LiveJobs,
        tables: RecordedTables,
        gpus: GpuMap,
        monitor: NodeMonitor,
        *,
        policy: str,
        every_s: float,
    ) -> None:
        self._jobs = jobs
        self._tables = tables
        self._gpus = gpus
        self._monitor = monitor
        self._policy = policy
        self._every_s = every_s
        self.latest: StatusSnapshot | None = None
        self.changed = True
        self._made_s = -NEVER_S
        self._decided_s = -NEVER_S
        self._decisions = 0
        self._reasons: tuple[Reason, ...] = ()
        self._reasons_s = -NEVER_S
        self._refused, self._refused_s = "", -NEVER_S

    def decided(self) -> None:
        """Notes a decision."""
        self._decided_s = self._tables.now
        self._decisions += 1
        self.changed = True

    def explained(self, reasons: Sequence[Reason]) -> None:
        """Notes why jobs wait; jobs go by number."""
        self._reasons = tuple(reasons)
        self._reasons_s = self._tables.now

    def refused(self, why: str) -> None:
        """Notes a decision that did not stand."""
        self._refused, self._refused_s = why, self._tables.now
        self.changed = True

    def unwritable(self, why: str) -> None:
        """Publishes at once that nothing can be written, or ("") that it can be again.

        Nothing else of the last snapshot changes: the tables are in the middle of an instant.
        """
        if self.latest is not None and self.latest.unwritable != why:
            self.latest = replace(self.latest, unwritable=why)

    @property
    def due_s(self) -> float:
        """Returns when the next snapshot is due."""
        return self._made_s + self._every_s if self.changed else NEVER_S

    def publish_if_due(self) -> None:
        """Publishes a new snapshot if something changed and the last one is old enough."""
        if self.changed and self._tables.now >= self.due_s:
            self.latest = self._snapshot()
            self._made_s, self.changed = self._tables.now, False

    def _snapshot(self) -> StatusSnapshot:
        state, numbers = self._tables.state, self._jobs.numbers
        waiting, placed = list(state.waiting), sorted(state.plan.placed)
        return StatusSnapshot(
            now_s=self._tables.now,
            policy=self._policy,
            version=state.plan.version,
            decided_s=self._decided_s,
            nodes=self._nodes(),
            running=tuple(self._running(self._jobs.of_row(row)) for row in placed),
            waiting=tuple(numbers[row] for row in waiting),
            shapes=tuple(state.view.shape_of[row] for row in waiting),
            reasons=self._reasons,
            reasons_s=self._reasons_s,
            decisions=self._decisions,
            refused=self._refused,
            refused_s=self._refused_s,
        )

    def _nodes(self) -> tuple[NodeStatus, ...]:
        cluster = self._tables.state.view.cluster
        return tuple(
            NodeStatus(
                node,
                self._monitor.state_of(node),
                health.gpus,
                health.heard_s,
                cluster.group_of(node).gpu_type,
            )
            for node, health in enumerate(self._monitor.nodes)
        )

    def _running(self, job: LiveJob) -> RunningStatus:
        row, state = job.row, self._tables.state
        return RunningStatus(
            job=job.number,
            placement=state.plan.placed[row],
            members=job.record.members,
            done_s=self._tables.done_s(row),
            rate=state.rate[row] if not job.starting else 0.0,
            since_s=self._tables.now,
            left_s=state.left_s((row,))[0],
            called=job.name,
            awaits=self._gpus.awaited(job),
            deferred=_deferred(job),
        )


def _deferred(job: LiveJob) -> tuple[str, ...]:
    """Returns why agents cannot start workers of a job yet, in the order of its nodes."""
    workers = job.gang.roster.workers.values() if job.gang is not None else ()
    late = {(w.node, w.deferred) for w in workers if w.deferred and not w.alive}
    return tuple(f"node {node}: {why}" for node, why in sorted(late))

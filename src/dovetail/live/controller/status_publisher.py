"""Publishes the frozen snapshots that readers see, a few times a second at most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from dovetail.core.cluster import DOWN
from dovetail.core.messages import Reason
from dovetail.core.units import LONG_AGO_S, NEVER_S
from dovetail.live.controller.gpu_map import GpuMap
from dovetail.live.controller.live_gangs import LiveGangs
from dovetail.live.controller.live_jobs import LiveJob, LiveJobs
from dovetail.live.controller.node_faults import NodeFailures
from dovetail.live.controller.node_monitor import NodeMonitor
from dovetail.live.controller.recorded_tables import RecordedTables
from dovetail.live.jobs.status_snapshot import (
    LIMITED,
    RESERVED,
    JobStatus,
    NodeStatus,
    StatusSnapshot,
)


class StatusPublisher:
    """Owns the `latest` snapshot, which any thread may read; `changed` requests a new one.

    `_decision` is a snapshot of what is known of decisions, without nodes and jobs.
    """

    def __init__(
        self,
        jobs: LiveJobs,
        gangs: LiveGangs,
        tables: RecordedTables,
        gpus: GpuMap,
        monitor: NodeMonitor,
        faults: NodeFailures,
        policy: str,
        every_s: float,
    ) -> None:
        self._jobs = jobs
        self._gangs = gangs
        self._tables = tables
        self._gpus = gpus
        self._monitor = monitor
        self._faults = faults
        self._every_s = every_s
        self._published_s = LONG_AGO_S
        self._decision = StatusSnapshot(LONG_AGO_S, policy, LONG_AGO_S, nodes=())
        self._known: dict[int, tuple[tuple[object, ...], JobStatus | None]] = {}
        self.latest: StatusSnapshot | None = None
        self.changed = True

    def decided(self) -> None:
        """Notes a decision."""
        self._decision = replace(self._decision, decided_s=self._tables.now)
        self.changed = True

    def explained(self, reasons: Sequence[Reason]) -> None:
        """Notes why jobs wait; jobs go by number."""
        self._decision = replace(self._decision, reasons=tuple(reasons))

    def refused(self, why: str) -> None:
        """Notes a decision that was not applied."""
        now = self._tables.now
        self._decision = replace(self._decision, refused=why, refused_s=now)
        self.changed = True

    def unwritable(self, why: str) -> None:
        """Publishes at once that nothing can be written, or that it can be again if `why` is empty.

        Nothing else in the last snapshot changes: the tables are in the middle of an instant.
        """
        if self.latest is not None and self.latest.unwritable != why:
            self.latest = replace(self.latest, unwritable=why)

    @property
    def due_s(self) -> float:
        """Returns when the next snapshot is due."""
        return self._published_s + self._every_s if self.changed else NEVER_S

    def publish_if_due(self) -> None:
        """Publishes a new snapshot if something changed and the last one is old enough."""
        if self.changed and self._tables.now >= self.due_s:
            self.latest = self._snapshot()
            self._published_s, self.changed = self._tables.now, False

    def _snapshot(self) -> StatusSnapshot:
        state, numbers = self._tables.state, self._jobs.numbers
        waiting, placed = list(state.waiting), sorted(state.plan.placed)
        running = tuple(self._running(self._jobs.of_row(row)) for row in placed)
        self._known = {s.job: self._known[s.job] for s in running if s.job in self._known}
        self._gangs.acted.clear()
        return replace(
            self._decision,
            now_s=self._tables.now,
            nodes=self._nodes(),
            running=running,
            waiting=tuple(numbers[row] for row in waiting),
            shapes=tuple(state.view.shape_of[row] for row in waiting),
            limited=tuple(self._limited(waiting)),
        )

    def _limited(self, waiting: Sequence[int]) -> Iterator[tuple[int, str, str]]:
        """Yields the shapes whose waiting jobs a limit or a reservation keeps off the GPUs."""
        view = self._tables.state.view
        tenants = view.plan.occupancy.tenants
        if tenants is None:
            return
        need: dict[int, int] = {}
        for row in waiting:
            shape, least = view.shape_of[row], int(view.jobs.least_gpus[row])
            need[shape] = min(least, need.get(shape, least))
        for shape, gpus in sorted(need.items()):
            if full := tenants.full(view.shapes[shape], gpus):
                yield shape, LIMITED, full
            elif kept := tenants.kept_for(view.shapes[shape], gpus):
                yield shape, RESERVED, kept

    def _nodes(self) -> tuple[NodeStatus, ...]:
        cluster, names = self._tables.state.view.cluster, self._gangs.hosts
        owners = [(queue.name, queue.groups) for queue in cluster.queues if queue.groups]
        return tuple(
            NodeStatus(
                node,
                DOWN if health.is_down else self._monitor.state_of(node),
                health.gpus,
                health.heard_s,
                cluster.group_of(node).gpu_type,
                tuple(q for q, groups in owners if cluster.group_of(node).name not in groups),
                health.lost_s,
                self._faults.drains.notes(node),
                self._faults.warnings(node),
                names.given_name(node),
            )
            for node, health in enumerate(self._monitor.nodes)
        )

    def _running(self, job: LiveJob) -> JobStatus:
        """Returns the state of a job: the last one, if that still tells how it goes on.

        NOTE: with 8,000 running jobs their states took 130 ms, several times a second.
        """
        row, state, number = job.row, self._tables.state, job.number
        seen = (
            state.done[row],
            state.rate[row],
            state.since_s[row],
            state.length[row],
            job.idle_s,
        )
        known, last = self._known.get(number, ((), None))
        acted = number in self._gangs.acted or job.starting
        if known == seen and last is not None and not acted:
            placement, members = state.plan.placed[row], job.record.members
            if last.placement is placement and last.members is members:
                return last
        status = self._status(job)
        if _is_whole(job) and not job.starting and state.since_s[row] <= self._tables.now:
            self._known[number] = seen, status
        else:
            self._known.pop(number, None)
        return status

    def _status(self, job: LiveJob) -> JobStatus:
        row, state = job.row, self._tables.state
        return JobStatus(
            job=job.number,
            placement=state.plan.placed[row],
            members=job.record.members,
            done_s=self._tables.done_s(row),
            # The tables assume the expected time of the start; until it is reported nothing trains.
            rate=state.rate[row] if not job.starting else 0.0,
            since_s=self._tables.now,
            left_s=state.left_s((row,))[0],
            called=job.name,
            awaits=self._gpus.awaited(job),
            deferred=_deferred(job),
            idle_s=job.idle_s,
        )


def _is_whole(job: LiveJob) -> bool:
    """Returns whether all workers of a job run, so that none waits for anything."""
    workers = job.gang.roster.workers if job.gang is not None else {}
    return all(m.worker in workers and workers[m.worker].alive for m in job.record.members)


def _deferred(job: LiveJob) -> tuple[str, ...]:
    """Returns why agents cannot start workers of a job yet, in the order of its nodes."""
    workers = job.gang.roster.workers.values() if job.gang is not None else ()
    late = {(w.node, w.deferred) for w in workers if w.deferred and not w.alive}
    return tuple(f"node {node}: {why}" for node, why in sorted(late))

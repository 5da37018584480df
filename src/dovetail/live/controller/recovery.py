"""How a new controller recovers the state of the last one, which may have been killed.

The tables are filled from the records of the jobs that are not over, and running jobs keep their
GPUs in the plan. The records do not have the state of the workers. So every node is asked for its
inventory, and no gang acts before each node has sent one or is down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dovetail.control.state import JobProgress
from dovetail.core.errors import IllegalPlan
from dovetail.live.controller.admission import Admission
from dovetail.live.controller.gang_members import GangMembers
from dovetail.live.controller.gpu_map import GpuMap
from dovetail.live.controller.live_gangs import LiveGangs
from dovetail.live.controller.live_jobs import LiveJob, LiveJobs
from dovetail.live.controller.recorded_tables import RecordedTables
from dovetail.live.controller.timers import Timer, Timers
from dovetail.live.jobs.lifecycle import State, Transition
from dovetail.live.jobs.record import JobRecord
from dovetail.live.jobs.stored_job import StoredJob


@dataclass(frozen=True, slots=True)
class Recovery:
    """Fills the tables from the records of jobs.

    Whatever a replay cannot work out from the log becomes a fact, so that its tables agree.
    """

    jobs: LiveJobs
    gangs: LiveGangs
    tables: RecordedTables
    gpus: GpuMap
    timers: Timers
    members: GangMembers
    admission: Admission

    def restore_gangs(self, stored: Sequence[StoredJob]) -> None:
        """Restores the jobs that have GPUs or workers; all others get their rows.

        The states of nodes must be restored after this: no plan may place a job on a closed node,
        but jobs that ran there may still run.
        """
        placed = []
        # A job that began anew queues behind all jobs submitted until then.
        in_order = sorted(stored, key=lambda job: (job.record.queued_s, job.number))
        for job in self.admission.enter(in_order):
            if job.is_placed:
                try:
                    self._restore_placed(job)
                    placed.append(job)
                except IllegalPlan as error:
                    # The cluster has other nodes or GPUs than it had: the job waits again.
                    waiting = replace(job.record, placement=None, members=(), detail=str(error))
                    self.jobs.move(job, Transition.STOPPED, waiting)
            elif job.record.state is State.COMPLETING:
                # Its workers may still be there, and must end.
                self.gangs.of(job).restore(None, job.record.group, ran=False)
                self.gangs.touch(job)
        for job in placed:
            # Only now: the memory bound of a job depends on the other jobs on its GPUs.
            self._restore_gang(job)

    def restore_waiting(self) -> None:
        """Restores the jobs that wait, once the states of nodes are known."""
        for job in self.jobs:
            if job.record.state is State.PENDING:
                self._restore_waiting(job)

    def _restore_placed(self, job: LiveJob) -> None:
        self._name_gpus(job)
        record, now = job.record, self.tables.now
        assert record.placement is not None
        running = record.state is State.RUNNING
        # Without a controller it ran on, at the last known rate for all anyone knows.
        passed_s = now - record.since_s
        # It holds its GPUs since then, and its service is counted from then on.
        placed_s = record.placed_s if record.placed_s >= 0 else record.since_s
        counted_s = record.since_s - placed_s
        progress = JobProgress(
            done_s=record.done_s + (record.rate * passed_s if running else 0.0),
            attained_gpu_s=max(0.0, record.attained_gpu_s - record.placement.gpus * counted_s),
            first_start_s=record.first_start_s,
            pending_s=_pending_s(record),
            placed_s=placed_s,
            from_s=now,
        )
        self.tables.restore_placed(job.row, progress, record.placement, record.rate)
        # If it was still starting, its workers begin with the progress that it was placed with.
        job.placed_done_s, job.starting = record.done_s, not running
        job.unchanged_s = now
        self.gpus.assignment.restore(record.job, record.placement, record.members)

    def _name_gpus(self, job: LiveJob) -> None:
        """Names the GPUs of a job that started before its cluster stated islands."""
        placement, members = job.record.placement, job.record.members
        if self.tables.state.plan.occupancy.islands is None or placement is None:
            return
        if placement.gpu_ids or not placement.gpu_part or placement.gpus != len(members):
            return
        gpus = iter(member.gpu for member in members)
        ids = tuple(tuple(next(gpus) for _ in range(count)) for _, count in placement.spans)
        self.jobs.write(job, replace(job.record, placement=replace(placement, gpu_ids=ids)))

    def _restore_gang(self, job: LiveJob) -> None:
        running = job.record.state is State.RUNNING
        # Workers in the recorded group had been started; a start order of others may be lost.
        desired = self.members.desired(job)
        self.gangs.of(job).restore(desired, job.record.group, ran=running)
        if running:
            job.running_s = job.record.since_s
            # Its time limit counted without a controller too, and may have passed.
            due_s = job.running_s + job.spec.time_limit_s - job.record.ran_s
            self.timers.set(Timer.TIME_LIMIT, job.number, max(self.tables.now, due_s))

    def _restore_waiting(self, job: LiveJob) -> None:
        record = job.record
        progress = JobProgress(
            record.done_s, record.attained_gpu_s, record.first_start_s, _pending_s(record)
        )
        self.admission.terminations.avoided.heed(job)
        # Only a job that is kept out of the queue has a reason.
        self.tables.restore_waiting(job.row, progress, queued=not record.reason)
        # Its obstacle may have gone while no controller ran.
        self.admission.consider(job)
        self.tables.announce(job.row)


def _pending_s(record: JobRecord) -> float:
    """Returns when a job began to wait; a record of an older release has its latest change."""
    return record.pending_s if record.pending_s >= 0 else record.since_s

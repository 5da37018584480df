"""Applies a plan: from the changes of a draft to tables, GPU assignment and gangs.

This is the only place where the policy's plan becomes orders. What a placement costs in time, and
which part of a job trains on meanwhile, is in `ClusterState.begin_switch`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dovetail.core.messages import PREEMPTED
from dovetail.core.plan import Change, Draft
from dovetail.core.replacing import replace
from dovetail.live.controller.gang_members import GangMembers
from dovetail.live.controller.gpu_map import GpuMap
from dovetail.live.controller.leases import Leases
from dovetail.live.controller.live_gangs import LiveGangs
from dovetail.live.controller.live_jobs import LiveJob, LiveJobs
from dovetail.live.controller.recorded_tables import RecordedTables
from dovetail.live.jobs.lifecycle import Transition
from dovetail.live.workers.gpu_assignment import Gpu
from dovetail.live.workers.roster import END, SAVE, WAIT


@dataclass(frozen=True, slots=True)
class PlanApplier:
    """Stops, starts and moves jobs as a legal draft wants; it decides nothing itself."""

    jobs: LiveJobs
    gangs: LiveGangs
    tables: RecordedTables
    gpus: GpuMap
    members: GangMembers
    leases: Leases

    def apply(self, draft: Draft) -> None:
        """Makes a legal draft the plan: stops, then starts and moves, then re-times neighbours."""
        changes = self.tables.state.plan.commit(draft)
        touched: set[int] = set()
        # Stops first: the assignment must know which GPUs they free before it gives any away.
        for change in changes:
            if change.before is not None:
                touched.update(self.gpus.sharers(change.before))
            if change.after is None:
                self._stop(self.jobs.of_row(change.job), draft.why.get(change.job, PREEMPTED))
        numbers = self.jobs.numbers
        placed = [(numbers[c.job], c.after) for c in changes if c.after is not None]
        assigned = self.gpus.assignment.assign(placed, self.gpus.usage.is_vacant)
        for change in changes:
            if change.after is not None:
                job = self.jobs.of_row(change.job)
                self._place(job, change, assigned[job.number])
                touched.update(self.gpus.sharers(change.after))
        # Placed jobs got their speed in `_place`, where all others were in place already.
        touched.difference_update(c.job for c in changes)
        self.members.update_sharers(touched)

    def _stop(self, job: LiveJob, why: str) -> None:
        """Takes a job off its GPUs; it saves its state first if it can."""
        # The progress of a plain program is lost, unless it has checkpoints of its own.
        self.tables.preempt(job.row, loses_all=not job.spec.keeps_progress, why=why)
        waiting = replace(job.record, placement=None, members=(), reason="", detail="")
        self.jobs.move(job, Transition.STOPPED, waiting)
        self.members.release(job)
        gang = self.gangs.of(job)
        how = SAVE if job.uses_train_protocol else WAIT if gang.roster.complete else END
        gang.roster.vacate(self.tables.now, job.spec.grace_s, how)
        self.gangs.touch(job)

    def _place(self, job: LiveJob, change: Change, gpus: Sequence[Gpu]) -> None:
        row, after = job.row, change.after
        assert after is not None
        state, now = self.tables.state, self.tables.now
        how = state.how(change)
        # It trains on with the GPUs it keeps until the others are ready to join.
        on = change.before is not None and job.uses_train_protocol and not job.spec.restart_s
        training, delay = state.begin_switch(change, how, begin_s=now, trains_on=on)
        rate = self.gpus.speed(row, training)
        preparing = after.gpus - training.gpus
        self.tables.start(row, after, how=how, rate=rate, delay_s=delay, preparing=preparing)
        job.placed_done_s, job.unchanged_s = state.done[row], now
        job.starting = change.before is None or not job.uses_train_protocol
        record = job.record
        if job.starting and record.resumed_step != record.saved_step:
            self.jobs.write(job, replace(record, resumed_step=record.saved_step))
        if change.before is None:
            self.leases.begin(job)
        self.members.assign(job, after, gpus)

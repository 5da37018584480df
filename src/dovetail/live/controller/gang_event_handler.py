"""What follows from the events of a gang: its job runs, makes progress, finishes, or must stop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dovetail.core.placement import Placement
from dovetail.core.units import NEVER_S
from dovetail.live.controller.gpu_map import GpuMap
from dovetail.live.controller.live_gangs import LiveGangs
from dovetail.live.controller.live_jobs import LiveJob, LiveJobs
from dovetail.live.controller.progress_reports import ProgressReports
from dovetail.live.controller.recorded_tables import RecordedTables
from dovetail.live.controller.terminations import Terminations
from dovetail.live.controller.timers import Timer, Timers
from dovetail.live.controller.worker_loss import WorkerLoss
from dovetail.live.jobs.lifecycle import State, Transition
from dovetail.live.workers.gang_events import (
    GangEvent,
    GangFormed,
    GangStalled,
    GangVacated,
    LeavingTimeout,
    NoTrainJob,
)
from dovetail.wire.agent import WorkerEnded
from dovetail.wire.worker import Finished, Saved, Training


@dataclass(frozen=True, slots=True)
class GangEventHandler:
    """Handles the events of one gang in the order in which they happened, deaths last."""

    jobs: LiveJobs
    gangs: LiveGangs
    tables: RecordedTables
    gpus: GpuMap
    timers: Timers
    terminations: Terminations
    progress: ProgressReports
    losses: WorkerLoss

    def handle(self, job: LiveJob, events: Sequence[GangEvent]) -> None:
        """Handles what happened to the workers of a job."""
        for event in events:
            match event:
                case GangFormed():
                    self._formed(job)
                case Training():
                    self.progress.take(job, event)
                case Saved():
                    self._saved(job, event.step)
                case Finished():
                    self._finished(job, event.samples)
                case NoTrainJob():
                    self._train_job_missing(job)
                case GangStalled():
                    self.terminations.stalled(job, event.silent_s)
                case LeavingTimeout():
                    killed = replace(job.record, grace_kills=job.record.grace_kills + 1)
                    self.jobs.write(job, killed)
                case GangVacated():
                    self.terminations.vacated(job)
                case WorkerEnded():
                    pass
        # All deaths of an instant are one failure, and none if the job finished in it.
        deaths = [event for event in events if isinstance(event, WorkerEnded)]
        if deaths and job.is_placed:
            self.losses.handle(job, deaths)

    def start_clock_if_begun(self, job: LiveJob) -> None:
        """Starts the clock of a job with a range of GPUs when its first program has begun.

        An ordinary program never makes a training job, and its time limit must end it too.
        """
        roster = self.gangs.of(job).roster
        waits = job.is_placed and job.running_s == NEVER_S
        if waits and roster.first.one_first and roster.has_begun:
            self._start_clock(job)

    def _formed(self, job: LiveJob) -> None:
        """Records that all wanted workers of a job train, or those that are left of them."""
        placement = self.tables.placement(job.row)
        roster = self.gangs.of(job).roster
        if placement is None or roster.wanted is None:
            return
        job.unchanged_s = self.tables.now
        self.jobs.write(job, replace(job.record, generation=roster.generation))
        self._run(job)
        if job.record.detail and not job.replacements:
            # It is about a worker that died, which is replaced by now.
            self.jobs.write(job, replace(job.record, detail=""))
        if roster.first.spoke and not (job.record.spoke or job.spec.paced):
            self.jobs.write(job, replace(job.record, spoke=True))
        whole = roster.target is None or set(roster.target.members) == set(roster.wanted.numbers)
        self._record_rate(job, placement, whole=whole)

    def _run(self, job: LiveJob) -> None:
        """Moves a job to RUNNING and starts its clock, if that does not run yet."""
        if job.record.state is State.CONFIGURING:
            self.jobs.move(job, Transition.STARTED)
        if job.running_s == NEVER_S:
            if not job.spec.keeps_progress:
                # It begins anew, and what it ran before is lost: its limit is for this run.
                self.jobs.write(job, replace(job.record, ran_s=0.0))
            # From its first program on, not from its placement: starting may take long.
            self._start_clock(job)

    def _start_clock(self, job: LiveJob) -> None:
        job.running_s = now = self.tables.now
        left_s = max(0.0, job.spec.time_limit_s - job.record.ran_s)
        self.timers.set(Timer.TIME_LIMIT, job.number, now + left_s)

    def _record_rate(self, job: LiveJob, placement: Placement, *, whole: bool) -> None:
        """Records that a start or a change of GPUs is over, and the rate from now on."""
        row, first = job.row, self.gangs.of(job).roster.first
        rate = self.gpus.speed(row, placement)
        if job.starting:
            if first.one_first and first.spoke and not whole:
                # The first worker trains alone until the others join: no measure of its GPUs.
                return
            # Until now its progress stood still, whatever the tables assumed for the start.
            job.starting = False
            self.tables.measure(row, job.placed_done_s, rate)
        elif whole and (self.tables.is_expanding(row) or rate != self.tables.state.rate[row]):
            self.tables.switch(row, rate)

    def _train_job_missing(self, job: LiveJob) -> None:
        """Runs a job on one GPU whose first worker has made no training job for too long."""
        if job.is_placed:
            self._formed(job)
            gpus = f"{job.spec.min_gpus}..{job.spec.max_gpus} GPUs"
            detail = f"it asked for {gpus} and has made no dovetail.train.Job yet: it runs on 1"
            self.jobs.write(job, replace(job.record, detail=detail))

    def _saved(self, job: LiveJob, step: int) -> None:
        if step > job.record.saved_step:
            saved_s = self.tables.done_s(job.row)
            self.jobs.write(job, replace(job.record, saved_step=step, saved_s=saved_s))
            if self.gangs.of(job).roster.launch.ships:
                self.gangs.update_restarts(job)

    def _finished(self, job: LiveJob, samples: int) -> None:
        if samples >= 0 and job.is_placed:
            # The last progress report was made before the last samples.
            self.jobs.write(job, replace(job.with_training(), samples=samples))
        self.terminations.end(job, Transition.FINISHED, code=0)

"""What follows when the workers of a job begin: it runs, and its time limit and rate count."""

from __future__ import annotations

from dataclasses import replace

from dovetail.core.placement import Placement
from dovetail.core.units import NEVER_S
from dovetail.live.controller.gpu_map import GpuMap
from dovetail.live.controller.live_gangs import LiveGangs
from dovetail.live.controller.live_jobs import LiveJob, LiveJobs
from dovetail.live.controller.recorded_tables import RecordedTables
from dovetail.live.controller.timers import Alarm, Timers
from dovetail.live.jobs.lifecycle import State, Transition


class GangStarts:
    """Takes the events of gangs that say that workers run or train."""

    def __init__(
        self,
        jobs: LiveJobs,
        gangs: LiveGangs,
        tables: RecordedTables,
        gpus: GpuMap,
        timers: Timers,
    ) -> None:
        self._jobs = jobs
        self._gangs = gangs
        self._tables = tables
        self._gpus = gpus
        self._timers = timers

    def formed(self, job: LiveJob) -> None:
        """Records that all wanted workers of a job train, or those that are left of them."""
        placement = self._tables.placement(job.row)
        gang = self._gangs.of(job)
        if placement is None or gang.roster.wanted is None:
            return
        job.unchanged_s = self._tables.now
        self._jobs.write(job, replace(job.record, generation=gang.roster.generation))
        self._run(job)
        if job.record.detail and not job.replacements:
            # What befell a worker is over: another has its place.
            self._jobs.write(job, replace(job.record, detail=""))
        if gang.roster.first.spoke and not (job.record.spoke or job.spec.paced):
            self._jobs.write(job, replace(job.record, spoke=True))
        whole = gang.roster.target is None or set(gang.roster.target.members) == set(
            gang.roster.wanted.numbers
        )
        self._record_rate(job, placement, whole=whole)

    def _run(self, job: LiveJob) -> None:
        """Moves a job to RUNNING and starts its clock, if that does not run yet."""
        if job.record.state is State.CONFIGURING:
            self._jobs.move(job, Transition.STARTED)
        if job.running_s == NEVER_S:
            if not job.uses_train_protocol:
                # It begins anew, and what it ran before is lost: its limit is for this run.
                self._jobs.write(job, replace(job.record, ran_s=0.0))
            # From its first program on, not from its placement: starting may take long.
            self._start_clock(job)

    def _record_rate(self, job: LiveJob, placement: Placement, *, whole: bool) -> None:
        """Records that a start or a change of GPUs is over, and the rate from now on."""
        row, first = job.row, self._gangs.of(job).roster.first
        rate = self._gpus.speed(row, placement)
        if job.starting:
            if first.one_first and first.spoke and not whole:
                # The first worker trains alone until the others join: no measure of its GPUs.
                return
            # Until now its progress stood still, whatever the tables reckoned for the start.
            job.starting = False
            self._tables.measure(row, job.placed_done_s, rate)
        elif whole and rate != self._tables.state.rate[row]:
            self._tables.switch(row, rate)

    def program_began(self, job: LiveJob) -> None:
        """Starts the clock of a job with a range of GPUs when its first program has begun.

        An ordinary program never makes a training job, and its time limit must end it too.
        """
        gang = self._gangs.of(job)
        waits = job.is_placed and job.running_s == NEVER_S
        if waits and gang.roster.first.one_first and gang.roster.has_begun:
            self._start_clock(job)

    def train_job_missing(self, job: LiveJob) -> None:
        """Runs a job on one GPU whose first worker has made no training job for too long."""
        if job.is_placed:
            self.formed(job)
            asked = f"{job.spec.min_gpus}..{job.spec.max_gpus} GPUs"
            detail = f"it asked for {asked} and has made no dovetail.train.Job yet: it runs on 1"
            self._jobs.write(job, replace(job.record, detail=detail))

    def _start_clock(self, job: LiveJob) -> None:
        now = self._tables.now
        job.running_s = now
        left_s = max(0.0, job.spec.time_limit_s - job.record.ran_s)
        self._timers.set(Alarm.TIME_LIMIT, job.number, now + left_s)

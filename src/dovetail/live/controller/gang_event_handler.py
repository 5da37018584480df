"""Passes the events of gangs to the part of the controller that decides what follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dovetail.live.controller.gang_starts import GangStarts
from dovetail.live.controller.gpu_map import GpuMap
from dovetail.live.controller.instant_log import InstantLog
from dovetail.live.controller.live_gangs import LiveGangs
from dovetail.live.controller.live_jobs import LiveJob, LiveJobs
from dovetail.live.controller.progress_reports import ProgressReports
from dovetail.live.controller.recorded_tables import RecordedTables
from dovetail.live.controller.terminations import Terminations
from dovetail.live.controller.timers import Timers
from dovetail.live.controller.worker_deaths import WorkerDeaths
from dovetail.live.jobs.lifecycle import Transition
from dovetail.live.measuring.metering import Meter
from dovetail.live.workers.gang_events import (
    GangEvent,
    GangFinished,
    GangFormed,
    GangSaved,
    GangStalled,
    GangTrained,
    GangVacated,
    TrainJobMissing,
    WorkerDied,
)
from dovetail.live.workers.rules import Rules


class GangEventHandler:
    """Handles the events of one gang in the order in which they happened, deaths last.

    It owns the parts that only these events concern: starts, reports of progress, and deaths.
    """

    def __init__(
        self,
        jobs: LiveJobs,
        gangs: LiveGangs,
        tables: RecordedTables,
        gpus: GpuMap,
        log: InstantLog,
        timers: Timers,
        terminations: Terminations,
        *,
        meter: Meter,
        rules: Rules,
    ) -> None:
        self._jobs = jobs
        self._tables = tables
        self._terminations = terminations
        self._starts = GangStarts(jobs, gangs, tables, gpus, timers)
        self._reports = ProgressReports(
            jobs, tables, gpus, log, terminations, meter=meter, rules=rules
        )
        self._deaths = WorkerDeaths(
            jobs, gangs, tables, gpus, log, timers, terminations, meter=meter, rules=rules
        )

    def handle(self, job: LiveJob, events: Sequence[GangEvent]) -> None:
        """Handles what happened to the workers of a job."""
        for event in events:
            match event:
                case GangFormed():
                    self._starts.formed(job)
                case GangTrained():
                    self._reports.take(job, event.said)
                case GangSaved():
                    self._saved(job, event.step)
                case GangFinished():
                    self._finished(job, event.samples)
                case TrainJobMissing():
                    self._starts.train_job_missing(job)
                case GangStalled():
                    self._terminations.stalled(job, event.silent_s)
                case GangVacated():
                    self._terminations.vacated(job)
                case WorkerDied():
                    pass
        # All deaths of an instant are one failure, and none if the job finished in it.
        deaths = [event for event in events if isinstance(event, WorkerDied)]
        if deaths and job.is_placed:
            self._deaths.died(job, deaths)

    def decided(self, job: LiveJob) -> None:
        """Takes note that the gang of a job has decided, which may have seen a program begin."""
        self._starts.program_began(job)

    def _saved(self, job: LiveJob, step: int) -> None:
        if step > job.record.saved_step:
            saved_s = self._tables.done_s(job.row)
            self._jobs.write(job, replace(job.record, saved_step=step, saved_s=saved_s))

    def _finished(self, job: LiveJob, samples: int) -> None:
        if samples >= 0 and job.is_placed:
            # Its last report was made before that.
            self._jobs.write(job, replace(job.record, samples=samples))
        self._terminations.end(job, Transition.FINISHED, code=0)

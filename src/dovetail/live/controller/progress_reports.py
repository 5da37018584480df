"""Reports of training: they correct progress, rate and length, and separate slow pairs of jobs.

A report that confirms the tables is not recorded: the log has what a replay needs, not a line a
second for each job.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isfinite

from dovetail.core.beliefs import Neighbour
from dovetail.live.controller.gpu_map import GpuMap
from dovetail.live.controller.live_jobs import LiveJob, LiveJobs
from dovetail.live.controller.recorded_tables import RecordedTables
from dovetail.live.controller.terminations import Terminations
from dovetail.live.measuring.meter import MeasuredProgress, ReportMeter
from dovetail.live.workers.roster import END, SAVE
from dovetail.live.workers.rules import Rules
from dovetail.wire.worker import Training

SLACK_S, SLACK = 0.25, 0.01
"""Progress is corrected when it is off by so many seconds plus this part of the time since."""
RATE_SLACK = 0.02
LENGTH_SLACK = 0.01
NOISE = 5.0
"""How much wider these tolerances are for real programs, whose iterations vary."""
RECORDED_OFTEN = 1000
"""Running jobs whose progress is recorded every `persist_every_s`."""
PARTED = "pairing undone"
"""Why a job was stopped that a right belief would never have put beside another."""


@dataclass(frozen=True, slots=True)
class ProgressReports:
    """Takes in the reports of running jobs."""

    jobs: LiveJobs
    tables: RecordedTables
    gpus: GpuMap
    terminations: Terminations
    meter: ReportMeter
    rules: Rules

    def take(self, job: LiveJob, report: Training) -> None:
        """Takes in one report."""
        row, now = job.row, self.tables.now
        placement = self.tables.placement(row)
        if placement is None or job.starting:
            return
        # Not by `write`: a record of each report would be a write a second for each job.
        known = 0 if job.trained is None else job.trained.total_samples
        is_unknown = known and not report.total_samples
        job.trained = replace(report, total_samples=known) if is_unknown else report
        neighbours = self.gpus.neighbours(row)
        progress = self.meter.heard(
            row,
            report,
            now,
            spec=job.spec,
            placement=placement,
            neighbours=neighbours,
            since_s=job.unchanged_s,
        )
        if progress is None:
            return
        # A program may report anything, but the tables and the store need finite numbers.
        if not all(map(isfinite, (progress.done_s, progress.rate, progress.length_s or 0.0))):
            return
        self._believe(job, progress)
        self.tables.learn(self.meter.learner, is_new=progress.news)
        self._check_pairs((row, placement), neighbours)
        if now >= job.persisted_s + self._persist_every_s:
            self.jobs.write(job, job.record)

    @property
    def _persist_every_s(self) -> float:
        """Returns how often progress is recorded: with many running jobs of each more rarely.

        A new controller extrapolates from the record until inventories have told it more.
        """
        many = len(self.tables.state.plan.placed) / RECORDED_OFTEN
        return self.rules.persist_every_s * max(1.0, many)

    def _believe(self, job: LiveJob, progress: MeasuredProgress) -> None:
        """Puts measured progress, rate and length into the tables where they differ enough."""
        row, state = job.row, self.tables.state
        expected_s = self.tables.done_s(row)
        passed_s = max(0.0, self.tables.now - state.since_s[row])
        off_s = abs(progress.done_s - expected_s)
        rate = state.rate[row]
        noise, fastest = 1.0 if job.spec.paced else NOISE, max(rate, progress.rate)
        slack_s = noise * (SLACK_S + SLACK * passed_s * fastest)
        if off_s > slack_s or abs(progress.rate - rate) > noise * RATE_SLACK * fastest:
            # Samples are whole: within one of them the expected progress is the better value.
            done_s = expected_s if off_s <= progress.grain_s else progress.done_s
            self.tables.measure(row, done_s, progress.rate)
        length_s, known_s = progress.length_s, state.length[row]
        if length_s is not None and abs(length_s - known_s) > noise * LENGTH_SLACK * known_s:
            self.tables.foresee(row, length_s)

    def _check_pairs(self, reporting: Neighbour, neighbours: tuple[Neighbour, ...]) -> None:
        """Separates a job from a neighbour if together they lose more than waiting costs."""
        placed_s, switch_s = self.tables.state.placed_s, self.tables.state.view.switch_s
        for neighbour in neighbours:
            host, guest = reporting, neighbour
            if placed_s[host[0]] > placed_s[guest[0]]:
                host, guest = guest, host
            if self.meter.undo_pair(host, guest, switch_s["resume"]):
                self._separate(self.jobs.of_row(guest[0]), self.jobs.of_row(host[0]))
                # One at a time: the next report shows whether the others still lose.
                break

    def _separate(self, guest: LiveJob, host: LiveJob) -> None:
        """Makes the job that came later wait again."""
        if not (guest.is_placed and self.tables.state.view.preemptible[guest.row]):
            return
        # Stopped as by the policy, so it saves its progress.
        how = SAVE if guest.uses_train_protocol else END
        self.terminations.requeue(guest, PARTED, guest.spec.grace_s, how)
        detail = f"{PARTED}: beside job {host.name} both lost more than waiting costs"
        self.jobs.write(guest, replace(guest.record, detail=detail))

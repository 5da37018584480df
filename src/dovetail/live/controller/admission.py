"""Which jobs may wait in the queue: those not held, whose dependencies are met, past their pause.

Also carries out users' requests about jobs.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from dovetail.core.units import NEVER_S
from dovetail.live.controller.array_limits import ArrayLimits
from dovetail.live.controller.instant_log import InstantLog
from dovetail.live.controller.job_dependencies import DEPENDENCY, NEVER_MET, JobDependencies
from dovetail.live.controller.live_jobs import LiveJob, LiveJobs
from dovetail.live.controller.recorded_tables import RecordedTables
from dovetail.live.controller.terminations import Terminations
from dovetail.live.controller.timers import Alarm, Timers
from dovetail.live.edges.protocols import Request
from dovetail.live.jobs.job_request import job_request
from dovetail.live.jobs.lifecycle import PENDING, TERMINAL, State, Transition
from dovetail.live.jobs.record import JobRecord
from dovetail.live.jobs.stored_job import StoredJob
from dovetail.live.workers.roster import END, SAVE
from dovetail.wire.spec import JobSpec

LOG = logging.getLogger(__name__)
HELD, BEGIN, ARRAY_FULL = "JobHeldUser", "BeginTime", "JobArrayTaskLimit"
"""Slurm's words for why a job does not even wait in the queue."""


class Admission:
    """Puts jobs into the queue and takes them out again.

    It owns the places of limited arrays. If there is a `sharing_user`, only jobs of this user may
    share GPUs.
    """

    def __init__(
        self,
        jobs: LiveJobs,
        tables: RecordedTables,
        log: InstantLog,
        timers: Timers,
        terminations: Terminations,
        dependencies: JobDependencies,
        *,
        sharing_user: str | None,
    ) -> None:
        self._jobs = jobs
        self._tables = tables
        self._log = log
        self._timers = timers
        self._terminations = terminations
        self._dependencies = dependencies
        self._sharing_user = sharing_user
        self._limits = ArrayLimits()

    # Jobs.

    def accept(self, submitted: Sequence[StoredJob]) -> None:
        """Admits jobs that were submitted, but for those that are known already."""
        new = {job.number: job for job in submitted if job.number not in self._jobs.known}
        if new:
            self.admit([_not_before(job) for job in new.values()])

    def admit(self, stored: Sequence[StoredJob]) -> None:
        """Adds jobs to the tables, and puts those into the queue that may wait there."""
        for job in self.enter(stored):
            self._jobs.write(job, job.record)
            self.consider(job)

    def enter(self, stored: Sequence[StoredJob]) -> list[LiveJob]:
        """Adds jobs to the tables, all at once; returns them. They do not wait yet."""
        table = self._tables.state.jobs
        last_s = float(table.submit_s[-1]) if len(table) else -NEVER_S
        requests = []
        for one in stored:
            # The tables are in order of submission, and a job that begins anew comes late.
            last_s = max(last_s, one.record.queued_s)
            request = job_request(one.spec, one.number, one.record.submit_s)
            request = replace(request, submit_s=last_s)
            # Users do not share GPUs with each other unless the cluster was brought up so.
            if self._sharing_user not in (None, one.spec.user):
                request = replace(request, shareable=False)
            requests.append(request)
        entered = []
        for row, one in zip(self._tables.admit(requests), stored, strict=True):
            job = LiveJob(row, one.spec, one.record)
            self._jobs.add(job)
            self._limits.enter(job)
            entered.append(job)
            if one.spec.deadline_s < NEVER_S:
                due_s = one.record.submit_s + one.spec.deadline_s
                self._timers.set(Alarm.DEADLINE, one.number, due_s)
            self._dependencies.add(job)
        return entered

    def consider(self, job: LiveJob) -> None:
        """Puts a pending job into the queue, or records what keeps it out."""
        record = job.record
        if record.state is not PENDING:
            return
        reason, detail = self._obstacle(job)
        if reason == NEVER_MET and job.spec.kill_on_invalid_dep:
            self._terminations.end(job, Transition.CANCELLED, reason=reason, detail=detail)
            return
        if reason:
            self._tables.withdraw(job.row)
        else:
            # Also for a task that an earlier controller let into the queue.
            self._limits.take(job)
            if job.row not in self._tables.state.waiting:
                self._tables.arrive(job.row)
        if (record.reason, record.detail) != (reason, detail):
            self._jobs.write(job, replace(job.record, reason=reason, detail=detail))
        if reason:
            for other in self._limits.give(job):
                self.consider(other)

    def _obstacle(self, job: LiveJob) -> tuple[str, str]:
        """Returns the reason and the detail of what keeps a job out, empty if nothing does."""
        record = job.record
        if record.held:
            return HELD, "its owner holds it"
        if record.not_before_s > self._tables.now:
            self._timers.set(Alarm.BEGIN, record.job, record.not_before_s)
            return BEGIN, record.detail
        blocking = self._dependencies.blocking(job)
        if blocking is not None:
            name = self._dependencies.name(blocking)
            if self._dependencies.is_met(blocking) is None:
                return NEVER_MET, f"{name} cannot happen any more"
            return DEPENDENCY, f"it waits for {name}"
        if self._limits.is_full(job):
            most = job.spec.at_once
            tasks = "task" if most == 1 else "tasks"
            return ARRAY_FULL, f"at most {most} {tasks} of its array may wait for GPUs or have them"
        return "", ""

    def consider_dependents(self, number: int) -> None:
        """Considers the jobs that depend on one that started or ended."""
        for job in self._dependencies.concerned_by(number):
            self.consider(job)

    # Requests.

    def carry_out(self, request: Request) -> None:
        """Carries out a request about a job; it is answered, unless it must wait for the end."""
        job = self._jobs.get(request.job)
        if job is None:
            if request.verb == "requeue":
                self._revive(request.job)
        elif request.verb == "cancel":
            detail = "cancelled by its owner"
            self._terminations.end(job, Transition.CANCELLED, reason="", detail=detail)
        elif request.verb == "requeue":
            if job.record.state is State.COMPLETING:
                # Its workers still run; `over` answers the request when they are gone.
                job.requeues = (*job.requeues, request.seq)
                return
            self._requeue(job)
        elif request.verb in ("hold", "release"):
            held = request.verb == "hold"
            begin_s = _begin_s(job.record, job.spec)
            self._jobs.write(job, replace(job.record, held=held, not_before_s=begin_s))
            self.consider(job)
        self._log.answer(request.seq)

    def _requeue(self, job: LiveJob) -> None:
        if job.is_placed:
            # It goes on where it was, so it saves that first, if it can.
            how = SAVE if job.uses_train_protocol else END
            self._terminations.requeue(job, "requeued", job.spec.grace_s, how)
            self._jobs.write(job, replace(job.record, reason="", detail=""))
            self.consider(job)

    def over(self, job: LiveJob) -> None:
        """Forgets a job that is over for good, or begins it anew if that was requested."""
        self._dependencies.forget_blocking(job.number)
        # Dropped first: the jobs that depend on it are to see it as over.
        self._jobs.drop(job)
        if job.requeues:
            self._log.answer(*job.requeues)
            job.requeues = ()
            freed = list(self._limits.leave(job))
            self._begin_anew(job.spec, job.record)
            for other in freed:
                self.consider(other)
        else:
            self._dependencies.ended(job)
            for other in self._limits.leave(job):
                self.consider(other)
            self.consider_dependents(job.number)

    def _revive(self, number: int) -> None:
        """Begins a job anew that is over."""
        stored = self._dependencies.find(number)
        if stored is None or stored.record.state not in TERMINAL:
            return
        if stored.damage:
            LOG.error("job %d is not requeued: %s", number, stored.record.detail)
            return
        self._begin_anew(stored.spec, stored.record)

    def _begin_anew(self, spec: JobSpec, record: JobRecord) -> None:
        """Makes a job that is over wait again, as if submitted now, with nothing done."""
        self._dependencies.begins_anew(record.job)
        self.admit([StoredJob(spec, _afresh(record, self._tables.now))])
        # Jobs that could not use its end may wait for it again.
        for job in self._dependencies.dependents(record.job):
            if job.record.reason == NEVER_MET:
                self.consider(job)


def _not_before(job: StoredJob) -> StoredJob:
    """Returns a submitted job with the time at which it may start at the earliest."""
    begin_s = _begin_s(job.record, job.spec)
    return replace(job, record=replace(job.record, not_before_s=begin_s))


def _begin_s(record: JobRecord, spec: JobSpec) -> float:
    """Returns when a job may start at the earliest, as its owner wants it."""
    return record.submit_s + spec.begin_s if spec.begin_s else 0.0


def _afresh(record: JobRecord, now: float) -> JobRecord:
    """Returns the record of a job that begins anew; generations and worker numbers go on."""
    return JobRecord(
        record.job,
        submit_s=record.submit_s,
        again_s=now,
        restarts=record.restarts + (record.first_start_s < NEVER_S),
        generation=record.generation,
        next_worker=record.next_worker,
    )

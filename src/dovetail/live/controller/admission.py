"""Admits jobs to the queue: not held, past their begin time, dependencies met, array not full.

Also carries out the requests of users about jobs.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from dovetail.core.job import JobRequest
from dovetail.core.units import NEVER_S
from dovetail.live.controller.array_limits import ArrayLimits
from dovetail.live.controller.instant_log import InstantLog
from dovetail.live.controller.job_dependencies import DEPENDENCY, NEVER_MET, JobDependencies
from dovetail.live.controller.live_jobs import LiveJob, LiveJobs
from dovetail.live.controller.node_monitor import NodeMonitor
from dovetail.live.controller.recorded_tables import RecordedTables
from dovetail.live.controller.terminations import Terminations
from dovetail.live.controller.timers import Timer, Timers
from dovetail.live.edges.protocols import Request
from dovetail.live.jobs.job_request import job_request
from dovetail.live.jobs.lifecycle import PENDING, TERMINAL, State, Transition
from dovetail.live.jobs.record import JobRecord
from dovetail.live.jobs.status_snapshot import DISCONNECTED
from dovetail.live.jobs.stored_job import StoredJob
from dovetail.live.store.largest_size import room_for
from dovetail.live.workers.roster import END, SAVE
from dovetail.wire.spec import JobSpec

LOG = logging.getLogger(__name__)
HELD, BEGIN, ARRAY_FULL = "JobHeldUser", "BeginTime", "JobArrayTaskLimit"
"""Slurm's words for why a job is not in the queue."""


@dataclass(slots=True)
class Admission:
    """Puts jobs into the queue and takes them out again.

    It owns the places of limited arrays. If there is a `sharing_user`, only jobs of this user may
    share GPUs.
    """

    jobs: LiveJobs
    tables: RecordedTables
    log: InstantLog
    timers: Timers
    terminations: Terminations
    dependencies: JobDependencies
    monitor: NodeMonitor
    sharing_user: str | None
    _limits: ArrayLimits = field(default_factory=ArrayLimits, init=False)

    # Jobs.

    def accept(self, submitted: Sequence[StoredJob]) -> None:
        """Admits jobs that were submitted, but for those that are known already."""
        new = {job.number: job for job in submitted if job.number not in self.jobs.known}
        if new:
            self.admit([_not_before(job) for job in new.values()])

    def admit(self, stored: Sequence[StoredJob]) -> None:
        """Adds jobs to the tables, and puts the eligible ones into the queue."""
        for job in self.enter(stored):
            self.jobs.write(job, job.record)
            self.consider(job)

    def _bounded(self, spec: JobSpec, request: JobRequest) -> JobRequest:
        """Bounds `max_gpus` by the cluster: beliefs compute a speed for each number up to it.

        Not in the record of the job: nodes may join, and then it may have more.
        """
        most = max(spec.gpus, room_for(self.tables.state.view.cluster, spec))
        if request.max_gpus <= most:
            return request
        return replace(request, max_gpus=most, elastic=request.min_gpus < most)

    def enter(self, stored: Sequence[StoredJob]) -> list[LiveJob]:
        """Adds jobs to the tables, all at once; returns them. They are not in the queue yet."""
        table = self.tables.state.jobs
        last_s = float(table.submit_s[-1]) if len(table) else -NEVER_S
        requests = []
        for one in stored:
            # The tables are in order of submission, so a job that begins anew counts as late.
            last_s = max(last_s, one.record.queued_s)
            request = job_request(one.spec, one.number, one.record.submit_s)
            request = self._bounded(one.spec, replace(request, submit_s=last_s))
            # Jobs on one GPU could read each other's memory: users share only if the cluster may.
            if self.sharing_user not in (None, one.spec.user):
                request = replace(request, shareable=False)
            requests.append(request)
        entered = []
        for row, one in zip(self.tables.admit(requests), stored, strict=True):
            job = LiveJob(row, one.spec, one.record)
            self.jobs.add(job)
            self._limits.enter(job)
            entered.append(job)
            if one.spec.deadline_s < NEVER_S:
                due_s = one.record.submit_s + one.spec.deadline_s
                self.timers.set(Timer.DEADLINE, one.number, due_s)
            self.dependencies.add(job)
        return entered

    def consider(self, job: LiveJob) -> None:
        """Puts a pending job into the queue, or records what keeps it out."""
        record = job.record
        if record.state is not PENDING:
            return
        reason, detail = self._obstacle(job)
        if reason == NEVER_MET and job.spec.kill_on_invalid_dep:
            self.terminations.end(job, Transition.CANCELLED, reason=reason, detail=detail)
            return
        if reason:
            self.tables.withdraw(job.row)
        else:
            # Also for a task that an earlier controller put into the queue.
            self._limits.acquire(job)
            if job.row not in self.tables.state.waiting:
                self.terminations.avoided.heed(job)
                self.tables.arrive(job.row)
        if (record.reason, record.detail) != (reason, detail):
            self.jobs.write(job, replace(job.record, reason=reason, detail=detail))
        if reason:
            for other in self._limits.release(job):
                self.consider(other)

    def _obstacle(self, job: LiveJob) -> tuple[str, str]:
        """Returns why a job may not be in the queue, as reason and detail; empty if it may."""
        record = job.record
        if record.held:
            return HELD, "its owner holds it"
        if record.not_before_s > self.tables.now:
            self.timers.set(Timer.BEGIN, record.job, record.not_before_s)
            return BEGIN, record.detail
        awaited = self.monitor.awaited(record.nodes)
        if awaited:
            names = self.terminations.gangs.hosts
            called = ", ".join(names.given_name(n) or str(n) for n in awaited)
            where = f"node{'s' if len(awaited) > 1 else ''} {called}"
            return DISCONNECTED, f"it may still run on {where}, which cannot be reached"
        blocking = self.dependencies.blocking(job)
        if blocking is not None:
            name = self.dependencies.name(blocking)
            if self.dependencies.is_met(blocking) is None:
                return NEVER_MET, f"{name} cannot happen any more"
            return DEPENDENCY, f"it waits for {name}"
        if self._limits.is_full(job):
            most = job.spec.at_once
            tasks = "task" if most == 1 else "tasks"
            return ARRAY_FULL, f"at most {most} {tasks} of its array may wait for GPUs or have them"
        return "", ""

    def consider_dependents(self, number: int) -> None:
        """Considers the jobs that depend on one that started or ended."""
        for job in self.dependencies.concerned_by(number):
            self.consider(job)

    # Requests.

    def carry_out(self, request: Request) -> None:
        """Carries out a request about a job; it is answered, unless it must wait for the end."""
        job = self.jobs.get(request.job)
        if job is None:
            if request.verb == "requeue":
                self._revive(request.job)
        elif request.verb == "cancel":
            detail = request.argument or "cancelled by its owner"
            self.terminations.end(job, Transition.CANCELLED, reason="", detail=detail)
        elif request.verb == "requeue":
            if job.record.state is State.COMPLETING:
                # Its workers still run: `over` begins it anew when they are gone, and answers.
                job.requeues = (*job.requeues, request.seq)
                return
            self.requeue(job, "requeued")
        elif request.verb in ("hold", "release"):
            held = request.verb == "hold"
            begin_s = _begin_s(job.record, job.spec)
            self.jobs.write(job, replace(job.record, held=held, not_before_s=begin_s))
            self.consider(job)
        self.log.answer(request.seq)

    def requeue(self, job: LiveJob, why: str) -> None:
        """Takes a job off its GPUs, if it has any; it waits again."""
        if job.is_placed:
            # It will resume where it was, so it saves its state first, if it can.
            how = SAVE if job.uses_train_protocol else END
            self.terminations.requeue(job, why, job.spec.grace_s, how)
            self.jobs.write(job, replace(job.record, reason="", detail=""))
            self.consider(job)

    def over(self, job: LiveJob) -> None:
        """Forgets a job that is over for good, or begins it anew if that was requested."""
        self.dependencies.forget_blocking(job.number)
        # Dropped first: the jobs that depend on it must see it as over.
        self.jobs.drop(job)
        if job.requeues:
            self.log.answer(*job.requeues)
            job.requeues = ()
            # Its place in the array is free for others, but only after it has queued again itself.
            others = list(self._limits.leave(job))
            self._begin_anew(job.spec, job.record)
            for other in others:
                self.consider(other)
        else:
            self.dependencies.ended(job)
            for other in self._limits.leave(job):
                self.consider(other)
            self.consider_dependents(job.number)

    def _revive(self, number: int) -> None:
        """Begins a job anew that was over already when its owner requeued it."""
        stored = self.dependencies.find(number)
        if stored is None or stored.record.state not in TERMINAL:
            return
        if stored.damage:
            LOG.error("job %d is not requeued: %s", number, stored.record.detail)
            return
        self._begin_anew(stored.spec, stored.record)

    def _begin_anew(self, spec: JobSpec, record: JobRecord) -> None:
        """Makes a job that is over wait again, as if submitted now, with nothing done."""
        self.dependencies.begins_anew(record.job)
        self.admit([StoredJob(spec, _afresh(record, self.tables.now))])
        # Jobs that could not use its end may wait for it again.
        for job in self.dependencies.dependents(record.job):
            if job.record.reason == NEVER_MET:
                self.consider(job)


def _not_before(job: StoredJob) -> StoredJob:
    """Returns a submitted job with the time at which it may start at the earliest."""
    begin_s = _begin_s(job.record, job.spec)
    return replace(job, record=replace(job.record, not_before_s=begin_s))


def _begin_s(record: JobRecord, spec: JobSpec) -> float:
    """Returns the earliest start that the owner of a job wants; 0 for none."""
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
        nodes=record.nodes,
        lineage=record.lineage,
        stranded=record.stranded,
    )

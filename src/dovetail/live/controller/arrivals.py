"""Which jobs may wait in the queue: those not held, whose dependencies are met, past their pause.

Also carries users' requests about jobs out.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from dovetail.core.messages import Submitted
from dovetail.core.units import NEVER_S
from dovetail.live.controller.array_limits import ArrayLimits
from dovetail.live.controller.live_jobs import Life
from dovetail.live.controller.site import Site, list_of
from dovetail.live.controller.terminations import Endings
from dovetail.live.edges.protocols import Accepted, Request
from dovetail.live.jobs.job_row import job_of
from dovetail.live.jobs.lifecycle import PENDING, TERMINAL, State, Step
from dovetail.live.jobs.record import JobRecord
from dovetail.live.store.stored_job import DamagedRecord
from dovetail.live.workers.roster import END, SAVE
from dovetail.wire.spec import Dependency, JobSpec

LOG = logging.getLogger(__name__)
HELD, DEPENDENCY, NEVER_MET, BEGIN, ARRAY_FULL = (
    "JobHeldUser",
    "Dependency",
    "DependencyNeverSatisfied",
    "BeginTime",
    "JobArrayTaskLimit",
)
"""Slurm's words for why a job does not even wait in the queue."""


class Arrivals:
    """Lets jobs into the queue and takes them out again."""

    def __init__(
        self, site: Site, endings: Endings, *, owner: str, share_between_users: bool
    ) -> None:
        self._site = site
        self._endings = endings
        self._owner = owner
        self._share_between_users = share_between_users
        self._limits = ArrayLimits()
        # Who depends on each job, and in which ways.
        self._dependents: dict[int, dict[int, tuple[Dependency, ...]]] = {}
        # The archive hears of an end only when this instant is kept; dependents ask at once.
        self._over: dict[int, tuple[JobSpec, JobRecord]] = {}
        # Who waits for an array asks of all its tasks at every end: what stays so is kept.
        self._ends: dict[int, State] = {}
        # Which of its dependencies keeps a job out: all before that are met.
        self._blocked: dict[int, int] = {}

    # Jobs.

    def accept(self, accepted: Sequence[Accepted]) -> None:
        """Admits jobs that are on record, but for those that are known already."""
        known = self._site.lives.known
        new = {a.job: a for a in accepted if a.job not in known}
        if not new:
            return
        self.admit(
            [
                (a.spec, replace(record, not_before_s=_begin_s(record, a.spec)))
                for a in new.values()
                for record in (JobRecord(a.job, submit_s=a.submit_s, held=a.spec.hold),)
            ]
        )

    def admit(self, jobs: Sequence[tuple[JobSpec, JobRecord]]) -> None:
        """Makes jobs known to the tables, and lets them wait if they may."""
        for life in self.enter(jobs):
            self._site.lives.write(life)
            self.consider(life)

    def enter(self, jobs: Sequence[tuple[JobSpec, JobRecord]]) -> list[Life]:
        """Makes jobs known to the tables, all at once; returns them. They do not wait yet."""
        site = self._site
        table = site.state.jobs
        last_s = float(table.submit_s[-1]) if len(table) else -NEVER_S
        rows = []
        for spec, record in jobs:
            last_s = max(last_s, record.queued_s)
            row = replace(job_of(spec, record.job, record.submit_s), submit_s=last_s)
            if spec.user != self._owner and not self._share_between_users:
                row = replace(row, shareable=False)
            rows.append(row)
        made = []
        for index, (spec, record) in zip(site.state.admit(rows), jobs, strict=True):
            life = Life(index, spec, record)
            site.lives.add(life)
            self._limits.enter(life)
            made.append(life)
            if spec.deadline_s < NEVER_S:
                due = record.submit_s + spec.deadline_s
                site.timers.set(("deadline", record.job), due)
            self._depend(record.job, spec.after)
        return made

    def _depend(self, number: int, after: Sequence[Dependency]) -> None:
        needs: dict[int, tuple[Dependency, ...]] = {}
        for need in after:
            needs[need.job] = (*needs.get(need.job, ()), need)
        for job, those in needs.items():
            self._dependents.setdefault(job, {})[number] = those

    def consider(self, life: Life) -> None:
        """Lets a pending job wait in the queue, or says what keeps it out."""
        site, record = self._site, life.record
        if record.state is not PENDING:
            return
        reason, detail = self._obstacle(life)
        if reason == NEVER_MET and life.spec.kill_on_invalid_dep:
            self._endings.end(life, Step.CANCELLED, reason=reason, detail=detail)
            return
        if reason:
            site.withdraw(life)
        else:
            # Also of a task that an earlier controller let into the queue.
            self._limits.take(life)
        if not reason and life.row not in site.state.waiting:
            site.state.arrive(life.row)
            site.facts.append(Submitted(site.now, life.row, site.state.length[life.row]))
            list_of(site.changes.arrived).append(life.row)
        if (record.reason, record.detail) != (reason, detail):
            site.lives.write(life, reason=reason, detail=detail)
        if reason:
            for other in self._limits.give(life):
                self.consider(other)

    def _obstacle(self, life: Life) -> tuple[str, str]:
        record = life.record
        if record.held:
            return HELD, "its owner holds it"
        if record.not_before_s > self._site.now:
            self._site.timers.set(("begin", record.job), record.not_before_s)
            return BEGIN, record.detail
        at = self._blocking(life)
        if at >= 0:
            need = life.spec.after[at]
            if self._is_met(need) is None:
                return NEVER_MET, f"{self._named(need)} cannot happen any more"
            return DEPENDENCY, f"it waits for {self._named(need)}"
        if self._limits.is_full(life):
            most = life.spec.at_once
            tasks = "task" if most == 1 else "tasks"
            return ARRAY_FULL, f"at most {most} {tasks} of its array may wait for GPUs or have them"
        return "", ""

    def _blocking(self, life: Life) -> int:
        """Returns which dependency keeps a job out, -1 if none: one that never can be met first."""
        number, after = life.record.job, life.spec.after
        at = self._blocked.pop(number, -1)
        if at < 0:
            at = next((i for i, need in enumerate(after) if self._is_met(need) is None), 0)
        while at < len(after) and self._is_met(after[at]):
            at += 1
        if at == len(after):
            return -1
        self._blocked[number] = at
        return at

    def _is_met(self, dependency: Dependency) -> bool | None:
        """Tells whether a dependency is met; None if it never will be."""
        state, started = self._course(dependency.job)
        if state is None:
            return None
        over = state in TERMINAL
        if dependency.kind == "after":
            return over or started
        if not over or dependency.kind == "afterany":
            return over
        well = state is State.COMPLETED
        return True if well == (dependency.kind == "afterok") else None

    def _course(self, job: int) -> tuple[State | None, bool]:
        """Returns the state of a job, None if there is none, and whether it ever started."""
        if job in self._ends:
            return self._ends[job], True
        life = self._site.lives.get(job)
        found = self._find(job) if life is None else (life.spec, life.record)
        if found is None:
            return None, False
        record = found[1]
        if life is None and record.state in TERMINAL:
            self._ends[job] = record.state
        return record.state, record.first_start_s < NEVER_S or record.state is not PENDING

    def _named(self, dependency: Dependency) -> str:
        """Returns a dependency as users write it, a task by the name that lists give it."""
        job = dependency.job
        life = self._site.lives.get(job)
        found = self._find(job) if life is None else (life.spec, life.record)
        return f"{dependency.kind}:{job if found is None else found[0].called(job)}"

    def look_after(self, job: int) -> None:
        """Looks at the jobs that depend on one that started or ended."""
        for number, needs in sorted(self._dependents.get(job, {}).items()):
            life = self._site.lives.get(number)
            if life is None:
                del self._dependents[job][number]
            elif self._concerns(life, job, needs):
                self.consider(life)

    def _concerns(self, life: Life, job: int, needs: Sequence[Dependency]) -> bool:
        """Tells whether a job may wait for something else now that another started or ended."""
        number, reason = life.record.job, life.record.reason
        at = self._blocked.get(number, -1)
        elsewhere = at >= 0 and life.spec.after[at].job != job
        if elsewhere and reason == NEVER_MET:
            return False
        if any(self._is_met(need) is None for need in needs):
            self._blocked.pop(number, None)
            return True
        return not (elsewhere and reason == DEPENDENCY)

    # Requests.

    def carry_out(self, request: Request) -> None:
        """Carries a request about a job out; it is done, unless it must wait for the end."""
        site = self._site
        life = site.lives.get(request.job)
        if life is None:
            if request.verb == "requeue":
                self._revive(request.job)
        elif request.verb == "cancel":
            self._endings.end(life, Step.CANCELLED, reason="", detail="cancelled by its owner")
        elif request.verb == "requeue":
            if life.record.state is State.COMPLETING:
                life.again = (*life.again, request.seq)
                return
            self._requeue(life)
        elif request.verb in ("hold", "release"):
            held = request.verb == "hold"
            begin_s = _begin_s(life.record, life.spec)
            site.lives.write(life, held=held, not_before_s=begin_s)
            self.consider(life)
        site.done.append(request.seq)

    def _requeue(self, life: Life) -> None:
        if life.is_placed:
            # It goes on where it was, so it saves that first, if it can.
            how = SAVE if life.uses_train_protocol else END
            self._endings.requeue(life, "requeued", life.spec.grace_s, how)
            self._site.lives.write(life, reason="", detail="", held=life.record.held)
            self.consider(life)

    def over(self, life: Life) -> None:
        """Hears that a job is over for good."""
        site, job = self._site, life.record.job
        self._blocked.pop(job, None)
        if life.again:
            site.done.extend(life.again)
            life.again = ()
            site.lives.drop(life)
            freed = list(self._limits.leave(life))
            self._begin_anew(life.spec, life.record)
            for other in freed:
                self.consider(other)
        else:
            self._over[job] = (life.spec, life.record)
            site.lives.drop(life)
            for other in self._limits.leave(life):
                self.consider(other)
            self.look_after(job)

    def kept(self) -> None:
        """Hears that this instant is on record; the archive knows who is over now."""
        self._over.clear()

    def _find(self, job: int) -> tuple[JobSpec, JobRecord] | None:
        """Returns a job that is over, though it may be so since this instant only."""
        return self._over.get(job) or self._site.edges.archive.find(job)

    def _revive(self, job: int) -> None:
        found = self._find(job)
        if found is None or found[1].state not in TERMINAL:
            return
        if isinstance(found[1], DamagedRecord):
            LOG.error("job %d is not requeued: %s", job, found[1].detail)
            return
        self._over.pop(job, None)
        self._begin_anew(*found)

    def _begin_anew(self, spec: JobSpec, record: JobRecord) -> None:
        """Lets a job that is over wait again, as if submitted now, with nothing done."""
        self._ends.pop(record.job, None)
        for number in self._dependents.get(record.job, ()):
            self._blocked.pop(number, None)
        self.admit([(spec, _afresh(record, self._site.now))])
        self._hope(record.job)

    def _hope(self, job: int) -> None:
        """Lets jobs wait again for one that begins anew, whose end they could not use."""
        for number in sorted(self._dependents.get(job, ())):
            life = self._site.lives.get(number)
            if life is not None and life.record.reason == NEVER_MET:
                self.consider(life)


def _begin_s(record: JobRecord, spec: JobSpec) -> float:
    """Returns when a job may start by its owner's word."""
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

"""Jobs that hold GPUs, or CPU slots, and do not use them; reclaimed if the operator says so.

A job is idle while all of its workers are, by the reports of their agents. With
`Rules.reclaim_idle_s` it is warned after three quarters of that time, in its output and the event
log. At the end of it a job that trains saves and waits again; any other is over.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dovetail.core.messages import Warned
from dovetail.core.units import NEVER_S
from dovetail.live.controller.instant_log import InstantLog
from dovetail.live.controller.live_jobs import LiveJob, LiveJobs
from dovetail.live.controller.outbox import Outbox
from dovetail.live.controller.recorded_tables import RecordedTables
from dovetail.live.controller.terminations import Terminations
from dovetail.live.jobs.lifecycle import State, Transition
from dovetail.live.workers.roster import SAVE
from dovetail.live.workers.rules import Rules
from dovetail.wire.agent import IdleReport, WarnWorker

WARNED_AT = 0.75
"""The part of the time after which a job is warned."""
IDLE = "idle"
"""Why a job was stopped that did not use its GPUs, in the event log."""


@dataclass(frozen=True, slots=True)
class JobUsage:
    """Keeps how long jobs have been idle, warns their owners, and takes their GPUs back."""

    jobs: LiveJobs
    tables: RecordedTables
    log: InstantLog
    outbox: Outbox
    terminations: Terminations
    rules: Rules

    def take(self, node: int, report: IdleReport) -> None:
        """Takes in all workers of a node that are idle."""
        since = {(w.job, w.worker): self.tables.now - w.idle_s for w in report.workers}
        for job in list(self.jobs):
            workers = {m.worker: m.node for m in job.record.members}
            if node not in workers.values():
                continue
            kept = {w: at_s for w, at_s in job.idle_since.items() if workers.get(w, node) != node}
            mine = [w for w, place in workers.items() if place == node]
            here = {w: since[job.number, w] for w in mine if (job.number, w) in since}
            job.idle_since = kept | here
            self._judge(job, len(workers))

    def _judge(self, job: LiveJob, workers: int) -> None:
        if job.record.state is not State.RUNNING or len(job.idle_since) < workers:
            job.idle_s = NEVER_S
            job.is_warned = False
            return
        # The last of its workers to fall idle made the job so.
        job.idle_s = max(job.idle_since.values())
        limit_s, idle_s = self.rules.reclaim_idle_s, self.tables.now - job.idle_s
        if limit_s and idle_s >= limit_s and job.is_warned:
            self._reclaim(job, f"it did not use its GPUs for {limit_s / 60:.3g} min")
        elif limit_s and idle_s >= WARNED_AT * limit_s and not job.is_warned:
            self._warn(job, max(0.0, limit_s - idle_s))

    def _warn(self, job: LiveJob, left_s: float) -> None:
        job.is_warned = True
        what = "it saves and waits again" if job.uses_train_protocol else "it is ended"
        text = f"this job does not use its GPUs; if that lasts for {left_s:.0f} s more, {what}"
        self.log.fact(Warned(self.tables.now, job.row, text))
        first = job.record.members[0]
        self.outbox.add((first.node, WarnWorker(job.number, first.worker, text)))

    def _reclaim(self, job: LiveJob, detail: str) -> None:
        job.idle_since, job.idle_s, job.is_warned = {}, NEVER_S, False
        if job.uses_train_protocol and job.spec.requeue:
            self.terminations.requeue(job, IDLE, job.spec.grace_s, SAVE)
            self.jobs.write(job, replace(job.record, detail=detail))
        else:
            reason = "IdleLimit"
            self.terminations.end(job, Transition.CANCELLED, reason=reason, detail=detail)

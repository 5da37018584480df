"""How jobs stop and end: by themselves, by their owner, by a limit, or by a failure.

The tables free a job's GPUs at once; its record is COMPLETING until its last worker is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from dovetail.core.trace import CANCELLED, COMPLETED, ENDS, FAILED, TIMEOUT
from dovetail.live.controller.avoided_nodes import NodeFilter
from dovetail.live.controller.gang_members import GangMembers
from dovetail.live.controller.gpu_map import GpuMap
from dovetail.live.controller.live_gangs import LiveGangs
from dovetail.live.controller.live_jobs import LiveJob, LiveJobs
from dovetail.live.controller.recorded_tables import RecordedTables
from dovetail.live.controller.timers import Timer, Timers
from dovetail.live.jobs.lifecycle import ALIVE, ENDINGS, State, Transition
from dovetail.live.measuring.meter import ReportMeter
from dovetail.live.workers.roster import END, SAVE, WAIT
from dovetail.live.workers.rules import Rules

LOGGED_END = {
    Transition.FINISHED: ENDS[COMPLETED],
    Transition.CANCELLED: ENDS[CANCELLED],
    Transition.TIMED_OUT: ENDS[TIMEOUT],
    Transition.DEADLINE: ENDS[TIMEOUT],
}
"""The word of the log and the forecast for an ending; all others failed."""
END_UNLESS_RETRIED = {"NodeFail": Transition.NODE_FAILED, "OutOfMemory": Transition.OUT_OF_MEMORY}
"""The ending of a job that is not retried, by the reason; all others failed."""
NEARLY = 0.9
"""A job that completes with less than this part of its stated work done has stopped early."""
NO_JOB = "NoTrainJob"
"""Why a job that completed did not use the GPUs it had."""


@dataclass(slots=True)
class Terminations:
    """Ends, stops and retries jobs. It owns `over`: the jobs that have just ended for good."""

    jobs: LiveJobs
    gangs: LiveGangs
    tables: RecordedTables
    gpus: GpuMap
    members: GangMembers
    timers: Timers
    meter: ReportMeter
    rules: Rules
    avoided: NodeFilter
    over: list[LiveJob] = field(default_factory=list)

    # Ends.

    def end(
        self,
        job: LiveJob,
        transition: Transition,
        *,
        reason: str = "",
        detail: str = "",
        code: int | None = None,
    ) -> None:
        """Ends a job in any state; a job that is ending already keeps its first ending."""
        if job.record.state not in ALIVE:
            return
        row, now = job.row, self.tables.now
        neighbours = self.gpus.neighbours(row)
        if transition is Transition.FINISHED:
            self._complete_progress(job)
            reason, detail = _unused_gpus(job)
        # The tables free its GPUs at once, so that the policy can plan with them. No worker of
        # another job starts there before the agents report that the old ones are gone.
        self.tables.end(row, LOGGED_END.get(transition, ENDS[FAILED]))
        self.meter.ended(row)
        ended = replace(
            job.record,
            ending=ENDINGS[transition],
            reason=reason,
            detail=detail,
            exit_code=code,
            placement=None,
            end_s=now,
        )
        self.jobs.move(job, transition, ended)
        self.members.release(job)
        # After the end, so that the speed of its neighbours is that without it.
        self.members.update_sharers(other for other, _ in neighbours)
        if job.gang is not None:
            # Processes of a finished job end by themselves; they get the grace period for it.
            how = WAIT if transition is Transition.FINISHED else END
            job.gang.roster.vacate(now, job.spec.grace_s, how)
            self.gangs.touch(job)
        # Before all inventories are known, a gang may have workers that it does not know of.
        if job.gang is None or (self.gangs.settled and not job.gang.roster.workers):
            self._conclude(job)

    def _complete_progress(self, job: LiveJob) -> None:
        """Sets the progress of a finished job to its length: its last report came before its end.

        A job that stopped well before its length keeps its measured progress: its owner stated too
        much.
        """
        row, paced = job.row, job.spec.paced
        work_s = job.spec.duration_s if paced else self.meter.length_s(row)
        done_s = self.tables.done_s(row)
        if not work_s or done_s == work_s or (done_s < NEARLY * work_s and not paced):
            return
        if self.tables.placement(row) is None or job.starting:
            self.tables.correct_done(row, work_s)
        else:
            self.tables.measure(row, work_s, self.tables.state.rate[row])

    def vacated(self, job: LiveJob) -> None:
        """Ends a COMPLETING job for good: its last worker is gone."""
        if job.record.state is State.COMPLETING:
            self._conclude(job)

    def _conclude(self, job: LiveJob) -> None:
        over = replace(job.record, end_s=self.tables.now)
        self.jobs.move(job, Transition.VACATED, over)
        for timer in (Timer.DEADLINE, Timer.BEGIN, Timer.GANG):
            self.timers.drop(timer, job.number)
        self.over.append(job)

    # Stops.

    def stop(self, job: LiveJob, why: str, *, saves: bool = False) -> None:
        """Takes a job off its GPUs against the policy's will; it waits again.

        It goes on from what it saved last, or from where it is if it `saves` now. A synthetic job
        loses nothing, and one with checkpoints of its own little that anybody knows.
        """
        saved_s: float | None = None
        if not (saves or job.spec.paced or job.spec.restarts):
            # Whether a plain program saved anything is unknown to the controller: it counts from 0.
            saved_s = job.record.saved_s if job.uses_train_protocol else 0.0
        self.tables.evict(job.row, why, saved_s)
        self.jobs.move(job, Transition.STOPPED, replace(job.record, placement=None))
        self.members.release(job)

    def requeue(self, job: LiveJob, why: str, grace_s: float, how: str = END) -> None:
        """Stops a placed job and ends its workers; it waits again."""
        # Looked up first: a stopped job has no placement.
        neighbours = self.gpus.neighbours(job.row)
        self.stop(job, why, saves=job.uses_train_protocol and how == SAVE)
        self.gangs.of(job).roster.vacate(self.tables.now, grace_s, how)
        self.gangs.touch(job)
        self.members.update_sharers(other for other, _ in neighbours)

    def retry(
        self,
        job: LiveJob,
        reason: str,
        detail: str,
        *,
        code: int | None = None,
        is_counted: bool = False,
        failed_by: Iterable[int] = (),
        waited: bool = False,
    ) -> None:
        """Makes a stopped job wait for the backoff, or ends it if its retries are used up.

        `failed_by` are the nodes whose fault it was: the next try is elsewhere, if it can be.

        `is_counted` is True if the failure belongs to one that has used up a retry already, and
        `waited` if the job waited since then, so that no backoff is due.
        """
        record, spec = job.record, job.spec
        if not spec.requeue or (record.retries >= spec.retries and not is_counted):
            transition = END_UNLESS_RETRIED.get(reason, Transition.FAILED)
            if record.retries:
                detail = f"{detail}; it was tried {record.retries + 1} times"
            self.end(job, transition, reason=reason, detail=detail, code=code)
            return
        retries = record.retries + (not is_counted)
        begin_s = self.tables.now + (0.0 if waited else self.rules.backoff(retries))
        retried = replace(
            record, retries=retries, not_before_s=begin_s, reason="BeginTime", detail=detail
        )
        self.jobs.write(job, retried)
        self.avoided.blame(job, failed_by)
        # Out of the queue, so that no policy starts it before the pause is over.
        self.tables.withdraw(job.row)
        self.timers.set(Timer.BEGIN, job.number, begin_s)

    def lost(self, job: LiveJob, absent: Sequence[int]) -> None:
        """Starts a job anew whose workers a new controller cannot all find."""
        numbers = ", ".join(map(str, absent))
        workers = f"worker {numbers} was" if len(absent) == 1 else f"workers {numbers} were"
        self.requeue(job, "failed", job.spec.grace_s)
        self.retry(job, "JobLaunchFailure", f"{workers} not there when the controller came back")

    def stalled(self, job: LiveJob, silent_s: float) -> None:
        """Starts a job anew that has reported nothing for too long."""
        if job.is_placed:
            # It does not respond, so it gets no time to save.
            self.requeue(job, "failed", 0.0)
            self.retry(job, "JobLaunchFailure", f"it reported nothing for {silent_s:.0f} s")


def _unused_gpus(job: LiveJob) -> tuple[str, str]:
    """Returns reason and detail of a job that had GPUs which its program could not use."""
    spec, gang = job.spec, job.gang
    spoke = job.record.spoke or (gang is not None and gang.roster.first.heard)
    if spoke or not (spec.trains and spec.max_gpus > 1):
        return "", ""
    if spec.elastic:
        gpus, ran = f"{spec.min_gpus}..{spec.max_gpus}", "it ran on 1"
    else:
        gpus, ran = str(spec.gpus), "its program ran whole on each of them"
    return NO_JOB, f"it asked for {gpus} GPUs but never made a dovetail.train.Job; {ran}"

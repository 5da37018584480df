"""What follows when workers of a job die: the rest trains on, the job is retried, or it ends.

A worker is dead when its agent reports its exit, or when its gang has given it up
(`live/workers/failure_detector.py`, `live/workers/inventory_check.py`).
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

from dovetail.live.controller.gpu_map import GpuMap
from dovetail.live.controller.live_gangs import LiveGangs
from dovetail.live.controller.live_jobs import LiveJob, LiveJobs
from dovetail.live.controller.recorded_tables import RecordedTables
from dovetail.live.controller.terminations import END_UNLESS_RETRIED, Terminations
from dovetail.live.controller.timers import Timer, Timers
from dovetail.live.jobs.lifecycle import Transition
from dovetail.live.jobs.record import GangMember
from dovetail.live.measuring.meter import ReportMeter
from dovetail.live.node.launcher import BY_NODE, NEVER_RUNS
from dovetail.live.workers.rules import Rules
from dovetail.wire.agent import WorkerEnded

OUTSIDE = (-9, -15)
"""Signals that a program does not send itself: a job that they ended is retried."""
STATE_LOST = 4
"""Exit code of a program of `dovetail.train` whose state is lost; a new start helps."""
NO_MEMORY = 5
"""Exit code of such a program that found no memory on its GPU."""
SIGNALLED = "RaisedSignal"
"""Slurm's word for a program that a signal ended."""
MEMORY = "memory"
"""Part of the reason of an agent that killed a worker over its memory."""
CROWDED = "out of memory beside another"
"""Why a job was stopped whose neighbours left it too little memory."""


@dataclass(frozen=True, slots=True)
class WorkerLoss:
    """Decides by the cause of a death whether the job goes on, waits for a retry, or ends."""

    jobs: LiveJobs
    gangs: LiveGangs
    tables: RecordedTables
    gpus: GpuMap
    timers: Timers
    terminations: Terminations
    meter: ReportMeter
    rules: Rules

    def handle(self, job: LiveJob, deaths: Sequence[WorkerEnded]) -> None:
        """Decides what follows from the deaths of one instant."""
        # A lack of memory explains the others: their collectives failed because of it.
        death = next((d for d in deaths if _lacked_memory(job, d)), deaths[0])
        if _lacked_memory(job, death) and self._separate(job, death):
            return
        # One fault of NCCL or of a node ends workers one after the other: it is one failure.
        is_counted = bool(job.replacements)
        # A node that fails its prolog takes no worker of the job: what is left goes elsewhere.
        by_node = death.why.startswith(BY_NODE)
        survivors = [] if by_node else self._survivors(job, deaths)
        may_retry = is_counted or job.record.retries < job.spec.retries
        if survivors and job.uses_train_protocol and may_retry:
            self._continue_with(job, survivors, _how_it_ended(death))
        elif death.why and death.exit_code in NEVER_RUNS:
            # The same command would fail in the same way on every retry.
            self.terminations.end(
                job,
                Transition.FAILED,
                reason="JobLaunchFailure",
                detail=f"it could not be executed{self._where(job, death)}: {death.why}",
                code=death.exit_code,
            )
        else:
            nodes = {m.node for m in job.record.members if m.worker == death.worker}
            # A node that fails its prolog is drained, and the job is no worse for it.
            self._retry_or_end(job, death, nodes, is_counted=is_counted or by_node)

    def _where(self, job: LiveJob, death: WorkerEnded) -> str:
        """Returns on which node a worker was to run, if nodes have names."""
        node = next((m.node for m in job.record.members if m.worker == death.worker), -1)
        name = self.gangs.hosts.given_name(node)
        return f" on {name}" if name else ""

    def _survivors(self, job: LiveJob, deaths: Sequence[WorkerEnded]) -> list[int]:
        """Returns the workers of a job that are not dead; none if none of them has started."""
        gone = {*(d.worker for d in deaths), *job.replacements}
        survivors = [m.worker for m in job.record.members if m.worker not in gone]
        workers = self.gangs.of(job).roster.workers
        return survivors if any(number in workers for number in survivors) else []

    def _retry_or_end(
        self, job: LiveJob, death: WorkerEnded, nodes: Set[int], *, is_counted: bool
    ) -> None:
        """Retries a job whose failure was not its own, or that goes on from a new checkpoint."""
        code, record = death.exit_code, job.record
        no_memory = _lacked_memory(job, death)
        state_lost = job.spec.trains and code == STATE_LOST
        # A bound counts as well: the jobs it was set for may be leaving in this very instant.
        crowded = no_memory and bool(
            self.gpus.neighbours(job.row) or self.gangs.of(job).roster.bound
        )
        # An agent gives a reason only for what was done to the program from outside.
        from_outside = bool(death.why) or state_lost or code in OUTSIDE
        reason = _reason(death, no_memory=no_memory, state_lost=state_lost)
        detail = _how_it_ended(death)
        # With a newer checkpoint a retry repeats nothing, so even a bug makes progress.
        resumes = job.spec.trains and record.has_newer_checkpoint
        if resumes:
            detail = f"{detail}, after the checkpoint of step {record.saved_step}"
        if resumes or crowded or (from_outside and not no_memory):
            self.terminations.requeue(job, "failed", job.spec.grace_s)
            # What an agent gives a reason for, memory apart, is the fault of its node.
            failed_by = nodes if death.why and not no_memory else ()
            self.terminations.retry(
                job, reason, detail, code=code, is_counted=is_counted, failed_by=failed_by
            )
        else:
            transition = END_UNLESS_RETRIED.get(reason, Transition.FAILED)
            self.terminations.end(job, transition, reason=reason, detail=detail, code=code)

    def _separate(self, job: LiveJob, death: WorkerEnded) -> bool:
        """Separates a job from neighbours that left it too little memory; False if none did.

        The job waits again by no fault of its own, so no retry counts. The belief learns that the
        jobs do not fit together with these batches, so the policy does not pair them again.
        """
        placement = self.tables.placement(job.row)
        member = next((m for m in job.record.members if m.worker == death.worker), None)
        if placement is None or member is None or not job.spec.requeue:
            return False
        # A worker alone on its GPU is bound as well: by the GPUs that its job shares.
        neighbours = self.gpus.neighbours_on(job.row, member)
        learner, memory_bytes = self.meter.learner, self.gpus.memory_bytes(member.node)
        if not neighbours or not learner.ran_out(job.row, placement, neighbours, memory_bytes):
            return False
        self.tables.learn(learner)
        names = ", ".join(self.jobs.of_row(row).name for row, _ in neighbours)
        steps = placement.accumulation_steps
        split = f", its batch cut into {steps} steps" if steps > 1 else ""
        # Not `retry`, which adds a pause: the policy may start it elsewhere in this instant.
        self.terminations.requeue(job, CROWDED, job.spec.grace_s)
        detail = f"{CROWDED}: job {names}{split} ({_how_it_ended(death)})"
        self.jobs.write(job, replace(job.record, detail=detail))
        return True

    def _continue_with(self, job: LiveJob, numbers: Sequence[int], detail: str) -> None:
        """Trains on with the survivors; replacements of the lost workers start after a pause."""
        record, gang, now = job.record, self.gangs.of(job), self.tables.now
        wanted = gang.roster.wanted
        assert wanted is not None
        survivors = tuple(m for m in wanted.members if m.worker in numbers)
        # Uneven parts of the batch were computed for all workers.
        gang.want(replace(wanted, members=survivors, shares=(), samples=()), now)
        retries = record.retries + (not job.replacements)
        members, number = [], record.next_worker
        for member in record.members:
            if member.worker not in numbers:
                # An agent that knows the old number refuses to start it again.
                member, number = GangMember(number, member.node, member.gpu), number + 1
            members.append(member)
        job.replacements = tuple(m.worker for m in members if m.worker not in numbers)
        self.gpus.assignment.occupy(record.job, members)
        retried = replace(
            record, retries=retries, detail=detail, members=tuple(members), next_worker=number
        )
        self.jobs.write(job, retried)
        pause_s = self.rules.backoff(retries)
        self.timers.set(Timer.REPLACEMENTS, record.job, now + pause_s)
        self.gangs.touch(job)


def _lacked_memory(job: LiveJob, death: WorkerEnded) -> bool:
    """Returns whether a worker found no memory, on its GPU or within the bound of its slot."""
    return MEMORY in death.why or (job.spec.trains and death.exit_code == NO_MEMORY)


def _reason(death: WorkerEnded, *, no_memory: bool, state_lost: bool) -> str:
    """Returns Slurm's word for how a worker ended."""
    if no_memory:
        return "OutOfMemory"
    if death.why or state_lost:
        return "JobLaunchFailure"
    return SIGNALLED if death.exit_code < 0 else "NonZeroExitCode"


def _how_it_ended(death: WorkerEnded) -> str:
    how = f"signal {-death.exit_code}" if death.exit_code < 0 else f"exit code {death.exit_code}"
    why = f": {death.why}" if death.why else ""
    return f"worker {death.worker} ended with {how}{why}"

"""Which workers a placed job is to have: their numbers, their GPUs and how they train.

A worker number is never used twice in a job. An agent refuses to start one a second time, so an
order that comes late can never start what has ended.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from dovetail.core.placement import Placement
from dovetail.core.units import NEVER_S
from dovetail.live.controller.gpu_map import GpuMap
from dovetail.live.controller.live_gangs import LiveGangs
from dovetail.live.controller.live_jobs import LiveJob, LiveJobs
from dovetail.live.controller.recorded_tables import RecordedTables
from dovetail.live.controller.timers import Alarm, Timers
from dovetail.live.jobs.lifecycle import State, Transition
from dovetail.live.jobs.record import GangMember
from dovetail.live.workers.gpu_assignment import Gpu
from dovetail.live.workers.worker_state import Desired


class GangMembers:
    """Assigns GPUs to numbered workers, in the records of jobs, and tells their gangs."""

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

    def assign(self, job: LiveJob, placement: Placement, gpus: Sequence[Gpu]) -> None:
        """Assigns GPUs to the workers of a job, and new numbers to workers on new GPUs.

        A plain program has one worker for each task, an elastic one has one for each GPU.
        """
        record = job.record
        # A worker that keeps its GPU keeps its number, and so trains on.
        before = {(m.node, m.gpu): m.worker for m in record.members}
        # A plain program cannot lose or gain a worker: it starts anew as a whole.
        starts_anew = not job.uses_train_protocol and tuple(before) != tuple(gpus)
        began = job.gang is not None and job.gang.roster.has_begun
        number, members = record.next_worker, []
        each = 1 if job.uses_train_protocol else len(gpus) // job.spec.tasks
        for rank, (node, gpu) in enumerate(gpus):
            worker = before.get((node, gpu), -1)
            if starts_anew or worker < 0:
                # A task with several GPUs is one worker, the member of all of them.
                number += rank % each == 0
                worker = number - 1
            members.append(GangMember(worker, node, gpu))
        job.replacements = ()
        self._timers.drop(Alarm.REPLACEMENTS, job.number)
        self._gpus.assignment.occupy(job.number, members)
        now_placed = replace(
            record,
            placement=placement,
            members=tuple(members),
            next_worker=number,
            reason="",
            detail="",
        )
        if record.state is State.PENDING:
            self._jobs.move(job, Transition.PLACED, now_placed)
        elif starts_anew:
            self._jobs.write(job, replace(now_placed, restarts=record.restarts + began))
            self.stop_clock(job)
        else:
            self._jobs.write(job, now_placed)
        # The gang reads the record, so it is told last.
        self._gangs.update_restarts(job)
        self.want(job)

    def want(self, job: LiveJob) -> None:
        """Tells the gang of a placed job which workers it is to have now."""
        self._gangs.of(job).want(self.desired(job), self._tables.now)
        self._gangs.touch(job)

    def desired(self, job: LiveJob) -> Desired:
        """Returns what the plan wants of the gang of a placed job."""
        record, placement = job.record, job.record.placement
        assert placement is not None
        phase = placement.interleave
        # Uneven parts are of all workers. While some are missing, the rest train with even ones.
        whole = len(record.members) == placement.gpus
        return Desired(
            record.members,
            steps=placement.accumulation_steps,
            samples=placement.samples if whole else (),
            batch_size=placement.batch_size,
            seat=None if phase is None else (phase.set_id, phase.phase),
            shares=placement.fractions if whole else (),
            memory_bytes=self._gpus.bound(job),
        )

    def replace_lost(self, job: LiveJob) -> None:
        """Wants the replacements of lost workers of a job, now that their pause is over."""
        if job.is_placed and job.replacements:
            job.replacements = ()
            self.want(job)

    def keep(self, job: LiveJob, placement: Placement) -> None:
        """Keeps only the workers of a job that are on the nodes of a smaller placement."""
        nodes = {node for node, _ in placement.spans}
        members = tuple(m for m in job.record.members if m.node in nodes)
        self._gpus.assignment.release(job.number)
        self._gpus.assignment.restore(job.number, placement, members)
        self._jobs.write(job, replace(job.record, placement=placement, members=members))
        job.unchanged_s = self._tables.now
        self.want(job)

    def renumber(self, job: LiveJob, absent: Collection[int]) -> None:
        """Gives new numbers to wanted workers that no node has.

        An order to start one may still be under way. Of a plain gang none has begun, so all of its
        workers get other numbers.
        """
        record = job.record
        if not absent or not job.is_placed:
            return
        number, members = record.next_worker, []
        numbers: dict[int, int] = {}
        for member in record.members:
            if member.worker in absent or not job.uses_train_protocol:
                if member.worker not in numbers:
                    numbers[member.worker], number = number, number + 1
                member = GangMember(numbers[member.worker], member.node, member.gpu)
            members.append(member)
        self._gpus.assignment.occupy(record.job, members)
        self._jobs.write(job, replace(record, members=tuple(members), next_worker=number))
        self._gangs.update_restarts(job)
        self._gangs.of(job).want(self.desired(job), self._tables.now)

    def release(self, job: LiveJob) -> None:
        """Takes all workers of a job that has lost its GPUs out of the assignment."""
        self._gpus.assignment.release(job.number)
        self._jobs.write(job, replace(job.record, members=()))
        self.stop_clock(job)

    def stop_clock(self, job: LiveJob) -> None:
        """Books how long a job ran, now that it does not."""
        now = self._tables.now
        if job.running_s < now:
            self._jobs.write(job, replace(job.record, ran_s=job.ran_s(now)))
        job.running_s, job.replacements = NEVER_S, ()
        self._timers.drop(Alarm.TIME_LIMIT, job.number)
        self._timers.drop(Alarm.REPLACEMENTS, job.number)

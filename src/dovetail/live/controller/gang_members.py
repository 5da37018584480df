"""The wanted workers of a placed job: their numbers, their GPUs and how they train.

A worker number is never used twice in a job. An agent refuses to start one a second time, so an
order that arrives late cannot restart a worker that has ended.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from dovetail.core.placement import Placement
from dovetail.core.replacing import replace
from dovetail.core.units import NEVER_S
from dovetail.live.controller.gpu_map import GpuMap
from dovetail.live.controller.live_gangs import LiveGangs
from dovetail.live.controller.live_jobs import LiveJob, LiveJobs
from dovetail.live.controller.recorded_tables import RecordedTables
from dovetail.live.controller.timers import Timer, Timers
from dovetail.live.jobs.lifecycle import State, Transition
from dovetail.live.jobs.record import GangMember
from dovetail.live.workers.gpu_assignment import Gpu
from dovetail.live.workers.worker_state import Desired
from dovetail.wire.spec import JobSpec


@dataclass(frozen=True, slots=True)
class GangMembers:
    """Changes what gangs should have: numbered workers, their GPUs, configuration and bounds."""

    jobs: LiveJobs
    gangs: LiveGangs
    tables: RecordedTables
    gpus: GpuMap
    timers: Timers

    def assign(self, job: LiveJob, placement: Placement, gpus: Sequence[Gpu]) -> None:
        """Assigns GPUs to the workers of a job, and new numbers to workers on new GPUs.

        A plain program has one worker for each task, an elastic one has one for each GPU, or for
        each node if it starts others itself.
        """
        record = job.record
        # A worker that keeps its GPU keeps its number, and so trains on.
        before = {(m.node, m.gpu): m.worker for m in record.members}
        # A plain program cannot lose or gain a worker: it starts anew as a whole.
        starts_anew = not job.uses_train_protocol and tuple(before) != tuple(gpus)
        began = job.gang is not None and job.gang.roster.has_begun
        number, members = record.next_worker, []
        for rank, (node, gpu) in enumerate(gpus):
            worker = before.get((node, gpu), -1)
            if starts_anew or worker < 0:
                # A task with several GPUs is one worker, the member of all of them.
                number += _begins_worker(job.spec, gpus, rank)
                worker = number - 1
            members.append(GangMember(worker, node, gpu))
        job.replacements = ()
        self.timers.drop(Timer.REPLACEMENTS, job.number)
        self.gpus.assignment.occupy(job.number, members)
        now_placed = replace(
            record,
            placement=placement,
            members=tuple(members),
            next_worker=number,
            reason="",
            detail="",
            avoided=(),
        )
        if record.state is State.PENDING:
            self.jobs.move(job, Transition.PLACED, now_placed)
        elif starts_anew:
            self.jobs.write(job, replace(now_placed, restarts=record.restarts + began))
            self.stop_clock(job)
        else:
            self.jobs.write(job, now_placed)
        # Last: the gang reads the new record.
        self.gangs.update_restarts(job)
        self.want(job)

    def want(self, job: LiveJob) -> None:
        """Updates the workers that the gang of a placed job should have."""
        self.gangs.of(job).want(self.desired(job), self.tables.now)
        self.gangs.touch(job)

    def desired(self, job: LiveJob) -> Desired:
        """Returns the workers that the plan wants of a placed job, and how they should train."""
        record, placement = job.record, job.record.placement
        assert placement is not None
        phase = placement.interleave
        # Uneven parts of the batch are for all workers. While one is missing, they are even.
        whole = len(record.members) == placement.gpus
        return Desired(
            record.members,
            steps=placement.accumulation_steps,
            samples=placement.samples if whole else (),
            batch_size=placement.batch_size,
            seat=None if phase is None else (phase.set_id, phase.phase),
            shares=placement.fractions if whole else (),
            memory_bytes=self.gpus.bound(job),
        )

    def replace_lost(self, job: LiveJob) -> None:
        """Starts the replacements of lost workers of a job, now that their pause is over."""
        if job.is_placed and job.replacements:
            job.replacements = ()
            self.want(job)

    def keep(self, job: LiveJob, placement: Placement) -> None:
        """Keeps only the workers of a job that are on the nodes of a smaller placement."""
        nodes = {node for node, _ in placement.spans}
        members = tuple(m for m in job.record.members if m.node in nodes)
        self.gpus.assignment.release(job.number)
        self.gpus.assignment.restore(job.number, placement, members)
        self.jobs.write(job, replace(job.record, placement=placement, members=members))
        job.unchanged_s = self.tables.now
        self.want(job)

    def renumber(self, job: LiveJob, absent: Collection[int]) -> None:
        """Gives new numbers to wanted workers that no node has.

        An order to start one of the old number may still be under way. A plain gang starts whole,
        so all of its workers get new numbers.
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
        self.gpus.assignment.occupy(record.job, members)
        self.jobs.write(job, replace(record, members=tuple(members), next_worker=number))
        self.gangs.update_restarts(job)
        self.gangs.of(job).want(self.desired(job), self.tables.now)

    def release(self, job: LiveJob) -> None:
        """Removes a job that has lost its GPUs from the assignment."""
        self.gpus.assignment.release(job.number)
        self.jobs.write(job, replace(job.record, members=()))
        self.stop_clock(job)
        # That was of the GPUs that it had.
        job.idle_since, job.idle_s, job.is_warned = {}, NEVER_S, False

    def update_sharers(self, rows: Iterable[int]) -> None:
        """Updates the speed and memory bound of placed jobs whose neighbours changed, by row."""
        for row in sorted(rows):
            placement = self.tables.placement(row)
            if placement is None:
                continue
            job = self.jobs.of_row(row)
            # Reports from before this instant are of a job with other neighbours.
            job.unchanged_s = self.tables.now
            wanted = None if job.gang is None else job.gang.roster.wanted
            bound = self.gpus.bound(job)
            if wanted is not None and wanted.memory_bytes != bound:
                self.gangs.of(job).want(replace(wanted, memory_bytes=bound), self.tables.now)
                self.gangs.touch(job)
            self.tables.retime(row, self.gpus.speed(row, self.tables.training(row, placement)))

    def stop_clock(self, job: LiveJob) -> None:
        """Adds the time since a job began to run to its record, now that it has stopped."""
        now = self.tables.now
        if job.running_s < now:
            self.jobs.write(job, replace(job.record, ran_s=job.ran_s(now)))
        job.running_s, job.replacements = NEVER_S, ()
        self.timers.drop(Timer.TIME_LIMIT, job.number)
        self.timers.drop(Timer.REPLACEMENTS, job.number)


def _begins_worker(spec: JobSpec, gpus: Sequence[Gpu], rank: int) -> bool:
    """Returns whether the GPU at a rank is the first of another worker of the job."""
    if spec.starts_per_node:
        return rank == 0 or gpus[rank][0] != gpus[rank - 1][0]
    each = 1 if spec.keeps_progress else len(gpus) // spec.tasks
    return rank % each == 0

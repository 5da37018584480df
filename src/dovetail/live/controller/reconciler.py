"""Reconciles the workers of all jobs with the plan: each touched gang decides what to do.

A gang compares the workers that the plan wants with the reported ones. Its events may end, retry
or requeue jobs, which touches other gangs; so it goes on until no gang is touched.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dovetail.core.replacing import replace
from dovetail.live.controller.admission import Admission
from dovetail.live.controller.gang_event_handler import GangEventHandler
from dovetail.live.controller.gang_members import GangMembers
from dovetail.live.controller.gpu_map import GpuMap
from dovetail.live.controller.leases import Leases
from dovetail.live.controller.live_gangs import LiveGangs
from dovetail.live.controller.live_jobs import LiveJob, LiveJobs
from dovetail.live.controller.outbox import Outbox
from dovetail.live.controller.recorded_tables import RecordedTables
from dovetail.live.controller.terminations import Terminations
from dovetail.live.workers.deadlock import deadlocked


@dataclass(slots=True)
class Reconciler:
    """Owns the blocked jobs: their gangs wait for GPUs, or for memory, that other jobs use."""

    jobs: LiveJobs
    gangs: LiveGangs
    tables: RecordedTables
    gpus: GpuMap
    members: GangMembers
    admission: Admission
    terminations: Terminations
    events: GangEventHandler
    leases: Leases
    outbox: Outbox
    _blocked: set[int] = field(default_factory=set, init=False)

    def reconcile(self) -> None:
        """Reconciles every touched gang, and those that this touches, until there are none."""
        while self._is_work_left():
            if self.gpus.usage.changed:
                self.gpus.usage.changed = False
                self._wake_blocked()
            # NOTE: most reports confirm that a job trains on. To step its gang for each took two
            # thirds of the CPU time of a controller with 2,400 running jobs.
            heard = self.gangs.take_heard()
            touched = self.gangs.take_touched()
            # All of them first: a worker that just ended may free the GPU that another waits for.
            # Then by number: whoever is asked first gets the GPU, in every run the same.
            for job in touched:
                self.gpus.update_usage(job)
            steady = {job.number for job in heard}
            for job in sorted([*touched, *heard], key=lambda job: job.number):
                if job.number not in steady:
                    self._reconcile_gang(job)
                    self.outbox.mark(job)
                elif job.gang is not None:
                    self.events.handle(job, job.gang.roster.take_events())
            over, self.terminations.over = self.terminations.over, []
            for job in over:
                self.admission.over(job)

    def _is_work_left(self) -> bool:
        if self.gangs.are_touched or self.gpus.usage.changed or self.terminations.over:
            return True
        # Only when nothing else moves: before, a circle may still be about to resolve itself.
        return self._break_deadlock()

    def _reconcile_gang(self, job: LiveJob) -> None:
        """Runs one step of a gang, and handles the events from before and after it."""
        gang, number, now = job.gang, job.number, self.tables.now
        if gang is None:
            return
        roster = gang.roster
        if self.gangs.settled:
            # Reported events first: they may end the job, and then the gang must start nothing.
            self.events.handle(job, roster.take_events())
            self.leases.part_leaving(job)
            gang.step(
                now,
                lambda node, gpu: (
                    self._may_start(job, node, gpu)
                    and self.gpus.has_memory(job, (node, gpu), roster.bound)
                ),
                self.leases.monitor.reached_s,
                lambda node, gpu, bound: self._has_room(job, node, gpu, bound),
            )
            self.events.handle(job, roster.take_events())
            self.events.start_clock_if_begun(job)
        wanted = roster.wanted.numbers if roster.wanted is not None else ()
        if roster.awaits_memory or any(worker not in roster.workers for worker in wanted):
            # Only these are asked again when a GPU becomes free, not all gangs.
            self._blocked.add(number)
        # A worker uses its GPU from the order to start it on, before its agent confirms.
        self.gpus.update_usage(job)
        if (roster.generation, roster.group) != (job.record.generation, job.record.group):
            regrouped = replace(job.record, generation=roster.generation, group=roster.group)
            self.jobs.write(job, regrouped)
        self.leases.note(job)

    def _may_start(self, job: LiveJob, node: int, gpu: int) -> bool:
        # Gangs act once every node is surveyed or down, so this excludes all unsurveyed nodes.
        is_down = self.leases.monitor.nodes[node].is_down
        return not is_down and self.gpus.may_start(job.number, node, gpu)

    def _has_room(self, job: LiveJob, node: int, gpu: int, bound: int) -> bool:
        # Where nobody is heard, workers that were given up may still use the memory.
        is_down = self.leases.monitor.nodes[node].is_down
        return not is_down and self.gpus.has_memory(job, (node, gpu), bound)

    def _wake_blocked(self) -> None:
        """Touches the blocked gangs: GPUs or memory became free."""
        for number in self._blocked:
            job = self.jobs.get(number)
            if job is not None:
                self.gangs.touch(job)
        self._blocked = set()

    def _break_deadlock(self) -> bool:
        """Makes gangs leave that wait for each other's GPUs; returns whether there are any."""
        stuck: dict[int, LiveJob] = {}
        for number in sorted(self._blocked):
            job = self.jobs.get(number)
            if job is not None and job.gang is not None and job.gang.roster.is_stuck:
                stuck[number] = job
        circle = deadlocked({number: self.gpus.blockers(job) for number, job in stuck.items()})
        for number in circle:
            job = stuck[number]
            gang = self.gangs.of(job)
            # All of its workers leave, so that at least one gang of the circle can go on.
            gang.roster.give_way(self.tables.now)
            # An agent starts no worker of the same number again.
            self.members.renumber(job, gang.roster.workers.keys())
            self.gangs.touch(job)
        return bool(circle)

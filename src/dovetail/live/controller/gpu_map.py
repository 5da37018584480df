"""Which jobs are on which GPUs: assigned by the plan, and in use according to reports."""

from __future__ import annotations

from collections.abc import Collection

from dovetail.control.state import ClusterState
from dovetail.core.beliefs import Neighbour
from dovetail.core.placement import Placement
from dovetail.live.controller.live_jobs import LiveJob, LiveJobs
from dovetail.live.jobs.record import GangMember
from dovetail.live.measuring.memory_bounds import MemoryBounds
from dovetail.live.workers.gpu_assignment import Gpu, GpuAssignment
from dovetail.live.workers.gpu_usage import GpuUsage, WorkerKey


class GpuMap:
    """Owns the `assignment` of GPUs to workers that the plan wants, and their `usage` in fact.

    From both it derives which jobs share GPUs, their believed speed and memory bounds, and which
    jobs a worker waits for. It reads the tables and changes nothing in them.
    """

    def __init__(self, state: ClusterState, jobs: LiveJobs) -> None:
        self._state = state
        self._jobs = jobs
        self._bounds = MemoryBounds(state)
        cluster, islands = state.view.cluster, state.plan.occupancy.islands
        self.assignment = GpuAssignment(cluster.installed, islands.sizes if islands else ())
        self.usage = GpuUsage()

    # As planned. Jobs go by row.

    def sharers(self, placement: Placement) -> set[int]:
        """Returns the jobs on the named GPUs of a placement."""
        on = self._state.plan.occupancy.sharers
        return {row for node, gpu in placement.named() for row in on(node, gpu)}

    def neighbours(self, row: int) -> tuple[Neighbour, ...]:
        """Returns the jobs that share GPUs with a job, and their placements."""
        placement = self._state.plan.placed.get(row)
        return () if placement is None else self._beside(row, placement)

    def _beside(self, row: int, placement: Placement) -> tuple[Neighbour, ...]:
        placed = self._state.plan.placed
        return tuple((j, placed[j]) for j in sorted(self.sharers(placement) - {row}))

    def neighbours_on(self, row: int, member: GangMember) -> tuple[Neighbour, ...]:
        """Returns the neighbours on the GPU of one worker; all of the job if that has none."""
        there = [self._jobs.get(n) for n in self.assignment.on.get((member.node, member.gpu), {})]
        rows = {job.row for job in there if job is not None}
        neighbours = self.neighbours(row)
        return tuple(n for n in neighbours if n[0] in rows) or neighbours

    def speed(self, row: int, placement: Placement) -> float:
        """Returns the believed speed of a job on a placement."""
        state, neighbours = self._state, self._beside(row, placement)
        return state.view.physics.rate(row, placement, neighbours, state.done_s((row,))[0])

    def memory_bytes(self, node: int) -> float:
        """Returns the memory of each GPU of a node."""
        return self._state.view.cluster.group_of(node).gpu_memory_bytes

    def bound(self, job: LiveJob) -> int:
        """Returns the most bytes of its GPU that each worker of a job may use (0: no bound)."""
        # A synthetic job uses no memory, whatever its model would.
        return 0 if job.spec.paced else self._bounds.of(job.row)

    # As reported. Jobs go by number.

    def may_start(self, number: int, node: int, gpu: int) -> bool:
        """Returns whether all workers on a GPU are of other jobs that the plan puts there too."""
        return self.usage.is_free(number, node, gpu, self.assignment)

    def has_memory(self, job: LiveJob, gpu: Gpu, bound: int) -> bool:
        """Returns whether a worker may use `bound` bytes of a GPU beside the workers there now."""
        memory_bytes = self.memory_bytes(gpu[0])
        return job.spec.paced or self.usage.has_room(job.number, gpu, bound, memory_bytes)

    def blockers(self, job: LiveJob) -> set[int]:
        """Returns the jobs whose workers are still on GPUs that workers of this job wait for."""
        workers = job.gang.roster.workers if job.gang is not None else {}
        blockers: set[int] = set()
        for member in job.record.members:
            if member.worker not in workers:
                blockers.update(self._blockers_on(member))
        return blockers

    def _blockers_on(self, member: GangMember) -> list[int]:
        return self.usage.blocking_jobs(member.node, member.gpu, self.assignment)

    def awaited(self, job: LiveJob) -> tuple[int, ...]:
        """Returns the jobs that must leave GPUs of a job, or use less memory, for it to start."""
        gang = job.gang
        if gang is None:
            return ()
        # A worker that has ended well needs its GPU no more, though the job still has it.
        there = gang.roster.workers.keys() | gang.roster.complete
        awaited: set[int] = set()
        for member in job.record.members:
            if member.worker not in there:
                awaited.update(self._blockers_on(member))
                if not self.has_memory(job, (member.node, member.gpu), gang.roster.bound):
                    awaited.update(self.usage.jobs_at(member.node, member.gpu))
        return tuple(sorted(awaited - {job.number}))

    def drop_unknown(self, node: int, listed: Collection[WorkerKey] = ()) -> None:
        """Drops the unknown workers of a node, but for those that its agent has listed."""
        there = [key for key, worker in self.usage.unknown.items() if worker.node == node]
        for key in there:
            if key not in listed:
                self.usage.drop_unknown(key)

    def update_usage(self, job: LiveJob) -> None:
        """Records the GPUs that the workers of a job are on now, according to its gang."""
        if job.gang is not None:
            workers = job.gang.roster.workers.values()
            gpus = {w.worker: tuple((w.node, gpu) for gpu in w.all_gpus) for w in workers}
            self.usage.update(job.number, gpus, {w.worker: w.memory_held_max for w in workers})

"""Slurm's main scheduler: jobs in order, until one finds no room in its partition.

That job's partition is done, and so are its nodes for other partitions. A job over a limit, or in
a reservation, holds nobody up. After an event at most `default_queue_depth` jobs are tested; every
`sched_interval` all.

Source: `src/slurmctld/job_scheduler.c`, `_schedule`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dovetail.mechanisms.slurm.ranked_queue import RankedQueue
from dovetail.mechanisms.slurm.scheduling_pass import BUSY, OVER_LIMIT, STARTED, SchedulingPass


@dataclass(slots=True)
class MainPass:
    """One pass; `cut_off` once it left jobs untested that could start."""

    c: SchedulingPass
    queue: RankedQueue
    full: bool
    cut_off: bool = False
    head: int = -1
    _nodes: int = 0
    _failed: set[tuple[str, str]] = field(default_factory=set)
    _tested: dict[str, int] = field(default_factory=dict)

    def run(self, waits: set[int]) -> None:
        """Starts jobs; those in `waits` may not begin yet. `head` is the first without room."""
        self._nodes = self.c.open_nodes
        depth = 0
        repeats = self.queue.repeats
        for place, job in enumerate(self.queue.jobs.tolist()):
            if not self._nodes:
                return
            if repeats:
                if job in self.c.started:
                    continue
                self.c.try_in(job, int(self.queue.choices[place]))
            if job in waits or self._partition_is_full(job):
                continue
            if not self.full and depth > self.c.p.default_queue_depth:
                self.cut_off = True
                return
            depth += 1
            if 0 < self.c.p.sched_max_job_start <= len(self.c.started):
                self.cut_off = True
                return
            self._test(place, job)

    def _partition_is_full(self, job: int) -> bool:
        """True if as many jobs of a partition as `partition_job_depth` were tested."""
        most = self.c.p.partition_job_depth
        if not most:
            return False
        partition = self.c.partition_of(job)
        self._tested[partition] = self._tested.get(partition, 0) + 1
        return self._tested[partition] > most

    def _test(self, place: int, job: int) -> None:
        c = self.c
        partition, own = c.partition_of(job), c.reservation_of(job)
        group = ("partition", partition) if own is None else ("reservation", own.name)
        if group in self._failed:
            return
        nodes, _ = c.outside_reservations(
            job, self._nodes & c.nodes_of(job), c.view.now, float(self.queue.limit_s[place])
        )
        empty = not self._nodes & c.site.nodes_for(partition)
        came = c.try_start(job, nodes & ~c.completing)
        if came == STARTED:
            return
        if came == OVER_LIMIT and not c.p.assoc_limit_stop:
            return
        if came == BUSY and self.head < 0:
            self.head = job
        if came == BUSY and not empty and not c.could_ever_run(job, nodes):
            # ESLURM_NODE_NOT_AVAIL: a reservation or lost nodes are in its way, not jobs.
            return
        if own is not None:
            self._failed.add(group)
        elif not self._passed_over(place):
            self._failed.add(group)
            self._nodes &= ~c.site.nodes_for(partition)

    def _passed_over(self, place: int) -> bool:
        """True if a job is too young or too low to hold up its partition."""
        p = self.c.p
        young = self.c.view.now - float(self.queue.since_s[place]) < p.bf_min_age_reserve
        return young or int(self.queue.points[place]) < p.bf_min_prio_reserve

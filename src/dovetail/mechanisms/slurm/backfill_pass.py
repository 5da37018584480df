"""Slurm's backfill: every tested job starts now or reserves nodes for its expected start.

Jobs are tested in order of priority against the plans of those before them. The expected start of
a job is when running jobs, by their limits, leave room on nodes that no plan takes from then to
its end by its own limit. The pass stops early when no job behind could start now: plans are made
anew in the next pass, so those of further jobs would change nothing.

Source: `src/plugins/sched/backfill/backfill.c`, `_attempt_backfill`.
"""

from __future__ import annotations

from math import inf

import numpy as np

from dovetail.core.placement import Spans
from dovetail.mechanisms.slurm.backfill_map import BackfillMap
from dovetail.mechanisms.slurm.forecast_start import LimitEnd, StartForecast
from dovetail.mechanisms.slurm.node_choice import choose
from dovetail.mechanisms.slurm.preemption import node_bits
from dovetail.mechanisms.slurm.ranked_queue import RankedQueue
from dovetail.mechanisms.slurm.scheduling_pass import STARTED, SchedulingPass

Expected = tuple[int, Spans]
"""When and where a job is expected to start."""


class BackfillPass:
    """One pass over the queue.

    `looked` is whether any job might have started; `again` whether the next pass may start one
    though nothing happens: a node was completing, or a job had outlived its limit.
    """

    def __init__(self, c: SchedulingPass, queue: RankedQueue) -> None:
        self.c = c
        self.queue = queue
        self.looked = False
        self.again = False
        p = c.p
        self._map = BackfillMap.of(c.now_s, 60 * p.bf_window, p.bf_resolution, c.open_nodes)
        self._window_end_s = c.now_s + 60 * p.bf_window
        self._counts: dict[tuple[str, ...], int] = {}
        self._tried = 0
        self._started = 0
        self._expected: dict[tuple[int, int], Expected | None] = {}
        self._forecast: StartForecast | None = None
        # The least that a job from each place of the queue on needs.
        self._least_gpus = _least_behind(c.view.jobs.gpus[queue.jobs])
        self._least_limit_s = _least_behind(queue.limit_s)

    def run(self, waits: set[int]) -> None:
        """Starts jobs; those in `waits` may not begin yet."""
        repeats = self.queue.repeats
        for place, job in enumerate(self.queue.jobs.tolist()):
            if job in waits or job in self.c.started:
                continue
            if repeats:
                self.c.try_in(job, int(self.queue.choices[place]))
            if self._tried >= self.c.p.bf_max_job_test or not self._some_may_start(place):
                return
            self.looked = True
            if not self._test(place, job):
                return

    def _some_may_start(self, place: int) -> bool:
        """True if a job from a place of the queue on might start now, for all that is planned."""
        c = self.c
        if c.p.preempts:
            return True
        now = c.view.now
        free = self._map.free_throughout(now, now + float(self._least_limit_s[place]), -1)[0]
        least = int(self._least_gpus[place])
        state = c.state
        if c.view.placing.consolidate == "strict":
            level = min(least, len(state.levels) - 1)
            return any(nodes & free for nodes in state.levels[level:])
        room = 0
        for gpus, nodes in enumerate(state.levels):
            room += gpus * (nodes & free).bit_count()
        return room >= least

    def _test(self, place: int, job: int) -> bool:
        """Tests one job; returns whether the pass goes on."""
        c = self.c
        if not c.limits.has_job_left(job) or self._too_many_of(job):
            return True
        reserves = self._may_reserve(place, job)
        found = self._find(place, job, reserves=reserves)
        if found is None:
            return True
        start_s, nodes, free = found
        if start_s <= c.view.now:
            return self._start(job, free)
        if not reserves or start_s > self._window_end_s or not c.limits.has_gpus_left(job):
            return True
        if c.p.bf_job_part_count_reserve:
            self._count("plans", c.partition_of(job))
        if self._map.records >= c.p.map_size:
            return False
        resolution_s = c.p.bf_resolution
        end_s = int(start_s + float(self.queue.limit_s[place]))
        self._map.reserve(
            int(start_s) // resolution_s * resolution_s, end_s // resolution_s * resolution_s, nodes
        )
        return True

    def _start(self, job: int, free: int) -> bool:
        """Starts a job on nodes that no plan takes; returns whether the pass goes on."""
        c = self.c
        if c.try_start(job, free) != STARTED:
            return True
        self._expected.clear()
        self._forecast = None
        self._started += 1
        return not 0 < c.p.bf_max_job_start <= self._started

    def _may_reserve(self, place: int, job: int) -> bool:
        """True if a job that cannot start now gets a plan."""
        p, c = self.c.p, self.c
        if int(self.queue.points[place]) < p.bf_min_prio_reserve:
            return False
        if c.view.now - float(self.queue.since_s[place]) < p.bf_min_age_reserve:
            return False
        most = p.bf_job_part_count_reserve
        return not most or self._counts.get(("plans", c.partition_of(job)), 0) < most

    def _too_many_of(self, job: int) -> bool:
        """True if as many jobs of its user or partition as may be were tested; else counts it."""
        p, jobs = self.c.p, self.c.view.jobs
        part, user, account = self.c.partition_of(job), jobs.user[job], jobs.account[job]
        # With both set, bf_max_job_assoc takes the place of bf_max_job_user.
        most_of_user = 0 if p.bf_max_job_assoc else p.bf_max_job_user
        kinds = [
            (p.bf_max_job_user_part, ("user part", user, part)),
            (p.bf_max_job_part, ("part", part)),
            (p.bf_max_job_assoc, ("association", account, user)),
            (most_of_user, ("user", user)),
        ]
        limited = [(most, kind) for most, kind in kinds if most]
        if any(self._counts.get(kind, 0) >= most for most, kind in limited):
            return True
        for _, kind in limited:
            self._count(*kind)
        return False

    def _count(self, *kind: str) -> None:
        self._counts[kind] = self._counts.get(kind, 0) + 1

    def _find(self, place: int, job: int, *, reserves: bool) -> tuple[float, int, int] | None:
        """Returns when a job is expected to start, on which nodes, and which are free of plans.

        Looks again behind each plan that takes nodes away. None: not within the window.
        """
        c = self.c
        limit_s = float(self.queue.limit_s[place])
        usable = c.nodes_of(job) & c.open_nodes
        later_s, counted = c.view.now, False
        while later_s < inf:
            from_s = later_s
            nodes, touched = c.outside_reservations(job, usable, from_s, limit_s)
            free, later_s = self._map.free_throughout(from_s, from_s + limit_s, nodes)
            if touched:
                later_s = min(later_s, self._behind_reservation_s(from_s))
            if not free:
                if not reserves:
                    return None
                continue
            if not counted:
                counted, self._tried = True, self._tried + 1
            expected = self._expect(job, free)
            if expected is not None:
                start_s, spans = max(float(expected[0]), from_s), expected[1]
                if start_s <= c.view.now and node_bits(spans) & c.completing:
                    start_s, later_s, self.again = c.now_s + 1.0, inf, True
                if start_s <= c.view.now or not reserves:
                    return start_s, 0, free
                if start_s <= later_s:
                    taken = node_bits(spans)
                    if start_s > self._window_end_s or not self._overlaps(start_s, limit_s, taken):
                        return start_s, taken, free
                    later_s = start_s
            elif not reserves:
                return None
        return None

    def _behind_reservation_s(self, from_s: float) -> float:
        """Returns the first time behind a reservation, in whole resolutions and a second."""
        resolution_s = self.c.p.bf_resolution
        ends = [r.end_s for r in self.c.site.reservations if r.end_s >= from_s]
        behind_s = -(-min(ends, default=inf) // resolution_s) * resolution_s + 1
        return behind_s if from_s < behind_s < self._map.ends[-1] else inf

    def _overlaps(self, start_s: float, limit_s: float, nodes: int) -> bool:
        resolution_s = self.c.p.bf_resolution
        first_s = int(start_s) // resolution_s * resolution_s
        last_s = int(start_s + limit_s) // resolution_s * resolution_s
        return self._map.overlaps(first_s, last_s, nodes)

    def _expect(self, job: int, free: int) -> Expected | None:
        """Returns when and where a job is expected to start on some nodes, as in a test run."""
        c = self.c
        shape, placing = c.view.shape(job), c.view.placing
        key = (c.view.shape_of[job], free)
        if not c.p.preempts and key in self._expected:
            return self._expected[key]
        expected: Expected | None
        spans = choose(c.state, placing, shape, free)
        if spans is not None:
            expected = (c.now_s, spans)
        else:
            state = c.state.copy()
            victims = c.victims(job)
            for victim in victims:
                state.release(victim.spans, victim.shape)
            spans = choose(state, placing, shape, free) if victims else None
            if spans is not None:
                expected = (c.now_s, spans)
            else:
                gone = {victim.job for victim in victims}
                expected = self._starts(gone).later(state, shape, free)
        self._expected[key] = expected
        return expected

    def _starts(self, without: set[int]) -> StartForecast:
        c = self.c
        if self._forecast is None:
            ends = sorted(self._end(job) for job in c.draft.placed)
            self.again = self.again or (bool(ends) and ends[0].end_s <= c.now_s)
            self._forecast = StartForecast(c.p, c.view.placing, c.now_s, ends)
        if not without:
            return self._forecast
        left = [end for end in self._forecast.ends if end.job not in without]
        return StartForecast(c.p, c.view.placing, c.now_s, left)

    def _end(self, job: int) -> LimitEnd:
        c = self.c
        fresh = job not in c.view.running
        start_s = c.view.now if fresh else c.view.progress.running_since_s(job)
        spans = c.draft.placed[job].spans
        end_s = int(min(start_s + c.limit_s(job), c.ending.get(job, inf)))
        return LimitEnd(end_s, job, node_bits(spans), spans, c.view.shape(job))


def _least_behind(values: np.ndarray) -> np.ndarray:
    """Returns the least of the values from each place on."""
    return np.minimum.accumulate(values[::-1])[::-1]

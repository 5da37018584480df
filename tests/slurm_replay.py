"""Replays a record: freely, or from its own state again and again, from the start of every window.

A free replay of a whole run parts from it for good at the first job that starts a second later on
another node. A replay that begins anew from what really ran says how long a policy keeps step.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from dovetail.control.loop import run as run_loop
from dovetail.control.state import ClusterState
from dovetail.core.cluster import Cluster
from dovetail.core.messages import Fact, Started
from dovetail.core.placement import Placement
from dovetail.core.placing import Placing
from dovetail.core.policy import Policy
from dovetail.core.switching import Switching
from dovetail.core.trace import Trace
from dovetail.core.units import NEVER_S
from dovetail.core.view import NOTHING, Changes, View, show
from dovetail.forecast.forecasts import TimeLimitForecast
from dovetail.mechanisms.slurm.catching_up import caught_up
from dovetail.mechanisms.slurm.cycles import Cycles
from dovetail.mechanisms.slurm.state import SlurmState
from dovetail.physics.linear import linear_physics
from dovetail.policies.slurm import Slurm
from dovetail.sim.scene import Scene
from dovetail.sim.world import SimWorld
from tests.slurm_record import SlurmRecord

END, ARRIVE, START = range(3)
"""Kinds of events, in the order in which they happen at one time."""
Times = np.ndarray[tuple[int], np.dtype[np.float64]]


def replayed_starts(trace: Trace, cluster: Cluster, policy: Policy, memory: object = None) -> Times:
    """Returns when each job first starts in a free simulation."""
    physics = linear_physics(trace.jobs)
    scene = Scene(
        trace=trace,
        cluster=cluster,
        truth=physics,
        belief=physics,
        forecast=TimeLimitForecast(trace.jobs),
        placing=Placing("strict"),
        switching=Switching.parse("none"),
    )
    starts = _Starts(len(trace))
    run_loop(SimWorld(scene, policy, starts), policy, memory=memory)
    return starts.first_s


class _Starts:
    """Notes the first start of each job; a recorder of facts."""

    def __init__(self, jobs: int) -> None:
        self.first_s = np.full(jobs, np.nan)

    def record(self, facts: Sequence[Fact]) -> None:
        for fact in facts:
            if isinstance(fact, Started) and np.isnan(self.first_s[fact.job]):
                self.first_s[fact.job] = fact.t


def resynchronised_starts(
    record: SlurmRecord, cluster: Cluster, policy: Policy, *, every_s: float, slack_s: float
) -> Times:
    """Returns when each job starts in a replay of the window in which it really started.

    Windows of `every_s` begin with the recorded state and clock; each is replayed for `slack_s`
    longer. NaN: the job did not start in that time.
    """
    assert record.trace.recorded is not None
    real_s = record.trace.recorded.start_s
    starts = np.full(len(record.trace), np.nan)
    edges = np.arange(float(record.trace.jobs.submit_s[0]), real_s.max() + every_s, every_s)
    memories: list[object] = [policy.initial] * len(edges)
    if isinstance(policy, Slurm):
        memories = [*_memories(record, cluster, policy, edges.tolist())]
    for (from_s, to_s), memory in zip(pairwise(edges.tolist()), memories, strict=False):
        mine = np.flatnonzero((real_s >= from_s) & (real_s < to_s))
        if len(mine):
            course = _Course(record, cluster, policy, from_s)
            begun = course.free(memory, to_s + slack_s)
            starts[mine] = [begun.get(job, np.nan) for job in mine.tolist()]
    return starts


def _memories(
    record: SlurmRecord, cluster: Cluster, policy: Slurm, edges: list[float]
) -> list[SlurmState]:
    """Returns the memory of a scheduler that saw the recorded jobs, at each edge."""
    course = _Course(record, cluster, policy, -NEVER_S)
    memory, found = record.memory, list[SlurmState]()
    for at_s in sorted({*edges, *course.times()}):
        changes = course.recorded_until(at_s)
        memory = caught_up(policy, course.seen(at_s, changes), memory)
        memory = replace(memory, main_due_s=NEVER_S)
        if at_s in edges:
            found.append(_phased(record, memory, at_s))
    return found


def _phased(record: SlurmRecord, memory: SlurmState, now: float) -> SlurmState:
    """Returns the memory with the clock of the recorded scheduler at a time."""
    logged, trace = record.logged, record.trace
    assert trace.recorded is not None

    def last(times_s: tuple[float, ...]) -> float:
        place = bisect_right(times_s, now)
        return times_s[place - 1] if place else 0.0

    cycles = Cycles(last(logged.full_s))
    asked = np.concatenate([trace.jobs.submit_s, trace.recorded.end_s])
    open_s = bool(((asked > last(logged.looks_s)) & (asked <= now)).any())
    return replace(
        memory,
        cycles=cycles,
        main_s=last(logged.looks_s),
        main_due_s=cycles.look_s(now) if open_s else NEVER_S,
        backfilled_s=last(logged.backfills_s) or memory.backfilled_s,
        dirty=True,
        news_s=now,
        decided_s=now,
    )


class _Course:
    """The tables of a run: as recorded up to a time, then as the policy decides."""

    def __init__(
        self, record: SlurmRecord, cluster: Cluster, policy: Policy, recorded_until_s: float
    ) -> None:
        trace = record.trace
        assert trace.recorded is not None
        self._policy, self._spans = policy, record.spans
        self._duration_s = trace.recorded.end_s - trace.recorded.start_s
        self._state = ClusterState(
            trace.jobs,
            cluster,
            policy,
            physics=linear_physics(trace.jobs),
            forecast=TimeLimitForecast(trace.jobs),
            placing=Placing("strict"),
        )
        self._heap: list[tuple[float, int, int]] = []
        for job, (submit_s, start_s, end_s) in enumerate(
            zip(trace.jobs.submit_s, trace.recorded.start_s, trace.recorded.end_s, strict=True)
        ):
            if end_s <= recorded_until_s:
                continue
            self._heap.append((float(submit_s), ARRIVE, job))
            if recorded_until_s == -NEVER_S or start_s <= recorded_until_s:
                self._heap += [(float(start_s), START, job), (float(end_s), END, job)]
        heapq.heapify(self._heap)
        if recorded_until_s > -NEVER_S:
            self.recorded_until(recorded_until_s)

    def times(self) -> list[float]:
        """Returns when anything happens."""
        return [at_s for at_s, _, _ in self._heap]

    def recorded_until(self, now: float) -> Changes:
        """Carries out what happens up to a time."""
        arrived, ended = list[int](), list[int]()
        while self._heap and self._heap[0][0] <= now:
            at_s, kind, job = heapq.heappop(self._heap)
            self._state.now = at_s
            show(self._state.view, now=at_s)
            if kind == ARRIVE:
                self._state.arrive(job)
                arrived.append(job)
            elif kind == START:
                self._begin(job, Placement(self._spans[job]))
            else:
                self._state.end(job)
                ended.append(job)
        return Changes(arrived=arrived, ended=ended, woke=False)

    def seen(self, now: float, changes: Changes) -> View:
        """Returns the view of a policy at a time."""
        self._state.now = now
        show(self._state.view, now=now, changes=changes)
        return self._state.view

    def free(self, memory: object, until_s: float) -> dict[int, float]:
        """Returns the jobs that the policy starts up to a time, with their times."""
        begun: dict[int, float] = {}
        now, changes = self._state.now, NOTHING
        while now <= until_s:
            decision = self._policy.decide(self.seen(now, changes), memory)
            memory = decision.memory
            if decision.draft is not None:
                fresh = [each for each in decision.draft.changes() if each.before is None]
                self._state.plan.discard()
                for change in fresh:
                    self._begin(change.job, change.after)
                    begun[change.job] = now
                    end_s = now + float(self._duration_s[change.job])
                    heapq.heappush(self._heap, (end_s, END, change.job))
            now = min(decision.wake_at, self._heap[0][0] if self._heap else NEVER_S)
            changes = self.recorded_until(now)
        return begun

    def _begin(self, job: int, placement: Placement) -> None:
        state = self._state
        draft = state.plan.draft()
        draft.place(job, placement)
        state.plan.commit(draft)
        state.start(job, placement, 1.0, 0.0)

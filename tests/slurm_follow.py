"""Asks a policy along a record: at every event the state is the recorded one, never its own.

One start at another place changes all that follow, so a free replay says little about a scheduler
of which a single pass differs. Here each decision is judged by itself: what does the policy start,
given the jobs that really ran, on the nodes where they really ran?
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.control.loop import run as run_loop
from dovetail.control.state import ClusterState
from dovetail.core.cluster import Cluster
from dovetail.core.legality import violations
from dovetail.core.messages import Fact, Started
from dovetail.core.placement import Placement, Spans
from dovetail.core.placing import Placing
from dovetail.core.policy import Policy
from dovetail.core.switching import Switching
from dovetail.core.trace import Trace
from dovetail.core.view import NOTHING, Changes, show
from dovetail.forecast.forecasts import TimeLimitForecast
from dovetail.physics.linear import linear_physics
from dovetail.sim.scene import Scene
from dovetail.sim.world import SimWorld

END, ARRIVE, START, LATEST, ASK = range(5)
"""Kinds of events, in the order in which they happen at one time."""


@dataclass(frozen=True, slots=True)
class Followed:
    """For each job when the policy first picked it; NaN if it had not by `patience_s` later.

    `patience_s` after a recorded start that it did not pick the job runs all the same.
    """

    picked_s: np.ndarray[tuple[int], np.dtype[np.float64]]
    asked: int


def follow(
    trace: Trace,
    cluster: Cluster,
    policy: Policy,
    spans: list[Spans],
    *,
    patience_s: float,
    memory: object = None,
) -> Followed:
    """Returns the picks of a policy along the record of a trace, whose jobs ran on `spans`.

    `memory` is what the policy remembers at first; by default nothing.
    """
    run = _Run(trace, cluster, policy, spans, patience_s)
    run.memory = policy.initial if memory is None else memory
    run.play()
    return Followed(run.picked_s, run.asked)


class _Run:
    def __init__(
        self,
        trace: Trace,
        cluster: Cluster,
        policy: Policy,
        spans: list[Spans],
        patience_s: float,
    ) -> None:
        assert trace.recorded is not None
        self._policy, self._spans, self._patience_s = policy, spans, patience_s
        self._start, self._end = trace.recorded.start_s, trace.recorded.end_s
        self._state = ClusterState(
            trace.jobs,
            cluster,
            policy,
            physics=linear_physics(trace.jobs),
            forecast=TimeLimitForecast(trace.jobs),
            placing=Placing("strict"),
        )
        self._heap: list[tuple[float, int, int]] = []
        for job in range(len(trace)):
            heapq.heappush(self._heap, (float(trace.jobs.submit_s[job]), ARRIVE, job))
            heapq.heappush(self._heap, (float(self._start[job]), START, job))
            heapq.heappush(self._heap, (float(self._end[job]), END, job))
            heapq.heappush(self._heap, (float(self._start[job]) + patience_s, LATEST, job))
        self.memory: object = policy.initial
        self._unseen: Changes = NOTHING
        self._due: set[int] = set()
        self.picked_s = np.full(len(trace), np.nan)
        self.asked = 0

    def play(self) -> None:
        """Goes through all events; the policy is asked after those of one time."""
        wake_s = np.inf
        while self._heap:
            if not np.isfinite(self.picked_s).all() or self._heap[0][1] == END:
                now = min(self._heap[0][0], wake_s)
            else:
                break
            arrived, ended = self._happen(now)
            changes = Changes(arrived=arrived, ended=ended, woke=now == wake_s)
            if arrived or ended or now == wake_s:
                wake_s = self._ask(now, changes)

    def _happen(self, now: float) -> tuple[list[int], list[int]]:
        state, arrived, ended = self._state, list[int](), list[int]()
        state.now = now
        show(state.view, now=now)
        while self._heap and self._heap[0][0] <= now:
            _, kind, job = heapq.heappop(self._heap)
            if kind == ARRIVE:
                state.arrive(job)
                arrived.append(job)
            elif kind == END:
                if job in state.waiting:
                    self._place(job)
                state.end(job)
                ended.append(job)
            elif kind == START:
                if np.isfinite(self.picked_s[job]):
                    self._place(job)
                else:
                    self._due.add(job)
            elif job in self._due and job in state.waiting:
                self._place(job)
        return arrived, ended

    def _place(self, job: int) -> None:
        """Carries a recorded start out, at its recorded nodes."""
        state = self._state
        self._due.discard(job)
        draft = state.plan.draft()
        draft.place(job, Placement(self._spans[job]))
        state.plan.commit(draft)
        state.start(job, Placement(self._spans[job]), 1.0, 0.0)

    def _ask(self, now: float, changes: Changes) -> float:
        """Returns when the policy wants to be asked again; notes what it would start."""
        view = self._state.view
        show(view, changes=self._unseen.then(changes).net(view.waiting))
        self.asked += 1
        decision = self._policy.decide(view, self.memory)
        picked: list[int] = []
        if decision.draft is not None:
            changed = list(decision.draft.changes())
            wrong = violations(view, changed, decision.draft.occupancy, self._policy.powers)
            assert not wrong, wrong
            picked = [change.job for change in changed if change.before is None]
        view.plan.discard()
        for job in picked:
            if np.isnan(self.picked_s[job]):
                self.picked_s[job] = now
        carried = [job for job in picked if job in self._due]
        for job in carried:
            self._place(job)
        if len(carried) == len(picked):
            self.memory, self._unseen = decision.memory, NOTHING
        else:
            # As with a refused decision: its memory describes a plan that never ran.
            self._unseen = self._unseen.then(changes)
        return decision.wake_at


def replayed_starts(
    trace: Trace, cluster: Cluster, policy: Policy, memory: object = None
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
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

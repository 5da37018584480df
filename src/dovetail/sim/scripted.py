"""The simulated world with scripted users: it repeats their requests to a real cluster.

Jobs may arrive later than they were submitted, leave the queue and come back, be put back from
their GPUs, and be cancelled, each at its recorded time. A job that depends on another arrives
when that job has ended or started in the simulation.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from dovetail.control.handover import Handover
from dovetail.core.messages import Fact, Recorder, Stopped, Submitted, Withdrawn
from dovetail.core.plan import Change, Draft
from dovetail.core.policy import Policy
from dovetail.core.units import NEVER_S
from dovetail.sim.scene import Scene
from dovetail.sim.world import OVER, SimWorld


@dataclass(frozen=True, slots=True)
class ScriptedLeave:
    """A job is requeued from its GPUs (if there is a `why`), or leaves the queue.

    `keeps`: a requeued job keeps its progress.
    """

    t: float
    job: int
    why: str = ""
    keeps: bool = True


@dataclass(frozen=True, slots=True)
class ScriptedFollower:
    """A job that joins the queue `delay_s` after another has ended, or started."""

    job: int
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ScriptedEvents:
    """Arrivals (time, job), leaves and cancellations, in order of time.

    `after_end` and `after_start`: the followers of each job.
    """

    arrivals: Sequence[tuple[float, int]]
    leaves: Sequence[ScriptedLeave] = ()
    cancelled_s: Mapping[int, float] = field(default_factory=dict)
    after_end: Mapping[int, Sequence[ScriptedFollower]] = field(default_factory=dict)
    after_start: Mapping[int, Sequence[ScriptedFollower]] = field(default_factory=dict)


class ScriptedWorld(SimWorld):
    """A simulated world with the requests of users in a script."""

    def __init__(
        self, scene: Scene, script: ScriptedEvents, policy: Policy, recorder: Recorder
    ) -> None:
        # Leaves happen with changes of nodes: after all jobs that end at the same time.
        moments = [*scene.capacity, *((leave.t, ()) for leave in script.leaves)]
        timed = replace(scene, capacity=sorted(moments, key=lambda moment: moment[0]))
        super().__init__(timed, policy, recorder)
        self._submit = [*(t for t, _ in script.arrivals), NEVER_S]
        self._arriving = [job for _, job in script.arrivals]
        self._script, self._next_leave = script, 0

    def apply(self, draft: Draft) -> None:
        """Carries a draft out; followers of the jobs that start join the queue."""
        started = [c.job for c in draft.changes() if c.before is None]
        super().apply(draft)
        for job in started:
            self._schedule_followers(self._script.after_start.get(job, ()))

    def _finish_jobs(self, now: float, facts: list[Fact]) -> list[int]:
        ended = super()._finish_jobs(now, facts)
        for job in ended:
            self._schedule_followers(self._script.after_end.get(job, ()))
        return ended

    def _place(self, change: Change, handover: Handover, facts: list[Fact]) -> list[int]:
        before_s, now = self._from_s[change.job], self.state.now
        neighbours = super()._place(change, handover, facts)
        if change.before is not None and self._limit is not None:
            # A real time limit also counts the seconds in which a job changes its GPUs.
            self._from_s[change.job] = max(before_s, now)
            self._schedule(change.job)
        return neighbours

    def _schedule_followers(self, followers: Sequence[ScriptedFollower]) -> None:
        for follow in followers:
            arrival_s = self.state.now + follow.delay_s
            at = bisect_right(self._submit, arrival_s, lo=self._next)
            self._submit.insert(at, arrival_s)
            self._arriving.insert(at, follow.job)

    def _submit_jobs(self, now: float, facts: list[Fact]) -> list[int]:
        state, arrived = self.state, []
        while self._submit[self._next] <= now:
            job = self._arriving[self._next]
            self._next += 1
            quit_s = self._script.cancelled_s.get(job, NEVER_S)
            here = job in state.waiting or job in state.plan.placed
            if here or self._version[job] == OVER or quit_s <= now:
                continue
            state.arrive(job)
            arrived.append(job)
            facts.append(Submitted(now, job, *state.told(job)))
            if quit_s < NEVER_S:
                self._quit_s[job] = quit_s
                self._schedule_quit(job)
        return arrived

    def _change_capacity(self, now: float, facts: list[Fact], ended: list[int]) -> list[int]:
        evicted = super()._change_capacity(now, facts, ended)
        leaves = self._script.leaves
        while self._next_leave < len(leaves) and leaves[self._next_leave].t <= now:
            leave = leaves[self._next_leave]
            self._next_leave += 1
            if not leave.why:
                self._withdraw(leave.job, facts, ended)
            elif leave.job in self.state.plan.placed:
                self._requeue(leave, facts)
                evicted.append(leave.job)
        return evicted

    def _withdraw(self, job: int, facts: list[Fact], ended: list[int]) -> None:
        state = self.state
        if job not in state.waiting:
            return
        state.withdraw(job)
        self._version[job] += 1
        facts.append(Withdrawn(state.now, job))
        ended.append(job)

    def _requeue(self, leave: ScriptedLeave, facts: list[Fact]) -> None:
        state, job = self.state, leave.job
        neighbours = self._on_gpus_of(state.plan.placed[job]) - {job}
        self._book_run(job)
        state.evict(job)
        if not leave.keeps:
            state.done[job] = 0.0
        self._forget_end(job)
        facts.append(Stopped(state.now, job, leave.why, state.done[job]))
        self._retime(sorted(neighbours), facts)

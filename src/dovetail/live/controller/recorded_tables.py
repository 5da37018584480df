"""The scheduler's tables, changed in one place: each change is also a fact of the event log.

A replay rebuilds the tables from the log alone, so a change without its fact, or a fact without
its change, would make a log that cannot be replayed. Changes that concern the policy are collected.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dovetail.control.state import ClusterState, JobProgress
from dovetail.core import messages as facts
from dovetail.core.job import JobRequest
from dovetail.core.placement import Placement
from dovetail.core.view import Changes, show
from dovetail.live.controller.instant_log import InstantLog
from dovetail.live.edges.protocols import MEASURED
from dovetail.live.measuring.learner import LearningBelief


class RecordedTables:
    """Owns the tables (`state`, for others to read) and what happened since the policy was asked.

    Jobs go by their rows.
    """

    def __init__(self, state: ClusterState, log: InstantLog) -> None:
        self.state = state
        self._log = log
        self._arrived: list[int] = []
        self._ended: list[int] = []
        self._evicted: list[int] = []
        self._capacity = self._woke = False

    @property
    def now(self) -> float:
        """Returns the present instant."""
        return self.state.now

    def placement(self, row: int) -> Placement | None:
        """Returns where the plan places a job."""
        return self.state.plan.placed.get(row)

    def holds_jobs(self, node: int) -> bool:
        """Returns whether the plan places a job on a node."""
        placed = self.state.plan.placed.values()
        return any(n == node for placement in placed for n, _ in placement.spans)

    def done_s(self, row: int) -> float:
        """Returns the progress of a job by now, in solo seconds."""
        return self.state.done_s((row,))[0]

    def training(self, row: int, placement: Placement) -> Placement:
        """Returns the part of a job's placement that trains now."""
        return self.state.expansions.training(row, placement)

    def is_expanding(self, row: int) -> bool:
        """Returns whether a job trains on while others of its GPUs are made ready."""
        return row in self.state.expansions.shown

    # Changes for the policy.

    @property
    def concern_policy(self) -> bool:
        """Returns whether anything happened since `take_changes` that concerns the policy."""
        jobs = self._arrived or self._ended or self._evicted
        return bool(jobs or self._capacity or self._woke)

    def take_changes(self) -> Changes:
        """Returns what happened since the last call."""
        changes = Changes(self._arrived, self._ended, self._evicted, self._capacity, self._woke)
        self._arrived, self._ended, self._evicted = [], [], []
        self._capacity = self._woke = False
        return changes

    def wake(self) -> None:
        """Records that it is the time at which the policy wanted to be asked."""
        self._woke = True
        self._log.fact(facts.Woke(self.now))

    def learn(self, learner: LearningBelief, *, is_new: bool = True) -> None:
        """Gives the policy a belief that `is_new` and asks it again; stores what was learned."""
        if is_new:
            show(self.state.view, physics=learner.physics)
            if not self._woke:
                self._log.fact(facts.Learned(self.now))
            self._woke = True
        # Also without a new belief: a measurement that confirms it is not measured again.
        if learner.unsaved:
            self._log.keep(MEASURED, learner.dump())

    # The queue.

    def admit(self, jobs: Sequence[JobRequest]) -> range:
        """Adds rows for jobs; they do not wait in the queue yet."""
        return self.state.admit(jobs)

    def arrive(self, row: int) -> None:
        """Puts a job into the queue."""
        self._enqueue(row)
        self._arrived.append(row)

    def _enqueue(self, row: int) -> None:
        self.state.arrive(row)
        self._log.fact(facts.Submitted(self.now, row, *self.state.told(row)))

    def avoid(self, row: int, nodes: Sequence[int]) -> None:
        """Keeps a job off some nodes until it is placed the next time."""
        if tuple(sorted(nodes)) != self.state.avoided.get(row, ()):
            self.state.avoid(row, nodes)
            self._log.fact(facts.Avoided(self.now, row, tuple(sorted(nodes))))

    def withdraw(self, row: int) -> None:
        """Takes a job out of the queue, if it is there, until it arrives again."""
        if row in self.state.waiting:
            self.state.withdraw(row)
            self._log.fact(facts.Withdrawn(self.now, row))
            self._ended.append(row)

    def end(self, row: int, how: str) -> None:
        """Takes a job out of the cluster for good. `how` is one of `core.trace.ENDS`."""
        state = self.state
        if row not in state.plan.placed and row not in state.waiting:
            # In the log only a submitted job can end.
            self._enqueue(row)
        state.end(row)
        self._ended.append(row)
        state.forecast.ended(row, state.done[row], how, self.now)
        self._log.fact(facts.Ended(self.now, row, how))

    # Placed jobs.

    def start(
        self,
        row: int,
        placement: Placement,
        *,
        how: str,
        rate: float,
        delay_s: float,
        preparing: int = 0,
    ) -> None:
        """Puts a job on GPUs; it makes progress after `delay_s`.

        `preparing` of its GPUs are made ready while it trains on the others.
        """
        self.state.start(row, placement, rate, delay_s)
        from_s = self.now + delay_s
        self._log.fact(facts.Started(self.now, row, how, placement, rate, from_s, preparing))

    def switch(self, row: int, rate: float) -> None:
        """Gives a running job the rate of the GPUs that were made ready for it."""
        self.state.expansions.carry_out(row, self.now)
        self.state.switch(row, rate, 0.0)
        self._log.fact(facts.Switched(self.now, row, rate, self.state.since_s[row]))

    def shrink(self, row: int, placement: Placement, rate: float) -> None:
        """Gives a running job the part of its GPUs that is left after a node was lost."""
        self.state.settle(row)
        self.state.start(row, placement, rate, 0.0)
        preparing = placement.gpus - self.training(row, placement).gpus
        self._log.fact(facts.Shrunk(self.now, row, placement, rate, self.now, preparing))

    def preempt(self, row: int, *, loses_all: bool, why: str = facts.PREEMPTED) -> None:
        """Takes the GPUs of a job by the policy's order; with `loses_all` its progress too."""
        state = self.state
        if loses_all:
            state.settle(row)
            state.done[row] = 0.0
        state.stop(row)
        self._log.fact(facts.Stopped(self.now, row, why, state.done[row]))

    def evict(self, row: int, why: str, saved_s: float | None = None) -> None:
        """Takes the GPUs of a job without an order of the policy; it waits again.

        It resumes from `saved_s` (solo seconds), or from its present progress if that is None.
        """
        state = self.state
        if saved_s is not None:
            state.settle(row)
            state.done[row] = min(state.done[row], saved_s)
        state.evict(row)
        self._log.fact(facts.Stopped(self.now, row, why, state.done[row]))
        self._evicted.append(row)

    def retime(self, row: int, rate: float) -> None:
        """Gives a running job its newly believed rate; the same rate changes nothing."""
        if rate != self.state.rate[row]:
            self.state.retime(row, rate)
            self._log.fact(facts.Retimed(self.now, row, rate))

    def measure(self, row: int, done_s: float, rate: float) -> None:
        """Replaces the progress and the rate of a running job by measured ones."""
        self.state.measure(row, done_s, rate)
        self._log.fact(facts.Measured(self.now, row, done_s, rate))

    def correct_done(self, row: int, done_s: float) -> None:
        """Sets the progress of a job that is not training; the fact of its end will have it."""
        self.state.done[row] = done_s

    def foresee(self, row: int, length_s: float) -> None:
        """Replaces the forecast length of a job."""
        self.state.relength(row, length_s)
        self._log.fact(facts.Foreseen(self.now, row, length_s))

    # Nodes.

    def change_nodes(self, nodes: Sequence[tuple[int, str]]) -> None:
        """Gives nodes new states."""
        self.state.change_nodes(nodes)
        self._capacity = True

    def record_nodes(self, nodes: Sequence[tuple[int, str]]) -> None:
        """Records states of nodes in the log, where it has others."""
        self._log.fact(*(facts.NodeChanged(self.now, node, state) for node, state in nodes))
        self._capacity = True

    def change_gpus(self, gpus: Sequence[tuple[int, int, str]], staying: Collection[int]) -> None:
        """Sets which GPUs are draining or down, and the jobs that may finish there."""
        jobs = tuple(sorted(staying))
        self.state.change_gpus(gpus, jobs)
        self._log.fact(facts.GpusChanged(self.now, tuple(gpus), jobs))
        self._capacity = True

    # Recovery. A replay restores its tables in the same way; facts are what it cannot derive.

    def restore_placed(
        self, row: int, progress: JobProgress, placement: Placement, rate: float
    ) -> None:
        """Restores a job on its GPUs. Raises IllegalPlan if they are taken or do not exist."""
        self.state.restore(row, progress, placement, rate)
        self._record_length(row)
        # In the tables a job that was still switching or starting makes progress from now on.
        self._log.fact(facts.Measured(self.now, row, progress.done_s, rate))

    def restore_waiting(self, row: int, progress: JobProgress, *, queued: bool) -> None:
        """Restores a job without GPUs, in the queue if it was `queued`."""
        self.state.restore(row, progress, None)
        if queued:
            self._record_length(row)
        else:
            # The log had it out of the queue already and needs no fact for that.
            self.state.withdraw(row)

    def announce(self, row: int) -> None:
        """Notes a restored job for the policy, if it waits in the queue and is not noted yet."""
        if row in self.state.waiting and row not in self._arrived[-1:]:
            self._arrived.append(row)

    def _record_length(self, row: int) -> None:
        """Records the length of a job where it may differ from that of its submission."""
        if self.state.forecast.learns:
            self._log.fact(facts.Foreseen(self.now, row, *self.state.told(row)))

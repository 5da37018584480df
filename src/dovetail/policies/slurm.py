"""Slurm's scheduler: multifactor priority, the main scheduler, backfill, limits, preemption by QOS.

Jobs go by priority: the weighted sum of age, fair share (fair tree), size, partition and QOS. When
a job ends or is submitted, the main scheduler starts jobs in this order, until one finds no room in
its partition. Backfill runs every `bf_interval` and starts jobs behind it that, by time limits,
delay no job before them. Parameters and defaults are those of slurm.conf in Slurm 22.05; accounts,
QOS, partitions and reservations are those of the cluster's file.

Source: Slurm 22.05 (job_scheduler.c, backfill.c, priority_multifactor.c). Knows: time limits.
Stops running jobs: with `preempt_mode=requeue`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from dovetail.core.messages import Reason
from dovetail.core.order import Order
from dovetail.core.passes import Because, behind
from dovetail.core.policy import Decision, Kept, register
from dovetail.core.units import NEVER_S
from dovetail.core.view import View
from dovetail.mechanisms.slurm.backfill_pass import BackfillPass
from dovetail.mechanisms.slurm.catching_up import after, caught_up, exemptions_s, in_turn
from dovetail.mechanisms.slurm.cycles import ROUNDING_S
from dovetail.mechanisms.slurm.main_pass import MainPass
from dovetail.mechanisms.slurm.parameters import SlurmParameters, slurm_seconds
from dovetail.mechanisms.slurm.scheduling_pass import SchedulingPass
from dovetail.mechanisms.slurm.state import SlurmState


@register("slurm")
@dataclass(frozen=True, slots=True)
class Slurm(SlurmParameters):
    """The parameters are those of slurm.conf."""

    knows: ClassVar[frozenset[str]] = frozenset()
    reserves: ClassVar[bool] = True
    reads_limits: ClassVar[bool] = True
    order: ClassVar[Order] = Order(lambda view, jobs: [0.0] * len(jobs))
    initial: ClassVar[SlurmState] = SlurmState()

    @property
    def powers(self) -> frozenset[str]:
        """Returns `preempt` if jobs of one QOS may stop jobs of another."""
        return frozenset({"preempt"}) if self.preempts else frozenset()

    def keep(self, memory: object, name_of: Callable[[int], str]) -> Kept:
        """Returns what outlives a controller: the usage of users, and until when jobs are held."""
        assert isinstance(memory, SlurmState)
        return memory.kept(name_of)

    def recall(self, kept: Kept, row_of: Mapping[str, int]) -> SlurmState:
        """Returns the first memory after that of an earlier controller."""
        return SlurmState.of(kept, row_of)

    @property
    def heeds(self) -> frozenset[str]:
        """Returns the wishes that it heeds; which QOS may stop which, if it stops jobs."""
        return frozenset({"priority", "priority_tier"}) | ({"preempts"} if self.preempts else set())

    def decide(self, view: View, memory: object) -> Decision:
        """Runs the passes that are due; wakes for the next one that could start a job."""
        assert isinstance(memory, SlurmState)
        state = in_turn(view, caught_up(self, view, memory))
        assert state.site is not None
        draft = view.plan.draft()
        nodes = state.completing.nodes
        c = SchedulingPass(view, draft, self, state.site, nodes, state.partitions, state.ending)
        waits = {job for job, begin_s in state.begins.items() if begin_s > view.now}
        head = -1
        if state.main_due_s <= view.now + ROUNDING_S:
            state, head = self._main(view, c, state, waits)
        state = self._backfilled(view, c, state, waits)
        because = self._because(view, c, state, head)
        state = after(self, view, c, state)
        changed = bool(c.started or c.stopped)
        wake_at = self._wake_at(view, state)
        return Decision(draft if changed else None, state, wake_at, because)

    def ranks(self, view: View, memory: object) -> Mapping[int, float]:
        """Returns the place of each waiting job by its priority, for who gives turns to tenants."""
        assert isinstance(memory, SlurmState)
        state = caught_up(self, view, memory)
        assert state.site is not None
        queue = state.queue.ranked(self, state.site, view.jobs, state.shares)
        jobs = dict.fromkeys(queue.jobs.tolist())
        return {job: float(place) for place, job in enumerate(jobs)}

    def _main(
        self, view: View, c: SchedulingPass, state: SlurmState, waits: set[int]
    ) -> tuple[SlurmState, int]:
        """Returns the state after a pass of the main scheduler, and the first without room."""
        now, cycles = view.now, state.cycles
        # A pass that an epilog asked for does not put off those of the thread.
        by_thread = cycles.look_s(now) <= now + ROUNDING_S
        state = replace(state, main_s=now if by_thread else state.main_s, main_due_s=NEVER_S)
        if not len(state.queue):
            return state, -1
        main = MainPass(c, state.queue, cycles.is_full_pass(self.sched_interval, now))
        main.run(waits)
        due_s = NEVER_S
        if main.cut_off:
            due_s = cycles.full_pass_from_s(self.sched_interval, now + 2 * ROUNDING_S)
        return replace(state, main_due_s=due_s, dirty=state.dirty or bool(c.started)), main.head

    def _backfilled(
        self, view: View, c: SchedulingPass, state: SlurmState, waits: set[int]
    ) -> SlurmState:
        """Returns the state after a backfill pass, if one is due and could start a job."""
        due_s = state.cycles.backfill_s(state.backfilled_s, self.bf_interval, state.news_s)
        if due_s > view.now + ROUNDING_S:
            return state
        before = len(c.started)
        dirty = False
        if state.dirty and len(state.queue) > before:
            backfill = BackfillPass(c, state.queue)
            backfill.run(waits)
            dirty = len(c.started) > before or (backfill.looked and backfill.again)
        return replace(state, backfilled_s=view.now, news_s=NEVER_S, dirty=dirty)

    def _because(self, view: View, c: SchedulingPass, state: SlurmState, head: int) -> Because:
        """Returns why jobs wait: behind the first that found no room, or over a limit."""
        gone = set(c.started)
        left = [job for job in state.queue.jobs.tolist() if job not in gone]
        if not left:
            return ()
        if head >= 0 and head not in gone:
            return behind(head)
        for job in left[: self.default_queue_depth]:
            if c.limits.has_jobs_and_gpus_left(job):
                return behind(job)
        return (Reason("AccountingPolicy"),)

    def _wake_at(self, view: View, state: SlurmState) -> float:
        """Returns when the next pass is due that could start a job, or a grace is over."""
        over_s = min((end_s for end_s in state.ending.values()), default=NEVER_S)
        if not len(state.queue):
            return over_s
        assert state.site is not None
        due_s = [over_s, state.main_due_s, state.site.next_boundary_s(view.now)]
        if state.dirty:
            due_s.append(state.cycles.backfill_s(state.backfilled_s, self.bf_interval, view.now))
        if self.ranks_by_time:
            due_s.append(state.shares.calculated_s + slurm_seconds(self.priority_calc_period))
        due_s += [begin_s for begin_s in state.begins.values() if begin_s > view.now]
        due_s += [until_s for until_s in exemptions_s(self, state.site, view) if until_s > view.now]
        return min(due for due in due_s if due > view.now)

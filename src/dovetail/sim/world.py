"""The simulated world: it has the true lengths of jobs and advances the time.

Events of one instant come in the order of ALGORITHMS section 0: completions, then timers (time
limits, cancellations, the policy's own wake-up), then changes of capacity, then arrivals; then
the loop makes one scheduling pass. Arrivals are a sorted iterator outside the heap, so the heap
is as small as the set of running jobs. A completion is an event, never a comparison with a
small number; a stale entry has an old version.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NoReturn

from dovetail.control.handover import Handover
from dovetail.control.state import ClusterState
from dovetail.core.beliefs import Neighbour
from dovetail.core.cluster import DOWN
from dovetail.core.errors import DovetailError, IllegalPlan
from dovetail.core.legality import audit
from dovetail.core.messages import (
    NODE_DOWN,
    PREEMPTED,
    RESIZE,
    Ended,
    Explained,
    Fact,
    NodeChanged,
    Reason,
    Recorder,
    Retimed,
    Shrunk,
    Started,
    Stopped,
    Submitted,
    Switched,
    Woke,
)
from dovetail.core.placement import Placement
from dovetail.core.plan import Change, Draft
from dovetail.core.policy import Decision, Policy, name_of
from dovetail.core.switching import delay_s
from dovetail.core.trace import CANCELLED, ENDS, TIMEOUT
from dovetail.core.units import NEVER_S
from dovetail.core.view import Changes, View, set_changes, set_now
from dovetail.sim.scene import Scene, with_reservations
from dovetail.sim.stuck import stuck

OWN_MOMENT = 3
"""The kind of a heap entry at which a job changes speed (0: it ends, 1: limit, 2: cancelled)."""
OVER = -1
"""The version of a job that has ended: every entry of the heap that names it is stale."""
IDLE_WAKES_MAX = 100_000
"""Wake-ups in a row without another event; after so many the policy counts as stuck."""


class SimWorld:
    """A world in virtual time. It refuses an illegal plan by raising IllegalPlan."""

    def __init__(self, scene: Scene, policy: Policy, recorder: Recorder) -> None:
        self._scene = scene
        self._policy = policy
        self._recorder = recorder
        trace = scene.trace
        self.state = ClusterState(
            trace.jobs,
            scene.cluster,
            policy,
            physics=scene.belief,
            forecast=scene.forecast,
            placing=scene.placing,
            switching=scene.switching,
            startup_s=scene.startup_s,
        )
        self._work: list[float] = trace.duration_s.tolist()
        self._submit: list[float] = [*trace.jobs.submit_s.tolist(), NEVER_S]
        self._ends: list[int] = trace.end.tolist()
        limits = trace.jobs.time_limit_s
        self._limit: list[float] | None = limits.tolist() if (limits < NEVER_S).any() else None
        # A time limit counts seconds of progress, not the seconds of a switch.
        self._ran: list[float] = [0.0] * len(trace) if self._limit else []
        self._from_s: list[float] = [0.0] * len(trace)
        self._next = 0
        self._next_capacity = 0
        self._capacity = with_reservations(scene.capacity, self.state.plan.occupancy)
        self._capacity_next_s = self._capacity_s()
        self._heap: list[tuple[float, int, int, int]] = []
        self._version: list[int] = [0] * len(trace)
        self._quit_s: dict[int, float] = {}
        self._coalesce_s = scene.coalesce_s
        self._reasons: tuple[Reason, ...] | None = None
        self._instants = 0
        self._facts: list[Fact] = []
        self._idle_wakes = 0

    def observe(self) -> View:
        """Returns the view at the present instant."""
        return self.state.view

    def advance(self, until: float) -> bool:
        """Moves to the next instant; False when no event is left and nothing waits.

        Instants at which jobs only switch to prepared GPUs, or reach another phase, are skipped: a
        policy cannot act on them.
        """
        while self._step(until):
            if any(self.state.view.changes):
                return True
        return False

    def _step(self, until: float) -> bool:
        self._hand_over()
        event_s = self._next_event_s()
        if not self._heap and self._submit[self._next] == NEVER_S and not self.state.waiting:
            return False
        now = event_s if event_s < until else until
        if now == NEVER_S:
            raise stuck(self._scene, self._policy, self.state.view)
        if now < until and self._coalesce_s:
            now = min(self._last_within(now + self._coalesce_s), until)
        woke = now == until
        if woke or self._idle_wakes:
            self._check_idle_wakes(woke)
        heap, state = self._heap, self.state
        state.now = now
        set_now(state.view, now)
        self._instants += 1
        facts = self._facts
        arrived: Sequence[int] = ()
        ended: list[int] = []
        evicted: Sequence[int] = ()
        if heap and heap[0][0] <= now:
            ended = self._finish_jobs(now, facts)
        if woke:
            facts.append(Woke(now))
        capacity = self._capacity_next_s <= now
        if capacity:
            evicted = self._change_capacity(now, facts, ended)
        if self._submit[self._next] <= now:
            arrived = self._submit_jobs(now, facts)
        set_changes(state.view, Changes(arrived, ended, evicted, capacity, woke))
        return True

    def _next_event_s(self) -> float:
        """Returns when the next event is due, dropping the stale ends before it."""
        heap, version = self._heap, self._version
        while heap and heap[0][3] != version[heap[0][2]]:
            heapq.heappop(heap)
        event_s = self._submit[self._next]
        if heap and heap[0][0] < event_s:
            event_s = heap[0][0]
        return event_s if event_s < self._capacity_next_s else self._capacity_next_s

    def _hand_over(self) -> None:
        """Passes the facts of the last instant to the recorder, all at once."""
        if self._facts:
            self._recorder.record(self._facts)
            self._facts = []

    def apply(self, draft: Draft) -> None:
        """Carries the draft out: stops, then starts and moves, then re-times neighbours."""
        state = self.state
        changes = state.plan.commit(draft)
        if not changes:
            return
        now = state.now
        facts = self._facts
        touched: set[int] = set()
        handover = state.handover(changes)
        for change in changes:
            job, before, after = change
            if before is not None:
                self._book_run(job)
                if before.gpu_ids:
                    touched.update(self._on_gpus_of(before))
            if after is None:
                state.stop(job)
                self._forget_end(job)
                facts.append(Stopped(now, job, draft.why.get(job, PREEMPTED), state.done[job]))
        # Starts come after all stops: a job may take the GPUs of another that stops.
        for change in changes:
            if change.after is not None:
                touched.update(self._place(change, handover, facts))
        if touched:
            # Neighbours change speed once, when all jobs are placed; placed jobs have theirs.
            touched.difference_update(c.job for c in changes)
            self._retime(sorted(touched), facts)
        every = self._scene.audit_every
        if every and self._instants % every == 0:
            wrong = audit(state.view, state.plan.occupancy)
            if wrong:
                raise IllegalPlan("; ".join(wrong))

    def _place(self, change: Change, handover: Handover, facts: list[Fact]) -> list[int]:
        """Starts, moves or resizes one job; returns its neighbours."""
        job, before, after = change
        assert after is not None
        state, now = self.state, self.state.now
        how = state.how(change)
        begin_s = handover.take(before, after, now)
        on = before is not None and state.trains_on(job)
        training, delay = state.begin_switch(change, how, begin_s=begin_s, trains_on=on)
        neighbours = self._neighbours(job, after) if after.gpu_ids else ()
        rate = self._scene.truth.rate(job, training, neighbours, state.done[job])
        state.start(job, after, rate, delay)
        self._from_s[job] = now + delay
        self._schedule(job)
        preparing = after.gpus - training.gpus
        facts.append(Started(now, job, how, after, rate, now + delay, preparing))
        return [j for j, _ in neighbours]

    def in_time(self, took_s: float) -> bool:
        """Returns True: no time passes here while a policy decides."""
        return True

    def refuse(
        self, policy: Policy, why: Sequence[str], cause: Exception | None = None
    ) -> NoReturn:
        """Raises: in simulation a policy that raises or makes an illegal plan has a bug."""
        self._hand_over()
        if isinstance(cause, DovetailError):
            raise cause
        message = f"policy {name_of(policy)} at {self.state.now:g} s: {'; '.join(why)}"
        if cause is not None:
            raise DovetailError(message) from cause
        raise IllegalPlan(message)

    def note(self, decision: Decision) -> None:
        """Records the reasons when they change, and adopts a new order of the queue."""
        if decision.because is not None and decision.because != self._reasons:
            self._reasons = decision.because
            self._facts.append(Explained(self.state.now, decision.because))
        if decision.order is not None:
            self.state.reorder(decision.order)

    @property
    def instants(self) -> int:
        """Returns how many instants have passed."""
        return self._instants

    def _capacity_s(self) -> float:
        timeline = self._capacity
        return timeline[self._next_capacity][0] if self._next_capacity < len(timeline) else NEVER_S

    def _last_within(self, end_s: float) -> float:
        """Returns the time of the last event up to `end_s`."""
        last = -NEVER_S
        version = self._version
        for t, _, job, v in self._heap:
            if last < t <= end_s and v == version[job]:
                last = t
        i = self._next
        while self._submit[i] <= end_s:
            last = max(last, self._submit[i])
            i += 1
        t = self._capacity_next_s
        return max(last, t) if t <= end_s else last

    def _finish_jobs(self, now: float, facts: list[Fact]) -> list[int]:
        heap, version, state = self._heap, self._version, self.state
        due: list[tuple[int, int]] = []
        while heap and heap[0][0] <= now:
            _, kind, job, v = heapq.heappop(heap)
            if v == version[job]:
                due.append((kind, job))
        # Ends before limits before cancellations, then by job: a heap leaves ties in any order.
        due.sort()
        ended: list[int] = []
        touched: set[int] = set()
        for kind, job in due:
            if version[job] == OVER:
                continue  # Two entries of one job were due at once; the first has ended it.
            if kind == OWN_MOMENT:
                self._switch(job, facts)
                continue
            version[job] = OVER
            placement = state.plan.placed.get(job)
            if kind == 0:
                state.settle(job)
                state.done[job] = self._work[job]
            state.end(job)
            if placement is not None and placement.gpu_ids:
                touched.update(self._on_gpus_of(placement))
            how = ENDS[self._ends[job] if kind == 0 else TIMEOUT if kind == 1 else CANCELLED]
            self._scene.forecast.ended(job, state.done[job], how, now)
            facts.append(Ended(now, job, how))
            ended.append(job)
        if touched:
            self._retime(sorted(touched.difference(ended)), facts)
        return ended

    def _switch(self, job: int, facts: list[Fact]) -> None:
        """Switches a job to its prepared GPUs, or to another phase of its batch."""
        state, now = self.state, self.state.now
        placement = state.plan.placed[job]
        if state.expansions.due_s(job) > now:
            state.settle(job)
            self._retime([job], facts)
            self._schedule(job)
            return
        state.expansions.carry_out(job, now)
        state.settle(job)
        rate = self._rate(job, placement)
        state.switch(job, rate, self._scene.switching.resize_s)
        self._schedule(job)
        preparing = placement.gpus - state.expansions.training(job, placement).gpus
        facts.append(Switched(now, job, rate, state.since_s[job], preparing))

    def _rate(self, job: int, placement: Placement) -> float:
        """Returns the speed of a running job as it trains now."""
        training = self.state.expansions.training(job, placement)
        neighbours = self._neighbours(job, placement)
        return self._scene.truth.rate(job, training, neighbours, self.state.done[job])

    def _submit_jobs(self, now: float, facts: list[Fact]) -> list[int]:
        state, submit, arrived = self.state, self._submit, []
        while submit[self._next] <= now:
            job = self._next
            self._next += 1
            state.arrive(job)
            arrived.append(job)
            facts.append(Submitted(now, job, *state.told(job)))
            if self._scene.cancelled_by_clock and self._ends[job] == CANCELLED:
                self._quit_s[job] = submit[job] + self._work[job]
                self._schedule_quit(job)
        return arrived

    def _change_capacity(self, now: float, facts: list[Fact], ended: list[int]) -> list[int]:
        """Applies the changes of nodes that are due; returns the jobs evicted by them.

        A subclass adds to `ended` the jobs that leave the queue at this instant.
        """
        state = self.state
        after: dict[int, str] = {}
        while self._capacity_next_s <= now:
            _, nodes = self._capacity[self._next_capacity]
            self._next_capacity += 1
            self._capacity_next_s = self._capacity_s()
            after.update(nodes)
            if not nodes:
                facts.append(Woke(now))
            facts.extend(NodeChanged(now, node, st) for node, st in nodes)
        lost = {node for node, st in after.items() if st == DOWN}
        placed = state.plan.placed.items()
        hit = sorted(j for j, p in placed if any(n in lost for n, _ in p.spans)) if lost else []
        touched: set[int] = set()
        shrunk: list[int] = []
        evicted: list[int] = []
        for job in hit:
            touched.update(self._on_gpus_of(state.plan.placed[job]))
            self._book_run(job)
            left = self._left_of(job, lost)
            if left is not None:
                state.expansions.lose(job, lost)
                state.plan.shrink(job, left)
                shrunk.append(job)
                continue
            state.evict(job)
            self._forget_end(job)
            facts.append(Stopped(now, job, NODE_DOWN, state.done[job]))
            evicted.append(job)
        state.change_nodes(list(after.items()))
        for job in shrunk:
            self._go_on(job, facts)
        self._retime(sorted(touched.difference(hit)), facts)
        return evicted

    def _left_of(self, job: int, lost: set[int]) -> Placement | None:
        """Returns where an elastic job can train on without some nodes, None if it cannot."""
        jobs, placement = self.state.jobs, self.state.plan.placed[job]
        left = placement.without(lost)
        training = self.state.expansions.training(job, placement).without(lost)
        may = self.state.trains_on(job) and "resize" in self._policy.powers
        if left is None or training is None or not may:
            return None
        return left if left.gpus >= int(jobs.min_gpus[job]) else None

    def _go_on(self, job: int, facts: list[Fact]) -> None:
        """Continues a job on the GPUs it has left, after the pause of a switch."""
        state, now = self.state, self.state.now
        placement = state.plan.placed[job]
        delay = delay_s(RESIZE, self._scene.switching.resize_s, busy_s=state.since_s[job] - now)
        state.settle(job)
        rate = self._rate(job, placement)
        state.start(job, placement, rate, delay)
        self._from_s[job] = now + delay
        self._schedule(job)
        preparing = placement.gpus - state.expansions.training(job, placement).gpus
        facts.append(Shrunk(now, job, placement, rate, now + delay, preparing))

    def _schedule(self, job: int) -> None:
        """Puts the end of a running job into the heap and makes earlier entries stale."""
        state = self.state
        self._version[job] = version = self._version[job] + 1
        rate = state.rate[job]
        end = state.since_s[job] + (self._work[job] - state.done[job]) / rate if rate else NEVER_S
        kind = 0
        if self._limit is not None:
            limit = self._from_s[job] + max(0.0, self._limit[job] - self._ran[job])
            if limit < end:
                end, kind = limit, 1
        if self._quit_s.get(job, NEVER_S) < end:
            end, kind = self._quit_s[job], 2
        own = self._own_moment_s(job)
        if own < end:
            end, kind = own, OWN_MOMENT
        if end < NEVER_S:
            # A remainder of a few ulps can put the end before now, and time must not run back.
            heapq.heappush(self._heap, (max(end, state.now), kind, job, version))

    def _own_moment_s(self, job: int) -> float:
        """Returns when a job switches to prepared GPUs, or reaches another phase of its batch."""
        state = self.state
        placement = state.plan.placed[job]
        expansions = state.expansions
        if not placement.batch_size and job not in expansions.shown:
            return NEVER_S
        due = expansions.due_s(job)
        changed = expansions.training(job, placement).batch_size
        if not changed or not state.rate[job]:
            return due
        end_s = self._scene.truth.batches.phase_end_s(job, state.done[job])
        return min(due, state.since_s[job] + (end_s - state.done[job]) / state.rate[job])

    def _forget_end(self, job: int) -> None:
        """Makes the end of a job that stopped running stale; it may still be cancelled."""
        self._version[job] += 1
        if job in self._quit_s:
            self._schedule_quit(job)

    def _schedule_quit(self, job: int) -> None:
        """Puts the moment a waiting job is cancelled into the heap."""
        quit_s = max(self._quit_s[job], self.state.now)
        heapq.heappush(self._heap, (quit_s, 2, job, self._version[job]))

    def _book_run(self, job: int) -> None:
        if self._limit is not None:
            self._ran[job] += max(0.0, self.state.now - self._from_s[job])

    def _retime(self, jobs: Sequence[int], facts: list[Fact]) -> None:
        state = self.state
        for job in jobs:
            placement = state.plan.placed[job]
            rate = self._rate(job, placement)
            if rate != state.rate[job]:
                state.retime(job, rate)
                self._schedule(job)
                facts.append(Retimed(state.now, job, rate))

    def _on_gpus_of(self, placement: Placement) -> set[int]:
        return self.state.plan.occupancy.company(placement)

    def _neighbours(self, job: int, placement: Placement) -> tuple[Neighbour, ...]:
        placed = self.state.plan.placed
        others = self._on_gpus_of(placement) - {job}
        return tuple((j, placed[j]) for j in sorted(others))

    def _check_idle_wakes(self, woke: bool) -> None:
        """Raises if the policy has woken too often in a row with no other event to come."""
        quiet = woke and not self._heap and self._submit[self._next] == NEVER_S
        self._idle_wakes = self._idle_wakes + 1 if quiet else 0
        if self._idle_wakes > IDLE_WAKES_MAX:
            raise stuck(self._scene, self._policy, self.state.view)

"""The tables of every world: waiting jobs, running jobs, and the progress of each.

Worlds differ in the source of events; the effect of an arrival, an end, an eviction or an applied
plan on the tables is the same everywhere. Jobs are touched only when their rate changes. Columns
are plain lists: the loop reads and writes single entries.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from dovetail.control.believed_lengths import BelievedLengths, Told
from dovetail.control.expansions import Expansions
from dovetail.control.forecast_ends import ForecastEnds
from dovetail.control.handover import NO_HANDOVER, Handover
from dovetail.control.progress import GuardedProgress, undeclared
from dovetail.control.running import RunningTable
from dovetail.core.beliefs import Forecast, Physics
from dovetail.core.cluster import Cluster
from dovetail.core.job import JobRequest, JobTable
from dovetail.core.length_distribution import LengthDistribution, LengthQuantiles
from dovetail.core.messages import HOW, RESIZE
from dovetail.core.occupancy import Occupancy, shapes_on
from dovetail.core.order import Order
from dovetail.core.placement import Placement
from dovetail.core.placing import Placing
from dovetail.core.plan import Change, Plan
from dovetail.core.policy import Policy
from dovetail.core.queue import WaitingQueue
from dovetail.core.switching import SwitchCost, Switching, delay_s, own_cost_s, placed_how
from dovetail.core.units import NEVER_S
from dovetail.core.view import View, show


class JobProgress(NamedTuple):
    """The progress of a job, as a world stores it and `ClusterState.restore` reads it.

    `done_s` is its progress by now; `attained_gpu_s` the service booked before `placed_s`, when
    it was last placed; `from_s` when a switch under way ends; `pending_s` when it began to wait.
    `placed_s` means nothing for a job that waits.
    """

    done_s: float = 0.0
    attained_gpu_s: float = 0.0
    first_start_s: float = NEVER_S
    pending_s: float = 0.0
    placed_s: float = 0.0
    from_s: float = 0.0


FREE = Switching.parse("none")


class ClusterState:
    """Queue, plan and progress of all jobs. Only the world that owns it calls the verbs.

    A running job has made the progress `done` up to `since_s`, and makes `rate` from then on.
    `startup_s` is what a start takes each job, if that is known.
    """

    def __init__(
        self,
        jobs: JobTable,
        cluster: Cluster,
        policy: Policy,
        *,
        physics: Physics,
        forecast: Forecast,
        placing: Placing,
        switching: Switching = FREE,
        startup_s: Sequence[float] = (),
    ) -> None:
        n = len(jobs)
        self.jobs = jobs
        self.gpus: list[int] = jobs.gpus.tolist()
        self.order = policy.order
        self.forecast = forecast
        self.switching, self._startup_s = switching, startup_s
        self._cost_s = {how: switching.cost_s(how) for how in HOW}
        self.expansions = Expansions(switching)
        self.now = 0.0
        self._lengths = BelievedLengths(n)
        self.length = self._lengths.mean_s
        self.done: list[float] = [0.0] * n
        self.rate: list[float] = [0.0] * n
        self.since_s: list[float] = [0.0] * n
        self.attained: list[float] = [0.0] * n
        self.placed_s: list[float] = [0.0] * n
        self.pending_s: list[float] = [0.0] * n
        self.first_start_s: list[float] = [NEVER_S] * n
        self._held: list[float] = [0] * n
        self._running = RunningTable(self._lengths.distributions)
        self._end: list[float] = [0.0] * n
        self._avoided: dict[int, tuple[int, ...]] = {}
        shared = bool(policy.powers & {"share", "interleave"})
        self.plan = Plan(Occupancy(cluster, jobs, shared=shared))
        if self.plan.occupancy.tenants is not None:
            self.plan.occupancy.tenants.now = lambda: self.now
        self._foresee(range(n))
        self.waiting = WaitingQueue(*shapes_on(self.plan.occupancy))
        self.ends: ForecastEnds | None = None
        if self.order.by_length:
            if "length" not in policy.knows:
                raise undeclared()
            self.waiting.index_lengths(self.length)
            self.ends = ForecastEnds(self._renew_ends)
        self.view = View(
            jobs=jobs,
            cluster=cluster,
            plan=self.plan,
            waiting=self.waiting,
            progress=GuardedProgress(self, policy.knows),
            physics=physics,
            placing=placing,
            ends=self.ends,
            switch_s=self._cost_s,
            expanding=self.expansions.shown,
            switch_cost=self._switch_cost,
        )

    # Read by policies, through `control.progress`.

    knows_lengths = True

    def done_s(self, jobs: Sequence[int]) -> list[float]:
        """Returns progress in solo seconds."""
        now, done, rate, since = self.now, self.done, self.rate, self.since_s
        return [
            done[j] + rate[j] * (now - since[j]) if rate[j] and now > since[j] else done[j]
            for j in jobs
        ]

    def left_s(self, jobs: Sequence[int]) -> list[float]:
        """Returns the mean of what is left, given the progress."""
        return self._lengths.left_s(jobs, self.done_s(jobs))

    def length_s(self, jobs: Sequence[int]) -> list[float]:
        """Returns the forecast lengths."""
        length = self.length
        return [length[j] for j in jobs]

    def length_quantiles(self, jobs: Sequence[int]) -> LengthQuantiles:
        """Returns the distributions of the lengths of jobs that have not ended."""
        return self._lengths.quantiles(jobs)

    def attained_gpu_s(self, jobs: Sequence[int]) -> list[float]:
        """Returns the GPU-seconds held so far."""
        now, attained, held, placed = self.now, self.attained, self._held, self.placed_s
        return [attained[j] + held[j] * (now - placed[j]) if held[j] else attained[j] for j in jobs]

    def pending_since_s(self, job: int) -> float:
        """Returns when a waiting job last became pending."""
        return self.pending_s[job]

    def running_since_s(self, job: int) -> float:
        """Returns when a running job was last placed."""
        return self.placed_s[job]

    def running(self) -> RunningTable:
        """Returns the running jobs as columns, at the present instant."""
        self._running.now = self.now
        return self._running

    # The verbs of a world.

    def admit(self, jobs: Sequence[JobRequest]) -> range:
        """Adds new jobs to all tables and beliefs; returns their indices.

        They do not wait before `arrive`. Raises ValueError as `JobTable.append` does.
        """
        self.plan.discard()
        rows = self.jobs.append(jobs)
        self.gpus.extend(job.gpus for job in jobs)
        self.first_start_s.extend([NEVER_S] * len(jobs))
        self._held.extend([0] * len(jobs))
        for column in (
            self.length,
            self.done,
            self.rate,
            self.since_s,
            self.attained,
            self.placed_s,
            self.pending_s,
            self._end,
        ):
            column.extend([0.0] * len(jobs))
        self.plan.occupancy.admit(rows)
        self.forecast.admit(self.jobs)
        self._foresee(rows)
        self.waiting.admit([self.plan.occupancy.shape(job) for job in rows])
        self.view.physics.structure.admit(self.jobs)
        return rows

    def _foresee(self, rows: range) -> None:
        """Tells the tables how long new jobs may be, where reservations ask for it."""
        tenants = self.plan.occupancy.tenants
        if tenants is not None and tenants.has_reservations:
            tenants.length_s.extend(self.forecast.length_s(job, self.now) for job in rows)

    def arrive(self, job: int) -> None:
        """Adds a job to the queue."""
        self._ask(job)
        self._wait(job)

    def _ask(self, job: int) -> None:
        """Asks the forecast for the length of a job, and for its distribution."""
        length_s = self.forecast.length_s(job, self.now)
        told = self.forecast.distribution(job, self.now, self.done_s)
        self._lengths.tell(job, length_s, told)

    def settle(self, job: int) -> None:
        """Books the progress of a running job up to now."""
        now, since = self.now, self.since_s[job]
        # While a job switches, `since` lies ahead: it makes no progress before.
        if now > since:
            self.done[job] += self.rate[job] * (now - since)
            self.since_s[job] = now

    def retime(self, job: int, rate: float) -> None:
        """Gives a running job a new rate from now on (or from when its switch is over)."""
        self.settle(job)
        self.rate[job] = rate
        self._write(job)

    def measure(self, job: int, done_s: float, rate: float) -> None:
        """Adopts the reported progress and rate of a running job.

        The service that was booked stays.
        """
        self.done[job] = done_s
        self.rate[job] = rate
        self.since_s[job] = self.now
        self._write(job)

    def relength(self, job: int, length_s: float, told: LengthDistribution | None = None) -> None:
        """Gives a waiting or running job a new forecast length, and its place in the order."""
        if job in self.waiting:
            self.waiting.remove(job)
            self._lengths.tell(job, length_s, told)
            self.waiting.add(job, self.order.keys(self.view, (job,))[0])
        else:
            self._lengths.tell(job, length_s, told)
            self._write(job)

    def told(self, job: int) -> Told:
        """Returns what is believed of the length of a job that has not ended."""
        return self._lengths.told(job)

    def restore(
        self, job: int, life: JobProgress, placement: Placement | None, rate: float = 0.0
    ) -> None:
        """Restores a job of an earlier run: running on its GPUs, or waiting.

        Raises IllegalPlan when its GPUs are not free or do not exist.
        """
        if placement is not None:
            self.plan.adopt(job, placement)
        now = self.now
        self._ask(job)
        self.done[job] = life.done_s
        self.attained[job] = life.attained_gpu_s
        self.first_start_s[job] = life.first_start_s
        self.pending_s[job] = life.pending_s
        if placement is None:
            self.waiting.add(job, self.order.keys(self.view, (job,))[0])
            return
        self.rate[job] = rate
        self.since_s[job] = max(now, life.from_s)
        self.placed_s[job] = life.placed_s
        self._held[job] = placement.held_gpus
        self._write(job)

    def life(self, job: int) -> JobProgress:
        """Returns the progress of a job by now, for `restore`."""
        return JobProgress(
            done_s=self.done_s((job,))[0],
            attained_gpu_s=self.attained[job],
            first_start_s=self.first_start_s[job],
            pending_s=self.pending_s[job],
            placed_s=self.placed_s[job],
            from_s=self.since_s[job],
        )

    def how(self, change: Change) -> str:
        """Returns why a job is placed: one of `core.messages.HOW`."""
        assert change.after is not None
        started_before = self.first_start_s[change.job] != NEVER_S
        return placed_how(change.before, change.after, started_before=started_before)

    def cost_s(self, job: int, how: str) -> float:
        """Returns the cost of placing a job, by its own start-up or price if that is known."""
        startup_s = self._startup_s
        cost_s = self.switching.cost_s(how, startup_s[job]) if startup_s else self._cost_s[how]
        return own_cost_s(how, cost_s, self.jobs.restart_s[job])

    def begin_switch(
        self, change: Change, how: str, *, begin_s: float, trains_on: bool
    ) -> tuple[Placement, float]:
        """Begins what an order changes of a job; `start` follows.

        Returns the part of the job that trains from now on, and the pause before it, in seconds.
        `begin_s` is when the GPUs that it gains are free. If it `trains_on`, the GPUs it keeps
        train while the others are made ready.
        """
        job, before, after = change
        assert after is not None
        now, busy_s = self.now, self.since_s[job] - self.now
        if before is not None and trains_on:
            switch = self.expansions.foreseen(job, before, after, how, now=now, begin_s=begin_s)
            self.expansions.begin(job, switch)
            return switch.training, max(switch.pause_s, busy_s)
        if before is not None:
            self.expansions.forget(job)
            if how == RESIZE and not self.switching.cancels:
                begin_s = max(begin_s, self.since_s[job])
        cost_s = self.cost_s(job, how)
        return (after, delay_s(how, cost_s, wait_s=begin_s - now, busy_s=busy_s))

    def trains_on(self, job: int) -> bool:
        """Returns whether a running job trains on while GPUs that it gains are made ready."""
        jobs = self.jobs
        return self.expansions.overlaps and bool(jobs.elastic[job] and not jobs.restart_s[job])

    def handover(self, changes: Sequence[Change]) -> Handover:
        """Returns the GPUs that are free late, where orders under way are not cancelled."""
        if self.switching.cancels:
            return NO_HANDOVER
        handover, now = Handover(), self.now
        for job, before, after in changes:
            busy_s = max(self.expansions.done_s(job), self.since_s[job])
            if before is not None and busy_s > now:
                handover.give_up(before, after, busy_s)
        return handover

    def _switch_cost(self, job: int, after: Placement) -> SwitchCost:
        """Returns what it would cost a job to be placed now on GPUs that are free."""
        now, before = self.now, self.plan.placed.get(job)
        if before == after:
            return self.expansions.left(job, now=now, busy_s=self.since_s[job] - now)
        how = self.how(Change(job, before, after))
        busy_s = self.since_s[job] - now
        if before is None or not self.trains_on(job):
            pause_s = delay_s(how, self.cost_s(job, how), busy_s=busy_s)
            return SwitchCost(pause_s, pause_s)
        switch = self.expansions.foreseen(job, before, after, how, now=now, begin_s=now)
        return self.expansions.cost(switch, now=now, busy_s=busy_s)

    def avoid(self, job: int, nodes: Sequence[int]) -> None:
        """Keeps a job off some nodes until it is placed the next time.

        A policy that stops it later may place it there: the fault was of one try.
        """
        self._avoided = {j: kept for j, kept in self._avoided.items() if j != job}
        if nodes:
            self._avoided[job] = tuple(sorted(nodes))
        avoided = self._avoided.get(job, ())
        self.waiting.reshape(job, self.plan.occupancy.shape(job, avoided))

    @property
    def avoided(self) -> Mapping[int, tuple[int, ...]]:
        """The nodes that waiting jobs avoid."""
        return self._avoided

    def start(self, job: int, placement: Placement, rate: float, delay_s: float) -> None:
        """Puts a job on its GPUs; it makes progress after `delay_s`."""
        if job in self.waiting:
            self.waiting.remove(job)
            if job in self._avoided:
                self.avoid(job, ())
        else:
            self.settle(job)
            self._book(job)
        now = self.now
        if self.first_start_s[job] == NEVER_S:
            self.first_start_s[job] = now
        self.rate[job] = rate
        self.since_s[job] = now + delay_s
        self.placed_s[job] = now
        self._held[job] = placement.held_gpus
        self._write(job)

    def switch(self, job: int, rate: float, delay_s: float) -> None:
        """Gives a running job a new rate after `delay_s` without progress."""
        self.settle(job)
        self.rate[job] = rate
        self.since_s[job] = max(self.since_s[job], self.now + delay_s)
        self._write(job)

    def stop(self, job: int) -> None:
        """Takes a running job off its GPUs; it waits again."""
        self.settle(job)
        self._release(job)
        self._wait(job)

    def end(self, job: int) -> None:
        """Takes a job out of the cluster for good."""
        if job in self.waiting:
            self.waiting.remove(job)
        else:
            self.settle(job)
            self._release(job)
            self.plan.remove(job)
        self._lengths.forget(job)

    def withdraw(self, job: int) -> None:
        """Takes a waiting job out of the queue; it keeps its progress and may `arrive` again."""
        self.waiting.remove(job)

    def evict(self, job: int) -> None:
        """Takes a job off a lost node; it waits again."""
        self.plan.remove(job)
        self.stop(job)

    def reorder(self, order: Order) -> None:
        """Ranks the waiting jobs by a new order from now on."""
        self.order = order
        jobs = list(self.waiting)
        for job in jobs:
            self.waiting.remove(job)
        for job, key in zip(jobs, order.keys(self.view, jobs), strict=True):
            self.waiting.add(job, key)

    def change_nodes(self, nodes: Sequence[tuple[int, str]]) -> None:
        """Adopts new states of nodes; no job may be on a lost node."""
        cluster = self.view.cluster.with_nodes(nodes)
        self.plan.change_nodes(cluster, sorted({node for node, _ in nodes}))
        show(self.view, cluster=cluster)

    def change_gpus(self, states: Sequence[tuple[int, int, str]], staying: Collection[int]) -> None:
        """Adopts the GPUs that are draining or down, and the jobs that may finish on them.

        No job may be on a GPU that is down.
        """
        before = self.view.cluster
        cluster = before.with_gpus(states)
        nodes = sorted({node for node, _ in before.gpus_down ^ cluster.gpus_down})
        self.plan.change_nodes(cluster, nodes)
        show(self.view, cluster=cluster, staying=frozenset(staying))

    def _wait(self, job: int) -> None:
        self.pending_s[job] = self.now
        self.waiting.add(job, self.order.keys(self.view, (job,))[0])

    def _book(self, job: int) -> None:
        """Books the service of a job up to now; it holds no GPU until it is placed again."""
        self.attained[job] += self._held[job] * (self.now - self.placed_s[job])
        self._held[job] = 0
        self.rate[job] = 0.0

    def _release(self, job: int) -> None:
        self._book(job)
        self.expansions.forget(job)
        self._running.drop(job)
        if self.ends is not None:
            self.ends.discard((self._end[job], job))

    def _write(self, job: int) -> None:
        """Copies a running job into the columns and the order of forecast ends."""
        row = (
            self.length[job],
            self.done[job],
            self.rate[job],
            self.since_s[job],
            self.attained[job],
            self.placed_s[job],
            float(self._held[job]),
            self._lengths.row(job),
        )
        self._running.put(job, row)
        self._expect_end(job)

    def _expect_end(self, job: int) -> None:
        if self.ends is None:
            return
        # The old entry is found by its exact time, so it goes before the time changes.
        self.ends.discard((self._end[job], job))
        rate = self.rate[job]
        left = max(0.0, self.length[job] - self.done[job])
        self._end[job] = self.since_s[job] + left / rate if rate else NEVER_S
        if job in self._lengths:
            begin_s = max(self.now, self.since_s[job])
            self._end[job] = begin_s + self.left_s((job,))[0] / rate if rate else NEVER_S
        self.ends.add((self._end[job], job))

    def _renew_ends(self) -> None:
        """Forecasts anew the ends that have passed, of jobs whose length is a distribution."""
        if self.ends is not None and len(self._lengths.distributions):
            for _, job in self.ends.until(self.now):
                if job in self._lengths:
                    self._expect_end(job)

"""The least that a controller does to paced workers: starts them, groups them, passes meetings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dovetail.core.job import JobTable
from dovetail.live.emulation.synthetic import SwitchCosts, SyntheticSpec
from dovetail.physics.linear import linear_physics
from dovetail.wire.agent import (
    AgentOrder,
    AgentReport,
    EndWorker,
    Forget,
    NotifyWorkers,
    StartWorker,
)
from dovetail.wire.worker import Checkpoint, Meet, Regroup
from emulated_faults import FaultyNodes

Gpu = tuple[int, int]


def empty_table() -> JobTable:
    return JobTable.build((), np.empty(0), np.empty(0, np.int64))


def nodes_of(
    nodes: int = 1, gpus: int = 4, costs: SwitchCosts | None = None, **rest: Any
) -> FaultyNodes:
    jobs = rest.pop("jobs", None) or empty_table()
    physics = rest.pop("physics", None) or linear_physics(jobs)
    return FaultyNodes(nodes, gpus, jobs=jobs, physics=physics, costs=costs, **rest)


class PlainController:
    """Knows the members of each job; everything reported is in `log` as (time, report)."""

    def __init__(self, nodes: FaultyNodes, epoch: int = 1) -> None:
        self.nodes, self.epoch, self.now = nodes, epoch, 0.0
        self.log: list[tuple[float, AgentReport]] = []
        self.at: dict[tuple[int, int], Gpu] = {}
        self.members: dict[int, tuple[int, ...]] = {}
        self.group: dict[int, Regroup] = {}
        self.next: dict[int, int] = {}

    def send(self, node: int, **order: Any) -> None:
        self.take(self.nodes.handle(node, AgentOrder(self.epoch, **order), self.now))

    def take(self, reports: Sequence[AgentReport]) -> None:
        for report in reports:
            self.log.append((self.now, report))
            if report.said is not None and report.said.meeting is not None:
                said = report.said.meeting
                self.tell(report.said.job, meet=Meet(said.generation, said.address))
            if report.ended is not None:
                end = report.ended
                self.send(report.node, forget=Forget(end.job, end.worker))

    def tell(self, job: int, workers: Sequence[int] | None = None, **message: Any) -> None:
        for worker in list(self.members[job]) if workers is None else workers:
            node = self.at[job, worker][0]
            self.send(node, tell=NotifyWorkers(job, (worker,), **message))

    def start(
        self, job: int, paced: SyntheticSpec, gpus: Sequence[Gpu], **start: Any
    ) -> tuple[int, ...]:
        """Starts one more worker on each of these GPUs; returns their numbers."""
        first = self.next.get(job, 0)
        self.next[job] = first + len(gpus)
        generation = self.group[job].generation + 1 if job in self.group else 1
        launch = (paced.command(), start.pop("folder", ""), "", "")
        for worker, (node, gpu) in enumerate(gpus, start=first):
            self.at[job, worker] = node, gpu
            order = StartWorker(job, worker, generation, gpu, *launch, trains=True, **start)
            self.send(node, start=order)
        return tuple(range(first, first + len(gpus)))

    def regroup(self, job: int, members: Sequence[int], **manner: Any) -> None:
        """Tells old and new members of a job of its next generation."""
        before = self.members.get(job, ())
        generation = self.group[job].generation + 1 if job in self.group else 1
        self.group[job] = Regroup(generation, tuple(members), **manner)
        self.members[job] = tuple(members)
        told = [*before, *(m for m in members if m not in before)]
        self.tell(job, told, regroup=self.group[job])

    def run(self, job: int, paced: SyntheticSpec, gpus: Sequence[Gpu], **start: Any) -> None:
        """Starts a gang afresh."""
        self.members[job] = ()
        self.regroup(job, self.start(job, paced, gpus, **start))

    def grow(self, job: int, paced: SyntheticSpec, gpus: Sequence[Gpu]) -> None:
        self.regroup(job, (*self.members[job], *self.start(job, paced, gpus)))

    def limit(self, job: int, paced: SyntheticSpec, share: float) -> None:
        """Puts all workers of a job under another share of their GPUs."""
        generation = self.group[job].generation + 1
        launch = (paced.command(), "", "", "")
        for worker in self.members[job]:
            node, gpu = self.at[job, worker]
            order = StartWorker(job, worker, generation, gpu, *launch, trains=True, share=share)
            self.send(node, start=order)
        self.regroup(job, self.members[job])

    def preempt(self, job: int) -> None:
        self.tell(job, checkpoint=Checkpoint(leave=True))
        self.members[job] = ()

    def end(self, job: int, worker: int, grace_s: float) -> None:
        self.send(self.at[job, worker][0], end=EndWorker(job, worker, grace_s))

    def until(self, now: float) -> None:
        """Lets time pass."""
        while (due := self.nodes.next_due()) <= now:
            self.now = due
            self.take(self.nodes.tick(due))
        self.now = now
        self.take(self.nodes.tick(now))

    def until_finished(self, job: int, limit: float = 1e9) -> float:
        """Lets time pass until a job is complete; returns when."""
        while not self.heard(job, "finished"):
            due = self.nodes.next_due()
            assert due <= limit, "the job never ends"
            self.until(due)
        return self.heard(job, "finished")[0][0]

    def heard(self, job: int, what: str) -> list[tuple[float, Any]]:
        """Returns (time, message) of all that the workers of a job said of one kind."""
        return [
            (t, getattr(r.said, what))
            for t, r in self.log
            if r.said is not None and r.said.job == job and getattr(r.said, what) is not None
        ]

    def ends(self, job: int) -> list[tuple[float, int, int]]:
        """Returns (time, worker, exit code) of the ended workers of a job, each once."""
        seen = {}
        for t, r in self.log:
            if r.ended is not None and r.ended.job == job:
                seen.setdefault(r.ended.worker, (t, r.ended.worker, r.ended.exit_code))
        return list(seen.values())

"""AntMan: guaranteed jobs share their GPUs with at most one opportunistic job each.

Two classes, each first in, first out; no job is stopped. A guaranteed job takes GPUs without
another guaranteed job: free ones and, if they do not suffice, GPUs of one opportunistic job each.
An opportunistic job takes free GPUs and GPUs of one guaranteed job each that uses little of their
time. No GPU has more than two jobs.

Opportunistic jobs are drawn at random (`classes=lot`), or have a priority other than 0 in the trace
(`classes=priority`). `bypass=strict`: a job that finds no room blocks its class.

Source: AntMan (OSDI 2020) sections 3 and 4, without its throttle; classes by lot and the limit of
utilisation as in Muri's artifact; ALGORITHMS section 6. Knows: interference, memory.
Stops running jobs: no.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dovetail.algorithms.draws import uniform_draws
from dovetail.core.job import Bools, Ints
from dovetail.core.order import Order
from dovetail.core.parameters import check_seed
from dovetail.core.passes import check_bypass, refuses
from dovetail.core.policy import Decision, register
from dovetail.core.view import View
from dovetail.mechanisms.elastic.shares import waits
from dovetail.mechanisms.sharing.candidates import SharingCandidates, utilisation

CLASSES = ("lot", "priority")


@register("antman")
@dataclass(frozen=True, slots=True)
class AntMan:
    """Guaranteed and opportunistic jobs, two on a GPU at most; non-preemptive.

    `share` is the part of jobs that are opportunistic with `classes=lot`.
    """

    classes: str = "lot"
    share: float = 0.5
    seed: int = 0
    utilisation: float = 0.8
    bypass: str = "strict"

    knows: ClassVar[frozenset[str]] = frozenset({"interference", "memory"})
    powers: ClassVar[frozenset[str]] = frozenset({"share"})
    initial: ClassVar[int] = -1

    def __post_init__(self) -> None:
        check_bypass(self.bypass)
        check_seed(self.seed)
        if self.classes not in CLASSES:
            raise ValueError(f"classes is lot or priority, not '{self.classes}'")
        if not 0 <= self.share <= 1:
            raise ValueError(f"share is between 0 and 1, not {self.share:g}")
        if not self.utilisation > 0:
            raise ValueError("utilisation is a part of a GPU's time, above zero")

    @property
    def heeds(self) -> frozenset[str]:
        """Returns `priority`, if that divides the classes."""
        return frozenset({"priority"} if self.classes == "priority" else ())

    @property
    def order(self) -> Order:
        """Ranks guaranteed jobs before opportunistic ones."""
        return Order(
            lambda view, jobs: (
                self._opportunistic(view, np.array(jobs, np.int64)).astype(np.float64).tolist()
            )
        )

    def decide(self, view: View, memory: object) -> Decision:
        """Starts all jobs that can start; `memory` is the last plan for which all were tried."""
        version = view.plan.version
        draft = view.plan.draft()
        present = np.concatenate([view.waiting.columns()[0], view.progress.running().jobs])
        classes = np.zeros(len(view.jobs), bool)
        classes[present] = self._opportunistic(view, present)
        company = SharingCandidates(view, draft, classes.__getitem__)
        started = more = self._pass(view, company, classes, memory == version)
        while more and refuses(view):  # a new host may be the one that another job needs
            more = self._pass(view, company, classes, False)
        if started:
            return Decision(draft, version + 1, because=waits(view, draft))
        view.plan.discard()
        return Decision(None, version, because=waits(view, None))

    def _pass(self, view: View, company: SharingCandidates, classes: Bools, settled: bool) -> bool:
        """Starts guaranteed jobs, then opportunistic ones; returns whether any started.

        `settled`: all jobs but arrivals were tried under this plan.
        """
        jobs, guest = view.waiting.columns()
        fresh = np.isin(jobs, np.array(view.changes.arrived, np.int64))
        started = False
        for opportunistic in (False, True):
            mine = np.argsort(jobs)
            mine = mine[guest[mine] == opportunistic]
            if settled and not started:
                mine = self._worth_trying(mine, fresh)
            started |= self._start(view, company, jobs[mine].tolist(), classes)
        return started

    def _opportunistic(self, view: View, jobs: Ints) -> Bools:
        if self.classes == "priority":
            return np.asarray(view.jobs.priority[jobs] != 0)
        return uniform_draws(self.seed, view.jobs.draw_keys(jobs)) < self.share

    def _worth_trying(self, rows: Ints, fresh: Bools) -> Ints:
        """Returns the jobs that may find room though no job has ended: the arrivals.

        In a strict line only if no job was waiting before.
        """
        if self.bypass == "skip":
            return rows[fresh[rows]]
        return rows if len(rows) and fresh[rows[0]] else rows[:0]

    def _start(
        self, view: View, company: SharingCandidates, jobs: list[int], classes: Bools
    ) -> bool:
        """Starts jobs of one class in order; returns whether any started."""

        def welcome_to_guaranteed(host: int) -> bool:
            return bool(classes[host])

        def welcome_to_opportunistic(host: int) -> bool:
            return not classes[host] and utilisation(view, host) < self.utilisation

        failed: set[tuple[int, int, bool]] = set()
        started = False
        for job in jobs:
            if company.has_started(job):
                continue
            shareable = bool(view.jobs.shareable[job])
            like = view.shape_of[job], int(view.physics.kind_of[job]), shareable
            if like in failed:
                continue
            welcome = welcome_to_opportunistic if classes[job] else welcome_to_guaranteed
            if company.start(job) or company.start_beside(job, welcome):
                started = True
            elif self.bypass == "strict":
                break
            else:
                failed.add(like)
        return started

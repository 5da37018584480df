"""Sia: the type and number of GPUs of every job by an integer programme, every minute.

Each round chooses for each job a configuration (a type of GPU and a number of them) or none. A
job's goodput in each is divided by its least one, G, so that a job counts for as much as it gains
by more and by faster GPUs; one whose configuration changes counts for less, by
`(T - R * d) / (T + d)` with age T, restarts R and restart time d. The programme maximises the sum
of `waiting - G ** p` for p below 0, or of `G ** p + waiting`, so `waiting` is what it costs to
leave a job without GPUs. A job starts on its least number and may grow by `growth` a round; one
that is restarting stays. Rounds come at multiples of `interval`; between them nothing is decided.

Source: Jayaram Subramanya et al., SOSP 2023, section 3, and its simulator. Knows: scaling and
attained service, no lengths.
Stops running jobs: yes; it moves and resizes elastic ones and chooses their batches, while a rigid
job runs as requested, on a type of choice, or waits.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

import numpy as np

from dovetail.core.job import Floats, Ints
from dovetail.core.order import Order
from dovetail.core.parameters import check_period
from dovetail.core.passes import NO_ROOM
from dovetail.core.policy import Decision, register
from dovetail.core.units import LONG_AGO_S, NEVER_S
from dovetail.core.view import View
from dovetail.mechanisms.elastic.configurations import TypeOffers
from dovetail.mechanisms.elastic.rounds import JobAge, kept_after_restart, lived, round_at
from dovetail.mechanisms.elastic.shares import waits


@dataclass(frozen=True, slots=True)
class RoundsPast:
    """When the last round was, and the histories of all jobs."""

    at_s: float = LONG_AGO_S
    lives: tuple[JobAge, ...] = ()


@register("sia")
@dataclass(frozen=True, slots=True)
class Sia:
    """Goodput-optimal types and numbers of GPUs by an integer programme; preemptive.

    `interval` and `restart` are in seconds; a job with a price of its own has that in place of
    `restart`. `p` is the power of fairness, not 0.
    """

    interval: float = 60.0
    p: float = -0.5
    waiting: float = 1.1
    restart: float = 30.0
    growth: int = 2

    knows: ClassVar[frozenset[str]] = frozenset({"attained service", "scaling"})
    powers: ClassVar[frozenset[str]] = frozenset({"preempt", "migrate", "resize", "change batch"})
    order: ClassVar[Order] = Order(lambda view, jobs: [0.0] * len(jobs))
    initial: ClassVar[RoundsPast] = RoundsPast()

    def __post_init__(self) -> None:
        check_period("interval", self.interval)
        if self.p == 0 or not abs(self.p) < inf or not 0 <= self.waiting < inf:
            raise ValueError("p is a number but 0, waiting is 0 or more")
        if not 0 <= self.restart < NEVER_S or self.growth < 1:
            raise ValueError("restart is a number of seconds, growth 1 or more")

    def decide(self, view: View, memory: object) -> Decision:
        """Solves the programme at multiples of the interval, otherwise waits for the next one."""
        past = memory if isinstance(memory, RoundsPast) else self.initial
        if not view.running and not view.waiting:
            return Decision(memory=past)
        due, next_s = round_at(view, self.interval, past.at_s)
        if not due:
            return Decision(memory=past, wake_at=next_s, because=NO_ROOM if view.waiting else ())
        from dovetail.algorithms.configuration_programme import best_configurations

        lives = {life.job: life for life in past.lives}
        jobs = self._contestants(view, lives)
        draft = None
        if jobs:
            offers = TypeOffers.of(view, jobs, self._reach(view, jobs, lives))
            gain = self._gain(view, offers, lives)
            configs = offers.configs
            chosen = best_configurations(gain, configs.gpus, configs.kind, offers.capacity)
            draft = offers.drafted(chosen)
        lives_after = past.lives if draft is None else lived(view, lives, draft)
        return Decision(draft, RoundsPast(view.now, lives_after), next_s, waits(view, draft))

    def _contestants(self, view: View, lives: dict[int, JobAge]) -> list[int]:
        """Returns running jobs that may be moved, and as many waiting ones as there are GPUs."""
        attained = view.progress.attained_gpu_s
        movable = [
            job
            for job in view.running
            if view.preemptible[job] and not self._is_restarting(view, job, lives)
        ]
        waiting = list(view.waiting)
        queue = sorted(zip(attained(waiting), waiting, strict=True))[: view.cluster.gpus]
        return sorted([*movable, *(job for _, job in queue)])

    def _is_restarting(self, view: View, job: int, lives: dict[int, JobAge]) -> bool:
        return job in lives and view.now < lives[job].moved_s + self._price_s(view, job)

    def _price_s(self, view: View, job: int) -> float:
        return float(view.jobs.restart_s[job]) or self.restart

    def _reach(self, view: View, jobs: list[int], lives: dict[int, JobAge]) -> Ints:
        """Returns the most GPUs that each job may have now."""
        least, most = view.jobs.least_gpus[jobs], view.jobs.most_gpus[jobs]
        reach = [self.growth * lives[j].most_gpus if j in lives else 0 for j in jobs]
        return np.minimum(np.maximum(reach, least), most)

    def _gain(self, view: View, offers: TypeOffers, lives: dict[int, JobAge]) -> Floats:
        """Returns what each configuration of each job adds to the goal; 0 if it may not run."""
        speed, jobs = offers.speed, list(offers.jobs)
        able = speed > 0
        base = np.where(able, speed, inf).min(axis=1, initial=inf, keepdims=True)
        goodput = view.jobs.least_gpus[jobs][:, None] * speed / base
        for row, job in enumerate(jobs):
            if job in view.running:
                kept = self._kept(view, job, lives)
                goodput[row, np.arange(speed.shape[1]) != offers.held[row]] *= kept
        power = np.where(able, goodput, 1.0) ** self.p
        gain = self.waiting - power if self.p < 0 else self.waiting + power
        return np.where(able, gain, 0.0)

    def _kept(self, view: View, job: int, lives: dict[int, JobAge]) -> float:
        price_s = self._price_s(view, job)
        age_s = view.now - float(view.jobs.submit_s[job])
        restarts = lives[job].restarts if job in lives else 0
        return 1.0 if age_s < price_s else kept_after_restart(age_s, restarts, price_s)

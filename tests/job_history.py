"""What the facts on record say of each job: where it is in its course, and on which GPUs.

A fold that believes nothing: whatever cannot follow from what went before is a sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from dovetail.core.legality import PHASES, SHARERS_MAX
from dovetail.core.messages import (
    RESUME,
    START,
    Ended,
    Fact,
    Foreseen,
    Measured,
    Retimed,
    Shrunk,
    Started,
    Stopped,
    Submitted,
    Switched,
    Withdrawn,
)
from dovetail.core.placement import Placement

GpuKey = tuple[int, int]
"""(node, GPU of the node)."""


class HistoryStage(StrEnum):
    """Where a job is by the facts alone."""

    APART = "not in the queue"
    WAITING = "waiting"
    PLACED = "placed"
    OVER = "over"


@dataclass(slots=True)
class JobHistory:
    """One job by the facts: its stage, its GPUs, its ends, its progress when it last stopped."""

    stage: HistoryStage = HistoryStage.APART
    placement: Placement | None = None
    rate: float = 0.0
    started: int = 0
    ended: list[str] = field(default_factory=list)
    stopped_done_s: float = 0.0


@dataclass(frozen=True, slots=True)
class SharingPermission:
    """What the owner of a job allows."""

    user: str
    shareable: bool


class JobHistories:
    """The fold. `breaches` are the sentences so far.

    `installed` are the GPUs of each node, empty if not known; `leave` says what owners allow.
    """

    def __init__(
        self,
        leave: Mapping[int, SharingPermission],
        installed: tuple[int, ...] = (),
        *,
        share_between_users: bool = False,
    ) -> None:
        self.of: dict[int, JobHistory] = {}
        self.breaches: list[str] = []
        self._leave = leave
        self._installed = installed
        self._between_users = share_between_users
        self._plain: dict[int, int] = {}
        self._named: dict[int, dict[int, dict[int, None]]] = {}
        self._touched: dict[int, None] = {}
        self._t = float("-inf")

    def fold(self, facts: Iterable[Fact]) -> None:
        """Takes all facts, in order."""
        for fact in facts:
            if fact.t < self._t:
                self.breaches.append(f"a fact of {fact.t:g} s stands behind one of {self._t:g} s")
            if fact.t > self._t:
                self._look()
            self._t = max(self._t, fact.t)
            self._take(fact)
        self._look()

    def _take(self, fact: Fact) -> None:
        match fact:
            case Submitted(_, job, _):
                self._expect(
                    fact, job, HistoryStage.APART, HistoryStage.OVER
                ).stage = HistoryStage.WAITING
            case Withdrawn(_, job):
                self._expect(fact, job, HistoryStage.WAITING).stage = HistoryStage.APART
            case Started(_, job, how, placement, rate):
                self._start(fact, job, how, placement, rate)
            case Shrunk(_, job, placement, rate):
                course = self._expect(fact, job, HistoryStage.PLACED)
                self._move(job, course, placement)
                course.rate = rate
            case Retimed(_, job, rate) | Measured(_, job, _, rate) | Switched(_, job, rate):
                self._expect(fact, job, HistoryStage.PLACED).rate = rate
            case Foreseen(_, job):
                self._expect(fact, job, HistoryStage.WAITING, HistoryStage.PLACED)
            case Stopped(_, job, _, done_s):
                course = self._expect(fact, job, HistoryStage.PLACED)
                self._move(job, course, None)
                course.stage, course.rate, course.stopped_done_s = HistoryStage.WAITING, 0.0, done_s
            case Ended(_, job, how):
                course = self._expect(fact, job, HistoryStage.WAITING, HistoryStage.PLACED)
                self._move(job, course, None)
                course.ended.append(how)
                course.started = 0
                course.stage, course.rate, course.stopped_done_s = HistoryStage.OVER, 0.0, 0.0
            case _:
                pass

    def _expect(self, fact: Fact, job: int, *stages: HistoryStage) -> JobHistory:
        course = self.of.setdefault(job, JobHistory())
        if job not in self._leave:
            self.breaches.append(f"a fact names job {job}, which was never submitted: {fact}")
        elif course.stage not in stages:
            what = type(fact).__name__.lower()
            self.breaches.append(f"job {job} is {what} at {fact.t:g} s while {course.stage}")
        return course

    def _start(self, fact: Fact, job: int, how: str, placement: Placement, rate: float) -> None:
        anew = how in (START, RESUME)
        course = self._expect(fact, job, HistoryStage.WAITING if anew else HistoryStage.PLACED)
        if how == START:
            course.started += 1
            if course.started > 1:  # a job that its owner requeues when it is over begins anew
                self.breaches.append(f"job {job} is started for the first time twice")
        self._move(job, course, placement)
        course.stage, course.rate = HistoryStage.PLACED, rate

    def _move(self, job: int, course: JobHistory, placement: Placement | None) -> None:
        """Gives back the GPUs of a job, and takes others."""
        self._count(job, course.placement, -1)
        self._count(job, placement, 1)
        course.placement = placement

    def _count(self, job: int, placement: Placement | None, sign: int) -> None:
        if placement is None:
            return
        self._touched |= dict.fromkeys(node for node, _ in placement.spans)
        if not placement.gpu_ids:
            for node, gpus in placement.spans:
                self._plain[node] = self._plain.get(node, 0) + sign * gpus
            return
        for node, gpu in placement.named():
            jobs = self._named.setdefault(node, {}).setdefault(gpu, {})
            if sign > 0:
                jobs[job] = None
            else:
                jobs.pop(job, None)
                if not jobs:
                    del self._named[node][gpu]

    def _look(self) -> None:
        """Looks at the nodes that the facts of one instant touched, now that it is over."""
        if not self._touched:
            return
        for node in self._touched:
            named = self._named.get(node, {})
            held = self._plain.get(node, 0) + len(named)
            if self._installed:
                has = self._installed[node] if 0 <= node < len(self._installed) else 0
                if held > has or any(not 0 <= gpu < has for gpu in named):
                    self.breaches.append(f"node {node} holds {held} GPUs of {has} at {self._t:g} s")
            for gpu, jobs in named.items():
                if len(jobs) > 1:
                    self._look_at((node, gpu), jobs)
        self._touched = {}

    def _look_at(self, gpu: GpuKey, jobs: Iterable[int]) -> None:
        found = sharing_breaches(
            gpu,
            {job: self.of[job].placement for job in jobs},
            self._leave.get,
            between_users=self._between_users,
        )
        self.breaches += [f"{sentence} at {self._t:g} s" for sentence in found]


def sharing_breaches(
    gpu: GpuKey,
    company: Mapping[int, Placement | None],
    leave: Callable[[int], SharingPermission | None],
    *,
    between_users: bool,
) -> list[str]:
    """Returns what is wrong with the jobs on one GPU: too many, or against leave."""
    if len(company) < 2:
        return []
    where, found = f"GPU {gpu[1]} of node {gpu[0]}", list[str]()
    placed = [p for p in company.values() if p is not None]
    seats = [p.interleave for p in placed if p.interleave is not None]
    if len(seats) == len(company):
        phases = {seat.phase % PHASES for seat in seats}
        if len({seat.set_id for seat in seats}) > 1 or len(phases) < len(seats):
            found.append(f"{where}: jobs {sorted(company)} take turns out of phase")
    elif len(company) > SHARERS_MAX:
        found.append(f"{where} holds {len(company)} jobs, {SHARERS_MAX} at most")
    allowed = [(job, leave(job)) for job in company]
    found += [f"job {j} shares {where} against its owner's will"
              for j, said in allowed if said and not said.shareable]  # fmt: skip
    if not between_users and len({said.user for _, said in allowed if said}) > 1:
        found.append(f"{where} is shared by different users: jobs {sorted(company)}")
    return found

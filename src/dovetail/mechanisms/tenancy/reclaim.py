"""Gives lent GPUs back: stops borrowers for jobs within what is guaranteed to their queue.

Victims may be stopped, ran at least `min_run_s` since they were placed, were stopped fewer than
`budget` times, and hold more than is guaranteed to their own queue. Spot queues give first, then
those furthest above what they deserve, and in each the youngest job. A victim is noticed `grace_s`
before it is stopped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf

from dovetail.core.errors import IllegalPlan
from dovetail.core.messages import RECLAIMED, Reason
from dovetail.core.placement import Spans
from dovetail.core.plan import Draft
from dovetail.core.units import RELATIVE_TOLERANCE
from dovetail.core.view import View
from dovetail.mechanisms.tenancy.standing import Guarantee, TenantStanding

LENT = "GuaranteedGpusLent"
LENT_FOR_GOOD = "LenderWaits"
EXHAUSTED = "PreemptionBudget"
CLOSED = "ReqNodeNotAvail"
"""Why a job within a guarantee waits: its GPUs come back; they are held by jobs that may never be
stopped, or were stopped as often as they may be; nodes drain or are down."""
GUARDED = "StarvationGuard"
"""Why a job that waited too long still waits: GPUs that get free are kept for it."""


@dataclass(frozen=True, slots=True)
class Terms:
    """When a borrower may be stopped."""

    min_run_s: float = 0.0
    budget: int = 0
    grace_s: float = 0.0

    def spent(self, stops: int) -> bool:
        """Returns whether a job that was stopped so often may not be stopped again."""
        return bool(self.budget) and stops >= self.budget


@dataclass(slots=True)
class Reclaimed:
    """What reclaiming came to: a draft if it had to choose GPUs, and when to look again.

    `ready` jobs find room on free GPUs, `served` ones on those of borrowers, `blocked` ones none.
    `notices` say since when borrowers know that they will be stopped, `claims` since when blocked
    jobs wait for that. `relieved` jobs waited beyond the guard.
    """

    draft: Draft | None = None
    wake_s: float = inf
    ready: list[int] = field(default_factory=list)
    served: list[int] = field(default_factory=list)
    blocked: list[int] = field(default_factory=list)
    notices: dict[int, float] = field(default_factory=dict)
    claims: dict[int, float] = field(default_factory=dict)
    relieved: list[int] = field(default_factory=list)
    because: list[Reason] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Plan:
    """Where a job will run, as soon as its victims were stopped after their notice."""

    job: int
    victims: tuple[int, ...]
    spans: Spans


class Reclaim:
    """Reclaims GPUs at one instant, in a draft of its own."""

    def __init__(
        self,
        standing: TenantStanding,
        terms: Terms,
        stops: Mapping[int, int],
        noticed: Mapping[int, float],
        stays: Collection[int] = (),
    ) -> None:
        self._standing, self._terms, self._stays = standing, terms, stays
        self._stops, self._noticed = stops, noticed
        view = standing.view
        self._draft = view.plan.draft()
        self._holdings = standing.holdings.copy()
        self._begun: set[int] = set()
        self._kept = 0
        self._plans: list[_Plan] = []
        self._held: list[int] = []
        self._claimed: set[int] = set()
        self._excess: list[float] | None = None
        self.result = Reclaimed()

    def serve(self, job: int) -> None:
        """Places a job on free GPUs, or on those of borrowers."""
        standing, view = self._standing, self._standing.view
        shape, leaf = view.shape(job), standing.leaf_of[job]
        tenants = self._draft.occupancy.tenants
        if tenants is not None and not tenants.room(shape, shape.asked_gpus):
            return
        covered = self._holdings.guarantee(leaf, shape.gpu_type, shape.asked_gpus)
        if self._place(job, leaf):
            self.result.ready.append(job)
            return
        if covered is None or self._kept & reach(view, job):
            return
        lenders = self._borrowers(leaf, covered)
        borrowers = [v for v in lenders if view.preemptible[v]]
        ready = [v for v in borrowers if self._due_s(v) <= view.now]
        victims = self._victims(job, ready)
        if victims is not None:
            self._stop(job, leaf, victims)
        else:
            self._wait(job, borrowers, lenders)

    def reserve(self, job: int) -> None:
        """Places a job on free GPUs, or keeps what gets free for it."""
        view = self._standing.view
        tenants = self._draft.occupancy.tenants
        if tenants is not None and not tenants.room(view.shape(job), view.shape(job).asked_gpus):
            return
        if self._place(job, self._standing.leaf_of[job]):
            self.result.ready.append(job)
            self.result.relieved.append(job)
        elif self._standing.could_run(job):
            # Whatever gets free on its nodes is for this job, so none behind it is tried there.
            self._kept |= reach(view, job)
            self.result.blocked.append(job)
            self.result.because.append(Reason(GUARDED, job))

    def fill(self, jobs: Iterable[int]) -> None:
        """Starts the jobs that fit beside blocked ones, in order."""
        view = self._standing.view
        failed: set[int] = set()
        for job in jobs:
            shape = view.shape_of[job]
            if shape not in failed and not self._place(job, self._standing.leaf_of[job]):
                failed.add(shape)
        self.result.draft = self._draft

    def finish(self, *, by_itself: bool = False) -> Reclaimed:
        """Returns what it came to; the free GPUs that were held for blocked jobs are free again."""
        for job in self._held:
            self._draft.remove(job)
        if self.result.ready and (by_itself or self.result.blocked):
            # The inner policy might start them on free GPUs that blocked jobs count on.
            self.result.draft = self._draft
        return self.result

    def _place(self, job: int, leaf: int) -> bool:
        view, draft = self._standing.view, self._draft
        spans = view.placing.find(draft.occupancy, view.shape(job), among=~self._kept)
        if spans is None:
            return False
        draft.place(job, spans)
        self._holdings.book(leaf, draft.placed[job])
        self._begun.add(job)
        return True

    def _borrowers(self, leaf: int, covered: Guarantee) -> list[int]:
        """Returns the running jobs on lent GPUs, the first to give them back first."""
        standing = self._standing
        mine = frozenset(standing.tree.path(leaf))
        found = []
        for victim, placement in self._draft.placed.items():
            theirs = standing.leaf_of.get(victim)
            settled = victim in self._begun or victim in self._claimed
            if theirs is None or settled or covered[0] in standing.tree.path(theirs):
                continue
            if self._holdings.is_lent(theirs, placement, mine):
                found.append(victim)
        return sorted(found, key=self._rank)

    def _rank(self, victim: int) -> tuple[float, list[int], float, float, int]:
        standing = self._standing
        if self._excess is None:
            self._excess = _excess(standing)
        leaf = standing.leaf_of[victim]
        tiers = [-tier for tier in standing.tree.tiers(leaf)]
        since = standing.view.progress.running_since_s(victim)
        # Who was noticed first is stopped first, so a notice is never given in vain.
        noticed_s = self._noticed.get(victim, inf)
        return noticed_s, tiers, -self._excess[standing.queue_of(leaf)], -since, -victim

    def _due_s(self, victim: int) -> float:
        """Returns when a borrower may be stopped, by its time of running, its stops and notice."""
        terms = self._terms
        if victim in self._stays or terms.spent(self._stops.get(victim, 0)):
            return inf
        ran_s = self._standing.view.progress.running_since_s(victim) + terms.min_run_s
        now = self._standing.view.now
        if not terms.grace_s:
            return ran_s if ran_s > now * (1 + RELATIVE_TOLERANCE) else now
        due_s = max(ran_s, self._noticed.get(victim, now) + terms.grace_s)
        return due_s if due_s > now * (1 + RELATIVE_TOLERANCE) else now

    def _victims(self, job: int, candidates: Sequence[int]) -> list[int] | None:
        """Returns the borrowers whose GPUs a job needs, None if all are not enough."""
        view, draft = self._standing.view, self._draft
        savepoint, taken = draft.savepoint(), list[int]()
        room = False
        for victim in candidates:
            if not self._holdings.is_lent(
                self._standing.leaf_of[victim],
                draft.placed[victim],
                frozenset(self._standing.tree.path(self._standing.leaf_of[job])),
            ):
                continue
            self._holdings.book(self._standing.leaf_of[victim], draft.placed[victim], -1)
            draft.remove(victim)
            taken.append(victim)
            room = view.placing.find(draft.occupancy, view.shape(job)) is not None
            if room:
                break
        draft.undo_to(savepoint)
        for victim in taken:
            self._holdings.book(self._standing.leaf_of[victim], draft.placed[victim])
        return self._needed(job, taken) if room else None

    def _needed(self, job: int, taken: list[int]) -> list[int]:
        """Returns the victims without those whose GPUs make no difference, last in rank first."""
        view, draft = self._standing.view, self._draft
        needed = list(taken)
        for spared in reversed(taken[:-1]):
            savepoint = draft.savepoint()
            for victim in needed:
                if victim != spared:
                    draft.remove(victim)
            if view.placing.find(draft.occupancy, view.shape(job)) is not None:
                needed.remove(spared)
            draft.undo_to(savepoint)
        return needed

    def _stop(self, job: int, leaf: int, victims: Sequence[int]) -> None:
        self._clear(victims)
        self._draft.why.update(dict.fromkeys(victims, RECLAIMED))
        assert self._place(job, leaf)
        self.result.served.append(job)
        self.result.draft = self._draft

    def _wait(self, job: int, borrowers: Sequence[int], lenders: Sequence[int]) -> None:
        """Notices the borrowers that will do, or says why none will.

        `lenders` are the borrowers and the jobs that may not be stopped.
        """
        may = [v for v in borrowers if self._due_s(v) < inf]
        plan = self._planned(job, may)
        if plan is None:
            if len(may) < len(borrowers):
                self.result.because.append(Reason(EXHAUSTED, job))
            elif self._standing.view.cluster.states:
                self.result.because.append(Reason(CLOSED, job))
            elif len(lenders) > len(borrowers):
                self.result.because.append(Reason(LENT_FOR_GOOD, job))
            return
        self._notice(plan)

    def _notice(self, plan: _Plan) -> None:
        """Lets the victims of a plan know, and keeps the free GPUs that it counts on."""
        result, now = self.result, self._standing.view.now
        result.blocked.append(plan.job)
        result.because.append(Reason(LENT, plan.job))
        result.claims[plan.job] = now
        self._plans.append(plan)
        self._claimed.update((plan.job, *plan.victims))
        for victim in plan.victims:
            result.notices[victim] = self._noticed.get(victim, now)
            due_s = self._due_s(victim)
            result.wake_s = min(result.wake_s, due_s if due_s > now else inf)
        free = self._counted_on()
        if free:
            # CPUs may be held by the victims still; then nobody else gets these GPUs either.
            with suppress(IllegalPlan):
                self._draft.place(plan.job, free)
                self._held.append(plan.job)

    def _planned(self, job: int, candidates: Sequence[int]) -> _Plan | None:
        """Returns where a job will run, and after which stops, once all noticed jobs are gone."""
        view, draft, holdings = self._standing.view, self._draft, self._holdings
        savepoint = draft.savepoint()
        self._holdings = holdings.copy()
        for plan in self._plans:
            if plan.job in draft.placed:
                draft.remove(plan.job)
        for plan in self._plans:
            self._clear(plan.victims)
            draft.place(plan.job, plan.spans)
        spans = view.placing.find(draft.occupancy, view.shape(job))
        victims = [] if spans is not None else self._victims(job, candidates)
        if victims:
            self._clear(victims)
            spans = view.placing.find(draft.occupancy, view.shape(job))
        draft.undo_to(savepoint)
        self._holdings = holdings
        return None if spans is None else _Plan(job, tuple(victims or ()), spans)

    def _clear(self, victims: Iterable[int]) -> None:
        for victim in victims:
            self._holdings.book(self._standing.leaf_of[victim], self._draft.placed[victim], -1)
            self._draft.remove(victim)

    def _counted_on(self) -> Spans:
        """Returns the free GPUs that the plans need, without those that are held already."""
        need = Counter[int]()
        for plan in self._plans:
            need.update(dict(plan.spans))
            for victim in plan.victims:
                need.subtract(self._draft.placed[victim].by_node())
        for job in self._held:
            need.subtract(self._draft.placed[job].by_node())
        return tuple(sorted((node, gpus) for node, gpus in need.items() if gpus > 0))


def reach(view: View, job: int) -> int:
    """Returns the bit set of the nodes that a job may use now, whatever their state."""
    shape, occupancy = view.shape(job), view.plan.occupancy
    nodes = occupancy.node_sets.union(shape)
    limits = occupancy.tenants
    return nodes if limits is None else nodes & limits.nodes(shape, shape.asked_gpus)


def _excess(standing: TenantStanding) -> list[float]:
    """Returns what each tenant holds over what it deserves; tenants that deserve none lead."""
    cluster = standing.view.cluster
    demand = standing.demand()
    demand.resize(len(standing.tree), refcheck=False)
    deserved = standing.tree.deserved(demand, cluster.gpus)
    held = standing.tree.sums(standing.held)
    pairs = zip(held.tolist(), deserved.tolist(), strict=True)
    return [h / d if d > 0 else (inf if h else 0.0) for h, d in pairs]

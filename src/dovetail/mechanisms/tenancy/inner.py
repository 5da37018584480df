"""Asks the inner policy, and asks again with fewer jobs where its answer would wrong a tenant.

An inner policy ranks the jobs that it sees by keys of its own. So it may stop a job within the
guarantee of its queue for another queue, start jobs whose turn comes later than that of others, or
run groups without those whose turn it is. It is then asked again: with these jobs settled, or with
fewer jobs of later turns. What it sees is a value, so asking again has no effect but the answer.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from dovetail.core.placement import Placement
from dovetail.core.plan import Draft
from dovetail.core.policy import Decision, Policy
from dovetail.mechanisms.tenancy import gate
from dovetail.mechanisms.tenancy.ledger import TenantLedger
from dovetail.mechanisms.tenancy.lineup import Lineup, as_shown, completed, line_up, unseen_in
from dovetail.mechanisms.tenancy.reclaim import Reclaimed, Terms
from dovetail.mechanisms.tenancy.standing import TenantStanding
from dovetail.mechanisms.tenancy.turns import TenantTurn

WIDTHS = (4, 2, 1)
"""How many clusters full of turns an inner policy that interleaves may see; Muri's sets have four
members at most."""
NOBODY: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Answer:
    """What the inner policy decided, on which jobs; `unseen` ones may run, but not for it.

    `partial`: jobs were held back that may still find room.
    """

    decision: Decision
    shown: list[int]
    unseen: tuple[int, ...] = ()
    partial: bool = False


@dataclass(frozen=True, slots=True)
class InnerPolicy:
    """The inner policy at one instant."""

    policy: Policy
    terms: Terms
    standing: TenantStanding
    memory: TenantLedger

    def answer(self, waiting: Sequence[TenantTurn], given: Reclaimed) -> Answer:
        """Returns what it decides on the jobs whose turn it is."""
        spared: frozenset[int] = NOBODY
        while True:
            answer = self._answer(waiting, given, spared)
            wronged = self._wronged(answer.decision, given.blocked) - spared
            if not wronged:
                return answer
            self.standing.view.plan.discard()
            spared |= wronged

    def _answer(
        self, waiting: Sequence[TenantTurn], given: Reclaimed, spared: frozenset[int]
    ) -> Answer:
        powers = self.policy.powers
        beside = given.blocked or given.draft is not None
        if beside or not len(self.standing.view.waiting):
            return self._asked(self._shown(waiting, given), spared)
        if "interleave" in powers:
            return self._interleaved(spared)
        if "preempt" in powers and not powers & gate.SHARES:
            found = self._line_up(1, spared)
            return self._asked(found.shown, spared, found)
        shown = self._shown(waiting, given)
        if powers & gate.SHARES and "preempt" not in powers:
            return self._in_turn(shown, spared)
        return self._asked(shown, spared)

    def _shown(self, waiting: Sequence[TenantTurn], given: Reclaimed) -> list[int]:
        """Returns the jobs that it sees, in order of their turns."""
        view, makes_room = self.standing.view, bool(self.policy.powers & gate.MAKES_ROOM)
        if given.blocked or given.draft is not None:
            first = [*given.ready, *given.served, *given.blocked]
            # Held jobs would take what limits leave for blocked ones.
            others = [t.job for t in waiting if not t.held and t.job not in first]
            # It would start a blocked job on GPUs that another counts on: so none, or the first.
            heads = gate.apart(view, given.blocked) if makes_room else []
            seen = [*given.ready, *given.served] if makes_room else given.ready
            return [*seen, *heads, *gate.beside(view, others, first)]
        jobs = [turn.job for turn in waiting]
        return gate.first_turns(view, jobs) if makes_room else jobs

    def _interleaved(self, spared: frozenset[int]) -> Answer:
        """Returns its answer on as many turns as it can serve beside the first cluster full."""
        view = self.standing.view
        for width in WIDTHS:
            found = self._line_up(width, spared)
            answer = self._asked(found.shown, spared, found)
            draft = answer.decision.draft
            if draft is None or found.first <= draft.placed.keys() or width == WIDTHS[-1]:
                return answer
            view.plan.discard()
        raise AssertionError("the last width is always taken")

    def _in_turn(self, shown: list[int], spared: frozenset[int]) -> Answer:
        """Returns its answer, without starts before the turn of another tenant's job that fits."""
        answer = self._asked(shown, spared)
        tried: set[tuple[int, int]] = set()
        standing, shape_of = self.standing, self.standing.view.shape_of
        for at in _overtaken(standing, answer):
            job = shown[at]
            kind = standing.leaf_of[job], shape_of[job]
            if kind in tried:
                continue
            tried.add(kind)
            standing.view.plan.discard()
            fewer = self._asked(shown[: at + 1], spared)
            draft = fewer.decision.draft
            if draft is not None and job in draft.placed:
                return replace(fewer, partial=True)
        if tried:
            standing.view.plan.discard()
            return self._asked(shown, spared)
        return answer

    def _line_up(self, width: int, spared: frozenset[int]) -> Lineup:
        """Returns who has a turn, running jobs included."""
        view = self.standing.view
        stays = gate.protected(view, self.terms, self.memory) | spared
        may = view.preemptible
        movable = [job for job in view.running if may[job] and job not in stays]
        order = self.memory.order or self.policy.order
        keys = dict(zip(movable, order.keys(view, movable), strict=True))
        return line_up(self.standing, keys, self.policy.powers, width)

    def _asked(
        self, shown: list[int], spared: Collection[int], found: Lineup | None = None
    ) -> Answer:
        """Returns its decision on some waiting jobs."""
        standing, memory, powers = self.standing, self.memory, self.policy.powers
        view, makes_room = standing.view, bool(powers & gate.MAKES_ROOM)
        queue = (gate.by_own_key if makes_room else gate.in_order)(view, shown)
        woke = view.changes.woke and memory.wake_s <= view.now
        gone = () if found is None else found.displaced
        changes = gate.changes_of(view, memory.known, frozenset(shown), gone, woke=woke)
        seen = replace(as_shown(view, gone), waiting=queue, changes=changes)
        if makes_room:
            kept = gate.settled(standing, shown, self.terms, memory)
            seen = gate.with_settled(seen, {*kept, *spared})
        decision = self.policy.decide(seen, memory.inner)
        if found is not None:
            decision = completed(view, decision, found, powers)
        return Answer(decision, shown, unseen_in(found))

    def _wronged(self, decision: Decision, blocked: Sequence[int]) -> set[int]:
        """Returns the jobs that it would stop, or move onto GPUs that blocked jobs count on.

        It may stop jobs within the guarantee of their queue only for others of the queue.
        """
        standing, draft = self.standing, decision.draft
        if draft is None or not standing.holdings.promises or "preempt" not in self.policy.powers:
            return set()
        kept = gate.nodes_of(standing.view, [j for j in blocked if j not in draft.placed])
        moved = {
            change.job
            for change in draft.changes()
            if change.before is not None
            and change.after is not None
            and _grows(change.before, change.after, kept)
        }
        return moved | _stopped_within(standing, draft)


def _stopped_within(standing: TenantStanding, draft: Draft) -> set[int]:
    """Returns the jobs that a draft stops though they are within their queue's guarantee."""
    holdings, leaf_of = standing.holdings.copy(), standing.leaf_of
    stopped, found = list[int](), set[int]()
    for job, before, after in draft.changes():
        if before is not None:
            holdings.book(leaf_of[job], before, -1)
        if after is None:
            stopped.append(job)
        else:
            holdings.book(leaf_of[job], after)
    for job in stopped:
        shape, leaf = standing.view.shape(job), leaf_of[job]
        if holdings.guarantee(leaf, shape.gpu_type, shape.asked_gpus) is not None:
            holdings.book(leaf, standing.view.running[job])
            found.add(job)
    return found


def _grows(before: Placement, after: Placement, nodes: int) -> bool:
    """Returns whether a job would hold more GPUs than before on any node of a bit set."""
    had = before.by_node()
    return any(
        nodes >> node & 1 and gpus > had.get(node, 0) for node, gpus in after.by_node().items()
    )


def _overtaken(standing: TenantStanding, answer: Answer) -> list[int]:
    """Returns the places of jobs that wait while another tenant's job of a later turn starts."""
    draft, leaf_of = answer.decision.draft, standing.leaf_of
    if draft is None:
        return []
    begun = [at for at, job in enumerate(answer.shown) if job in draft.placed]
    return [
        at
        for at, job in enumerate(answer.shown[: max(begun, default=0)])
        if job not in draft.placed
        and any(later > at and leaf_of[answer.shown[later]] != leaf_of[job] for later in begun)
    ]

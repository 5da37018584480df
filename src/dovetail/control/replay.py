"""The world of a recorded run: it repeats the events of a log and compares decisions.

Arrivals, ends, wake-ups and node changes come from the log. The policy decides anew; its plan is
compared with the recorded one, and then the recorded one is carried out, so that one
difference does not hide the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from dovetail.control.handover import Handover
from dovetail.control.state import ClusterState
from dovetail.core.beliefs import DoneOf
from dovetail.core.cluster import UP
from dovetail.core.errors import DovetailError
from dovetail.core.job import JobTable
from dovetail.core.length_distribution import LengthDistribution
from dovetail.core.messages import (
    BY_POLICY,
    READY,
    RECOVERING,
    Avoided,
    ControllerChanged,
    Ended,
    Explained,
    Fact,
    Foreseen,
    GpusChanged,
    Learned,
    Measured,
    NodeChanged,
    Refused,
    Retimed,
    Shrunk,
    Started,
    Stopped,
    Submitted,
    Switched,
    Withdrawn,
    Woke,
)
from dovetail.core.placement import Placement
from dovetail.core.plan import Change, Draft
from dovetail.core.policy import Decision, Policy
from dovetail.core.units import LONG_AGO_S, NEVER_S
from dovetail.core.view import Changes, View, show

CUT_OFF = "the controller was killed before it decided"
"""Why a decision is not on record, where a log has the events of its instant and no more."""


@dataclass(frozen=True, slots=True)
class Instant:
    """The events of one instant, and the decision on them."""

    t: float
    events: tuple[Fact, ...]
    decided: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class ControllerSpan:
    """The facts that one controller recorded; a simulation is one span.

    `policy` is the policy at its start, empty where the log has none. A span that `recovers` begins
    with the fact that its controller started.
    """

    policy: str
    recovers: bool
    facts: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """A decision that differs: the placements of a job as recorded and as decided now.

    `why` is the cause, where it is known and no fault of the policy or of the log.
    """

    t: float
    job: int
    recorded: Placement | None
    decided: Placement | None
    why: str = ""


class RecordedForecast:
    """The lengths that the recorded run's forecast gave."""

    knows: frozenset[str] = frozenset({"length"})
    learns = False

    def __init__(
        self, length_s: Sequence[float], numbers: Sequence[tuple[float, ...]] = ()
    ) -> None:
        self._length_s, self._numbers = length_s, numbers

    def admit(self, jobs: JobTable) -> None:
        """Does nothing: the lengths of all jobs are recorded."""

    def length_s(self, job: int, now: float) -> float:
        """Returns the recorded length."""
        return self._length_s[job]

    def distribution(self, job: int, now: float, done_s: DoneOf) -> LengthDistribution | None:
        """Returns the recorded distribution."""
        return LengthDistribution.of(self._numbers[job]) if self._numbers else None

    def ended(self, job: int, ran_s: float, how: str, now: float) -> None:
        """Learns nothing: the lengths are recorded."""


def spans(facts: Iterable[Fact]) -> list[ControllerSpan]:
    """Returns the facts grouped by the controller that recorded them."""
    groups: list[list[Fact]] = [[]]
    for fact in facts:
        if _is_start_of_controller(fact) and groups[-1]:
            groups.append([])
        groups[-1].append(fact)
    return [_span(tuple(group)) for group in groups]


def _is_start_of_controller(fact: Fact) -> TypeGuard[ControllerChanged]:
    return isinstance(fact, ControllerChanged) and fact.state == RECOVERING


def _span(facts: tuple[Fact, ...]) -> ControllerSpan:
    if facts and _is_start_of_controller(facts[0]):
        return ControllerSpan(facts[0].policy, True, facts)
    return ControllerSpan("", False, facts)


def instants(facts: Iterable[Fact]) -> list[Instant]:
    """Returns the facts grouped by instant: events first, then what was decided."""
    groups: list[Instant] = []
    events: list[Fact] = []
    decided: list[Fact] = []
    t = LONG_AGO_S
    for fact in facts:
        is_event = _is_event(fact)
        # An event after a decision begins another instant, though at the same time.
        if (events or decided) and (fact.t != t or (is_event and decided)):
            groups.append(Instant(t, tuple(events), tuple(decided)))
            events, decided = [], []
        t = fact.t
        follows_event = not decided and isinstance(fact, Retimed)
        (events if is_event or follows_event else decided).append(fact)
    if events or decided:
        groups.append(Instant(t, tuple(events), tuple(decided)))
    return groups


_DECISIONS = (Started, Retimed, Refused, Explained)


def _is_event(fact: Fact) -> bool:
    if isinstance(fact, Stopped):
        return fact.why not in BY_POLICY
    return not isinstance(fact, _DECISIONS)


class ReplayWorld:
    """Replays the instants of a log, or of one controller, over the tables of `state`.

    `cut_off`: the controller may have been killed before it decided on the last instant.
    """

    def __init__(
        self, state: ClusterState, recorded: Sequence[Instant], *, cut_off: bool = False
    ) -> None:
        self._state = state
        self._recorded = recorded
        self._cut_off = cut_off
        self._next = 0
        self._decisions = 0
        self._pending: Sequence[Fact] | None = None
        self._ready = True
        self._may_be_cut_off = False
        self._unasked = Changes()
        self.memory: object = None
        """The memory of the policy after the last decision that is on record, None for none."""
        self.differences: list[Difference] = []

    @property
    def decisions(self) -> int:
        """Returns how many decisions have been compared."""
        return self._decisions

    def advance(self, until: float) -> bool:
        """Repeats the events up to the next recorded instant at which a policy was asked."""
        self._carry_out_pending()
        while self._next < len(self._recorded):
            instant = self._recorded[self._next]
            self._next += 1
            changes = self._unasked.then(self._happen(instant))
            # Facts of a decision prove that the policy was asked, though the controller may not
            # have been recorded as ready.
            if instant.decided or (self._ready and any(changes)):
                show(self._state.view, changes=changes.net(self._state.waiting))
                self._unasked = Changes()
                self._decisions += 1
                self._pending = instant.decided
                last = self._cut_off and self._next == len(self._recorded)
                self._may_be_cut_off = last and not _places(instant.decided)
                return True
            self._unasked = changes
        return False

    def _happen(self, instant: Instant) -> Changes:
        """Applies the events of an instant to the tables; returns the changes for the policy."""
        state = self._state
        state.now = instant.t
        show(state.view, now=instant.t)
        arrived: list[int] = []
        ended: list[int] = []
        evicted: list[int] = []
        nodes: list[tuple[int, str]] = []
        shrunk: list[Shrunk] = []
        woke = False
        for fact in instant.events:
            match fact:
                case Submitted():
                    self._arrive(fact)
                    arrived.append(fact.job)
                case Ended(_, job, _):
                    state.end(job)
                    ended.append(job)
                case Withdrawn(_, job):
                    state.withdraw(job)
                    ended.append(job)
                case Stopped(_, job, _, done_s):
                    self._lose_progress(job, done_s)
                    state.evict(job)
                    evicted.append(job)
                case NodeChanged(_, node, node_state):
                    nodes.append((node, node_state))
                case Shrunk(_, job, placement, _, _, _):
                    self._shrink(job, placement)
                    shrunk.append(fact)
                case Woke() | Learned():
                    woke = True
                case ControllerChanged(_, _, controller_state):
                    self._ready = controller_state == READY
                case _:
                    self._adjust(fact)
        capacity = self._change_capacity(nodes, instant.events)
        for t, job, placement, rate, from_s, _ in shrunk:
            state.start(job, placement, rate, from_s - t)
        opens = woke and self._reservation_begins(instant.t)
        return Changes(arrived, ended, evicted, capacity=capacity or opens, woke=woke)

    def _reservation_begins(self, t: float) -> bool:
        """Returns whether a reservation begins or ends at an instant."""
        tenants = self._state.plan.occupancy.tenants
        return tenants is not None and t in tenants.edges_s()

    def _shrink(self, job: int, left: Placement) -> None:
        state = self._state
        lost = state.plan.placed[job].by_node().keys() - left.by_node().keys()
        state.expansions.lose(job, lost)
        state.plan.shrink(job, left)

    def _change_capacity(self, nodes: Sequence[tuple[int, str]], events: Sequence[Fact]) -> bool:
        """Adopts the states of nodes and GPUs; returns whether there are new ones."""
        closed = [fact for fact in events if isinstance(fact, GpusChanged)]
        if nodes:
            self._state.change_nodes(nodes)
        if closed:
            # Its jobs are those on GPUs after all other events.
            self._state.change_gpus(closed[-1].gpus, closed[-1].staying)
        return bool(nodes or closed)

    def _arrive(self, fact: Submitted) -> None:
        _, job, length_s, numbers = fact
        self._state.arrive(job)
        if self._state.told(job) != (length_s, numbers):
            # A job that was withdrawn and arrives again has a new forecast.
            self._state.relength(job, length_s, LengthDistribution.of(numbers))

    def _adjust(self, fact: Fact) -> None:
        """Applies a fact that changes the speed, progress or length of one job."""
        match fact:
            case Retimed(_, job, rate):
                self._state.retime(job, rate)
            case Measured(_, job, done_s, rate):
                self._state.measure(job, done_s, rate)
            case Foreseen(_, job, length_s, numbers):
                self._state.relength(job, length_s, LengthDistribution.of(numbers))
            case Avoided(_, job, nodes):
                self._state.avoid(job, nodes)
            case Switched(t, job, rate, from_s, _):
                self._state.expansions.carry_out(job, t)
                self._state.switch(job, rate, from_s - t)

    def _lose_progress(self, job: int, done_s: float) -> None:
        """Sets the progress of a job that stops to the recorded one: a plain program saves none."""
        self._state.settle(job)
        self._state.done[job] = done_s

    def recover(self) -> None:
        """Shows every waiting job as arrived at the first decision, as after a restart."""
        self._unasked = Changes(arrived=sorted(self._state.waiting))

    def observe(self) -> View:
        """Returns the view at the present instant."""
        return self._state.view

    def apply(self, draft: Draft) -> None:
        """Compares the draft with what was recorded, then carries the record out."""
        assert self._pending is not None
        self._compare(draft.changes())
        self._state.plan.discard()
        self._carry_out_pending(compare=False)

    def in_time(self, took_s: float) -> bool:
        """True if the recorded decision was not refused, however long this one took."""
        return not self._was_refused()

    def refuse(self, policy: Policy, why: Sequence[str], cause: Exception | None = None) -> float:
        """Compares a refused decision as one without changes.

        Raises what the policy raised, unless the recorded decision was refused too.
        """
        if cause is not None and not self._was_refused():
            raise cause
        self._compare([])
        return float("inf")

    def _was_refused(self) -> bool:
        return any(isinstance(fact, Refused) for fact in self._pending or ())

    def note(self, decision: Decision) -> None:
        """Adopts a new order of the queue and the memory; reasons are not compared."""
        if not self._may_be_cut_off:
            self.memory = decision.memory
        if decision.order is not None:
            self._carry_out_pending()
            self._state.reorder(decision.order)

    def _carry_out_pending(self, compare: bool = True) -> None:
        if self._pending is None:
            return
        if compare:
            self._compare([])
        pending, self._pending = self._pending, None
        self._carry_out(pending)

    def _carry_out(self, decided: Sequence[Fact]) -> None:
        state = self._state
        draft = state.plan.draft()
        for fact in decided:
            if isinstance(fact, Stopped):
                draft.remove(fact.job)
        # Moves may trade GPUs with each other, so all movers leave before any arrives.
        started = [f for f in decided if isinstance(f, Started)]
        for start in started:
            if start.job in draft.placed:
                draft.remove(start.job)
        for start in started:
            draft.place(start.job, start.placement)
        changes = state.plan.commit(draft)
        handover = state.handover(changes)
        before = {change.job: change.before for change in changes}
        for fact in decided:
            match fact:
                case Stopped(_, job, _, done_s):
                    self._lose_progress(job, done_s)
                    state.stop(job)
                case Started():
                    self._start(fact, before.get(fact.job), handover)
                case Retimed(_, job, rate):
                    state.retime(job, rate)
                case Explained() | Refused():
                    pass
                case _:
                    raise DovetailError(f"unexpected record among decisions: {fact}")

    def _start(self, fact: Started, before: Placement | None, handover: Handover) -> None:
        state, (t, job, how, placement, rate, from_s, preparing) = self._state, fact
        begin_s = handover.take(before, placement, t)
        # The log has how many GPUs of a job do not train yet; which they are, the order tells.
        change = Change(job, before, placement)
        state.begin_switch(change, how, begin_s=begin_s, trains_on=preparing > 0)
        state.start(job, placement, rate, from_s - t)

    def _compare(self, changes: Sequence[Change]) -> None:
        assert self._pending is not None
        now = self._state.now
        why = CUT_OFF if self._may_be_cut_off else ""
        recorded: dict[int, Placement | None] = {}
        for fact in self._pending:
            if isinstance(fact, Started):
                recorded[fact.job] = fact.placement
            elif isinstance(fact, Stopped):
                recorded[fact.job] = None
        decided = {c.job: c.after for c in changes}
        for job in sorted(recorded.keys() | decided.keys()):
            before = self._state.plan.placed.get(job)
            was, new = recorded.get(job, before), decided.get(job, before)
            if was != new:
                self.differences.append(Difference(now, job, was, new, why))


def _places(decided: Sequence[Fact]) -> bool:
    return any(isinstance(fact, Started | Stopped) for fact in decided)


def take_over(state: ClusterState, before: ClusterState) -> None:
    """Fills the tables of a new controller from those of the controller before it.

    As `live.controller.recovery` does: running jobs keep their GPUs and all keep their progress;
    lengths are forecast again.
    """
    now = before.now = state.now
    show(state.view, now=now)
    for job, placement in sorted(before.plan.placed.items()):
        state.restore(job, before.life(job)._replace(from_s=now), placement, before.rate[job])
    _take_over_nodes(state, before)
    for job in range(len(state.jobs)):
        waits = job in before.waiting
        if job in before.avoided:
            state.avoid(job, before.avoided[job])
        if waits or (before.first_start_s[job] < NEVER_S and job not in before.plan.placed):
            state.restore(job, before.life(job), None)
            if not waits:
                state.withdraw(job)


def _take_over_nodes(state: ClusterState, before: ClusterState) -> None:
    old, new = state.view.cluster.state_of, before.view.cluster.state_of
    changed = [
        (node, new.get(node, UP))
        for node in sorted(old.keys() | new.keys())
        if new.get(node, UP) != old.get(node, UP)
    ]
    if changed:
        state.change_nodes(changed)
    if before.view.cluster.gpu_states:
        state.change_gpus(before.view.cluster.gpu_states, before.view.staying)

"""The live world: the same tables and the same loop as in simulation, with workers for a truth.

One instant goes: what came in and what is due changes tables, records and gangs; the policy is
asked if anything concerns it; then one entry of the journal keeps all of it; and only when that
is durable do orders go out. Killed anywhere, the next controller finds either nothing of the
instant or all of it, and says every order again that may not have been heard.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from dovetail.control.state import ClusterState
from dovetail.core.messages import Explained, Refused, Woke
from dovetail.core.plan import Draft
from dovetail.core.policy import Decision, Policy
from dovetail.core.units import NEVER_S
from dovetail.core.view import PendingChanges, View, show
from dovetail.live.controller.arrivals import Arrivals
from dovetail.live.controller.health import Health
from dovetail.live.controller.live_jobs import Life
from dovetail.live.controller.plan_applier import Placements
from dovetail.live.controller.progress_reports import ProgressReports
from dovetail.live.controller.reconciler import Tending
from dovetail.live.controller.recovery import take_up
from dovetail.live.controller.rules import Rules
from dovetail.live.controller.site import Launches, Site
from dovetail.live.controller.status_publisher import Picture
from dovetail.live.controller.terminations import Endings
from dovetail.live.edges.protocols import (
    CLOCK,
    Accepted,
    Edges,
    Entry,
    Incoming,
    NodeLost,
    Request,
    StoreError,
)
from dovetail.live.jobs.lifecycle import Step
from dovetail.live.jobs.status_snapshot import Snapshot
from dovetail.live.measuring.metering import Meter
from dovetail.live.store.recovered import Recovered
from dovetail.wire.agent import (
    AgentReport,
)

EMPTYING = "the cluster stops when its running jobs have ended, and starts none"
"""What is said instead of a decision after `down --drain`."""


class LiveWorld:
    """A world of real time and real workers, between edges that may fail."""

    def __init__(
        self,
        edges: Edges,
        state: ClusterState,
        policy: Policy,
        *,
        recovered: Recovered,
        launches: Launches,
        meter: Meter,
        rules: Rules | None = None,
        owner: str = "",
        share_between_users: bool = False,
    ) -> None:
        self._edges = edges
        self._rules = rules or Rules()
        state.now = max(recovered.now_s, edges.clock.now())
        show(state.view, now=state.now)
        self._site = site = Site(
            edges,
            state,
            policy,
            epoch=recovered.epoch,
            launches=launches,
            meter=meter,
            rules=self._rules,
        )
        self._endings = Endings(site)
        self._placements = Placements(site)
        self._arrivals = Arrivals(
            site, self._endings, owner=owner, share_between_users=share_between_users
        )
        self._health = Health(site, self._endings, self._placements)
        reports = ProgressReports(site, self._endings)
        self._tending = Tending(
            site, self._endings, self._placements, self._arrivals, self._health, reports
        )
        self._picture = Picture(site, self._health)
        self._late: list[Incoming] = []
        self._leaving = self._emptying = False
        self._because: tuple[object, ...] | None = None
        self._time_kept_s = site.now
        take_up(site, self._arrivals, self._health, recovered)
        # Of an empty cluster nobody is asked anything: nor is a simulation's policy.
        self._ask_s = site.now if len(site.lives) else NEVER_S
        self._late.extend(recovered.accepted)
        # Whoever brings a cluster up takes back what nobody carried out of an earlier "down".
        down = [r for r in recovered.requests if r.verb == "down"]
        site.done.extend(r.seq for r in down)
        self._late.extend(r for r in recovered.requests if r not in down)

    @property
    def published(self) -> Snapshot | None:
        """Returns the latest picture for readers; any thread may take it."""
        return self._picture.published

    def observe(self) -> View:
        """Returns the view at the present instant."""
        return self._site.state.view

    def advance(self, until: float) -> bool:
        """Moves to the next instant that concerns the policy; False when the controller stops."""
        site = self._site
        while True:
            self._tending.tend()
            self._commit()
            if self._is_over():
                return False
            if not self._asks():
                self._pass_time(until)
            if self._emptying:
                until = self._ask_s = NEVER_S
                self._let_be()
                continue
            if site.settled and min(until, self._ask_s) <= site.now:
                self._ask_s = NEVER_S
                site.changes.woke = True
                site.facts.append(Woke(site.now))
            if self._asks():
                show(site.state.view, changes=site.changes.net(site.state.waiting))
                site.changes = PendingChanges()
                return True

    def _pass_time(self, until: float) -> None:
        """Waits for the next instant, and lets it happen."""
        site = self._site
        self._picture.publish_if_due()
        due = min(site.timers.next_s, self._picture.due_s, self._tell_time_s)
        if site.settled:
            due = min(due, until, self._ask_s)
        come = self._late or self._edges.inbox.wait(due)
        self._late = []
        # Nothing came, so it is time, though clocks may round that to an instant before.
        self._begin(due if not come else 0.0)
        self._health.was_away(site.now - due)
        self._take(come)
        self._let_happen()
        self._tending.tend()

    def _begin(self, due_s: float) -> None:
        state = self._site.state
        state.now = max(state.now, self._edges.clock.now(), due_s)
        show(state.view, now=state.now)

    def _asks(self) -> bool:
        """Tells whether anything happened that concerns the policy, and it can be asked."""
        c = self._site.changes
        return self._site.settled and bool(
            c.woke or c.arrived or c.ended or c.evicted or c.capacity
        )

    def _let_be(self) -> None:
        """Answers for the policy while the cluster empties: what runs keeps what it has.

        The log has it as a refused plan, so that a replay asks for none either.
        """
        if self._asks():
            self._site.facts.append(Refused(self._site.now, EMPTYING))
            self._picture.refused(EMPTYING)
            self._site.changes = PendingChanges()

    def _is_over(self) -> bool:
        if self._emptying and not any(
            life.is_placed or (life.gang is not None and life.gang.roster.workers)
            for life in self._site.lives
        ):
            self._leaving = True
        return self._leaving

    # What comes in.

    def _take(self, come: Sequence[Incoming]) -> None:
        # Requests about jobs come after these, so to let all jobs of a burst in first is safe.
        self._arrivals.accept([m for m in come if isinstance(m, Accepted)])
        for message in come:
            match message:
                case Request():
                    self._take_request(message)
                case AgentReport():
                    self._take_report(message)
                case NodeLost():
                    # Silence decides; a broken connection may be back in a moment.
                    pass

    def _take_request(self, request: Request) -> None:
        site = self._site
        if request.verb in ("drain", "undrain"):
            self._health.drain(request.node, undo=request.verb == "undrain")
            site.done.append(request.seq)
        elif request.verb == "down":
            if request.argument == "drain":
                self._emptying = True
                self._health.drain_all()
            else:
                self._leaving = True
            site.done.append(request.seq)
        else:
            self._arrivals.carry_out(request)

    def _take_report(self, report: AgentReport) -> None:
        if not self._health.heard(report.node):
            return
        if report.inventory is not None:
            self._health.survey(report.inventory)
        # Until all inventories are there a worker that is heard of cannot be told from a stray.
        elif self._site.settled:
            self._take_word(report)

    def _take_word(self, report: AgentReport) -> None:
        site, node = self._site, report.node
        if report.started is not None:
            said = report.started
            life = site.lives.get(said.job)
            known = life is not None and site.gang(life).roster.started(
                said.worker, said.generation, site.now
            )
            self._note_deferral(said.job, said.worker, "")
            if life is None or not known:
                site.floor.add_unknown((said.job, said.worker), node, said.all_gpus)
            else:
                site.touch(life)
        if report.ended is not None:
            end = report.ended
            site.floor.drop_unknown((end.job, end.worker))
            life = site.lives.get(end.job)
            if life is None or life.gang is None:
                self._endings.forget(node, end.job, end.worker)
            else:
                life.gang.ended(node, end, site.now)
                site.touch(life)
        if report.deferred is not None:
            self._note_deferral(report.deferred.job, report.deferred.worker, report.deferred.why)
        if report.said is not None:
            life = site.lives.get(report.said.job)
            if life is not None and life.gang is not None:
                life.gang.heard(report.said, site.now)
                site.touch(life)

    def _note_deferral(self, job: int, number: int, why: str) -> None:
        """Notes for users why a worker is not started yet; its gang sees a worker that is late."""
        life = self._site.lives.get(job)
        worker = life.gang.roster.workers.get(number) if life is not None and life.gang else None
        if worker is not None and worker.deferred != why:
            worker.deferred = why
            self._picture.changed = True

    # What is due.

    def _let_happen(self) -> None:
        site = self._site
        for name in site.timers.due(site.now):
            assert isinstance(name, tuple)
            kind, number = name
            if kind == "node":
                self._health.look(number)
            elif kind == "hail":
                self._health.hail(number)
            else:
                life = site.lives.get(number)
                if life is not None:
                    self._let_happen_to(life, kind)

    def _let_happen_to(self, life: Life, kind: str) -> None:
        match kind:
            case "gang":
                self._site.touch(life)
            case "limit":
                limit = life.spec.time_limit_s
                self._endings.end(
                    life, Step.TIMED_OUT, reason="TimeLimit", detail=f"it ran for {limit:g} s"
                )
            case "deadline":
                self._endings.end(
                    life, Step.DEADLINE, reason="DeadLine", detail="its deadline has passed"
                )
            case "mend":
                self._placements.mend(life)
            case "begin":
                self._arrivals.consider(life)

    # What is kept.

    def _commit(self) -> None:
        """Keeps what this instant changed, and then lets the letters go out."""
        site = self._site
        entry = site.entry()
        if entry.facts or entry.records or entry.done or entry.meta:
            self._keep(lambda: self._edges.journal.write(entry))
            self._arrivals.kept()
            self._picture.changed = True
        if entry.facts or entry.records:
            self._time_kept_s = site.now
        elif site.now >= self._tell_time_s:
            self._keep_time()
        self._tending.say()

    @property
    def _tell_time_s(self) -> float:
        """Returns when the time must be kept, if nothing that happens tells of it until then."""
        if not len(self._site.lives):
            return NEVER_S
        return self._time_kept_s + self._rules.persist_every_s

    def _keep_time(self) -> None:
        """Keeps the present: what jobs ran and waited counts, though this controller is killed."""
        self._time_kept_s = self._site.now
        # A disk that is full now takes it the next time.
        with suppress(StoreError):
            self._edges.journal.write(Entry(meta=((CLOCK, repr(self._site.now)),)))

    def _keep(self, write: Callable[[], None]) -> None:
        """Writes, and goes on trying while the store cannot; whatever comes meanwhile waits."""
        clock, inbox = self._edges.clock, self._edges.inbox
        while True:
            try:
                write()
                self._picture.unwritable("")
                return
            except StoreError as error:
                self._picture.unwritable(str(error))
                if self._leaving:
                    raise
                again_s = clock.now() + self._rules.store_retry_s
                while come := inbox.wait(again_s):
                    self._late.extend(come)
                    if any(isinstance(m, Request) and m.verb == "down" for m in come):
                        raise

    # What the loop asks.

    def apply(self, draft: Draft) -> None:
        """Carries a legal draft out."""
        placed = [c.job for c in draft.changes() if c.before is None]
        self._placements.apply(draft)
        for row in placed:
            self._arrivals.look_after(self._site.lives.numbers[row])
        self._picture.decided()

    def in_time(self, took_s: float) -> bool:
        """Tells whether a decision that took so long still counts."""
        return took_s <= self._rules.decision_limit_s

    def refuse(self, policy: Policy, why: Sequence[str], cause: Exception | None = None) -> float:
        """Keeps the plan that runs, records why, and returns when to ask again."""
        site = self._site
        text = "; ".join(why)
        site.facts.append(Refused(site.now, text))
        self._picture.refused(text)
        return site.now + self._rules.refused_wait_s

    def note(self, decision: Decision) -> None:
        """Records the reasons when they change, and adopts a new order of the queue."""
        site = self._site
        if decision.because is not None and decision.because != self._because:
            self._because = decision.because
            site.facts.append(Explained(site.now, decision.because))
            self._picture.explained(decision.because)
        if decision.order is not None:
            site.state.reorder(decision.order)
        self._picture.decided()

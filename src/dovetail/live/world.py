"""The live world: the same tables and the same loop as in simulation, with workers for a truth.

One instant goes: what came in and what is due changes tables, records and gangs; the policy is
asked if anything concerns it; then one entry of the journal keeps all of it; and only when that
is durable do orders go out. Killed anywhere, the next controller finds either nothing of the
instant or all of it, and says every order again that may not have been heard.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dovetail.control.state import ClusterState
from dovetail.core.messages import Explained, Refused, Woke
from dovetail.core.plan import Draft
from dovetail.core.policy import Decision, Policy
from dovetail.core.view import Changes, View
from dovetail.live.arrivals import Arrivals
from dovetail.live.edges import (
    Accepted,
    Edges,
    Incoming,
    NodeLost,
    Request,
    StoreError,
)
from dovetail.live.endings import Endings
from dovetail.live.gang_orders import instructions, next_told_s
from dovetail.live.health import Health
from dovetail.live.lifecycle import Step
from dovetail.live.lives import Life
from dovetail.live.metering import Meter, PlainMeter
from dovetail.live.news import Died, Finished, Formed, News, Saved, Stalled, Trained, Vacated
from dovetail.live.picture import Picture
from dovetail.live.placements import Placements
from dovetail.live.progress_reports import ProgressReports
from dovetail.live.recovered import Recovered
from dovetail.live.recovery import take_up
from dovetail.live.rules import Rules
from dovetail.live.site import Launches, Site
from dovetail.live.snapshot import Snapshot
from dovetail.wire.agent import (
    EndWorker,
    Forget,
    Hail,
    Order,
    Report,
    StartWorker,
    TellWorkers,
)

NEVER = float("inf")
STRAY_GRACE_S = 0.0
"""A worker that nobody wants any more is killed: what it did is on record as over."""


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
        meter: Meter | None = None,
        rules: Rules | None = None,
        owner: str = "",
        share_between_users: bool = False,
    ) -> None:
        self._edges = edges
        self._rules = rules or Rules()
        state.now = state.view.now = max(recovered.now_s, edges.clock.now())
        self._site = site = Site(
            edges,
            state,
            policy,
            epoch=recovered.epoch,
            launches=launches,
            meter=meter or PlainMeter(),
            rules=self._rules,
        )
        self._endings = Endings(site)
        self._placements = Placements(site)
        self._arrivals = Arrivals(
            site, self._endings, owner=owner, share_between_users=share_between_users
        )
        self._health = Health(site, self._endings, self._placements)
        self._reports = ProgressReports(site, self._endings)
        self._picture = Picture(site, self._health)
        self._late: list[Incoming] = []
        self._to_say: dict[int, Life] = {}
        self._blocked: set[int] = set()
        self._ask_s = site.now
        self._leaving = self._emptying = False
        self._because: tuple[object, ...] | None = None
        take_up(site, self._arrivals, self._health, recovered)
        self._late.extend(recovered.accepted)
        self._late.extend(recovered.requests)

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
            self._tend()
            self._commit()
            if self._is_over():
                return False
            if not self._asks():
                self._pass_time(until)
            if site.settled and min(until, self._ask_s) <= site.now:
                self._ask_s = NEVER
                site.changes.woke = True
                site.facts.append(Woke(site.now))
            if self._asks():
                site.state.view.changes = site.changes.net(site.state.waiting)
                site.changes = Changes(arrived=[], ended=[], evicted=[])
                return True

    def _pass_time(self, until: float) -> None:
        """Waits for the next instant, and lets it happen."""
        site = self._site
        self._picture.publish_if_due()
        due = min(site.timers.next_s, self._picture.due_s)
        if site.settled:
            due = min(due, until, self._ask_s)
        come = self._late or self._edges.inbox.wait(due)
        self._late = []
        # Nothing came, so it is time, though clocks may round that to an instant before.
        self._begin(due if not come else 0.0)
        self._take(come)
        self._let_happen()
        self._tend()

    def _begin(self, due_s: float) -> None:
        state = self._site.state
        state.now = state.view.now = max(state.now, self._edges.clock.now(), due_s)

    def _asks(self) -> bool:
        """Tells whether anything happened that concerns the policy, and it can be asked."""
        c = self._site.changes
        return self._site.settled and bool(
            c.woke or c.arrived or c.ended or c.evicted or c.capacity
        )

    def _is_over(self) -> bool:
        if self._emptying and not any(
            life.is_placed or (life.gang is not None and life.gang.workers)
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
                case Report():
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

    def _take_report(self, report: Report) -> None:
        if not self._health.heard(report.node):
            return
        if report.inventory is not None:
            self._health.survey(report.inventory)
        # Until all inventories are there a worker that is heard of cannot be told from a stray.
        elif self._site.settled:
            self._take_word(report)

    def _take_word(self, report: Report) -> None:
        site, node = self._site, report.node
        if report.started is not None:
            said = report.started
            life = site.lives.get(said.job)
            if life is None or not site.gang(life).started(said.worker, site.now):
                site.floor.add_stray((said.job, said.worker), node, said.gpu)
            else:
                site.touch(life)
        if report.ended is not None:
            end = report.ended
            site.floor.drop_stray((end.job, end.worker))
            life = site.lives.get(end.job)
            if life is None or life.gang is None:
                self._endings.forget(node, end.job, end.worker)
            else:
                life.gang.ended(node, end, site.now)
                site.touch(life)
        if report.said is not None:
            life = site.lives.get(report.said.job)
            if life is not None and life.gang is not None:
                life.gang.heard(report.said, site.now)
                site.touch(life)

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

    # What gangs do.

    def _tend(self) -> None:
        """Lets every touched gang decide, and carries out what follows, until all is quiet."""
        site = self._site
        done: dict[int, Life] = {}
        while site.touched or site.floor.changed or self._endings.over:
            if site.floor.changed:
                site.floor.changed = False
                self._wake_waiting()
            batch, site.touched = site.touched, {}
            for life in batch.values():
                self._put_on_floor(life)
            for job in sorted(batch):
                self._tend_one(batch[job])
                done[job] = batch[job]
            over, self._endings.over = self._endings.over, []
            for life in over:
                self._arrivals.over(life)
        self._to_say.update(done)

    def _wake_waiting(self) -> None:
        """Touches the gangs that wait for GPUs that others held."""
        for job in self._blocked:
            life = self._site.lives.get(job)
            if life is not None:
                self._site.touch(life)
        self._blocked = set()

    def _tend_one(self, life: Life) -> None:
        site, gang = self._site, life.gang
        if gang is None:
            return
        job = life.record.job
        if site.settled:
            self._digest(life, gang.news())
            gang.step(site.now, lambda node, gpu: self._health.may_start(job, node, gpu))
            self._digest(life, gang.news())
        wanted = gang.wanted.numbers if gang.wanted is not None else ()
        if any(number not in gang.workers for number in wanted):
            self._blocked.add(job)
        self._put_on_floor(life)
        if gang.generation != life.record.generation or gang.group != life.record.group:
            site.lives.write(life, generation=gang.generation, group=gang.group)

    def _put_on_floor(self, life: Life) -> None:
        if life.gang is not None:
            workers = {w.worker: (w.node, w.gpu) for w in life.gang.workers.values()}
            self._site.floor.put(life.record.job, workers)

    def _digest(self, life: Life, news: Sequence[News]) -> None:
        deaths = [said for said in news if isinstance(said, Died)]
        if any(isinstance(said, Finished) for said in news):
            deaths = []
        for said in news:
            match said:
                case Formed():
                    self._placements.formed(life, said)
                case Trained():
                    self._reports.take(life, said.said)
                case Saved() if said.step > life.record.saved_step:
                    self._site.lives.write(life, saved_step=said.step)
                case Finished():
                    self._endings.end(life, Step.FINISHED, code=0)
                case Stalled():
                    self._endings.stalled(life, said.silent_s)
                case Vacated():
                    self._endings.vacated(life)
        if deaths and life.is_placed:
            self._endings.died(life, deaths)

    # What is kept, and what is said.

    def _commit(self) -> None:
        """Keeps what this instant changed, and then lets the letters go out."""
        site = self._site
        entry = site.entry()
        if entry.facts or entry.records or entry.done or entry.meta:
            self._keep(lambda: self._edges.journal.write(entry))
            self._arrivals.kept()
            self._picture.changed = True
        self._say()

    def _keep(self, write: Callable[[], None]) -> None:
        """Writes, and goes on trying while the store cannot; whatever comes meanwhile waits."""
        clock, inbox = self._edges.clock, self._edges.inbox
        while True:
            try:
                write()
                return
            except StoreError:
                if self._leaving:
                    raise
                again_s = clock.now() + self._rules.store_retry_s
                while come := inbox.wait(again_s):
                    self._late.extend(come)
                    if any(isinstance(m, Request) and m.verb == "down" for m in come):
                        raise

    def _say(self) -> None:
        site, now = self._site, self._site.now
        letters, site.letters = site.letters, []
        for job, life in self._to_say.items():
            if life.gang is None:
                continue
            letters.extend(instructions(life.gang, now, settled=site.settled))
            due = min(life.gang.next_s(now), next_told_s(life.gang, now))
            site.timers.set(("gang", job), due if site.lives.get(job) is life else NEVER)
        self._to_say = {}
        for key, stray in site.floor.strays.items():
            if now >= stray.told_s + self._rules.resend_s:
                stray.told_s = now
                letters.append((stray.node, EndWorker(*key, STRAY_GRACE_S)))
        for node, payload in letters:
            self._edges.post.send(node, self._order(payload))

    def _order(self, payload: StartWorker | EndWorker | TellWorkers | Forget | Hail) -> Order:
        epoch = self._site.epoch
        match payload:
            case StartWorker():
                return Order(epoch, start=payload)
            case EndWorker():
                return Order(epoch, end=payload)
            case TellWorkers():
                return Order(epoch, tell=payload)
            case Forget():
                return Order(epoch, forget=payload)
            case Hail():
                return Order(epoch, hail=payload)

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

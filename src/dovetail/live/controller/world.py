"""The live world: the same tables and the same loop as in simulation, over real workers.

In each instant, messages and due timers change tables, records and gangs. The policy is asked if
anything concerns it. Then one journal entry has all changes, and orders are sent when that is
durable. If the controller is killed anywhere, the next one finds all of the instant or nothing of
it, and repeats every order that may not have arrived.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from dovetail.control.state import ClusterState
from dovetail.core.messages import RECOVERING, ControllerChanged, Explained, Refused
from dovetail.core.plan import Draft
from dovetail.core.policy import Decision, Policy, name_of, spell
from dovetail.core.units import NEVER_S
from dovetail.core.view import View, show
from dovetail.live.controller.admission import Admission
from dovetail.live.controller.agent_reports import AgentReports
from dovetail.live.controller.avoided_nodes import NodeFilter
from dovetail.live.controller.drains import Drains
from dovetail.live.controller.gang_event_handler import GangEventHandler
from dovetail.live.controller.gang_members import GangMembers
from dovetail.live.controller.gpu_map import GpuMap
from dovetail.live.controller.idle_jobs import JobUsage
from dovetail.live.controller.instant_log import InstantLog
from dovetail.live.controller.job_dependencies import JobDependencies
from dovetail.live.controller.leases import Leases
from dovetail.live.controller.live_gangs import Launches, LiveGangs
from dovetail.live.controller.live_jobs import LiveJob, LiveJobs
from dovetail.live.controller.node_faults import NodeFailures
from dovetail.live.controller.node_loss import NodeLoss
from dovetail.live.controller.node_monitor import LEASES, NodeMonitor
from dovetail.live.controller.outbox import Outbox
from dovetail.live.controller.plan_applier import PlanApplier
from dovetail.live.controller.policy_memory import PolicyMemory
from dovetail.live.controller.progress_reports import ProgressReports
from dovetail.live.controller.reconciler import Reconciler
from dovetail.live.controller.recorded_tables import RecordedTables
from dovetail.live.controller.recovery import Recovery
from dovetail.live.controller.report_guard import ReportGuard
from dovetail.live.controller.status_publisher import StatusPublisher
from dovetail.live.controller.terminations import Terminations
from dovetail.live.controller.timers import Timer, Timers
from dovetail.live.controller.worker_loss import WorkerLoss
from dovetail.live.edges.protocols import (
    BACKUP,
    CLOCK,
    POLICY_MEMORY,
    Edges,
    Incoming,
    JournalEntry,
    NodeGone,
    NodeLost,
    NodesChanged,
    Request,
    StoredState,
    StoreError,
)
from dovetail.live.jobs.drain_reason import note_of
from dovetail.live.jobs.lifecycle import Transition
from dovetail.live.jobs.status_snapshot import StatusSnapshot
from dovetail.live.jobs.stored_job import StoredJob
from dovetail.live.measuring.meter import ReportMeter
from dovetail.live.workers.node_addresses import NodeAddresses
from dovetail.live.workers.rules import Rules
from dovetail.wire.agent import AgentReport

SAVED = "saved for the next controller"
DRAINING_DOWN = "the cluster stops when its running jobs have ended, and starts none"
"""Why the log has a refused plan instead of a decision after `down --drain`."""


class LiveWorld:
    """A world of real time and real workers, between edges that may fail.

    It makes the parts of the controller, passes each the others that it uses, and owns the order
    of steps within an instant.
    """

    def __init__(
        self,
        edges: Edges,
        state: ClusterState,
        policy: Policy,
        *,
        recovered: StoredState,
        launches: Launches,
        meter: ReportMeter,
        rules: Rules | None = None,
        owner: str = "",
        share_between_users: bool = False,
        names: Sequence[str] = (),
    ) -> None:
        self._edges = edges
        self._rules = rules = rules or Rules()
        _make_live(state, max(recovered.now_s, edges.clock.now()))
        epoch, self._jobs = recovered.epoch, (jobs := LiveJobs())
        self._gangs = gangs = LiveGangs(launches, rules, NodeAddresses(dict(enumerate(names))))
        self._log = log = InstantLog(jobs, state)
        self._tables = tables = RecordedTables(state, log)
        self._timers, gpus = (timers := Timers()), GpuMap(state, jobs)
        self._outbox = outbox = Outbox(jobs, gangs, gpus, timers, edges.post, rules, epoch)
        self._monitor = monitor = NodeMonitor(tables, log, outbox, timers, rules, epoch)
        self._drains = drains = Drains(jobs, tables, log, gpus, monitor, policy.powers)
        self._members = members = GangMembers(jobs, gangs, tables, gpus, timers)
        self._terminations = terminations = Terminations(
            jobs, gangs, tables, gpus, members, timers, meter, rules, NodeFilter(jobs, tables)
        )
        self._dependencies = dependencies = JobDependencies(jobs, edges.archive)
        sharer = None if share_between_users else owner
        self._admission = admission = Admission(
            jobs, tables, log, timers, terminations, dependencies, monitor, sharer
        )
        self._leases = leases = Leases(jobs, gangs, monitor, terminations, admission)
        self._plans = PlanApplier(jobs, gangs, tables, gpus, members, leases)
        self._faults = faults = NodeFailures(jobs, tables, log, gpus, drains, terminations)
        self._publisher = publisher = StatusPublisher(
            jobs, gangs, tables, gpus, monitor, faults, name_of(policy), rules.publish_every_s
        )
        self._reports = reports = AgentReports(
            *(jobs, gangs, tables, gpus, log, members, terminations, leases, publisher, outbox),
            ReportGuard(jobs, tables, gpus, monitor, outbox),
        )
        self._node_loss = NodeLoss(
            jobs, gangs, tables, gpus, members, terminations, leases, reports, policy
        )
        progress = ProgressReports(jobs, tables, gpus, terminations, meter, rules)
        losses = WorkerLoss(jobs, gangs, tables, gpus, timers, terminations, meter, rules)
        events = GangEventHandler(jobs, gangs, tables, gpus, timers, terminations, progress, losses)
        self._reconciler = Reconciler(
            jobs, gangs, tables, gpus, members, admission, terminations, events, leases, outbox
        )
        self._idle = JobUsage(jobs, tables, log, outbox, terminations, rules)
        self._late, self._leaving, self._emptying = list[Incoming](), False, ""
        self._because: tuple[object, ...] | None = None
        self._time_written_s = self._ask_s = tables.now
        log.fact(ControllerChanged(tables.now, epoch, RECOVERING, spell(policy)))
        self._restore(recovered, Recovery(jobs, gangs, tables, gpus, timers, members, admission))
        self._memory = self._recall(policy, dict(recovered.meta).get(POLICY_MEMORY, ""))

    def _recall(self, policy: Policy, text: str) -> PolicyMemory:
        return PolicyMemory(policy, self._jobs, self._log, text, self._tables.now)

    def _restore(self, recovered: StoredState, recovery: Recovery) -> None:
        """Restores the state of the last controller, and messages that it wrote no entry for."""
        recovery.restore_gangs(recovered.jobs)
        meta = dict(recovered.meta)
        is_put_back = bool(meta.get(BACKUP))
        self._leases.restore(anywhere=is_put_back)
        if is_put_back:
            # Leases were renewed since. With this entry all that follows from it is on record.
            meta.pop(LEASES, None)
            self._log.keep(BACKUP, "")
        self._monitor.begin(meta, recovered.now_s)
        self._drains.begin(meta)
        self._faults.begin(meta)
        recovery.restore_waiting()
        # If all nodes are down, jobs that ran wait from now on, like those that waited before.
        self._reports.settle()
        # A simulation does not ask its policy about an empty cluster either.
        if not len(self._jobs):
            self._ask_s = self._reservation_s()
        self._late.extend(recovered.accepted)
        # Bringing a cluster up cancels an earlier "down" that was not carried out.
        down = [r for r in recovered.requests if r.verb == "down"]
        self._log.answer(*(r.seq for r in down))
        self._late.extend(r for r in recovered.requests if r not in down)

    @property
    def status(self) -> StatusSnapshot | None:
        """Returns the latest snapshot for readers; any thread may take it."""
        return self._publisher.latest

    @property
    def memory(self) -> object:
        """Returns the first memory of the policy, with what it kept of the last controller."""
        return self._memory.first

    def observe(self) -> View:
        """Returns the view at the present instant."""
        return self._tables.state.view

    def advance(self, until: float) -> bool:
        """Moves to the next instant that concerns the policy; False when the controller stops."""
        while True:
            if self._emptying == "save" and self._gangs.settled:
                self._save_jobs()
            # Before the entry: the decision of this instant, or the recovery, has touched gangs.
            self._reconciler.reconcile()
            self._settle_nodes()
            self._commit()
            if self._is_over():
                return False
            if not self._may_ask():
                self._pass_time(until)
            if self._emptying:
                until = self._ask_s = NEVER_S
                self._refuse_to_decide()
                continue
            if self._gangs.settled and min(until, self._ask_s) <= self._tables.now:
                self._ask_s = self._reservation_s()
                self._tables.wake()
            if self._may_ask():
                state = self._tables.state
                show(state.view, changes=self._tables.take_changes().net(state.waiting))
                return True

    def _reservation_s(self) -> float:
        """Returns when a reservation begins or ends next: other nodes are open from then on."""
        tenants = self._tables.state.plan.occupancy.tenants
        edges = () if tenants is None else tenants.edges_s()
        return next((t for t in edges if t > self._tables.now), NEVER_S)

    def _pass_time(self, until: float) -> None:
        """Waits for the next instant, and handles its messages and timers."""
        self._publisher.publish_if_due()
        due = min(self._timers.next_s, self._publisher.due_s, self._clock_due_s)
        if self._gangs.settled:
            due = min(due, until, self._ask_s)
        incoming = self._late or self._edges.inbox.wait(due)
        self._late = []
        # Without a message it must be `due`, even if the clock rounds to an instant before it.
        state = self._tables.state
        state.now = max(state.now, self._edges.clock.now(), due if not incoming else 0.0)
        show(state.view, now=state.now)
        self._monitor.excuse(self._tables.now - due)
        # Messages before timers: a report that came in time must save its node from being down.
        self._take(incoming)
        for timer, number in self._timers.due(self._tables.now):
            self._expire(timer, number)
        self._reconciler.reconcile()
        self._settle_nodes()

    def _settle_nodes(self) -> None:
        """Shows policies which GPUs and nodes are not for all jobs, before they are asked."""
        self._drains.settle()
        self._terminations.avoided.settle()

    def _may_ask(self) -> bool:
        """Returns whether anything concerns the policy, and it can be asked."""
        return self._gangs.settled and self._tables.concern_policy

    def _refuse_to_decide(self) -> None:
        """Decides in place of the policy while the cluster empties: the plan stays.

        The log has a refused plan, so that a replay does not ask the policy either.
        """
        if self._may_ask():
            self._log.fact(Refused(self._tables.now, DRAINING_DOWN))
            self._publisher.refused(DRAINING_DOWN)
            self._tables.take_changes()

    def _is_over(self) -> bool:
        if self._emptying and not any(
            job.is_placed or (job.gang is not None and job.gang.roster.workers)
            for job in self._jobs
            # One that is never requeued has nothing to come back for: it runs on.
            if job.spec.requeue or not (self._emptying == "save" and job.is_placed)
        ):
            self._leaving = True
        return self._leaving

    def _save_jobs(self) -> None:
        """Makes all jobs that may be requeued save, leave their GPUs and wait again."""
        for job in list(self._jobs):
            if job.is_placed and job.spec.requeue:
                self._admission.requeue(job, SAVED)

    # Messages.

    def _take(self, incoming: Sequence[Incoming]) -> None:
        # Requests about jobs come after these, so it is safe to admit a whole burst first.
        self._admission.accept([m for m in incoming if isinstance(m, StoredJob)])
        for message in incoming:
            match message:
                case Request():
                    self._take_request(message)
                case AgentReport():
                    if self._monitor.heard(message.node):
                        self._hear(message)
                case NodeLost():
                    # Silence decides; a broken connection may be back in a moment.
                    pass
                case NodeGone():
                    self._node_loss.take_gone(message.node, message.asked_s)
                case NodesChanged():
                    self._leaving = True

    def _hear(self, report: AgentReport) -> None:
        if report.idle is not None:
            self._idle.take(report.node, report.idle)
            self._publisher.changed = True
        elif report.health is None:
            self._reports.take(report)
        elif self._gangs.settled:
            # Before, the workers of the jobs are not known; agents repeat what they found.
            self._faults.take(report.node, report.health)
            self._publisher.changed = True

    def _take_request(self, request: Request) -> None:
        if request.verb in ("drain", "undrain"):
            note = note_of(request.argument, self._tables.now)
            if request.verb == "drain":
                self._drains.add(request.node, note)
            else:
                self._drains.remove(request.node, note.gpu)
            self._log.answer(request.seq)
        elif request.verb == "down":
            if request.argument in ("drain", "save"):
                self._emptying = request.argument
                self._monitor.drain_all()
            else:
                self._leaving = True
            self._log.answer(request.seq)
        else:
            self._admission.carry_out(request)

    # Timers.

    def _expire(self, timer: Timer, number: int) -> None:
        """Acts on a timer that is due; its number is that of a node or a job."""
        job = self._jobs.get(number)
        if timer is Timer.NODE_SILENT:
            self._node_loss.take_silence(number)
        elif timer is Timer.INVENTORY:
            self._monitor.request_inventory(number)
        elif timer is Timer.LEASE:
            self._node_loss.declare_lost(number)
        elif job is not None:
            self._expire_for(job, timer)

    def _expire_for(self, job: LiveJob, timer: Timer) -> None:
        match timer:
            case Timer.GANG:
                self._gangs.touch(job)
            case Timer.TIME_LIMIT:
                detail = f"it ran for {job.spec.time_limit_s:g} s"
                self._terminations.end(job, Transition.TIMED_OUT, reason="TimeLimit", detail=detail)
            case Timer.DEADLINE:
                detail = "its deadline has passed"
                self._terminations.end(job, Transition.DEADLINE, reason="DeadLine", detail=detail)
            case Timer.REPLACEMENTS:
                self._members.replace_lost(job)
            case Timer.BEGIN:
                self._admission.consider(job)

    # The journal.

    def _commit(self) -> None:
        """Makes what this instant changed durable, and then sends its orders."""
        entry = self._log.take_entry()
        # Most reports of progress change nothing on record, and then nothing is written.
        if entry.facts or entry.records or entry.done or entry.meta:
            self._write(entry)
            self._dependencies.entry_is_durable()
            self._publisher.changed = True
        if entry.facts or entry.records:
            self._time_written_s = self._tables.now
        elif self._tables.now >= self._clock_due_s:
            self._write_clock()
        self._outbox.send(self._tables.now)

    @property
    def _clock_due_s(self) -> float:
        """Returns when the time must be written, if no entry has done so until then."""
        if not len(self._jobs):
            return NEVER_S
        return self._time_written_s + self._rules.persist_every_s

    def _write_clock(self) -> None:
        """Writes the time: jobs ran and waited until now, even if this controller is killed."""
        now = self._tables.now
        self._time_written_s = now
        # On a full disk the next write has it.
        with suppress(StoreError):
            self._edges.journal.write(JournalEntry(meta=((CLOCK, repr(now)),)))

    def _write(self, entry: JournalEntry) -> None:
        """Writes an entry, and retries while the store fails; messages wait meanwhile."""
        clock, inbox = self._edges.clock, self._edges.inbox
        while True:
            try:
                self._edges.journal.write(entry)
                self._publisher.unwritable("")
                return
            except StoreError as error:
                self._publisher.unwritable(str(error))
                if self._leaving:
                    raise
                again_s = clock.now() + self._rules.store_retry_s
                while incoming := inbox.wait(again_s):
                    self._late.extend(incoming)
                    # The instant cannot be written, but a user must be able to stop the controller.
                    if any(isinstance(m, Request) and m.verb == "down" for m in incoming):
                        raise

    # Decisions.

    def apply(self, draft: Draft) -> None:
        """Applies a legal draft."""
        placed = [c.job for c in draft.changes() if c.before is None]
        self._plans.apply(draft)
        for row in placed:
            self._admission.consider_dependents(self._jobs.numbers[row])
        self._publisher.decided()

    def in_time(self, took_s: float) -> bool:
        """Returns whether a decision that took so long still counts."""
        return took_s <= self._rules.decision_limit_s

    def refuse(self, policy: Policy, why: Sequence[str], cause: Exception | None = None) -> float:
        """Keeps the plan that runs, records why, and returns when to ask again."""
        text = "; ".join(why)
        self._log.fact(Refused(self._tables.now, text))
        self._publisher.refused(text)
        return self._tables.now + self._rules.refused_wait_s

    def note(self, decision: Decision) -> None:
        """Records the reasons when they change, and adopts a new order of the queue."""
        if decision.because is not None and decision.because != self._because:
            self._because = decision.because
            self._log.fact(Explained(self._tables.now, decision.because))
            self._publisher.explained(self._log.reasons_by_number(decision.because))
        if decision.order is not None:
            self._tables.state.reorder(decision.order)
        self._memory.note(decision.memory)
        self._publisher.decided()


def _make_live(state: ClusterState, now: float) -> None:
    state.now = now
    show(state.view, now=now)
    state.expansions.follow_workers()

"""Plays a story: the real controller, store, intake and agents in virtual time."""

from __future__ import annotations

import traceback
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import numpy as np
from harness.floor import Emulated, Floor, Machines
from harness.killing import CrashPoints, Killed, KillingPost, Unread, WatchedJournal
from harness.network import FaultyNetwork, FaultyPost
from harness.story import (
    BUSY,
    CALM_S,
    GONE,
    GONE_IN_ERROR,
    GONE_LATE,
    GPUS_PER_NODE,
    ORDERS_LOST,
    STOPPED,
    SUSPENDED,
    Fault,
    Story,
    Weather,
)
from harness.truth import Truth
from harness.users import GRACE_S, Users
from harness.verdict import judge

import dovetail.policies  # registers the policies
from dovetail.control.loop import run
from dovetail.control.state import ClusterState
from dovetail.core.cluster import Cluster
from dovetail.core.errors import InputError
from dovetail.core.job import JobTable
from dovetail.core.placing import Placing
from dovetail.core.policy import parse_policy
from dovetail.forecast.forecasts import Declared
from dovetail.live.controller.world import LiveWorld
from dovetail.live.edges.protocols import Edges, NodeGone, NodeLost, StoredState, StoreError
from dovetail.live.edges.virtual_time import Timeline, VirtualClock, VirtualInbox
from dovetail.live.emulation.synthetic import synthetic_spec
from dovetail.live.jobs.record import JobRecord
from dovetail.live.store.database import Database
from dovetail.live.store.intake import Intake
from dovetail.live.store.queries import Queries
from dovetail.live.store.store import Store
from dovetail.live.workers.rules import Rules
from dovetail.physics.linear import linear_physics
from dovetail.physics.sharing.interference import Injected
from dovetail.wire.agent import ORDERS, REPORTS, AgentOrder, AgentReport, StartWorker
from dovetail.wire.spec import JobSpec
from plain_meter import PlainMeter
from store_audit import audit

assert dovetail.policies

TIDY_S, LOOK_S, END_S = 100.0, 5.0, 1500.0
"""How often users free what they held, how often the end is looked for, and when it is overdue."""
GONE_S = 1.0
"""A cancelled job is gone within its grace and so long."""
MISSED_S = 3.0
"""A silent node is missed so long after all patience, at the latest."""
SETTLES_S = 20.0
"""After so long without trouble, all is as if there had been none."""
RULES = replace(Rules(), decision_limit_s=float("inf"), stall_s=60.0, ready_s=60.0, start_s=60.0)


class Over(BaseException):
    """Everything that was to happen has happened."""


@dataclass(frozen=True)
class Outcome:
    """What was wrong with a run (nothing, if all is well), its tale, and how long it was."""

    wrong: tuple[str, ...]
    tale: tuple[str, ...]
    crash_points: int
    virtual_s: float


class Scene:
    """One run of a story; `path` is the file of its store."""

    def __init__(self, story: Story, path: Path) -> None:
        self.story = story
        self.line = Timeline()
        self.path = path
        self._rng = Random(story.seed)
        self.points = CrashPoints(story.crash_at)
        self.policy = parse_policy(story.policy)
        shares = not self.policy.powers.isdisjoint(("share", "interleave"))
        # With leases a worker has so little time to be ready that lost messages look as late ones.
        lossy = story.lease_s > 0 and story.weather.lost > 0
        crawls = story.weather.late_s > RULES.resend_s or lossy
        self.cluster = Cluster.uniform(story.nodes, GPUS_PER_NODE)
        memory = 0.0 if story.engine == "emulated" else self.cluster.groups[0].gpu_memory_bytes
        self._rules = rules_of(story)
        self.truth = Truth(lambda: self.line.now, shares, crawls, memory, story.lease_s > 0)
        self.truth.misled = story.is_misled
        self.network = FaultyNetwork(self.line, story.weather, self._rng)
        self._unread = Unread()
        self._inbox: VirtualInbox | None = None
        self._intake: Intake | None = None
        self._world: LiveWorld | None = None
        self._begun_s = self._ahead_s = 0.0
        self._silent_s: dict[int, float] = {}
        self._trouble_s = 0.0
        self._down_s: float | None = None
        self.floor: Floor = (
            Emulated(self.line, self.truth, self._rng, self._send)
            if story.engine == "emulated"
            else Machines(story, self.line, self.truth, self._rng, self._send)
        )
        self.users = Users(self.line, story, lambda: self._intake, self._cancelled)
        for fault in story.faults:
            self.line.at(fault.t, lambda fault=fault: self._befall(fault))  # type: ignore[misc]
        self.line.at(CALM_S, self._tidy_up)
        self.line.at(CALM_S + 1.5 * LOOK_S, self._look_for_the_end)

    def play(self) -> Outcome:
        """Plays the story to its end."""
        try:
            while not self._one_controller():
                self._pass_without()
            judge(self)
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            text = f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
            self.truth.breach(text)
        wrong = (*self.truth.wrong, *self.users.promises.wrong)
        tale = tuple(f"{t:9.3f}  {text}" for t, text in self.truth.tale)
        return Outcome(wrong, tale, self.points.passed, self.line.now)

    def _pass_without(self) -> None:
        """Lets time pass without a controller."""
        down_s = self._rng.choice((0.0, 0.3, 3.0)) if self._down_s is None else self._down_s
        self._down_s = None
        self.line.pass_until(self.line.now + down_s)

    # The controller.

    def _one_controller(self) -> bool:
        """Runs one controller until it is killed; True when everything is over."""
        database: Database | None = None
        try:
            database = Database(self.path, crash=self.points.reach)
            self._control(database)
        except Killed as death:
            self.truth.say(f"the controller is killed: {death}")
            self.trouble(0.0)
        except Over:
            return True
        finally:
            self._inbox = self._intake = self._world = None
            if database is not None:
                database.close()
        return False

    def _control(self, database: Database) -> None:
        store = Store(database, Queries(database.connection))
        recovered = self._recover(store)
        self.truth.begins(recovered.epoch)
        self._audit(store.queries)
        # The cluster's clock goes on from the newest time on record, or is found far ahead.
        ahead_s = recovered.now_s - self.line.now + (60.0 if self._rng.random() < 0.1 else 0.0)
        clock = VirtualClock(self.line, ahead_s)
        inbox = VirtualInbox(self.line, ahead_s)
        post_office = FaultyPost(self.line, self._deliver, self.network)
        post = KillingPost(post_office, self.points, self._unread)
        journal = WatchedJournal(store, self.truth.kept)
        world = LiveWorld(
            Edges(clock, inbox, post, journal, store),
            self._state(store),
            self.policy,
            recovered=recovered,
            launches=launch_of,
            meter=PlainMeter(),
            rules=self._rules,
        )
        self._inbox, self._world, self._begun_s = inbox, world, self.line.now
        self._ahead_s = ahead_s
        self._intake = Intake(database, clock=clock, cluster=self.cluster, put=inbox.put)
        try:
            run(world, self.policy, memory=world.memory)
        except Over:
            self._audit(store.queries)
            raise
        self.truth.breach("the controller stopped by itself")
        raise Over

    def _audit(self, queries: Queries) -> None:
        """Holds what is on record against the promises that records can break."""
        told = self.users.promises.numbers.values()
        for sentence in audit(queries, cluster=self.cluster, acknowledged=tuple(told)):
            self.truth.breach(f"audit: {sentence}")

    def _recover(self, store: Store) -> StoredState:
        """Starts from what is on record, once the disk lets it."""
        while True:
            try:
                return store.recover()
            except StoreError:
                self.line.pass_until(self.line.now + 1.0)

    def _state(self, store: Store) -> ClusterState:
        table = JobTable.build([], np.empty(0), np.empty(0, np.int64), numbered=True)
        lengths: dict[str, float] = {}

        def declared(job_id: str) -> float:
            if job_id not in lengths:
                found = store.find(int(job_id))
                lengths[job_id] = found.spec.duration_s if found else 0.0
            return lengths[job_id]

        return ClusterState(
            table,
            self.cluster,
            self.policy,
            physics=linear_physics(table, Injected(1.3)),
            forecast=Declared(table, declared),
            placing=Placing.parse("prefer"),
        )

    # Nodes and processes.

    def _deliver(self, node: int, order: AgentOrder) -> None:
        if self.story.seed % 10 == 0:
            assert ORDERS.decode(ORDERS.encode(order)) == order, "an order is not what it was"
        until_s = self.network.stopped.get(node, -1.0)
        if until_s > self.line.now:
            self.line.at(until_s, lambda: self._deliver(node, order))
        elif self._unread.read(order):
            self.floor.deliver(node, order)

    def _send(self, node: int, report: AgentReport) -> None:
        if self.story.seed % 10 == 0:
            assert REPORTS.decode(REPORTS.encode(report)) == report, "a report is not what it was"
        for delay_s in self.network.delays_s(node, up=True):
            self.line.after(delay_s, lambda: self._arrive(report))

    def _arrive(self, report: AgentReport) -> None:
        if self._inbox is not None:
            self._inbox.put(report)

    # What goes wrong.

    def _befall(self, fault: Fault) -> None:
        self.truth.say(f"fault: {fault.kind} {fault.lasts_s:g} s, node {fault.node}")
        until_s = self.line.now + fault.lasts_s
        self.trouble(fault.lasts_s)
        if fault.parts:
            self.truth.estrange(fault.node, until_s)
        if fault.kind.startswith("controller killed"):
            if self._inbox is not None:
                self._down_s = fault.lasts_s
                if fault.kind == ORDERS_LOST:
                    self.truth.say(f"{self._unread.lose(self._rng)} orders are lost with it")
                raise Killed("at a random instant")
        elif fault.kind in (STOPPED, SUSPENDED):
            self.network.stopped[fault.node] = until_s
            (self.floor.suspend if fault.kind == SUSPENDED else self.floor.stop_agent)(
                fault.node, until_s
            )
        elif fault.kind == GONE_IN_ERROR:
            self._say_gone(fault.node, self.line.now)
        elif fault.kind == "disk full":
            self.points.disk_full = True
            self.line.at(until_s, self._disk_mended)
        elif fault.kind in ("agent killed", "node reboots"):
            (self.floor.reboot if fault.kind == "node reboots" else self.floor.kill_agent)(
                fault.node
            )
            self._lose_line(fault.node)
            self.line.at(until_s, lambda: self.floor.boot(fault.node))
        elif fault.kind in (GONE, GONE_LATE):
            self.floor.reboot(fault.node)
            is_late = fault.kind == GONE_LATE
            said_s = fault.pick + is_late * fault.lasts_s
            asked_s = until_s if is_late else self.line.now + said_s
            self.line.after(said_s, lambda: self._say_gone(fault.node, asked_s))
            # After its word is given the starter brings the node up again, empty; or before.
            boots_s = until_s + (not is_late) * fault.pick
            self.line.at(boots_s, lambda: self.floor.boot(fault.node))
        elif fault.kind == BUSY:
            self.floor.hold_memory(fault.node, until_s)
        elif fault.kind.startswith("node"):
            self._cut_off(fault, until_s)
        else:
            self._befall_worker(fault)

    def _cut_off(self, fault: Fault, until_s: float) -> None:
        if fault.kind != "node deaf":
            if self.network.silent.get(fault.node, -1.0) <= self.line.now:
                self._silent_s[fault.node] = self.line.now
            self.network.silent[fault.node] = until_s
            missed_s = RULES.node_patience_s + self.story.weather.late_s + MISSED_S
            if fault.lasts_s > missed_s:
                self.line.after(missed_s, lambda: self._look_missed(fault.node, missed_s))
        if fault.kind != "node silent":
            self.network.deaf[fault.node] = until_s
        if fault.kind == "node apart":
            self.floor.part(fault.node, parted=True)
            self.line.at(until_s, lambda: self.floor.part(fault.node, parted=False))

    def _look_missed(self, node: int, silent_s: float) -> None:
        """Holds that a node is down that was silent for so long."""
        now, world = self.line.now, self._world
        if world is None or now < self._begun_s + silent_s or self.story.engine == "emulated":
            return
        is_silent = self.network.silent[node] > now and self._silent_s[node] <= now - silent_s
        if is_silent and not self.points.disk_full and world.status is not None:
            state = world.status.nodes[node].state
            if state != "down":
                self.truth.breach(f"node {node} is {state}, and silent for {silent_s:g} s")

    def _say_gone(self, node: int, asked_s: float) -> None:
        if self._inbox is not None:
            self._inbox.put(NodeGone(node, asked_s + self._ahead_s))

    def _befall_worker(self, fault: Fault) -> None:
        alive = self.floor.alive()
        if alive:
            process = alive[fault.pick % len(alive)]
            self.truth.say(f"fault: {fault.kind}: {process.name}")
            self.floor.befall(process, fault.kind)

    def trouble(self, lasts_s: float) -> None:
        """Notes that something goes wrong now, for so long."""
        self._trouble_s = max(self._trouble_s, self.line.now + lasts_s)

    def _cancelled(self, job: int) -> None:
        """Looks whether a cancelled job is gone as soon as it must be."""
        self.users.promises.cancelled_s.setdefault(job, self.line.now)
        asked_s = self.line.now
        if self.story.weather == Weather() or asked_s > CALM_S + SETTLES_S:
            self.line.after(GRACE_S + GONE_S, lambda: self._look_gone(job, asked_s))

    def _look_gone(self, job: int, asked_s: float) -> None:
        if self._trouble_s + SETTLES_S < asked_s and self._inbox is not None:
            anew = job in self.users.promises.requeued
            for process in self.floor.alive():
                if process.job == job and not (anew and process.started_s > asked_s):
                    self.truth.breach(f"worker {process.name} is there after its cancel")

    def _disk_mended(self) -> None:
        self.points.disk_full = False

    def _lose_line(self, node: int) -> None:
        if self._inbox is not None and self._rng.random() < 0.5:
            self._inbox.put(NodeLost(node))

    # The end.

    def _tidy_up(self) -> None:
        """Lets users free what they hold, drained, or made wait for what never comes."""
        self.line.after(TIDY_S, self._tidy_up)
        if self._intake is None:
            return
        stamp = f"tidy {self.line.now:g}"
        try:
            for node in range(self.story.nodes):
                self._intake.request("undrain", node=node, key=f"{stamp} node {node}")
            for i, verb in enumerate(v for v in self.story.verbs if v.argument):
                key = f"{stamp} GPU {i}"
                self._intake.request("undrain", node=verb.node, argument=verb.argument, key=key)
            for job, record in list(self.truth.records.items()):
                if record.held:
                    self._ask("release", job, stamp)
                elif self.line.now > 4 * CALM_S and self._is_hopeless(record):
                    self._ask("cancel", job, stamp)
        except StoreError:
            return

    def _is_hopeless(self, record: JobRecord) -> bool:
        """Tells whether only a user can end a job: it waits for ever, or a plain worker hangs."""
        hangs = any(p.hangs and p.job == record.job for p in self.floor.alive())
        return hangs or "Dependency" in record.reason

    def _ask(self, verb: str, job: int, stamp: str) -> None:
        assert self._intake is not None
        try:
            self._intake.request(verb, jobs=(job,), key=f"{stamp} {verb} {job}")
        except InputError:
            return
        if verb == "cancel":
            self._cancelled(job)

    def _look_for_the_end(self) -> None:
        if self._inbox is not None and not self.users.open and not self.users_wait():
            raise Over
        self._look_at_waits()
        if self.line.now > END_S:
            left = [f"{r.job} {r.state} {r.reason}" for r in self.truth.alive()]
            self.truth.breach(f"it never ends: jobs {left}")
            raise Over
        self.line.after(LOOK_S, self._look_for_the_end)

    def _look_at_waits(self) -> None:
        """Holds that no job waits for a node for longer than its lease can take."""
        calm_s = max(CALM_S, self._trouble_s) + self._rules.lost_after_s(0) + SETTLES_S
        for record in self.truth.alive() if self.line.now > calm_s else ():
            if record.reason == "NodeDisconnected":
                self.truth.breach(f"job {record.job} still waits for nodes {record.nodes}")

    def users_wait(self) -> bool:
        """Tells whether a job that users know of is not over, or a process lives."""
        known = self.users.promises.numbers.values()
        unseen = [j for j in known if j not in self.truth.records]
        return bool(unseen or self.truth.alive() or self.floor.alive())


def rules_of(story: Story) -> Rules:
    """Returns the rules of a story."""
    if not story.lease_s:
        return RULES
    return replace(
        RULES,
        # So short that a controller gives a worker up before the lease of its node is over.
        ready_s=10.0,
        leases_s=(story.lease_s,) * story.nodes,
        lease_grace_s=3.0,
        lease_margin_s=2.0,
        clock_drift=story.drift,
    )


def launch_of(number: int, spec: JobSpec) -> StartWorker:
    """Returns what a worker of a job executes: a program of ours that does not exist."""
    folder = f"/jobs/{number}"
    command = synthetic_spec(spec).command() if spec.paced else spec.command
    return StartWorker(
        number,
        -1,
        -1,
        -1,
        command,
        folder,
        "out",
        "/",
        trains=spec.trains or spec.paced,
        grace_s=spec.grace_s,
    )

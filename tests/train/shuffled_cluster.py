"""A cluster that is never at rest: the real controller and agents, real workers, and a policy that
draws what it wants.

All but the workers is one thread. While the controller waits, agents and sockets do what is due,
and whatever befalls workers, agents and the controller itself, as drawn from the seed.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from random import Random
from typing import ClassVar

import numpy as np
from shuffled_job import Shuffled, worker, wrong
from train_scene import FORKS

from dovetail.control.loop import run
from dovetail.control.state import ClusterState
from dovetail.core.cluster import Cluster
from dovetail.core.job import JobTable
from dovetail.core.messages import Fact, Refused
from dovetail.core.order import Order as Ranking
from dovetail.core.placement import Placement
from dovetail.core.placing import Placing
from dovetail.core.policy import Decision
from dovetail.core.view import View
from dovetail.forecast.forecasts import Declared
from dovetail.live.controller.world import LiveWorld
from dovetail.live.edges.protocols import Edges, Incoming, JournalEntry
from dovetail.live.edges.wall_clock import WallClock
from dovetail.live.engines.worker_hub import WorkerHub
from dovetail.live.jobs.lifecycle import TERMINAL, State
from dovetail.live.jobs.record import JobRecord
from dovetail.live.node.agent import Agent
from dovetail.live.node.fence import Fence
from dovetail.live.node.launcher import AdoptedWorker, WorkerExit
from dovetail.live.node.transport import EventLoop
from dovetail.live.store.database import Database
from dovetail.live.store.intake import Intake
from dovetail.live.store.queries import Queries
from dovetail.live.store.store import Store
from dovetail.live.workers.rules import Rules
from dovetail.physics.linear import linear_physics
from dovetail.physics.sharing.interference import Injected
from dovetail.wire.agent import AgentOrder, AgentReport, Heartbeat, StartWorker
from dovetail.wire.spec import JobSpec
from dovetail.wire.submission import Submission
from dovetail.wire.worker import FOLDER, REPORT, SOCKET, STALL, TOKEN, WORKER, FromWorker, ToWorker
from plain_meter import PlainMeter

NODES, GPUS = 2, 2
LOOK_S = 0.02
LIMIT_S = 900.0
"""When nothing has come to its end by then, something waits for ever."""
RULES = Rules(
    node_patience_s=1e9,
    resend_s=0.5,
    inventory_every_s=1.0,
    hung_s=3.0,
    lost_s=0.2,
    ready_s=1e9,
    stall_s=1e9,
    yield_s=0.5,
    backoff_s=(0.05, 0.2),
    decision_limit_s=1e9,
)
"""Nothing that hangs is mended by patience that runs out."""
WAITING = replace(RULES, ready_s=5.0, start_s=20.0)
"""But where workers are frozen: one that loads or prepares to join is noticed by nothing else."""


class Killed(BaseException):
    """The controller is killed."""


class Over(BaseException):
    """All jobs have ended, and so have those who trained them."""


@dataclass(frozen=True)
class Shuffler:
    """Draws a plan so many times: who runs, on which GPUs in which order, shared, split, in pieces.

    After that it lets run what runs, and starts what waits.
    """

    seed: int
    decisions: int

    knows: ClassVar[frozenset[str]] = frozenset()
    powers: ClassVar[frozenset[str]] = frozenset({"preempt", "migrate", "resize", "share"})
    order: ClassVar[Ranking] = Ranking(lambda view, jobs: [0.0] * len(jobs))
    initial: ClassVar[int] = 0

    def decide(self, view: View, memory: object) -> Decision:
        """Draws the next plan."""
        assert isinstance(memory, int)
        draw = Random(f"{self.seed} {memory}")
        settles = memory >= self.decisions
        draft, placed = view.plan.repack(), dict(view.plan.placed)
        users = {(node, gpu): 0 for node in range(NODES) for gpu in range(GPUS)}
        jobs = sorted({*placed, *view.waiting})
        draw.shuffle(jobs)
        for job in jobs:
            stays = job in placed and (settles or draw.random() < 0.2)
            if not stays and not settles and draw.random() < 0.12:
                continue
            most = 2 if draw.random() < 0.5 or settles else 1
            room = [gpu for gpu, count in users.items() if count < most]
            if stays and all(users[gpu] < 2 for gpu in placed[job].named()):
                where = placed[job]
            elif room:
                where = drawn(draw, room)
            else:
                continue
            draft.place(job, where)
            for gpu in where.named():
                users[gpu] += 1
        wake_s = float("inf") if settles else view.now + draw.choice((0.02, 0.1, 0.4, 0.8))
        return Decision(draft, memory + 1, wake_s)


def drawn(draw: Random, room: Sequence[tuple[int, int]]) -> Placement:
    """Returns a placement on some of these GPUs."""
    gpus = draw.sample(room, draw.randint(1, len(room)))
    spans = [(node, tuple(g for _, g in those)) for node, those in groupby(gpus, lambda g: g[0])]
    uneven = draw.random() < 0.3
    return Placement(
        tuple((node, len(ids)) for node, ids in spans),
        tuple(ids for _, ids in spans),
        draw.choice([1, 1, 1, 3]),
        samples=tuple(draw.randint(1, 5) for _ in gpus) if uneven else (),
    )


@dataclass
class Kept:
    """A worker of a node, and what a later agent finds of it."""

    process: FORKS.Process  # type: ignore[name-defined]
    order: StartWorker
    token: str
    started_s: float
    said: dict[type, FromWorker] = field(default_factory=dict)
    polled: bool = False
    entered: bool = False


class Forks:
    """A launcher (`live.node.launcher`) of one node: its workers are forks. It outlives agents."""

    def __init__(self, path: Path, cluster: ShuffledCluster) -> None:
        self._path, self._cluster = path, cluster
        self.hub: WorkerHub
        self.kept: dict[tuple[int, int], Kept] = {}

    def adopt(self) -> Sequence[AdoptedWorker]:
        found = []
        for (job, number), kept in self.kept.items():
            code = kept.process.exitcode
            kept.polled = code is not None
            end = None if code is None else WorkerExit(job, number, code)
            said = tuple(kept.said.values())
            found.append(AdoptedWorker(kept.order, kept.token, kept.started_s, end, said))
        return found

    def start(self, order: StartWorker, token: str, now: float) -> None:
        environment = {
            SOCKET: str(self._path),
            WORKER: f"{order.job}/{order.worker}",
            TOKEN: token,
            FOLDER: order.folder,
            REPORT: "0.2",
            STALL: self._cluster.stall_s,
        }
        job, log = self._cluster.trains(order.job)
        process = FORKS.Process(target=worker, args=(job, log, environment))
        process.start()
        self.kept[order.job, order.worker] = Kept(process, order, token, now)

    def signal(self, job: int, worker: int, number: int) -> None:
        self.hit(self.kept[job, worker], number)

    def hit(self, kept: Kept, number: int) -> None:
        if kept.process.exitcode is None:
            assert kept.process.pid is not None
            with suppress(ProcessLookupError):  # it has ended, which we are told a moment later
                os.kill(kept.process.pid, number)

    def limit(self, order: StartWorker) -> None: ...

    def send(self, job: int, worker: int, message: ToWorker) -> None:
        self.hub.send(job, worker, message)

    def store(self, job: int, worker: int, message: FromWorker) -> None:
        self.kept[job, worker].said[type(message)] = message
        self.kept[job, worker].entered = True

    def poll(self) -> Sequence[WorkerExit]:
        ends = []
        for (job, number), kept in self.kept.items():
            if not kept.polled and (code := kept.process.exitcode) is not None:
                kept.polled = True
                self.hub.drain(job, number)
                ends.append(WorkerExit(job, number, code))
        return ends

    def forget(self, job: int, worker: int) -> None:
        self.kept.pop((job, worker), None)

    def alive(self) -> list[Kept]:
        return [kept for kept in self.kept.values() if kept.process.exitcode is None]


class Node:
    """A node: its workers, and its agent at the time."""

    def __init__(self, node: int, cluster: ShuffledCluster) -> None:
        self.node, self._cluster = node, cluster
        self._path = cluster.place / f"agent-{node}"
        self.forks = Forks(self._path, cluster)
        self._fence = Fence()
        self.said: list[AgentReport] = []
        self.begin()

    def begin(self) -> None:
        """Starts an agent, which finds the workers of the one before."""
        clock = self._cluster.clock

        def hear(job: int, worker: int, message: FromWorker) -> None:
            self.said += self.agent.receive(job, worker, message, clock.now())

        self.forks.hub = self._hub = WorkerHub(self._cluster.loop, self._path, clock.now, hear)
        names = tuple(str(gpu) for gpu in range(GPUS))
        self.agent = Agent(self.node, names, self.forks, fence=self._fence)
        self._hub.attach(self.agent)

    def end(self) -> None:
        """Kills the agent; its workers train on."""
        self._hub.close()
        self._fence = Fence(self.agent.fence.epoch, self.agent.fence.jobs())
        self.said.clear()

    def tick(self, now: float) -> list[AgentReport]:
        self._hub.tick()
        ticked = self.agent.tick(now)
        said, self.said = self.said, []
        return [*said, *ticked]


class ShuffledCluster:
    """One cluster, from the submits to the end of all jobs."""

    def __init__(self, seed: int, jobs: int, *, steps: int, decisions: int, freezes: bool) -> None:
        self._draw = Random(seed)
        self.jobs = {n + 1: Shuffled.drawn(self._draw, steps) for n in range(jobs)}
        self._policy = Shuffler(seed, decisions)
        self.place = Path(tempfile.mkdtemp(prefix="dvs"))
        self.clock, self.loop = WallClock(), EventLoop()
        self.nodes = [Node(n, self) for n in range(NODES)]
        self._cluster = Cluster.uniform(NODES, GPUS)
        self._database = Database(None)
        self._store = Store(self._database, Queries(self._database.connection))
        self._come: list[Incoming] = []
        self._freezes, self.stall_s = freezes, "1.0" if freezes else "60"
        self._fault_s = self._alive_s = 0.0
        self._plans = 0
        self.records: dict[int, JobRecord] = {}
        self.facts: list[Fact] = []
        self.tale: list[str] = []

    def trains(self, job: int) -> tuple[Shuffled, Path]:
        """Returns what a job trains, and where its workers write."""
        log = self.place / f"log-{job}"
        log.mkdir(exist_ok=True)
        return self.jobs[job], log

    def play(self) -> list[str]:
        """Trains all jobs to their ends; returns what is wrong with what came of it."""
        try:
            self._intake().submit([Submission(self._spec(n)) for n in self.jobs], key="all")
            self._come.clear()  # the first controller finds them on record
            while not self._one_controller():
                pass
            found = [str(fact) for fact in self.facts if isinstance(fact, Refused)]
            for number, job in self.jobs.items():
                record = self.records[number]
                if record.ending is not State.COMPLETED:
                    found.append(f"job {number} is {record.ending}: {record.detail}")
                found += [f"job {number}: {text}" for text in wrong(job, self.trains(number)[1])]
            return found
        finally:
            self._clear()

    def _spec(self, number: int) -> JobSpec:
        return JobSpec(
            f"job {number}",
            ("train",),
            "/",
            gpus=2,
            max_gpus=NODES * GPUS,
            trains=True,
            shareable=True,
            duration_s=10.0,
            retries=1000,
            grace_s=4.0,
        )

    def _launch(self, number: int, spec: JobSpec) -> StartWorker:
        folder = str(self.place / f"job-{number}")
        return StartWorker(
            number, -1, -1, -1, spec.command, folder, "", "/", trains=True, grace_s=spec.grace_s
        )

    def _intake(self) -> Intake:
        return Intake(
            self._database, clock=self.clock, cluster=self._cluster, put=self._come.append
        )

    def _one_controller(self) -> bool:
        """Runs one controller until it is killed; True when all is over."""
        table = JobTable.build([], np.empty(0), np.empty(0, np.int64))
        state = ClusterState(
            table,
            self._cluster,
            self._policy,
            physics=linear_physics(table, Injected(1.3)),
            forecast=Declared(table, lambda job: 10.0),
            placing=Placing.parse("prefer"),
        )
        world = LiveWorld(
            Edges(self.clock, self, self, self, self._store),
            state,
            self._policy,
            recovered=self._store.recover(),
            launches=self._launch,
            meter=PlainMeter(),
            rules=WAITING if self._freezes else RULES,
        )
        try:
            run(world, self._policy, memory=self._plans, progress=self._decided)
        except Killed:
            return False
        except Over:
            return True
        raise AssertionError("the controller stopped by itself")

    def _decided(self, now: float) -> None:
        self._plans += 1
        self._tell("a plan is applied")

    # The edges of the controller.

    def wait(self, until: float) -> Sequence[Incoming]:
        """Lets agents and workers speak, and faults happen, until there is something to hear."""
        while True:
            now = self.clock.now()
            for node in self.nodes:
                self._hear(node.tick(now))
            if now >= self._alive_s:
                self._alive_s = now + 0.2
                self._come += [AgentReport(n, alive=Heartbeat(n)) for n in range(NODES)]
            self._look_for_the_end(now)
            if now >= self._fault_s:
                self._fault_s = now + self._draw.choice((0.05, 0.3, 0.8))
                self._befall()
            if self._come or now >= until:
                come, self._come = self._come, []
                return come
            self.loop.wait(min(until - now, LOOK_S))

    def send(self, node: int, order: AgentOrder) -> None:
        """Hands an order to the agent of a node."""
        what = order.start or order.end or order.tell or order.forget
        if what is not None:
            self._tell(f"to {node}: {what}")
        self._hear(self.nodes[node].agent.handle(order, self.clock.now()))

    def write(self, entry: JournalEntry) -> None:
        """Keeps an entry."""
        self._store.write(entry)
        self.facts.extend(entry.facts)
        for record in entry.records:
            self.records[record.job] = record

    def _hear(self, reports: Sequence[AgentReport]) -> None:
        for report in reports:
            if report.started or report.ended or (report.said and not report.said.training):
                self._tell(f"from {report.node}: {report.started or report.ended or report.said}")
        self._come += reports

    def _tell(self, what: str) -> None:
        self.tale.append(f"{self.clock.now():8.3f} {what}")

    # What befalls them.

    def _befall(self) -> None:
        if self._policy.decisions <= self._plans:
            return
        draw = self._draw
        what = draw.choice(("nothing", "kill", "kill", "freeze", "agent", "controller"))
        alive = [kept for node in self.nodes for kept in node.forks.alive()]
        if what in ("kill", "freeze") and alive:
            kept = draw.choice(alive)
            freezes = what == "freeze" and self._freezes
            self._tell(f"{what} {kept.order.job}/{kept.order.worker}")
            self.nodes[0].forks.hit(kept, signal.SIGSTOP if freezes else signal.SIGKILL)
        elif what == "agent":
            node = draw.choice(self.nodes)
            self._tell(f"agent {node.node} dies")
            node.end()
            node.begin()
        elif what == "controller":
            self._tell("the controller dies")
            self._come.clear()
            raise Killed

    def _look_for_the_end(self, now: float) -> None:
        if now > LIMIT_S:
            raise AssertionError("it never ends:\n" + "\n".join(self.tale[-100:]))
        over = {*TERMINAL, State.COMPLETING}
        if len(self.records) < len(self.jobs) or any(
            record.state not in over for record in self.records.values()
        ):
            return
        # Who was started too late to train waits for an order that does not come.
        if not any(kept.entered for node in self.nodes for kept in node.forks.alive()):
            raise Over

    def _clear(self) -> None:
        for node in self.nodes:
            for kept in node.forks.alive():
                node.forks.hit(kept, signal.SIGKILL)
            node.end()
        self.loop.close()
        self._database.close()
        for node in self.nodes:
            for kept in node.forks.kept.values():
                kept.process.join()
        shutil.rmtree(self.place, ignore_errors=True)

"""A live cluster in virtual time for tests: the real world, store and agents of emulated nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import dovetail.policies  # registers the policies
from dovetail.control.loop import run
from dovetail.control.state import ClusterState
from dovetail.core.beliefs import Physics
from dovetail.core.cluster import Cluster
from dovetail.core.job import JobTable
from dovetail.core.legality import audit
from dovetail.core.messages import Fact
from dovetail.core.placing import Placing
from dovetail.core.policy import Policy, parse_policy
from dovetail.core.units import NEVER_S
from dovetail.forecast.forecasts import Declared
from dovetail.live.controller.launches import launcher_in
from dovetail.live.controller.world import LiveWorld
from dovetail.live.edges.protocols import Edges, JournalEntry, StoreError
from dovetail.live.edges.virtual_time import (
    Timeline,
    VirtualClock,
    VirtualInbox,
    VirtualPost,
)
from dovetail.live.emulation.synthetic import SwitchCosts
from dovetail.live.jobs.lifecycle import TERMINAL, State
from dovetail.live.jobs.record import JobRecord
from dovetail.live.measuring.meter import ReportMeter
from dovetail.live.store.database import Database
from dovetail.live.store.intake import Intake
from dovetail.live.store.queries import Queries
from dovetail.live.store.store import Store
from dovetail.live.workers.rules import Rules
from dovetail.physics.linear import linear_physics
from dovetail.physics.sharing.interference import Injected
from dovetail.wire.agent import AgentOrder, AgentReport
from dovetail.wire.spec import JobSpec
from dovetail.wire.submission import Submission
from emulated_faults import FaultyNodes
from plain_meter import PlainMeter
from store_reads import all_jobs

assert dovetail.policies
RULES = replace(Rules(), decision_limit_s=NEVER_S)


def empty() -> JobTable:
    return JobTable.build((), np.empty(0), np.empty(0, np.int64))


class Stopped(BaseException):
    """The end of a test, or a SIGKILL of the controller: nothing may catch it."""


class Stage:
    """One cluster through the lives of its controllers. `at` lets something happen at a time.

    Its clock goes on while no controller runs, unless it `stands` then, as that of a real one.
    """

    def __init__(
        self,
        policy: str | Policy = "fifo",
        *,
        nodes: int = 2,
        gpus: int = 2,
        rules: Rules = RULES,
        costs: SwitchCosts | None = None,
        meter: Callable[[], ReportMeter] = PlainMeter,
        injected: float = 0.0,
        database: Database | None = None,
        report_s: float = 1.0,
        stands: bool = False,
        **words: Any,
    ) -> None:
        self.line, self.stands = Timeline(), stands
        self.at = self.line.at
        self.policy = parse_policy(policy) if isinstance(policy, str) else policy
        self.cluster = Cluster.uniform(nodes, gpus)
        self.rules, self.meter, self.words, self.injected = rules, meter, words, injected
        self.database = database or Database(None)
        self.store = Store(self.database, Queries(self.database.connection))
        table = empty()
        self.nodes = FaultyNodes(
            nodes,
            gpus,
            jobs=table,
            physics=self._physics(table),
            costs=costs or SwitchCosts(),
            alive_s=1.0,
            report_s=report_s,
        )
        self.facts: list[Fact] = []
        self.written: list[JournalEntry] = []
        self.orders: list[tuple[float, int, AgentOrder]] = []
        self.refuses: list[bool] = []
        self.inbox: VirtualInbox | None = None
        self.intake: Intake | None = None
        self.world: LiveWorld | None = None
        self.deaf: set[int] = set()
        self._due = NEVER_S
        self._keys = 0

    def _physics(self, table: JobTable) -> Physics:
        return (
            linear_physics(table, Injected(self.injected))
            if self.injected
            else linear_physics(table)
        )

    # What users do.

    def submit(self, t: float, gpus: int = 1, duration_s: float = 10.0, **rest: Any) -> None:
        """Lets a paced job be submitted; jobs are numbered from 1 in order of submission."""
        spec = JobSpec(
            name="job",
            command=(),
            workdir="/",
            gpus=gpus,
            duration_s=duration_s,
            paced=True,
            **{"min_gpus": gpus, "max_gpus": gpus, **rest},
        )

        def do() -> None:
            assert self.intake is not None
            self.intake.submit([Submission(spec)], key=self._key())

        self.at(t, do)

    def ask(self, t: float, verb: str, *jobs: int, **words: Any) -> None:
        """Lets a user ask for something."""

        def do() -> None:
            assert self.intake is not None
            self.intake.request(verb, jobs=jobs, key=self._key(), **words)

        self.at(t, do)

    def _key(self) -> str:
        self._keys += 1
        return f"key {self._keys}"

    # The controller.

    def play(self, until: float) -> None:
        """Runs one controller up to a time, when it is killed; or until it stops by itself."""
        recovered = self.store.recover()
        ahead_s = recovered.now_s - self.line.now if self.stands else 0.0
        clock = VirtualClock(self.line, ahead_s)
        self.inbox = VirtualInbox(self.line, ahead_s)
        table = empty()
        lengths = {str(job.number): job.spec.duration_s for job in recovered.jobs}

        def length_s(job: str) -> float:
            if job not in lengths:
                found = self.store.find(int(job))
                lengths[job] = found.spec.duration_s if found is not None else 0.0
            return lengths[job]

        state = ClusterState(
            table,
            self.cluster,
            self.policy,
            physics=self._physics(table),
            forecast=Declared(table, length_s),
            placing=Placing.parse("prefer"),
        )
        self.intake = Intake(self.database, clock=clock, cluster=self.cluster, put=self.inbox.put)
        post = VirtualPost(self.line, self._deliver)
        self.world = LiveWorld(
            Edges(clock, self.inbox, post, self, self.store),
            state,
            self.policy,
            recovered=recovered,
            launches=launcher_in(Path("/jobs")),
            meter=self.meter(),
            rules=self.rules,
            **self.words,
        )
        self._arm()
        self.at(until, self._kill)
        try:
            run(self.world, self.policy, memory=self.world.memory)
        except Stopped:
            pass
        finally:
            self.inbox = self.intake = None
        wrong = audit(state.view, state.plan.occupancy)
        assert not wrong, wrong

    def _kill(self) -> None:
        raise Stopped

    def write(self, entry: JournalEntry) -> None:
        """Keeps an entry, unless the disk is said to be full."""
        if self.refuses and self.refuses.pop(0):
            raise StoreError("no space left on device")
        self.store.write(entry)
        self.written.append(entry)
        self.facts.extend(entry.facts)

    def _deliver(self, node: int, order: AgentOrder) -> None:
        self.orders.append((self.line.now, node, order))
        if node not in self.deaf:
            self.take(self.nodes.handle(node, order, self.line.now))
        self._arm()

    def take(self, reports: list[AgentReport]) -> None:
        """Lets reports travel to the controller of the time."""
        for report in reports:
            if report.node not in self.deaf:
                self.line.after(0.0005, lambda r=report: self.inbox and self.inbox.put(r))  # type: ignore[misc]
        self._arm()

    def _arm(self) -> None:
        due = self.nodes.next_due()
        if due < self._due:
            self._due = due
            self.at(due, lambda: self._tick(due))

    def _tick(self, due: float) -> None:
        if due == self._due:
            self._due = NEVER_S
            self.take(self.nodes.tick(self.line.now))

    # What became of it.

    def record(self, job: int) -> JobRecord:
        """Returns the record of a job."""
        found = self.store.find(job)
        assert found is not None
        return found.record

    def states(self) -> dict[int, State]:
        """Returns the state of every job."""
        return {j.number: j.record.state for j in all_jobs(self.store.queries)}

    def of(self, job: int) -> list[Fact]:
        """Returns the facts that name a job."""
        return [f for f in self.facts if getattr(f, "job", None) == job]

    def starts(self, job: int) -> list[tuple[int, int, int]]:
        """Returns (worker, node, GPU) of all orders to start workers of a job, each once."""
        said = {}
        for _, node, order in self.orders:
            if order.start is not None and order.start.job == job:
                said[order.start.worker] = (order.start.worker, node, order.start.gpu)
        return list(said.values())

    def check(self) -> None:
        """Checks what must hold of every story: one end each, records and facts agree."""
        for job, state in self.states().items():
            ends = [f for f in self.of(job) if type(f).__name__ == "Ended"]
            assert len(ends) == (state in TERMINAL), f"job {job} is {state} and ended {len(ends)} x"
        times = [f.t for f in self.facts]
        assert times == sorted(times)

"""How long a killed controller takes to come back, with many jobs waiting and running.

    python -m benchmarks.live_recovery [--jobs 10000] [--nodes 125] [--policies fifo,srtf,...]

Jobs are submitted to a real store, and a real controller runs on emulated nodes of 8 GPUs in
virtual time until every GPU is held; then it is dropped as SIGKILL would. The next controller is
timed by the clock: `recover` opens the file, raises the epoch and reads what is on record;
`tables` makes the world of it; `decided` is from then to its first decision, with the inventories
of all agents taken in, what they report answered, and the entry of that instant durable. `total` is
their sum. `adopted` counts the workers that were there before and are still the same after it.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from time import perf_counter

import numpy as np

import dovetail.policies
from dovetail.control.loop import run
from dovetail.control.state import ClusterState
from dovetail.core.cluster import Cluster
from dovetail.core.job import JobTable
from dovetail.core.placing import Placing
from dovetail.core.policy import Decision, Policy, parse_policy
from dovetail.forecast.forecasts import Declared
from dovetail.live.controller.world import LiveWorld
from dovetail.live.edges.protocols import Edges
from dovetail.live.edges.virtual_time import Timeline, VirtualClock, VirtualInbox, VirtualPost
from dovetail.live.emulation.nodes import EmulatedNodes
from dovetail.live.emulation.synthetic import synthetic_spec
from dovetail.live.measuring.meter import ReportMeter
from dovetail.live.store.database import Database
from dovetail.live.store.intake import Intake
from dovetail.live.store.queries import Queries
from dovetail.live.store.store import Store
from dovetail.live.workers.rules import Rules
from dovetail.physics.beliefs.learning import Learning
from dovetail.physics.linear import linear_physics
from dovetail.wire.agent import AgentOrder, StartWorker
from dovetail.wire.spec import JobSpec
from dovetail.wire.submission import Submission

assert dovetail.policies

GPUS = 8
RULES = replace(Rules(), decision_limit_s=float("inf"), publish_every_s=0.2)


class Dropped(BaseException):
    """The controller is killed here."""


class Watched(LiveWorld):
    """A live world that says when a decision has been made and what came of it is durable."""

    decided: Callable[[], None] = staticmethod(lambda: None)
    _asked = False

    def note(self, decision: Decision) -> None:
        super().note(decision)
        self._asked = True

    def advance(self, until: float) -> bool:
        if self._asked:
            self._reconciler.reconcile()
            self._commit()
            self.decided()
            self._asked = False
        return super().advance(until)


class Machine:
    """The emulated nodes, which live on while controllers come and go."""

    def __init__(self, nodes: int) -> None:
        self.line = Timeline()
        table = empty_table()
        self._nodes = EmulatedNodes(
            nodes, GPUS, jobs=table, physics=linear_physics(table), alive_s=1.0
        )
        self.inbox: VirtualInbox | None = None
        self._due_s = float("inf")
        self.workers: set[tuple[int, int]] = set()

    def deliver(self, node: int, order: AgentOrder) -> None:
        if order.start is not None:
            self.workers.add((order.start.job, order.start.worker))
        self._pass_on(self._nodes.handle(node, order, self.line.now))

    def _pass_on(self, reports: list[object]) -> None:
        for report in reports:
            self.line.after(0.0005, lambda report=report: self._arrive(report))  # type: ignore[misc]
        due_s = self._nodes.next_due()
        if due_s < self._due_s:
            self._due_s = due_s
            self.line.at(due_s, lambda: self._tick(due_s))

    def _arrive(self, report: object) -> None:
        if self.inbox is not None:
            self.inbox.put(report)  # type: ignore[arg-type]

    def _tick(self, due_s: float) -> None:
        if due_s == self._due_s:
            self._due_s = float("inf")
            self._pass_on(self._nodes.tick(self.line.now))  # type: ignore[arg-type]


def empty_table() -> JobTable:
    return JobTable.build([], np.empty(0), np.empty(0, np.int64))


def launch_of(number: int, spec: JobSpec) -> StartWorker:
    command = synthetic_spec(spec).command()
    return StartWorker(number, -1, -1, -1, command, f"/jobs/{number}", "out", "/", trains=True)


def world_of(
    machine: Machine, store: Store, policy: Policy, cluster: Cluster, clocked: list[float]
) -> Watched:
    """Returns the world of a new controller; notes when what is on record has been read."""
    recovered = store.recover()
    clocked.append(perf_counter())
    line = machine.line
    lengths = {str(job.number): job.spec.duration_s for job in recovered.jobs}
    lengths |= {str(a.number): a.spec.duration_s for a in recovered.accepted}
    table = empty_table()
    learning = Learning(linear_physics(table), table)
    state = ClusterState(
        table,
        cluster,
        policy,
        physics=learning.physics,
        forecast=Declared(table, lengths.__getitem__),
        placing=Placing.parse("prefer"),
    )
    ahead_s = recovered.now_s - line.now
    machine.inbox = VirtualInbox(line, ahead_s)
    edges = Edges(
        VirtualClock(line, ahead_s),
        machine.inbox,
        VirtualPost(line, machine.deliver),
        store,
        store,
    )
    return Watched(
        edges,
        state,
        policy,
        recovered=recovered,
        launches=launch_of,
        meter=ReportMeter(learning),
        rules=RULES,
    )


def spec_of(rng: Random, number: int) -> JobSpec:
    gpus = rng.choice((1, 1, 2, 4, 8))
    return JobSpec(
        f"job{number}",
        (),
        "/",
        gpus=gpus,
        max_gpus=gpus if rng.random() < 0.5 else 8,
        duration_s=rng.uniform(600, 86400),
        shareable=True,
        paced=True,
    )


def measured(policy_text: str, jobs: int, nodes: int, folder: Path) -> list[str]:
    """Returns the row of one policy."""
    policy, cluster = parse_policy(policy_text), Cluster.uniform(nodes, GPUS)
    path, rng = folder / f"{policy_text.split(':')[0]}.db", Random(1)
    machine = Machine(nodes)
    database = Database(path)
    store = Store(database, Queries(database.connection))
    clock = VirtualClock(machine.line)
    intake = Intake(database, clock=clock, cluster=cluster, put=lambda incoming: None)
    intake.submit([Submission(spec_of(rng, n)) for n in range(jobs)], key="all")
    world = world_of(machine, store, policy, cluster, [])
    machine.line.at(60.0, drop)
    run_until_dropped(world, policy)
    database.close()
    before = set(machine.workers)

    begun = perf_counter()
    database = Database(path)
    store = Store(database, Queries(database.connection))
    clocked: list[float] = []
    world = world_of(machine, store, policy, cluster, clocked)
    made = perf_counter()
    world.decided = drop
    run_until_dropped(world, policy)
    decided = perf_counter()
    # Let the orders of that instant arrive: whoever is started anew was not adopted.
    machine.line.pass_until(machine.line.now + 0.01)
    started = len(machine.workers - before)
    database.close()
    times = (clocked[0] - begun, made - clocked[0], decided - made, decided - begun)
    return [policy_text, *(f"{t:.2f}" for t in times), str(len(before)), str(started)]


def drop() -> None:
    raise Dropped


def run_until_dropped(world: LiveWorld, policy: Policy) -> None:
    try:
        run(world, policy)
    except Dropped:
        return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--nodes", type=int, default=125)
    parser.add_argument("--policies", default="fifo,srtf,tiresias,afs-p,sjf-bsbf")
    given = parser.parse_args()
    print(f"{given.jobs} jobs on {given.nodes}x{GPUS} emulated GPUs; seconds by the clock")
    print("policy       recover  tables  decided  total  workers  started anew")
    with tempfile.TemporaryDirectory() as folder:
        for policy in given.policies.split(","):
            name, *rest = measured(policy, given.jobs, given.nodes, Path(folder))
            widths = (8, 8, 9, 7, 9, 14)
            print(f"{name:11}" + "".join(f"{v:>{w}}" for v, w in zip(rest, widths, strict=True)))


if __name__ == "__main__":
    main()

"""All nodes of a story: machines with agents, or emulated nodes. What befalls them is the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

import numpy as np
from harness.node import Machine, Node
from harness.processes import Process, Programs
from harness.story import GPUS_PER_NODE, NODES, Story
from harness.trainers import Trainer, Trainers
from harness.truth import Truth

from dovetail.core.beliefs import Physics
from dovetail.core.job import JobTable
from dovetail.live.edges.virtual_time import Timeline
from dovetail.live.emulation.synthetic import SwitchCosts
from dovetail.live.emulation.synthetic_job import SyntheticEvent
from dovetail.physics.linear import linear_physics
from dovetail.physics.sharing.interference import Injected
from dovetail.wire.agent import AgentOrder, AgentReport, StartWorker
from dovetail.wire.worker import Finished, FromWorker
from emulated_faults import FaultyNodes

Send = Callable[[int, AgentReport], None]
COSTS = SwitchCosts(start_s=1.0, resume_s=2.0, move_s=2.0, resize_s=0.1, prepare_s=1.0)
SLOWS = 3.0


@dataclass(frozen=True)
class Work:
    """What was really done of a job: how often all of it, exit code, seconds lost.

    `told_late` tells that a plain program had done all when it was told to end, and was not out
    yet: how it ends says nothing then.
    """

    times: int
    code: int = 0
    lost_s: float = 0.0
    told_late: bool = False


class Floor(Protocol):
    """The nodes of a story and the processes on them."""

    def deliver(self, node: int, order: AgentOrder) -> None:
        """Hands an order to the agent of a node."""
        ...

    def alive(self) -> list[Process]:
        """Returns every process."""
        ...

    def kill_agent(self, node: int) -> None:
        """Kills the agent of a node."""
        ...

    def reboot(self, node: int) -> None:
        """Switches a node off."""
        ...

    def boot(self, node: int) -> None:
        """Starts the agent of a node again."""
        ...

    def befall(self, process: Process, kind: str) -> None:
        """Lets something happen to a process."""
        ...

    def really(self, job: int) -> Work:
        """Returns what was really done of a job."""
        ...

    def part(self, node: int, *, parted: bool) -> None:
        """Cuts the workers on a node off from those elsewhere, or ends that."""
        ...

    def suspend(self, node: int, until_s: float) -> None:
        """Lets the machine of a node sleep."""
        ...

    def stop_agent(self, node: int, until_s: float) -> None:
        """Lets the agent of a node stand."""
        ...

    def hold_memory(self, node: int, until_s: float) -> None:
        """Holds the memory of a node's GPUs, so that nothing starts there."""
        ...


class Machines:
    """Nodes with an agent each, on which plain and elastic programs run."""

    def __init__(self, story: Story, line: Timeline, truth: Truth, rng: Random, send: Send) -> None:
        self._truth = truth
        self._programs = Programs(line, self, rng)
        self._trainers = Trainers(line, self, rng, self._call)
        drift = story.drift if story.lease_s else 0.0
        self._nodes = [
            Node(
                n,
                Machine(n, self._programs, self._trainers, truth),
                line,
                send,
                1.0 + rng.choice((-drift, 0.0, drift)) if drift else 0.0,
            )
            for n in range(story.nodes)
        ]
        truth.is_over = self._is_over

    def _is_over(self, node: int) -> bool:
        at = self._nodes[node]
        if at.lease is None:
            return False
        # What was told to end then is still ended after a renewal.
        ended_s = at.lease._ended_s + at.lease.grace_s
        return not at.lease.holds(at.now) or at.now <= ended_s + 1.0

    def part(self, node: int, *, parted: bool) -> None:
        """Cuts the workers on a node off from those elsewhere, or ends that."""
        self._trainers.part(node, parted=parted)

    def suspend(self, node: int, until_s: float) -> None:
        """Lets the machine of a node sleep."""
        self._nodes[node].suspend(until_s)

    def stop_agent(self, node: int, until_s: float) -> None:
        """Lets the agent of a node stand, if it has a lease: nobody else ends its workers then."""
        if self._nodes[node].lease is not None:
            self._nodes[node].sleep(until_s)

    def hold_memory(self, node: int, until_s: float) -> None:
        """Holds the memory of a node's GPUs, so that nothing starts there."""
        self._nodes[node].machine.busy_s = until_s

    def deliver(self, node: int, order: AgentOrder) -> None:
        """Hands an order to the agent of a node."""
        self._nodes[node].deliver(order)

    def alive(self) -> list[Process]:
        """Returns every process."""
        return [*self._programs.alive, *self._trainers.alive]

    def kill_agent(self, node: int) -> None:
        """Kills the agent of a node; its processes live on."""
        self._nodes[node].kill()

    def reboot(self, node: int) -> None:
        """Switches a node off."""
        self._truth.rebooted(node)
        self._nodes[node].reboot()

    def boot(self, node: int) -> None:
        """Starts the agent of a node again."""
        self._nodes[node].boot()

    def befall(self, process: Process, kind: str) -> None:
        """Lets something happen to a process."""
        programs = self._trainers if isinstance(process, Trainer) else self._programs
        process.faulty = True
        if kind == "worker killed":
            programs.end(process, -9)  # type: ignore[arg-type]
        elif kind == "worker hangs":
            programs.hang(process)  # type: ignore[arg-type]
        elif kind == "worker stubborn":
            process.stubborn = True

    def really(self, job: int) -> Work:
        """Returns what was really done of a job."""
        elastic = self._trainers.jobs.get(job)
        if elastic is not None:
            return Work(elastic.ends, 0, elastic.lost / 1000)
        programs = self._programs
        lost_s, code = programs.lost_s.get(job, 0.0), programs.code.get(job, 0)
        return Work(programs.ends.get(job, 0), code, lost_s, job in programs.told_late)

    def _call(self, process: Process, token: str, message: FromWorker) -> bool:
        return self._nodes[process.node].call(process, token, message)

    def started(self, process: Process) -> None:
        """Sees a process start."""
        self._truth.started(process)

    def ended_process(self, process: Process) -> None:
        """Sees a process end."""
        self._truth.ended_process(process)
        self._nodes[process.node].look()

    def bounded(self, process: Process) -> None:
        """Sees a process get another bound."""
        self._truth.bounded(process)

    def trains(self, job: int, generation: int, lineage: int = 0) -> None:
        """Sees a gang begin to work."""
        self._truth.trains(job, generation, lineage)

    def rests(self, job: int, generation: int) -> None:
        """Sees a gang work no longer."""
        self._truth.rests(job, generation)

    def resumes(self, members: Sequence[Process]) -> None:
        """Sees an elastic gang begin from its checkpoint."""
        self._truth.resumes(members)


class Emulated:
    """Emulated nodes, on which paced jobs run. An agent does not outlive its workers here."""

    def __init__(self, line: Timeline, truth: Truth, rng: Random, send: Send) -> None:
        self._line = line
        self._truth = truth
        self._send = send
        self._alive: dict[tuple[int, int], Process] = {}
        self._done: list[int] = []
        self._up = [True] * NODES
        self._last = (-1, -1.0)
        self._due_s = float("inf")
        table = JobTable.build([], np.empty(0), np.empty(0, np.int64))
        self._nodes = _Watched(self, table, linear_physics(table, Injected(1.3)))
        self._wake()

    def deliver(self, node: int, order: AgentOrder) -> None:
        """Hands an order to the agent of a node."""
        self._pass_on(self._nodes.handle(node, order, self._line.now))

    def alive(self) -> list[Process]:
        """Returns every process."""
        return list(self._alive.values())

    def kill_agent(self, node: int) -> None:
        """Kills the agent of a node and with it its workers."""
        self.reboot(node)

    def reboot(self, node: int) -> None:
        """Switches a node off."""
        if self._up[node]:
            self._up[node] = False
            self._truth.rebooted(node)
            reports = self._nodes.lose_node(node, self._line.now)
            for process in [p for p in self._alive.values() if p.node == node]:
                self.end(process.job, process.order.worker, -9)
            self._pass_on(reports)

    def boot(self, node: int) -> None:
        """Starts the agent of a node again."""
        if not self._up[node]:
            self._up[node] = True
            self._nodes.return_node(node)
            self._wake()

    def befall(self, process: Process, kind: str) -> None:
        """Lets something happen to a process."""
        name, now = (process.job, process.order.worker), self._line.now
        if kind == "worker killed":
            self._pass_on(self._nodes.kill(*name, now))
        elif kind == "worker hangs":
            process.hangs = True
            self._pass_on(self._nodes.hang(*name, now))
        else:
            self._pass_on(self._nodes.slow(*name, SLOWS, now))

    def really(self, job: int) -> Work:
        """Returns what was really done of a job."""
        return Work(self._done.count(job))

    def part(self, node: int, *, parted: bool) -> None:
        """Does nothing: workers that are clocks need no network."""

    def suspend(self, node: int, until_s: float) -> None:
        """Does nothing: clocks do not sleep."""

    def stop_agent(self, node: int, until_s: float) -> None:
        """Does nothing: what it is told waits in its socket."""

    def hold_memory(self, node: int, until_s: float) -> None:
        """Does nothing: clocks need no memory."""

    # What the nodes show.

    def start(self, node: int, order: StartWorker) -> None:
        """Sees a worker start."""
        process = Process(node, order, self._line.now)
        self._alive[order.job, order.worker] = process
        self._truth.started(process)

    def happened(self, what: SyntheticEvent) -> None:
        """Sees a worker end or finish."""
        if what.message is None:
            self.end(what.job, what.worker, what.exit_code)
        elif isinstance(what.message, Finished):
            self._finished(what)

    def _finished(self, what: SyntheticEvent) -> None:
        """All members say at once that they are done; that counts once."""
        if (what.job, self._line.now) != self._last:
            self._last = (what.job, self._line.now)
            self._done.append(what.job)

    def end(self, job: int, worker: int, code: int) -> None:
        """Sees a worker end."""
        process = self._alive.pop((job, worker), None)
        if process is not None:
            process.exit_code = code
            self._truth.ended_process(process)

    def signalled(self, job: int, worker: int, number: int) -> None:
        """Sees a worker get a signal."""
        process = self._alive.get((job, worker))
        if process is not None:
            self._truth.signalled(process, number)

    def _pass_on(self, reports: list[AgentReport]) -> None:
        for report in reports:
            self._send(report.node, report)
        self._wake()

    def _wake(self) -> None:
        due_s = self._nodes.next_due()
        if due_s < self._due_s:
            self._due_s = due_s
            self._line.at(due_s, lambda: self._tick(due_s))

    def _tick(self, due_s: float) -> None:
        if due_s == self._due_s:
            self._due_s = float("inf")
            self._pass_on(self._nodes.tick(self._line.now))


class _Watched(FaultyNodes):
    """Emulated nodes that show what they do."""

    def __init__(self, floor: Emulated, jobs: JobTable, physics: Physics) -> None:
        self._floor = floor
        self._killing = False
        super().__init__(NODES, GPUS_PER_NODE, jobs=jobs, physics=physics, costs=COSTS, alive_s=1.0)

    def start_worker(self, node: int, order: StartWorker, now: float) -> None:
        super().start_worker(node, order, now)
        self._floor.start(node, order)

    def signal_worker(self, number: int, worker: int, signum: int) -> None:
        if not self._killing:
            self._floor.signalled(number, worker, signum)
        super().signal_worker(number, worker, signum)

    def kill(self, job: int, worker: int, now: float) -> list[AgentReport]:
        self._killing = True
        try:
            return super().kill(job, worker, now)
        finally:
            self._killing = False

    def _report(self, what: SyntheticEvent) -> list[AgentReport]:
        self._floor.happened(what)
        return super()._report(what)

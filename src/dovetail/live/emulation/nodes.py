"""Emulated nodes: real agents, and workers that are clocks. All nodes at once, without threads.

A pure function of orders and the present. In a process of its own it is driven by a wall clock that
may run faster than real time, in tests and studies by virtual time. A `Physics` decides how fast a
synthetic job goes, as in simulation; neighbours on its GPUs re-time it when they come and go.
`next_due` is when the next thing happens by itself.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL

from dovetail.core.beliefs import Neighbour, Physics
from dovetail.core.job import JobTable
from dovetail.core.switching import Switching
from dovetail.core.units import NEVER_S
from dovetail.files.whole_file import PRIVATE, write_whole
from dovetail.live.emulation.synthetic import SwitchCosts, SyntheticSpec
from dovetail.live.emulation.synthetic_job import SyntheticEvent, SyntheticJob
from dovetail.live.node.agent import Agent
from dovetail.live.node.launcher import AdoptedWorker, LaunchError, WorkerExit
from dovetail.live.node.transport import LinkTerminal
from dovetail.wire.agent import AgentOrder, AgentReport, StartWorker
from dovetail.wire.codec import WireError
from dovetail.wire.connection import LineConnection
from dovetail.wire.worker import FromWorker, Saved, ToWorker, Training


class ProgressStore:
    """Stores the progress of jobs, in solo seconds, in case the process of the nodes dies.

    This one stores nothing: in virtual time no process dies.
    """

    def read(self, folder: str) -> float | None:
        """Returns the progress of the job of this folder; None if it never ran."""
        return None

    def write(self, folder: str, done_s: float) -> None:
        """Stores the progress."""

    def drop(self, folder: str) -> None:
        """Drops a job that is complete and on record: run again, it begins anew."""


class FolderProgressStore(ProgressStore):
    """Stores a number in the folder of the job."""

    def read(self, folder: str) -> float | None:
        """Returns the last number."""
        try:
            return float((Path(folder) / "paced").read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None

    def write(self, folder: str, done_s: float) -> None:
        """Replaces the number, whole."""
        # A full disk costs a synthetic job its progress at the next crash, nothing else.
        with suppress(OSError):
            # The parent is not created: if it is missing, the cluster was removed, and stays so.
            Path(folder).mkdir(exist_ok=True, mode=0o700)
            write_whole(Path(folder) / "paced", repr(done_s), mode=PRIVATE, synced=False)

    def drop(self, folder: str) -> None:
        """Removes the number."""
        (Path(folder) / "paced").unlink(missing_ok=True)


class SyntheticLauncher:
    """One emulated node: its agent (None while the node is lost), and the launcher of that agent.

    `ends` are those that the agent has not polled yet.
    """

    def __init__(self, nodes: EmulatedNodes, node: int) -> None:
        self._nodes, self._node = nodes, node
        self.agent: Agent | None = None
        self.ends: list[WorkerExit] = []
        self.incarnation = 0

    def adopt(self) -> Sequence[AdoptedWorker]:
        """Returns nothing: synthetic workers die with the process of their agents."""
        return ()

    def start(self, order: StartWorker, token: str, now: float) -> None:
        """Starts a worker of a synthetic job. Raises LaunchError for any other job."""
        self._nodes.start_worker(self._node, order, now)

    def limit(self, order: StartWorker) -> None:
        """Gives a worker the share of a newer order; it counts from the next switch on."""
        nodes = self._nodes
        known = nodes._jobs.get(order.job)
        worker = None if known is None else known.workers.get(order.worker)
        if worker is not None:
            worker.share = order.share
            nodes._touch(order.job)

    def signal(self, job: int, worker: int, number: int) -> None:
        """Ends a worker at once; one that hangs is ended by SIGKILL alone."""
        self._nodes.signal_worker(job, worker, number)

    def send(self, job: int, worker: int, message: ToWorker) -> None:
        """Passes a message to a worker."""
        known = self._nodes._jobs.get(job)
        if known is not None:
            known.hear(worker, message, self._nodes._now)
            self._nodes._touch(job)

    def store(self, job: int, worker: int, message: FromWorker) -> None:
        """Does nothing: no later agent will adopt these workers."""

    def poll(self) -> Sequence[WorkerExit]:
        """Returns the ends of workers on this node."""
        ends, self.ends = self.ends, []
        return ends

    def forget(self, job: int, worker: int) -> None:
        """Drops the progress of a job that is complete, now that this is on record."""
        if job in self._nodes._complete:
            self._nodes._progress.drop(self._nodes._complete.pop(job))


class EmulatedNodes:
    """N nodes of G GPUs (each, or as listed) with their agents, and the synthetic jobs on them.

    One call processes at most `steps_max` instants. Where the machine is too slow for the speed of
    the clock the nodes fall behind it, and the caller can still read orders between two calls.
    """

    def __init__(
        self,
        nodes: int,
        gpus_per_node: int | Sequence[int],
        *,
        jobs: JobTable,
        physics: Physics,
        costs: Switching | None = None,
        progress: ProgressStore | None = None,
        report_s: float = 1.0,
        alive_s: float = NEVER_S,
        write_s: float = NEVER_S,
        incarnation: str = "emulated",
        speed: float = 1.0,
        steps_max: float = NEVER_S,
    ) -> None:
        each = gpus_per_node
        self._gpus = [each] * nodes if isinstance(each, int) else list(each)
        self._table, self._physics = jobs, physics
        self._costs = costs or SwitchCosts()
        self._progress = progress or ProgressStore()
        self._report_s, self._alive_s, self._write_s = report_s, alive_s, write_s
        self._incarnation, self._speed, self._steps_max = incarnation, speed, steps_max
        self._jobs: dict[int, SyntheticJob] = {}
        self._folder: dict[int, str] = {}
        self._complete: dict[int, str] = {}
        self._written_s: dict[int, float] = {}
        self._heap: list[tuple[float, int]] = []
        self._due: dict[int, float] = {}
        self._on_gpu: dict[tuple[int, int], dict[int, None]] = {}
        self._held: dict[int, list[tuple[int, int]]] = {}
        self._touched: dict[int, None] = {}
        self._queue: deque[SyntheticEvent] = deque()
        self._next_alive_s = 0.0 if alive_s < NEVER_S else NEVER_S
        self._now = 0.0
        self._nodes = [SyntheticLauncher(self, n) for n in range(nodes)]
        self._agent_due: list[float] = [NEVER_S] * nodes
        self._agent_heap: list[tuple[float, int]] = []
        for node in range(nodes):
            self.return_node(node)

    # What drives it.

    def handle(self, node: int, order: AgentOrder, now: float) -> list[AgentReport]:
        """Passes an order to the agent of a node; returns all reports up to now."""
        reports = self.tick(now)
        agent = self._nodes[node].agent
        if agent is not None:
            reports += agent.handle(order, self._now)
            self._set_agent_due(node, agent.next_due())
            reports += self._settle()
        return reports

    def tick(self, now: float) -> list[AgentReport]:
        """Processes everything up to a time, each thing at its own time; returns the reports.

        After `steps_max` instants it stops at the last one: `next_due` is past then.
        """
        reports: list[AgentReport] = []
        steps = 0
        while (due := self.next_due()) <= now:
            if steps >= self._steps_max:
                return reports
            steps += 1
            self._now = max(self._now, due)
            reports += self._step()
        self._now = max(self._now, now)
        return reports

    def end_all(self, grace_s: float, now: float) -> list[AgentReport]:
        """Ends all workers."""
        reports = self.tick(now)
        for n, node in enumerate(self._nodes):
            if node.agent is not None:
                reports += node.agent.end_all(grace_s, self._now)
                self._set_agent_due(n, node.agent.next_due())
        return reports + self._settle()

    def open_terminal(self, wanted: LinkTerminal, link: LineConnection | None) -> None:
        """Closes the connection: emulated nodes run no programs."""
        if link is not None:
            link.close()

    def heartbeats(self, now: float) -> list[AgentReport]:
        """Returns the signs of life of all nodes that are there."""
        return [node.agent.heartbeat(now) for node in self._nodes if node.agent is not None]

    def next_due(self) -> float:
        """Returns when the next thing happens by itself."""
        heap = self._heap
        # Entries of jobs that were re-timed since stay in the heap; `_due` tells which is current.
        while heap and self._due.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        first = heap[0][0] if heap else NEVER_S
        agents = self._agent_heap
        while agents and self._agent_due[agents[0][1]] != agents[0][0]:
            heapq.heappop(agents)
        return min(first, self._next_alive_s, agents[0][0] if agents else NEVER_S)

    def _step(self) -> list[AgentReport]:
        now, reports = self._now, []
        if self._next_alive_s <= now:
            self._next_alive_s = now + self._alive_s
            reports += self.heartbeats(now)
        while self._heap and self._heap[0][0] <= now:
            due, number = heapq.heappop(self._heap)
            if self._due.get(number) == due:
                del self._due[number]
                self._jobs[number].advance(now)
                self._touch(number)
        agents = set()
        while self._agent_heap and self._agent_heap[0][0] <= now:
            due, n = heapq.heappop(self._agent_heap)
            if self._agent_due[n] == due:
                agents.add(n)
        for n in sorted(agents):
            reports += self._tick_agent(n)
        return reports + self._settle()

    def _tick_agent(self, n: int) -> list[AgentReport]:
        agent = self._nodes[n].agent
        self._agent_due[n] = NEVER_S
        if agent is None:
            return []
        reports = agent.tick(self._now)
        self._set_agent_due(n, agent.next_due())
        return reports

    def _set_agent_due(self, n: int, due: float) -> None:
        if self._agent_due[n] != due:
            self._agent_due[n] = due
            if due < NEVER_S:
                heapq.heappush(self._agent_heap, (due, n))

    def _settle(self) -> list[AgentReport]:
        """Re-times the jobs that changed and informs the agents, until nothing more happens."""
        reports: list[AgentReport] = []
        while True:
            self._retime()
            if not self._queue:
                return reports
            while self._queue:
                reports += self._report(self._queue.popleft())

    def _report(self, event: SyntheticEvent) -> list[AgentReport]:
        node = self._nodes[event.node]
        if node.agent is None:
            return []
        if event.message is not None:
            return node.agent.receive(event.job, event.worker, event.message, self._now)
        node.ends.append(WorkerExit(event.job, event.worker, event.exit_code))
        return self._tick_agent(event.node)

    # Rates.

    def _touch(self, number: int) -> None:
        """Marks a job for re-timing, and all jobs on the GPUs that it had and has."""
        job = self._jobs[number]
        before, after = self._held.get(number, []), job.gpus
        for gpu in before:
            self._on_gpu[gpu].pop(number, None)
        for gpu in after:
            self._on_gpu.setdefault(gpu, {})[number] = None
        self._held[number] = after
        self._touched[number] = None
        for gpu in (*before, *after):
            self._touched.update(self._on_gpu[gpu])

    def _retime(self) -> None:
        # In the order of job numbers, whatever touched them: a run must be repeatable.
        touched, self._touched = sorted(self._touched), {}
        for number in touched:
            job = self._jobs[number]
            job.pace(self._rate(job), self._now)
            job.phase_s = self._phase_s(job)
            self._queue.extend(job.out)
            self._store_progress(job)
            job.out.clear()
            self._schedule(job)

    def _rate(self, job: SyntheticJob) -> float:
        if job.training is None or job.slowed == NEVER_S:
            return 0.0
        done_s = job.done_s
        others = self._neighbours(job)
        return self._physics.rate(job.row, job.training, others, done_s) / job.slowed

    def _phase_s(self, job: SyntheticJob) -> float:
        # Only a batch size of the plan's own makes a speed that depends on progress.
        if job.training is None or not job.training.batch_size or not job.rate:
            return NEVER_S
        end_s = self._physics.batches.phase_end_s(job.row, job.done_s)
        return job.since_s + (end_s - job.done_s) / job.rate

    def _neighbours(self, job: SyntheticJob) -> list[Neighbour]:
        others = sorted({j for gpu in job.gpus for j in self._on_gpu[gpu]} - {job.number})
        placed = [(self._jobs[j].row, self._jobs[j].placed) for j in others]
        return [(row, where) for row, where in placed if where is not None]

    def _schedule(self, job: SyntheticJob) -> None:
        due = max(job.due_s, self._now)
        if due < NEVER_S:
            if self._due.get(job.number) != due:
                self._due[job.number] = due
                heapq.heappush(self._heap, (due, job.number))
        else:
            self._due.pop(job.number, None)
        # Its progress stays stored until the end is on record: a crash must not lose it.
        if job.over:
            self._complete[job.number] = self._folder.pop(job.number)
            self._drop(job.number)

    def _store_progress(self, job: SyntheticJob) -> None:
        """Stores the progress of a job when a worker leaves or saves, and every `write_s`."""
        events = job.out
        leaves = any(h.message is None or isinstance(h.message, Saved) for h in events)
        due = self._written_s.get(job.number, -NEVER_S) + self._write_s <= self._now
        if leaves or (due and any(isinstance(h.message, Training) for h in events)):
            self._written_s[job.number] = self._now
            self._progress.write(self._folder[job.number], self.done_s(job.number))

    def _drop(self, number: int) -> None:
        del self._jobs[number]
        self._held.pop(number, None)
        self._written_s.pop(number, None)
        self._due.pop(number, None)

    # What launchers do.

    def start_worker(self, node: int, order: StartWorker, now: float) -> None:
        """Starts a worker on a node. Raises LaunchError."""
        job = self._jobs.get(order.job) or self._admit(order)
        job.start(order, node, now)
        self._touch(order.job)

    def _admit(self, order: StartWorker) -> SyntheticJob:
        try:
            spec = SyntheticSpec.read(order.command)
        except WireError as error:
            raise LaunchError(str(error)) from None
        row = self._table.append([spec.row(order.job, self._now)])[0]
        self._physics.structure.admit(self._table)
        done_s = self._progress.read(order.folder)
        job = SyntheticJob(
            order.job,
            row,
            spec,
            self._costs,
            done_s=done_s or 0.0,
            lived=done_s is not None,
            report_s=self._report_s,
        )
        self._jobs[order.job] = job
        self._folder[order.job] = order.folder
        return job

    def signal_worker(self, number: int, worker: int, signum: int) -> None:
        """Ends a worker by a signal."""
        job = self._jobs.get(number)
        known = None if job is None else job.workers.get(worker)
        # A hung process runs no handler: SIGTERM passes it by.
        if job is not None and known is not None and (signum == SIGKILL or not known.hung):
            job.end((worker,), -signum, self._now)
            self._touch(number)

    def return_node(self, node: int) -> None:
        """Adds a node (again), empty and with a new agent."""
        here = self._nodes[node]
        here.incarnation += 1
        here.ends.clear()
        here.agent = Agent(
            node,
            tuple(f"paced-{gpu}" for gpu in range(self._gpus[node])),
            here,
            incarnation=f"{self._incarnation}-{here.incarnation}",
            token=lambda: "",
            speed=self._speed,
        )

    # What is there.

    @property
    def alive(self) -> Sequence[tuple[int, int, int]]:
        """Returns (node, job, worker) of every worker that lives."""
        jobs = sorted(self._jobs.items())
        return [(w.node, j, n) for j, job in jobs for n, w in sorted(job.workers.items())]

    def close(self) -> None:
        """Stores the progress of all jobs: their workers end with this process."""
        for number in self._jobs:
            self._progress.write(self._folder[number], self.done_s(number))

    def done_s(self, job: int) -> float:
        """Returns the progress of a job that is not over, in solo seconds."""
        known = self._jobs[job]
        return known.done_s + known.rate * max(0.0, self._now - known.since_s)

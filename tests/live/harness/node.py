"""One node: a machine on which processes live, and the real agent that may die and come back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from harness.processes import Process, Programs
from harness.trainers import Trainer, Trainers
from harness.truth import Truth

from dovetail.live.edges.virtual_time import Timeline
from dovetail.live.node.agent import Agent
from dovetail.live.node.fence import Fence
from dovetail.live.node.launcher import AdoptedWorker, StartDeferred, WorkerExit
from dovetail.live.node.lease import Lease
from dovetail.wire.agent import AgentOrder, AgentReport, StartWorker
from dovetail.wire.worker import FromWorker, ToWorker

ALIVE_S = 1.0
LOOKS_S = 0.05
"""An agent says that it is there so often, and sees an end so long after it."""
GPUS = ("gpu0", "gpu1")
ROUNDING_S = 1e-6
"""A clock that drifts is read this much later, so that what was due by it is due."""


@dataclass(eq=False)
class _Kept:
    """What the disk of a node keeps of a worker until it is forgotten."""

    process: Process
    order: StartWorker
    token: str
    said: dict[type, FromWorker] = field(default_factory=dict)
    polled: bool = False


class Machine:
    """Runs the workers of one node (`live.launcher.Launcher`); it outlives its agents."""

    def __init__(self, node: int, programs: Programs, trainers: Trainers, truth: Truth) -> None:
        self._node = node
        self._programs = programs
        self._trainers = trainers
        self._truth = truth
        self._kept: dict[tuple[int, int], _Kept] = {}
        self.busy_s = -1.0

    def adopt(self) -> Sequence[AdoptedWorker]:
        """Returns the workers of earlier agents."""
        found = []
        for (job, number), kept in self._kept.items():
            code = kept.process.exit_code
            end = None if code is None else WorkerExit(job, number, code)
            kept.polled = code is not None
            said = tuple(kept.said.values())
            found.append(AdoptedWorker(kept.order, kept.token, kept.process.started_s, end, said))
        return found

    def start(self, order: StartWorker, token: str, now: float) -> None:
        """Starts a worker, unless the memory of its GPU is held."""
        if self._truth.now() < self.busy_s:
            raise StartDeferred("the memory of its GPU is held")
        process: Process
        if order.trains:
            process = self._trainers.start(self._node, order, token)
        else:
            process = self._programs.start(self._node, order)
        self._kept[order.job, order.worker] = _Kept(process, order, token)

    def limit(self, order: StartWorker) -> None:
        """Bounds a plain program; one that trains does so by itself, at the latest as it begins."""
        kept = self._kept[order.job, order.worker]
        kept.order, process = order, kept.process
        if process.exit_code is None and not (isinstance(process, Trainer) and process.begun):
            process.bound = order.memory_bytes
            self._truth.bounded(process)

    def signal(self, job: int, worker: int, number: int) -> None:
        """Sends a signal to a worker."""
        process = self._kept[job, worker].process
        if process.exit_code is not None:
            return
        self._truth.signalled(process, number)
        if isinstance(process, Trainer):
            self._trainers.signal(process, number)
        else:
            self._programs.signal(process, number)

    def send(self, job: int, worker: int, message: ToWorker) -> None:
        """Passes a message to a worker."""
        process = self._kept[job, worker].process
        if isinstance(process, Trainer) and process.connected:
            self._trainers.hear(process, message)

    def store(self, job: int, worker: int, message: FromWorker) -> None:
        """Keeps what a worker said."""
        self._kept[job, worker].said[type(message)] = message

    def poll(self) -> Sequence[WorkerExit]:
        """Returns the ends not returned before."""
        ends = []
        for (job, number), kept in self._kept.items():
            if kept.process.exit_code is not None and not kept.polled:
                kept.polled = True
                ends.append(WorkerExit(job, number, kept.process.exit_code))
        return ends

    def forget(self, job: int, worker: int) -> None:
        """Drops a worker that has ended."""
        self._kept.pop((job, worker), None)

    def kill_all(self) -> None:
        """Kills what lives, as keepers do when the lease of their node is over."""
        for process in self.processes():
            process.faulty = True
            if isinstance(process, Trainer):
                self._trainers.signal(process, 9)
            else:
                self._programs.signal(process, 9)

    # What befalls it.

    def hang(self, process: Process) -> None:
        """Stops a process as SIGSTOP does."""
        if isinstance(process, Trainer):
            self._trainers.hang(process)
        else:
            self._programs.hang(process)

    def wake(self, process: Process) -> None:
        """Lets a stopped process go on."""
        self._truth.hung_s[process.job] = self._truth.now()
        if isinstance(process, Trainer):
            self._trainers.wake(process)
        else:
            self._programs.wake(process)

    def processes(self) -> list[Process]:
        """Returns the processes that are alive."""
        return [k.process for k in self._kept.values() if k.process.exit_code is None]

    def reboot(self) -> None:
        """Loses every process and what the memory held; disks are kept."""
        for process in self.processes():
            process.faulty = True
            if isinstance(process, Trainer):
                self._trainers.end(process, -9)
            else:
                self._programs.end(process, -9)
        self._kept.clear()


class _KeptLease(Lease):
    """A lease that outlives agents: keepers kill the workers when it is over, whoever is there."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        self._node = node

    def store(self) -> None:
        """Sets the alarm of the keepers."""
        self._node.alarm(self.until_s + self.grace_s)


class Node:
    """A machine, its agent while one runs, and the line to the controller.

    With a lease its clock is its own: it runs at `rate`, from an hour of its own.
    """

    def __init__(
        self,
        node: int,
        machine: Machine,
        line: Timeline,
        send: Callable[[int, AgentReport], None],
        rate: float = 0.0,
    ) -> None:
        self.node = node
        self.machine = machine
        self._rate, self._zero_s = rate, 1000.0 * node
        self.lease = _KeptLease(self) if rate else None
        self._line = line
        self._send = send
        self.agent: Agent | None = None
        self._fence = Fence()
        self._boots = 0
        self._lives = 0
        self._asleep_s = -1.0
        self._due_s = float("inf")
        self.boot()

    @property
    def now(self) -> float:
        """Returns the time of its own clock."""
        return self._zero_s + self._line.now * self._rate if self._rate else self._line.now

    def _at(self, time_s: float, do: Callable[[], None]) -> None:
        """Schedules a call for a time of its own clock."""
        if self._rate:
            time_s = (time_s - self._zero_s) / self._rate + ROUNDING_S
        self._line.at(time_s, do)

    def alarm(self, time_s: float) -> None:
        """Lets the keepers look at a time whether the lease is over."""
        self._at(time_s, self._keep)

    def _keep(self) -> None:
        if self.lease is not None and self.now >= self.lease.until_s + self.lease.grace_s:
            self.machine.kill_all()

    def boot(self) -> None:
        """Starts an agent, which finds what earlier ones left."""
        if self.agent is not None:
            return
        fence = Fence(self._fence.epoch, self._fence.jobs(), self._fence.void_before)
        self._lives += 1
        name = f"{self.node}-{self._boots}" + (f"-{self._lives}" if self.lease else "")
        count = iter(range(1_000_000))
        life = self._lives
        self.agent = Agent(
            self.node,
            GPUS,
            self.machine,
            fence=fence,
            lease=self.lease,
            incarnation=name,
            token=lambda: f"{life}-{next(count)}",
        )
        self._due_s = float("inf")
        self._say_alive(life)
        self.look()

    def kill(self) -> None:
        """Kills the agent. Its processes live on; its fence is on disk."""
        if self.agent is None:
            return
        self._fence = self.agent.fence
        self.agent = None
        self._lives += 1
        for process in self.machine.processes():
            if isinstance(process, Trainer):
                self.machine._trainers.agent_gone(process)

    def reboot(self) -> None:
        """Switches the whole node off."""
        self.kill()
        self.machine.reboot()
        self._boots += 1

    def deliver(self, order: AgentOrder) -> None:
        """Hands an order to the agent, if there is one."""
        if self.agent is not None:
            self._pass_on(self.agent.handle(order, self.now))

    def call(self, process: Process, token: str, message: FromWorker) -> bool:
        """Lets a process speak to the agent; False if nobody answers."""
        if self.agent is None:
            return False
        job, number = process.job, process.order.worker
        if not self.agent.admits(job, number, token):
            return False
        self._pass_on(self.agent.receive(job, number, message, self.now))
        return True

    def look(self) -> None:
        """Lets the agent look for what has ended, soon."""
        self._wake(self.now + LOOKS_S)

    def _pass_on(self, reports: Sequence[AgentReport]) -> None:
        for report in reports:
            self._send(self.node, report)
        if self.agent is not None:
            self._wake(self.agent.next_due())

    def _wake(self, time_s: float) -> None:
        if time_s < self._due_s and self.agent is not None:
            self._due_s = max(time_s, self.now)
            life = self._lives
            self._at(time_s, lambda: self._tick(life))

    def sleep(self, until_s: float) -> None:
        """Lets the agent stand until a time of the story, as after SIGSTOP."""
        self._asleep_s = max(self._asleep_s, until_s)

    def suspend(self, until_s: float) -> None:
        """Lets the machine sleep; keepers end what must not live as it wakes up."""
        self.sleep(until_s)
        processes = self.machine.processes()
        for process in processes:
            self.machine.hang(process)
        self._line.at(until_s, lambda: self._wake_up(processes))

    def _wake_up(self, processes: Sequence[Process]) -> None:
        for process in processes:
            if process.exit_code is None:
                self.machine.wake(process)

    def _tick(self, life: int) -> None:
        if self._line.now < self._asleep_s:
            self._line.at(self._asleep_s, lambda: self._tick(life))
            return
        if life != self._lives or self.agent is None or self.now < self._due_s:
            return
        self._due_s = float("inf")
        self._pass_on(self.agent.tick(self.now))

    def _say_alive(self, life: int) -> None:
        if life == self._lives and self.agent is not None:
            if self._line.now >= self._asleep_s:
                self._send(self.node, self.agent.heartbeat(self.now))
            self._line.after(ALIVE_S, lambda: self._say_alive(life))

"""Gangs and a real agent with the worst of roads between them: lost, doubled, late, out of turn.

Whatever happened, once messages arrive again every gang has the workers that the plan wants and no
others, within the bounds of memory that it wants; and at no instant do two workers that do not
share hold one GPU, or two that do more of its memory than there is.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dovetail.live.jobs.record import GangMember
from dovetail.live.node.agent import Agent
from dovetail.live.node.launcher import AdoptedWorker, WorkerExit
from dovetail.live.workers.gang import Gang, make_gang
from dovetail.live.workers.gang_orders import due_orders
from dovetail.live.workers.gpu_assignment import GpuAssignment
from dovetail.live.workers.gpu_usage import GpuUsage
from dovetail.live.workers.inventory_check import check_inventory
from dovetail.live.workers.roster import END, SAVE
from dovetail.live.workers.rules import Rules
from dovetail.live.workers.worker_state import Desired
from dovetail.wire.agent import (
    AgentOrder,
    AgentReport,
    EndWorker,
    Forget,
    InventoryRequest,
    NotifyWorkers,
    StartWorker,
    WorkerEnded,
)
from dovetail.wire.generation import (
    Entering,
    Event,
    Leaves,
    Send,
    ShowLife,
    Trains,
    WorkerGenerations,
    agree,
)
from dovetail.wire.worker import FromWorker, Hello, Ready, Regroup, ToWorker, WorkerRefused

GPUS, MEMORY = 3, 100
RULES = Rules(ready_s=20.0, start_s=20.0, hung_s=4.0, stall_s=1e9)


@dataclass
class Process:
    """A worker. An elastic one does what it is told at once."""

    order: StartWorker
    bound: int = 0
    said: list[FromWorker] = field(default_factory=list)
    generations: WorkerGenerations = field(init=False)

    def __post_init__(self) -> None:
        self.generations = WorkerGenerations(self.order.worker)

    @property
    def entered(self) -> int:
        return self.generations.entered

    def handle(self, event: Event) -> None:
        """Passes an event to its protocol; what it says is collected."""
        for instruction in self.generations.handle(event):
            if isinstance(instruction, Send):
                self.said.append(instruction.message)
            elif isinstance(instruction, ShowLife):
                self.said.append(instruction.lost)


class Programs:
    """A launcher of programs that do not exist. It checks that no GPU, nor memory, is held twice.

    Plain ones are bound by their agent; elastic ones bind themselves when they enter a generation.
    """

    def __init__(self) -> None:
        self.alive: dict[tuple[int, int], Process] = {}
        self.ever: set[tuple[int, int]] = set()
        self.exits: list[WorkerExit] = []

    def adopt(self) -> Sequence[AdoptedWorker]:
        return ()

    def start(self, order: StartWorker, token: str, now: float) -> None:
        key = order.job, order.worker
        assert key not in self.ever, f"{key} starts a second time"
        self.ever.add(key)
        self.alive[key] = Process(order, bound=order.memory_bytes)
        self.check_memory(order.gpu)

    def check_memory(self, gpu: int) -> None:
        """Checks that those on a GPU may hold no more than it has; who is not bound, all of it."""
        on_it = {k: p for k, p in self.alive.items() if p.order.gpu == gpu}
        held = sum(p.bound or MEMORY for p in on_it.values())
        jobs = [job for job, _ in on_it]
        assert len(on_it) < 2 or held <= MEMORY, f"{on_it} may hold {held} of GPU {gpu}"
        assert len(set(jobs)) == len(jobs), f"{on_it} of one job are on GPU {gpu}"

    def signal(self, job: int, worker: int, number: int) -> None:
        self.end(job, worker, -number)

    def end(self, job: int, worker: int, code: int) -> None:
        if self.alive.pop((job, worker), None) is not None:
            self.exits.append(WorkerExit(job, worker, code))

    def limit(self, order: StartWorker) -> None:
        process = self.alive.get((order.job, order.worker))
        if process is not None and process.entered < 0:
            process.bound = order.memory_bytes
            self.check_memory(order.gpu)

    def store(self, job: int, worker: int, message: FromWorker) -> None: ...

    def forget(self, job: int, worker: int) -> None: ...

    def poll(self) -> Sequence[WorkerExit]:
        exits, self.exits = self.exits, []
        return exits

    def send(self, job: int, worker: int, message: ToWorker) -> None:
        process = self.alive.get((job, worker))
        if process is not None and not isinstance(message, WorkerRefused):
            process.handle(message)

    def train(self) -> None:
        """Lets elastic workers agree: all who train know of a switch, all members are ready."""
        for job in {job for job, _ in self.alive}:
            crew = {k[1]: p for k, p in self.alive.items() if k[0] == job}
            for number, process in crew.items():
                if process.generations.leave:
                    process.handle(Leaves(0))
                    self.end(job, number, 0)
            told = [o for p in crew.values() if (o := p.generations.ordered) is not None]
            if told:
                self._switch(job, crew, max(told, key=lambda r: r.generation))

    def _switch(self, job: int, crew: dict[int, Process], to: Regroup) -> None:
        members = [p for n in to.members if (p := crew.get(n)) is not None]
        entered = all(p.entered == to.generation for p in members)
        if len(members) < len(to.members) or entered:
            return
        if not all(p.generations.wants(to.generation) for p in members):
            return
        for process in members:
            if not process.generations.is_ready(to.generation):
                process.handle(Ready(to.generation))
        train = [p for p in crew.values() if p.entered >= 0]
        training = [p for p in train if not p.generations.is_abandoned(p.entered)]
        voters = [p.generations.propose() for p in (*members, *training)]
        if agree(voters) != to.generation:
            return
        for number, process in crew.items():
            if number in to.members:
                process.handle(Entering(to.generation))
                process.bound = to.memory_bytes
                self.check_memory(process.order.gpu)
                process.handle(Trains(0, 0))
            elif process.generations.newest == to.generation:
                process.handle(Leaves(0))
                self.end(job, number, 0)


class Storm:
    """Two gangs, one node, and what is under way between them."""

    def __init__(self, trains: tuple[bool, bool]) -> None:
        self.now = 0.0
        self.programs = Programs()
        self.agent = Agent(0, ("0", "1", "2"), self.programs)
        self.floor, self.seats = GpuUsage(), GpuAssignment((GPUS,))
        self.gangs = [
            make_gang(
                StartWorker(job, -1, -1, -1, ("x",), "", "", "", trains=t, grace_s=3.0), RULES
            )
            for job, t in enumerate(trains)
        ]
        self.next = [0, 0]
        self.down: list[Callable[[], None]] = []
        self.wishes: list[tuple[int, ...]] = [(), ()]
        self.parts = (MEMORY // 2, MEMORY // 2)
        self.send(InventoryRequest(1))

    def want(self, job: int, gpus: tuple[int, ...], part: int = 0) -> None:
        """Lets the plan give a job these GPUs; the other one keeps a part, or loses them."""
        self.wishes[job] = gpus
        other = 1 - job
        left = tuple(g for g in self.wishes[other] if part or g not in gpus)
        if part:
            self.parts = (part, MEMORY - part)
        if left != self.wishes[other]:
            # A plain job keeps its GPUs whole or not at all.
            self.wishes[other] = left if self.gangs[other].roster.launch.trains else ()
            self._place(other)
        self._place(job)
        for gang in self.gangs:
            if gang.roster.wanted is not None:
                gang.want(
                    replace(gang.roster.wanted, memory_bytes=self.bound(gang.roster.job)), self.now
                )

    def bound(self, job: int) -> int:
        """Returns what each worker of a job may hold of its GPU."""
        return self.parts[job] if set(self.wishes[0]) & set(self.wishes[1]) else 0

    def has_room(self, job: int, gpu: int, bound: int) -> bool:
        """Tells whether a worker may hold so much beside those on its GPU."""
        return self.floor.has_room(job, (0, gpu), bound, MEMORY)

    def _place(self, job: int) -> None:
        gang, gpus = self.gangs[job], self.wishes[job]
        before = {m.gpu: m.worker for m in self.seats.members.get(job, ())}
        self.seats.release(job)
        if not gpus:
            gang.roster.vacate(self.now, 3.0, SAVE if gang.roster.launch.trains else END)
            return
        anew = not gang.roster.launch.trains and tuple(before) != gpus
        self._seat(job, gpus, {} if anew else before)

    def _seat(self, job: int, gpus: Sequence[int], kept: dict[int, int]) -> None:
        members = []
        for gpu in gpus:
            number = kept.get(gpu, -1)
            if number < 0:
                number, self.next[job] = self.next[job], self.next[job] + 1
            members.append(GangMember(number, 0, gpu))
        self.seats.occupy(job, members)
        self.gangs[job].want(Desired(tuple(members), memory_bytes=self.bound(job)), self.now)

    def send(self, payload: object) -> None:
        words = {
            StartWorker: "start",
            EndWorker: "end",
            NotifyWorkers: "tell",
            Forget: "forget",
            InventoryRequest: "hail",
        }
        order = replace(AgentOrder(1), **{words[type(payload)]: payload})
        self.down.append(lambda: self.report(self.agent.handle(order, self.now)))

    def report(self, reports: Sequence[AgentReport]) -> None:
        for report in reports:
            self.down.append(lambda report=report: self.hear(report))  # type: ignore[misc]

    def hear(self, report: AgentReport) -> None:
        if report.inventory is not None:
            for gang in self.gangs:
                rows = [w for w in report.inventory.workers if w.job == gang.roster.job]
                check_inventory(gang, 0, rows, self.now)
        for said, verb in ((report.started, "started"), (report.said, "heard")):
            if said is not None:
                gang = self.gangs[said.job]
                if verb == "heard":
                    gang.receive(said, self.now)  # type: ignore[arg-type]
                else:
                    gang.roster.started(said.worker, said.generation, self.now)  # type: ignore[union-attr]
        if report.ended is not None:
            self.gangs[report.ended.job].ended(0, report.ended, self.now)

    def tend(self) -> None:
        """Lets gangs decide and speak, workers do what they are told, and the agent look."""
        for gang in (*self.gangs, *self.gangs):
            self._put(gang)
            dead = {n.worker for n in gang.roster.take_events() if isinstance(n, WorkerEnded)}
            if dead and gang.roster.wanted is not None:
                kept = {m.gpu: m.worker for m in self.seats.members[gang.roster.job]}
                gpus = tuple(kept)
                alive = {
                    g: w for g, w in kept.items() if w not in dead and gang.roster.launch.trains
                }
                self.seats.release(gang.roster.job)
                self._seat(gang.roster.job, gpus, alive)
            gang.step(
                self.now,
                lambda node, gpu, gang=gang: (  # type: ignore[misc]
                    self.floor.is_free(gang.roster.job, node, gpu, self.seats)
                    and self.has_room(gang.roster.job, gpu, gang.roster.bound)
                ),
                lambda _: 0.0,
                lambda node, gpu, bound, job=gang.roster.job: self.has_room(job, gpu, bound),  # type: ignore[misc]
            )
            self._put(gang)
        for gang in self.gangs:
            for _, payload in due_orders(gang, self.now):
                self.send(payload)
        self.programs.train()
        for (job, number), process in list(self.programs.alive.items()):
            if process.order.trains:
                if not process.said and process.entered < 0:
                    self.report(self.agent.receive(job, number, Hello("", "", 0), self.now))
                said, process.said = process.said, []
                for message in said:
                    self.report(self.agent.receive(job, number, message, self.now))
        self.report(self.agent.tick(self.now))

    def _put(self, gang: Gang) -> None:
        workers = gang.roster.workers.values()
        gpus = {w.worker: tuple((w.node, gpu) for gpu in w.all_gpus) for w in workers}
        self.floor.update(gang.roster.job, gpus, {w.worker: w.memory_held_max for w in workers})

    def calm(self) -> None:
        """Lets everything arrive, in turn, until nothing changes any more."""
        for _ in range(60):
            for _ in range(6):
                self.tend()
                down, self.down = self.down, []
                for arrive in down:
                    arrive()
            self.now += 1.0
            if int(self.now) % 5 == 0:
                self.send(InventoryRequest(1))

    def check(self) -> None:
        """Checks that what is there is what is wanted."""
        for job, gpus in enumerate(self.wishes):
            mine = [p for k, p in self.programs.alive.items() if k[0] == job]
            there = sorted(p.order.gpu for p in mine)
            assert there == sorted(gpus), f"job {job} is on {there} and wanted on {gpus}"
            bounds = {p.bound for p in mine}
            assert bounds <= {self.bound(job)}, f"job {job} is bound by {bounds}"
            gang = self.gangs[job]
            if gang.roster.launch.trains and gpus:
                entered = {p.entered for k, p in self.programs.alive.items() if k[0] == job}
                assert len(entered) == 1 and entered != {-1}


WISHES = st.sampled_from([(), (0,), (1,), (0, 1), (1, 2), (0, 1, 2), (2, 0)])
EVENT = st.one_of(
    st.tuples(st.just("want"), st.integers(0, 1), WISHES),
    st.tuples(st.just("share"), st.integers(0, 1), WISHES),
    st.tuples(st.just("arrive"), st.integers(0, 30), st.just(())),
    st.tuples(st.just("arrive"), st.integers(0, 3), st.just(())),
    st.tuples(st.just("lose"), st.integers(0, 30), st.just(())),
    st.tuples(st.just("double"), st.integers(0, 30), st.just(())),
    st.tuples(st.just("kill"), st.integers(0, 5), st.just(())),
    st.tuples(st.just("wait"), st.integers(1, 4), st.just(())),
    st.tuples(st.just("hail"), st.just(0), st.just(())),
)


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(trains=st.tuples(st.booleans(), st.booleans()), events=st.lists(EVENT, max_size=40))
def test_any_storm_ends_with_what_is_wanted_and_no_gpu_held_twice(
    trains: tuple[bool, bool], events: list[tuple[str, int, tuple[int, ...]]]
) -> None:
    storm = Storm(trains)
    for what, number, gpus in events:
        index = number % len(storm.down) if storm.down else -1
        if what == "want":
            storm.want(number, gpus)
        elif what == "share":
            storm.want(number, gpus, part=30 + 20 * len(gpus))
        elif what == "wait":
            storm.now += number
        elif what == "hail":
            storm.send(InventoryRequest(1))
        elif what == "kill" and storm.programs.alive:
            keys = sorted(storm.programs.alive)
            storm.programs.end(*keys[number % len(keys)], -signal.SIGKILL)
        elif what == "arrive" and index >= 0:
            storm.down.pop(index)()
        elif what == "lose" and index >= 0:
            del storm.down[index]
        elif what == "double" and index >= 0:
            storm.down.append(storm.down[index])
        storm.tend()
    storm.calm()
    storm.check()

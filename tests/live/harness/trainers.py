"""Puppets of elastic programs: workers that drive `wire.generation` around virtual time.

A switch is agreed among the workers at a step boundary. A group that lost a member keeps its last
step until a newer generation continues from it. A worker that starts where no other has the state
reads the checkpoint in the job's folder.
"""

from __future__ import annotations

import json
import signal
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from harness.processes import DIES_S, Process, Watcher

from dovetail.live.edges.virtual_time import Timeline
from dovetail.wire.agent import StartWorker
from dovetail.wire.generation import (
    Broke,
    CheckpointDone,
    Entering,
    Event,
    Leaves,
    Send,
    ShowLife,
    Stop,
    Trains,
    WorkerGenerations,
    agree,
)
from dovetail.wire.worker import (
    Checkpoint,
    Finished,
    FromWorker,
    Hello,
    Meeting,
    Ready,
    Regroup,
    Saved,
    ToWorker,
    Training,
    WorkerRefused,
)

SAMPLES_PER_S = 1000.0
STEP_SAMPLES = 100.0
SAVES_S, SAVING_S = 10.0, 0.3
STEP_S = 0.1
NOTICES_DEATH_S, NOTICES_STALL_S = 0.5, 6.0
CALLS_AGAIN_S = 0.3

Call = Callable[[Process, str, FromWorker], bool]
"""Passes a message of a process to the agent of its node; False if no agent runs."""


@dataclass(eq=False)
class Trainer(Process):
    """One worker: its generations, and how far it has come."""

    token: str = ""
    connected: bool = False
    built: bool = False
    samples: float = -1.0
    leaves_alone: bool = False
    hosts: Meeting | None = None
    waiting: deque[FromWorker] = field(default_factory=deque)
    generations: WorkerGenerations = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.generations = WorkerGenerations(self.number)

    @property
    def works(self) -> bool:
        """Returns whether it does anything at all, if only to end."""
        return self.exit_code is None and not self.hangs

    @property
    def begun(self) -> bool:
        """Returns whether it ever trained."""
        return self.generations.entered >= 0

    @property
    def number(self) -> int:
        """Returns its number in the job."""
        return self.order.worker

    def wants(self) -> Regroup | None:
        """Returns the generation that it prepares for; one that ends prepares for none."""
        state = self.generations
        ends = self.asked or self.leaves_alone or state.has_left
        return state.ordered if state.wants(state.newest) and not ends else None

    @property
    def can_enter(self) -> bool:
        """Returns whether it has joined the generation that it prepares for."""
        return self.wants() is not None and self.generations.is_ready(self.generations.newest)


@dataclass(eq=False)
class _Group:
    """Workers that train together since `since_s`; broken if one of them is gone."""

    generation: int
    members: list[Trainer]
    samples: float
    since_s: float
    rate: float
    switching: bool = False
    broken: bool = False


@dataclass(eq=False)
class _Job:
    """One job: its workers, its groups that train, its checkpoint, and the work done and lost."""

    total: float
    gpus: int
    workers: dict[int, Trainer] = field(default_factory=dict)
    groups: list[_Group] = field(default_factory=list)
    saved: float = 0.0
    reached: float = 0.0
    lost: float = 0.0
    finished: bool = False
    ends: int = 0

    def begin_anew(self) -> None:
        """Starts a job anew that was complete."""
        self.saved = self.reached = self.lost = 0.0
        self.finished = False
        self.workers.clear()


class Trainers:
    """All elastic programs of a cluster."""

    def __init__(self, line: Timeline, watcher: Watcher, rng: Random, call: Call) -> None:
        self._line = line
        self._watcher = watcher
        self._rng = rng
        self._call = call
        self.jobs: dict[int, _Job] = {}
        self._apart: set[int] = set()
        self.alive: dict[Trainer, None] = {}

    # Processes.

    def start(self, node: int, order: StartWorker, token: str) -> Trainer:
        """Starts a worker; it connects to its agent once it is built."""
        worker = Trainer(node, order, self._line.now, token=token)
        duration_s, gpus = json.loads(order.command[-1])
        job = self.jobs.setdefault(order.job, _Job(duration_s * SAMPLES_PER_S, gpus))
        if job.finished and not any(w.exit_code is None for w in job.workers.values()):
            job.begin_anew()
        job.workers[order.worker] = worker
        self.alive[worker] = None
        self._watcher.started(worker)
        self._line.after(self._rng.choice((0.2, 0.5, 2.0)), lambda: self._build(worker))
        return worker

    def signal(self, worker: Trainer, number: int) -> None:
        """Sends a signal."""
        if worker.exit_code is not None:
            return
        if number == signal.SIGKILL:
            self.end(worker, -number)
        elif number == signal.SIGTERM and not worker.asked:
            worker.asked = True
            if not (worker.stubborn or worker.hangs):
                self._line.after(DIES_S, lambda: self.end(worker, -number))

    def hang(self, worker: Trainer) -> None:
        """Stops a worker as SIGSTOP does."""
        worker.hangs = worker.faulty = True
        self._break(self.jobs[worker.job], worker, NOTICES_STALL_S)

    def wake(self, worker: Trainer) -> None:
        """Lets a worker go on that was stopped: by now its group is broken."""
        worker.hangs = False
        if worker.asked and not worker.stubborn:
            self._line.after(DIES_S, lambda: self.end(worker, -signal.SIGTERM))
            return
        if not worker.built:
            self._build(worker)
        elif not worker.connected:
            self._dial(worker)
        self._complain([worker], worker.generations.entered)
        self._look(self.jobs[worker.job])

    def end(self, worker: Trainer, code: int) -> None:
        """Ends a worker."""
        if worker.exit_code is not None:
            return
        worker.exit_code = code
        del self.alive[worker]
        self._break(self.jobs[worker.job], worker, NOTICES_DEATH_S)
        self._watcher.ended_process(worker)

    def part(self, node: int, *, parted: bool) -> None:
        """Cuts the workers on a node off from those elsewhere, or ends that."""
        (self._apart.add if parted else self._apart.discard)(node)
        for job in self.jobs.values():
            for group in [g for g in job.groups if self._is_cut(g.members)]:
                self._stop(job, group)
                members, generation = group.members, group.generation
                self._line.after(
                    NOTICES_STALL_S, lambda m=members, g=generation: self._complain(m, g)
                )
            self._look(job)

    def _is_cut(self, members: list[Trainer]) -> bool:
        nodes = {m.node for m in members}
        return len(nodes) > 1 and not nodes.isdisjoint(self._apart)

    # The connection to the agent.

    def agent_gone(self, worker: Trainer) -> None:
        """Breaks the connection of a worker; it retries until an agent answers."""
        worker.connected = False
        self._line.after(CALLS_AGAIN_S, lambda: self._dial(worker))

    def _build(self, worker: Trainer) -> None:
        if worker.works:
            worker.built = True
            self._dial(worker)

    def _dial(self, worker: Trainer) -> None:
        if not worker.works or worker.connected:
            return
        o = worker.order
        hello = Hello(f"{o.job}/{o.worker}", worker.token, o.worker, worker.generations.entered)
        if not self._call(worker, worker.token, hello):
            self._line.after(CALLS_AGAIN_S, lambda: self._dial(worker))
            return
        worker.connected = True
        again: list[FromWorker] = [worker.hosts] if worker.hosts else []
        if worker.generations.is_ready(worker.generations.newest):
            again.append(Ready(worker.generations.newest))
        for message in (*again, *worker.waiting):
            self._call(worker, worker.token, message)
        worker.waiting.clear()
        self._look(self.jobs[worker.job])

    def _say(self, worker: Trainer, message: FromWorker) -> None:
        if not (worker.connected and self._call(worker, worker.token, message)):
            worker.waiting.append(message)

    def hear(self, worker: Trainer, message: ToWorker) -> None:
        """Passes a message of its agent to a worker, a moment later."""
        self._line.after(0.001, lambda: self._heard(worker, message))

    def _heard(self, worker: Trainer, message: ToWorker) -> None:
        if not worker.works:
            return
        if isinstance(message, WorkerRefused):
            self.end(worker, 3)
            return
        self._handle(worker, message)
        self._look(self.jobs[worker.job])

    def _handle(self, worker: Trainer, event: Event) -> None:
        """Passes an event to the protocol of a worker, and follows its instructions."""
        for instruction in worker.generations.handle(event):
            match instruction:
                case Send():
                    self._say(worker, instruction.message)
                case ShowLife():
                    self._say(worker, instruction.lost)
                case Stop():
                    self._break(self.jobs[worker.job], worker, NOTICES_DEATH_S)

    # Groups.

    def _group_of(self, worker: Trainer) -> _Group | None:
        groups = self.jobs[worker.job].groups
        return next((g for g in groups if worker in g.members and not g.broken), None)

    def _progress(self, job: _Job, group: _Group) -> None:
        """Brings the samples of a group up to now, in whole steps."""
        did = (self._line.now - group.since_s) * group.rate
        group.samples = min(job.total, group.samples + did)
        group.since_s = self._line.now
        job.reached = max(job.reached, group.samples)
        for member in group.members:
            member.samples = group.samples

    def _stop(self, job: _Job, group: _Group) -> None:
        self._progress(job, group)
        group.broken = True
        job.groups.remove(group)
        self._watcher.rests(group.members[0].job, group.generation)

    def _break(self, job: _Job, worker: Trainer, notices_s: float) -> None:
        """Breaks the group of a worker that is gone; the others notice."""
        group = self._group_of(worker)
        if group is not None:
            self._stop(job, group)
            others = [m for m in group.members if m is not worker]
            self._line.after(notices_s, lambda: self._complain(others, group.generation))
        self._look(job)

    def _complain(self, workers: list[Trainer], generation: int) -> None:
        for worker in workers:
            state = worker.generations
            if worker.works and state.entered == generation and not state.is_abandoned(generation):
                self._handle(worker, Broke("a member does not answer"))

    def _look(self, job: _Job) -> None:
        """Advances the workers of a job as far as they can go now."""
        for worker in list(job.workers.values()):
            if worker.works and worker.built:
                self._prepare(job, worker)
                self._leave_unwanted(worker)
                self._leave_alone(job, worker)
        for worker in list(job.workers.values()):
            wanted = worker.wants()
            if worker.works and wanted and worker.can_enter:
                self._switch(job, wanted)
        for group in list(job.groups):
            if any(m.generations.save for m in group.members) and not group.switching:
                self._save(job, group)

    def _prepare(self, job: _Job, worker: Trainer) -> None:
        wanted = worker.wants()
        if wanted is None or worker.can_enter:
            return
        first = wanted.members[0] == worker.number
        if len(wanted.members) > 1 and first and not _hosts(worker, wanted):
            worker.hosts = Meeting(wanted.generation, f"{worker.job}:{wanted.generation}")
            self._say(worker, worker.hosts)
        come = [job.workers.get(n) for n in wanted.members]
        if all(m is not None and _came(m, wanted) for m in come):
            for member in come:
                if member is not None and not member.can_enter:
                    self._handle(member, Ready(wanted.generation, 0.1))

    def _leave_unwanted(self, worker: Trainer) -> None:
        """Ends a worker that trains with no others and has no place in the newest generation."""
        if worker.generations.is_left_out and self._group_of(worker) is None:
            self._leave(worker)

    def _leave_alone(self, job: _Job, worker: Trainer) -> None:
        """Lets a worker save and leave that is told to leave and has no others to leave with."""
        state = worker.generations
        told = state.leave and worker.begun and not worker.leaves_alone
        if told and self._group_of(worker) is None:
            worker.leaves_alone = True
            self._line.after(SAVING_S, lambda: self._saved_alone(job, worker))

    def _saved_alone(self, job: _Job, worker: Trainer) -> None:
        if worker.works:
            if all(w.order.lineage <= worker.order.lineage for w in job.workers.values()):
                job.saved = max(job.saved, worker.samples)
            self._say(worker, Saved(_step(worker.samples), int(worker.samples)))
            self._leave(worker)

    def _switch(self, job: _Job, wanted: Regroup) -> None:
        """Agrees on a switch at the next step boundary, if all workers propose it."""
        members = [job.workers[n] for n in wanted.members]
        if not all(m.works and m.can_enter for m in members) or self._is_cut(members):
            return
        groups = [g for g in job.groups if any(m in g.members for m in members)]
        voters = [*members, *(m for g in groups for m in g.members)]
        agreed = agree([m.generations.propose() for m in voters]) == wanted.generation
        if not agreed or any(g.switching for g in groups):
            return
        for group in groups:
            group.switching = True
        self._line.after(STEP_S, lambda: self._enter(job, wanted, groups))

    def _enter(self, job: _Job, wanted: Regroup, groups: list[_Group]) -> None:
        for group in groups:
            group.switching = False
        members = [job.workers[n] for n in wanted.members]
        alive = all(m.works and m.wants() == wanted for m in members)
        alive = alive and not self._is_cut(members)
        if not alive or any(
            g.broken or any(m.generations.ordered != wanted for m in g.members) for g in groups
        ):
            self._look(job)
            return
        for group in groups:
            self._stop(job, group)
        samples = max(m.samples for m in members)
        if samples < 0:
            samples = job.saved
            self._watcher.resumes(members)
        job.lost = max(job.lost, job.reached - samples)
        name = members[0].job
        self._watcher.trains(name, wanted.generation, members[0].order.lineage)
        rate = SAMPLES_PER_S * len(members) / job.gpus
        group = _Group(wanted.generation, members, samples, self._line.now, rate)
        job.groups.append(group)
        for member in members:
            self._handle(member, Entering(wanted.generation))
            member.samples, member.hosts = samples, None
            member.bound = wanted.memory_bytes
            self._watcher.bounded(member)
            self._handle(member, Trains(_step(samples), int(samples), 0.004))
        for leaver in [m for g in groups for m in g.members if m not in members]:
            self._leave(leaver)
        self._line.after((job.total - samples) / rate, lambda: self._finish(job, group))
        self._line.after(1.0, lambda: self._report(job, group))
        self._line.after(SAVES_S, lambda: self._save_again(job, group))
        self._look(job)

    def _leave(self, worker: Trainer) -> None:
        self._handle(worker, Leaves(_step(worker.samples)))
        self._line.after(0.05, lambda: self._exit(worker))

    def _exit(self, worker: Trainer) -> None:
        if worker.works:
            self.end(worker, 0)

    def _report(self, job: _Job, group: _Group) -> None:
        if group.broken:
            return
        self._progress(job, group)
        said = Training(
            group.generation,
            _step(group.samples),
            int(group.samples),
            group.rate,
            STEP_S,
            total_samples=int(job.total),
        )
        self._say(group.members[0], said)
        self._line.after(1.0, lambda: self._report(job, group))

    def _save_again(self, job: _Job, group: _Group) -> None:
        if not group.broken:
            self._handle(group.members[0], Checkpoint())
            self._save(job, group)
            self._line.after(SAVES_S, lambda: self._save_again(job, group))

    def _save(self, job: _Job, group: _Group) -> None:
        group.switching = True
        self._line.after(SAVING_S, lambda: self._saved(job, group))

    def _saved(self, job: _Job, group: _Group) -> None:
        group.switching = False
        if group.broken:
            return
        self._progress(job, group)
        job.saved = group.samples
        leave = any(m.generations.leave for m in group.members)
        self._say(group.members[0], Saved(_step(group.samples), int(group.samples)))
        for member in group.members:
            self._handle(member, CheckpointDone(leaves=leave))
        if leave:
            self._stop(job, group)
            for member in group.members:
                self._leave(member)
        self._look(job)

    def _finish(self, job: _Job, group: _Group) -> None:
        if group.broken:
            return
        if group.switching:
            self._line.after(STEP_S, lambda: self._finish(job, group))
            return
        self._progress(job, group)
        self._stop(job, group)
        # A worker that takes up a complete job reads that in its checkpoint, and does no work.
        job.ends += not job.finished
        job.finished, job.saved = True, job.total
        for member in group.members:
            self._handle(member, Finished(_step(job.total), int(job.total)))
            self._line.after(self._rng.choice((0.01, 0.3)), lambda m=member: self._exit(m))


def _hosts(worker: Trainer, wanted: Regroup) -> bool:
    return worker.hosts is not None and worker.hosts.generation == wanted.generation


def _came(worker: Trainer, wanted: Regroup) -> bool:
    """Returns whether a worker has come to the meeting of a generation."""
    if not (worker.works and worker.built and worker.wants() == wanted):
        return False
    # The first member knows of the meeting from the start, but must have opened it.
    hosts = len(wanted.members) == 1 or wanted.members[0] != worker.number
    return worker.generations.knows_meeting(wanted.generation) and (hosts or _hosts(worker, wanted))


def _step(samples: float) -> int:
    return int(samples / STEP_SAMPLES)

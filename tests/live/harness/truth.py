"""What is really so, whatever the controller believes: who is on which GPU, at every instant."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from harness.processes import Process

from dovetail.core.cluster import DRAINING
from dovetail.core.messages import PREEMPTED, Ended, Fact, NodeChanged, Shrunk, Started, Stopped
from dovetail.live.edges.protocols import JournalEntry
from dovetail.live.jobs.lifecycle import TERMINAL
from dovetail.live.jobs.record import GangMember, JobRecord
from dovetail.wire.agent import StartWorker

Seat = tuple[int, int]
PATIENCE_S = 15.0
"""A controller that hears of a node again has ended there what it does not want after so long."""
SPINS_MAX = 200
"""Entries of one second; more, and the controller is taken to run in circles."""


@runtime_checkable
class Writer(Protocol):
    """A worker that may write checkpoints: one of an elastic program."""

    order: StartWorker
    name: str

    @property
    def begun(self) -> bool:
        """Returns whether it ever trained."""
        ...


@dataclass
class Truth:
    """Watches processes and what is durable, and notes every breach of a rule.

    `shares` tells whether the policy may put two jobs on a GPU; `crawls` that messages take longer
    than a controller is patient, so that it may take a worker that was just started for lost.
    GPUs have `memory_bytes`; 0 for clocks, which hold none. It is `strict` where nodes have leases:
    then no job has two copies that live, also where nobody can end one of them; where the
    controller is `misled` two may train, in lineages of their own. `is_over` tells whether the
    lease of a node is.
    """

    now: Callable[[], float]
    shares: bool
    crawls: bool = False
    memory_bytes: float = 0.0
    strict: bool = False
    misled: bool = False
    is_over: Callable[[int], bool] = lambda node: False
    wrong: list[str] = field(default_factory=list)
    tale: list[tuple[float, str]] = field(default_factory=list)
    records: dict[int, JobRecord] = field(default_factory=dict)
    ended: dict[int, int] = field(default_factory=dict)
    on_gpu: dict[Seat, dict[Process, None]] = field(default_factory=dict)
    training: dict[int, dict[int, int]] = field(default_factory=dict)
    used: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    boots: dict[int, int] = field(default_factory=dict)
    starts: dict[int, int] = field(default_factory=dict)
    size: dict[int, int] = field(default_factory=dict)
    hung_s: dict[int, float] = field(default_factory=dict)
    apart_s: dict[int, float] = field(default_factory=dict)
    _planned: set[frozenset[tuple[int, int]]] = field(default_factory=set)
    _draining: set[int] = field(default_factory=set)
    _drained: set[tuple[int, int]] = field(default_factory=set)
    _nodes_of: dict[int, dict[int, int]] = field(default_factory=dict)
    _second_s: float = -1.0
    _spins: int = 0

    def say(self, text: str) -> None:
        """Adds to the tale."""
        self.tale.append((self.now(), text))

    def breach(self, text: str) -> None:
        """Notes a breach of a rule."""
        self.say(f"BREACH {text}")
        self.wrong.append(f"at {self.now():.3f} s {text}")

    # What is durable.

    def begins(self, epoch: int) -> None:
        """Sees a controller begin."""
        self.say(f"controller {epoch} begins")

    def alive(self) -> list[JobRecord]:
        """Returns the records of jobs that are not over."""
        return [r for r in self.records.values() if r.state not in TERMINAL]

    def kept(self, entry: JournalEntry) -> None:
        """Sees an entry become durable."""
        if self.now() > self._second_s + 1.0:
            self._second_s, self._spins = self.now(), 0
        self._spins += 1
        if self._spins > SPINS_MAX:
            raise RuntimeError(f"the controller runs in circles at {self.now():g} s")
        self._note_drained(entry)
        for record in entry.records:
            before = self.records.get(record.job)
            self._note_seats(record)
            if record.members:
                self.size[record.job] = len({m.worker for m in record.members})
            self.records[record.job] = record
            if before is None or before.state is not record.state:
                self.say(f"job {record.job} is {record.state} {record.reason}".rstrip())
            if before is None or before.members != record.members:
                where = " ".join(f"{m.worker}@{m.node}.{m.gpu}" for m in record.members)
                self.say(f"job {record.job} generation {record.generation} wants [{where}]")
        for fact in entry.facts:
            if isinstance(fact, Ended):
                self.ended[fact.job] = self.ended.get(fact.job, 0) + 1
            self._note_draining(fact)

    def _note_drained(self, entry: JournalEntry) -> None:
        """Holds that no job gets a GPU that is drained by itself."""
        notes = dict(entry.meta).get("drains")
        if notes is not None:
            self._drained = {(note[0], note[1]) for note in json.loads(notes)}
        for record in entry.records if self._drained else ():
            before = self.records.get(record.job)
            had = {(m.node, m.gpu) for m in before.members} if before is not None else set()
            gained = {(m.node, m.gpu) for m in record.members} - had
            if gained & self._drained:
                self.breach(f"job {record.job} gets {gained}, of which {self._drained} drain")

    def drain_anew(self, nodes: Collection[int]) -> None:
        """Sees another record take over, which knows of these drained nodes."""
        self._draining = set(nodes)
        self._nodes_of.clear()

    def _note_draining(self, fact: Fact) -> None:
        """Holds that the policy leaves alone what runs on a draining node, and starts nothing."""
        match fact:
            case NodeChanged(_, node, state):
                (self._draining.add if state == DRAINING else self._draining.discard)(node)
            case Stopped(_, job, why):
                if self._draining.intersection(self._nodes_of.pop(job, ())) and why == PREEMPTED:
                    self.breach(f"job {job} is preempted on a draining node")
            case Started(_, job, _, placement):
                held, there = self._nodes_of.get(job, {}), placement.by_node()
                if self._draining.intersection([*held, *there]) and held != there:
                    self.breach(f"job {job} goes from {held} to {there}, {self._draining} drain")
                self._nodes_of[job] = there
            case Shrunk(_, job, placement):
                # Off a node that is down, which drains if another job keeps its place there.
                self._nodes_of[job] = placement.by_node()
            case Ended(_, job):
                self._nodes_of.pop(job, None)

    def _note_seats(self, record: JobRecord) -> None:
        """Notes who is to share a GPU with whom."""
        for member in record.members:
            seat = (member.node, member.gpu)
            for other in self.records.values():
                for theirs in other.members if other.job != record.job else ():
                    if (theirs.node, theirs.gpu) == seat:
                        pair = ((record.job, member.worker), (other.job, theirs.worker))
                        self._planned.add(frozenset(pair))

    def may_share(self, one: Process, other: Process) -> bool:
        """Tells whether a plan on record once put both on this GPU: an order may be late."""
        pair = ((one.job, one.order.worker), (other.job, other.order.worker))
        return self.shares and frozenset(pair) in self._planned

    def rebooted(self, node: int) -> None:
        """Sees a node lose all it knew: a number may be started there again."""
        self.boots[node] = self.boots.get(node, 0) + 1

    def estrange(self, node: int, until_s: float) -> None:
        """Notes that a node and the controller cannot speak, and need a while after that."""
        self.apart_s[node] = max(self.apart_s.get(node, 0.0), until_s + PATIENCE_S)

    def wants(self, process: Process) -> bool:
        """Tells whether the plan on record has this worker."""
        record = self.records.get(process.job)
        number, node = process.order.worker, process.node
        seats = {GangMember(number, node, gpu) for gpu in process.order.all_gpus}
        return record is not None and seats <= set(record.members)

    # What is so.

    def started(self, process: Process) -> None:
        """Sees a process start: on record first, a number never twice, the GPU its own."""
        self.say(f"worker {process.name} starts on {process.node}.{process.order.gpu}")
        number = (process.job, process.order.worker)
        boots = self.boots.get(process.node, 0)
        if self.used.get(number) == (process.node, boots):
            self.breach(f"worker {process.name} starts a second time")
        self.used[number] = (process.node, boots)
        record = self.records.get(process.job)
        if record is None or process.order.worker >= record.next_worker:
            self.breach(f"worker {process.name} starts and is not on record")
        for gpu in process.order.all_gpus:
            here = self.on_gpu.setdefault((process.node, gpu), {})
            for other in here:
                if other.job == process.job:
                    self.breach(f"workers {process.name} and {other.name} are on one GPU")
                elif not self.may_share(process, other):
                    self.breach(f"worker {process.name} starts on the GPU of worker {other.name}")
            here[process] = None
        if self.strict and not process.order.trains:
            self._is_only_copy(process)
        self.bounded(process)
        self.starts[process.job] = self.starts.get(process.job, 0) + 1

    def _is_only_copy(self, process: Process) -> None:
        """Holds that no process of another start of a plain program lives."""
        for here in self.on_gpu.values():
            for other in here:
                same = other.job == process.job and other is not process
                if same and other.order.generation != process.order.generation:
                    self.breach(f"worker {process.name} starts, and {other.name} lives")

    def bounded(self, process: Process) -> None:
        """Sees what a process may hold of its GPU: no more than others leave, bound as they are."""
        for gpu in process.order.all_gpus:
            here = self.on_gpu[process.node, gpu]
            bounds = [other.bound for other in here]
            if (
                self.memory_bytes
                and len(bounds) > 1
                and not (all(bounds) and sum(bounds) <= self.memory_bytes)
            ):
                names = ", ".join(f"{p.name} {p.bound}" for p in here)
                self.breach(f"more is allowed than GPU {process.node}.{gpu} has: {names}")

    def ended_process(self, process: Process) -> None:
        """Sees a process end."""
        self.say(f"worker {process.name} ends with {process.exit_code}")
        for gpu in process.order.all_gpus:
            del self.on_gpu[process.node, gpu][process]
        if process.hangs:
            self.hung_s[process.job] = self.now()

    def signalled(self, process: Process, number: int) -> None:
        """Sees an agent signal a process: only one that the plan on record does not want."""
        self.say(f"worker {process.name} gets signal {number}")
        excused = self._has_hung(process.job) or self.crawls or self.is_over(process.node)
        if self.wants(process) and not excused:
            self.breach(f"worker {process.name} gets signal {number} and is wanted")

    def _has_hung(self, job: int) -> bool:
        """Tells whether a worker of a job hangs, or did until a moment ago."""
        hangs = any(p.hangs and p.job == job for here in self.on_gpu.values() for p in here)
        return hangs or self.hung_s.get(job, -PATIENCE_S) + PATIENCE_S > self.now()

    def trains(self, job: int, generation: int, lineage: int = 0) -> None:
        """Sees a gang begin to work; a plain one has one lineage."""
        self.say(f"job {job} works as generation {generation}")
        groups = self.training.setdefault(job, {})
        others = [
            g for g, of in groups.items() if g != generation and not (self.misled and of != lineage)
        ]
        if others and (self.strict or not self._is_apart(job)):
            self.breach(f"job {job} works as generation {generation} and as {others}")
        groups[generation] = lineage

    def _is_apart(self, job: int) -> bool:
        """Tells whether the controller cannot reach some worker of a job, nor end it."""
        now = self.now()
        return any(
            self.apart_s.get(node, -1.0) >= now and any(p.job == job for p in here)
            for (node, _), here in self.on_gpu.items()
        )

    def resumes(self, members: Sequence[Process]) -> None:
        """Sees an elastic gang begin from a checkpoint: nobody else may write to its lineage."""
        first, together = members[0], set(members)
        others = [
            other
            for here in self.on_gpu.values()
            for other in here
            if other.job == first.job and other not in together and isinstance(other, Writer)
        ]
        for other in others if self.strict else ():
            if other.begun and other.order.lineage == first.order.lineage:
                self.breach(f"worker {first.name} begins in the lineage of {other.name}")

    def rests(self, job: int, generation: int) -> None:
        """Sees a plain gang no longer work."""
        self.training.get(job, {}).pop(generation, None)

"""What the parts of a live world share: the tables, the jobs, the GPUs, and this instant's doings.

Facts, records, answered requests and letters gather here while an instant is worked on; the
world keeps the first three in one entry of the journal and only then sends the letters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from dovetail.control.state import ClusterState
from dovetail.core.beliefs import Neighbour
from dovetail.core.messages import Explained, Fact, Learned, Reason, Retimed, Withdrawn
from dovetail.core.placement import Placement
from dovetail.core.policy import Policy
from dovetail.core.view import PendingChanges, show
from dovetail.live.controller.live_jobs import Life, Lives
from dovetail.live.controller.rules import Rules
from dovetail.live.controller.timers import Timers
from dovetail.live.edges.protocols import Edges, Entry
from dovetail.live.jobs.job_environment import restarted
from dovetail.live.jobs.record import JobRecord
from dovetail.live.measuring.memory_bounds import MemoryBounds
from dovetail.live.measuring.metering import Meter
from dovetail.live.workers.first_worker import FirstWorker
from dovetail.live.workers.gang import Gang, make_gang
from dovetail.live.workers.gpu_assignment import Gpu, GpuAssignment
from dovetail.live.workers.gpu_usage import GpuUsage
from dovetail.live.workers.node_order import NodeOrder
from dovetail.wire.agent import Launch
from dovetail.wire.spec import JobSpec

Launches = Callable[[int, JobSpec], Launch]
"""Returns how the workers of a job, by number, are launched."""
LEARNED = "measured"
"""The name under which the journal keeps what the meter learned."""


class Site:
    """The state of a live cluster; `settled` once every node has said who is there, or is down."""

    def __init__(
        self,
        edges: Edges,
        state: ClusterState,
        policy: Policy,
        *,
        epoch: int,
        launches: Launches,
        meter: Meter,
        rules: Rules,
    ) -> None:
        self.edges = edges
        self.state = state
        self.policy = policy
        self.epoch = epoch
        self.launches = launches
        self.meter = meter
        self.rules = rules
        self.lives = Lives()
        self.seats = GpuAssignment(state.view.cluster.installed)
        self.floor = GpuUsage()
        self._bounds = MemoryBounds(state)
        self.timers = Timers()
        self.changes = PendingChanges()
        self.facts: list[Fact] = []
        self.done: list[int] = []
        self.meta: dict[str, str] = {}
        self.letters: list[NodeOrder] = []
        self.touched: dict[int, Life] = {}
        self.settled = False

    @property
    def now(self) -> float:
        """Returns the present instant."""
        return self.state.now

    # Jobs.

    def gang(self, life: Life) -> Gang:
        """Returns the gang of a job, made if it has none."""
        if life.gang is None:
            record, spec = life.record, life.spec
            life.gang = make_gang(
                record.job,
                replace(self.launches(record.job, spec), trains=life.uses_train_protocol),
                self.rules,
                generation=record.generation,
                fixed=not spec.elastic,
                hands_over=spec.paced,
                first=_first_of(spec, record),
            )
            self.relaunch(life)
        return life.gang

    def relaunch(self, life: Life) -> None:
        """Lets workers that are started from now on know how often their job was restarted."""
        gang, record = self.gang(life), life.record
        told = restarted(gang.roster.launch.environment, life.spec, record.restarts)
        gang.roster.launch = replace(gang.roster.launch, environment=told, restarts=record.restarts)

    def touch(self, life: Life) -> None:
        """Lets the gang of a job decide and speak before the instant is over."""
        self.touched[life.record.job] = life

    def placement(self, life: Life) -> Placement | None:
        """Returns where a job is placed by the plan."""
        return self.state.plan.placed.get(life.row)

    def withdraw(self, life: Life) -> None:
        """Takes a waiting job out of the queue until it arrives again."""
        if life.row in self.state.waiting:
            self.state.withdraw(life.row)
            self.facts.append(Withdrawn(self.now, life.row))
            list_of(self.changes.ended).append(life.row)

    # Neighbours.

    def sharers(self, placement: Placement) -> set[int]:
        """Returns the rows of the jobs on the named GPUs of a placement."""
        on = self.state.plan.occupancy.sharers
        return {row for node, gpu in placement.named() for row in on(node, gpu)}

    def neighbours(self, row: int, placement: Placement) -> tuple[Neighbour, ...]:
        """Returns who shares GPUs with a job, and where they are."""
        placed = self.state.plan.placed
        return tuple((j, placed[j]) for j in sorted(self.sharers(placement) - {row}))

    def speed(self, row: int, placement: Placement) -> float:
        """Returns the believed speed of a job as placed."""
        state = self.state
        neighbours = self.neighbours(row, placement) if placement.gpu_ids else ()
        return state.view.physics.rate(row, placement, neighbours, state.done_s((row,))[0])

    def bound(self, life: Life) -> int:
        """Returns the most that each worker of a placed job may hold of its GPU (0: no bound)."""
        # A clock holds no memory.
        return 0 if life.spec.paced else self._bounds.of(life.row)

    def has_room(self, life: Life, gpu: Gpu, bound: int) -> bool:
        """Tells whether a worker of a job may hold so much of a GPU beside those on it now."""
        memory_bytes = self.state.view.cluster.group_of(gpu[0]).gpu_memory_bytes
        job = life.record.job
        return life.spec.paced or self.floor.has_room(job, gpu, bound, memory_bytes)

    def awaited(self, life: Life) -> tuple[int, ...]:
        """Returns the jobs that must leave GPUs of a job, or hold less of them, for it to start."""
        gang = life.gang
        if gang is None:
            return ()
        there = gang.roster.workers.keys() | gang.roster.complete
        found: set[int] = set()
        for member in life.record.members:
            if member.worker not in there:
                found.update(self.floor.blocking_jobs(member.node, member.gpu, self.seats))
                if not self.has_room(life, (member.node, member.gpu), gang.roster.bound):
                    found.update(self.floor.jobs_at(member.node, member.gpu))
        return tuple(sorted(found - {life.record.job}))

    def retime(self, rows: Sequence[int]) -> None:
        """Gives jobs whose neighbours changed the speed that is believed now, and their bounds."""
        state = self.state
        for row in rows:
            placement = state.plan.placed.get(row)
            if placement is None:
                continue
            life = self.lives.of_row(row)
            life.manner_s = self.now
            self._rebind(life)
            rate = self.speed(row, placement)
            if rate != state.rate[row]:
                state.retime(row, rate)
                self.facts.append(Retimed(self.now, row, rate))

    def _rebind(self, life: Life) -> None:
        wanted = None if life.gang is None else life.gang.roster.wanted
        if wanted is not None and wanted.memory_bytes != (bound := self.bound(life)):
            self.gang(life).want(replace(wanted, memory_bytes=bound), self.now)
            self.touch(life)

    def learn(self, *, news: bool) -> None:
        """Keeps what the meter learned; with `news` the policy goes by another belief now."""
        if news:
            if self.meter.physics is not None:
                show(self.state.view, physics=self.meter.physics)
            if not self.changes.woke:
                self.facts.append(Learned(self.now))
            self.changes.woke = True
        if self.meter.unsaved:
            self.meta[LEARNED] = self.meter.dump()

    # The end of an instant.

    def entry(self) -> Entry:
        """Takes what this instant changed; jobs go by number from here on."""
        lives = self.lives
        entry = Entry(
            tuple(self._numbered(fact) for fact in self.facts),
            tuple(self._as_of_now(life) for _, life in sorted(lives.dirty.items())),
            tuple(self.done),
            tuple(sorted(self.meta.items())),
        )
        self.facts, self.done, self.meta, lives.dirty = [], [], {}, {}
        return entry

    def _numbered(self, fact: Fact) -> Fact:
        numbers = self.lives.numbers
        if isinstance(fact, Explained):
            return Explained(fact.t, self.numbered(fact.reasons))
        row = getattr(fact, "job", None)
        if row is None:
            return fact
        changed: Any = fact
        numbered: Fact = changed._replace(job=numbers[row])
        return numbered

    def numbered(self, reasons: Sequence[Reason]) -> tuple[Reason, ...]:
        """Returns reasons whose jobs go by number."""
        numbers = self.lives.numbers
        return tuple(
            r._replace(
                job=numbers[r.job] if r.job >= 0 else -1,
                behind=numbers[r.behind] if r.behind >= 0 else -1,
            )
            for r in reasons
        )

    def _as_of_now(self, life: Life) -> JobRecord:
        """Returns the record of a job with its progress by now."""
        state, row, now = self.state, life.row, self.now
        life.persisted_s = now
        gang, record = life.gang, life.record
        running = now - life.running_s if life.running_s < now else 0.0
        life.record = record = replace(
            record,
            generation=max(record.generation, gang.roster.generation if gang is not None else 0),
            done_s=state.done_s((row,))[0],
            rate=state.rate[row],
            attained_gpu_s=state.attained_gpu_s((row,))[0],
            since_s=now,
            first_start_s=state.first_start_s[row],
            ran_s=record.ran_s + running,
        )
        if running:
            life.running_s = now
        return record


def _first_of(spec: JobSpec, record: JobRecord) -> FirstWorker:
    """Returns how the workers of a job are started: of one with a range one alone at first."""
    ranged = spec.elastic and not spec.paced
    return FirstWorker(ranged, alone=spec.min_gpus == 1, spoke=spec.paced or record.spoke)


def list_of(jobs: Sequence[int]) -> list[int]:
    """Returns the list that gathers jobs for the policy."""
    assert isinstance(jobs, list)
    return jobs

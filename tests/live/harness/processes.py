"""Plain programs that do not exist: processes on virtual nodes that work, save, hang and die.

The ranks of one gang work only while all of them are there and none hangs. What they have done is
saved in the job's folder every few seconds and when one of them is asked to end; a folder outlives
every process, agent and node.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from dovetail.live.edges.virtual_time import Timeline
from dovetail.wire.agent import StartWorker

SAVES_S = 5.0
DIES_S = 0.2
"""A program saves so often; it takes so long to end when it is asked to."""


@dataclass(eq=False)
class Process:
    """One process. `asked` tells that it got a SIGTERM; `faulty` that a fault touched it.

    `bound` is the most it really may hold of its GPU (0: no bound).
    """

    node: int
    order: StartWorker
    started_s: float
    exit_code: int | None = None
    asked: bool = False
    hangs: bool = False
    stubborn: bool = False
    faulty: bool = False
    bound: int = field(init=False)

    def __post_init__(self) -> None:
        self.bound = self.order.memory_bytes

    @property
    def job(self) -> int:
        """Returns its job."""
        return self.order.job

    @property
    def works(self) -> bool:
        """Tells whether it does anything at all."""
        return self.exit_code is None and not self.hangs and not self.asked

    @property
    def name(self) -> str:
        """Returns what a story calls it."""
        return f"{self.job}/{self.order.worker} of generation {self.order.generation}"


class Watcher(Protocol):
    """Sees every process start and end, at the instant it does."""

    def started(self, process: Process) -> None:
        """Sees a process start."""
        ...

    def ended_process(self, process: Process) -> None:
        """Sees a process end; it has its exit code."""
        ...

    def bounded(self, process: Process) -> None:
        """Sees a process get another bound."""
        ...

    def trains(self, job: int, generation: int, lineage: int = 0) -> None:
        """Sees all workers of a gang work."""
        ...

    def rests(self, job: int, generation: int) -> None:
        """Sees a plain gang work no longer."""
        ...

    def resumes(self, members: Sequence[Process]) -> None:
        """Sees an elastic gang begin from its checkpoint."""
        ...


@dataclass(eq=False)
class _Gang:
    """The ranks of one generation of a job, and since when they work (None: they do not)."""

    job: int
    generation: int
    ranks: dict[int, Process] = field(default_factory=dict)
    since_s: float | None = None
    version: int = 0


class Programs:
    """All plain programs of a cluster."""

    def __init__(self, line: Timeline, watcher: Watcher, rng: Random) -> None:
        self._line = line
        self._watcher = watcher
        self._rng = rng
        self._gangs: dict[tuple[int, int], _Gang] = {}
        self.alive: dict[Process, None] = {}
        self.saved_s: dict[int, float] = {}
        self.worked_s: dict[int, float] = {}
        self.lost_s: dict[int, float] = {}
        self.whole: dict[int, float] = {}
        self.code: dict[int, int] = {}
        self.ends: dict[int, int] = {}
        self.told_late: set[int] = set()

    def start(self, node: int, order: StartWorker) -> Process:
        """Starts a process."""
        process = Process(node, order, self._line.now)
        self.alive[process] = None
        self.whole[order.job], self.code[order.job] = json.loads(order.command[-1])
        name = (order.job, order.generation)
        if name not in self._gangs and self.done(order.job):
            self.saved_s[order.job] = 0.0
        gang = self._gangs.setdefault(name, _Gang(*name))
        gang.ranks[order.rank] = process
        self._watcher.started(process)
        self._look(order.job, order.generation)
        return process

    def signal(self, process: Process, number: int) -> None:
        """Sends a signal to a process."""
        if process.exit_code is not None:
            return
        if number == signal.SIGKILL:
            self.end(process, -number)
        elif number == signal.SIGTERM and not process.asked:
            process.asked = True
            if self.done(process.job):
                self.told_late.add(process.job)
            if not (process.stubborn or process.hangs):
                gang = self._gangs[process.job, process.order.generation]
                if gang.since_s is not None:
                    self._save(gang)
                    self._rest(gang)
                self._line.after(DIES_S, lambda: self.end(process, -number))

    def hang(self, process: Process) -> None:
        """Stops a process as SIGSTOP does: it is there and does nothing."""
        process.hangs = process.faulty = True
        self._look(process.job, process.order.generation)

    def wake(self, process: Process) -> None:
        """Lets a process go on that was stopped."""
        process.hangs = False
        if process.asked and not process.stubborn:
            self._line.after(DIES_S, lambda: self.end(process, -signal.SIGTERM))
        self._look(process.job, process.order.generation)

    def end(self, process: Process, code: int) -> None:
        """Ends a process."""
        if process.exit_code is not None:
            return
        gang = self._gangs[process.job, process.order.generation]
        self._halt(gang)
        process.exit_code = code
        del self.alive[process]
        self._watcher.ended_process(process)
        self._look(process.job, process.order.generation)

    def done(self, job: int) -> bool:
        """Tells whether a job has done all its work."""
        return self.saved_s.get(job, 0.0) >= self.whole.get(job, float("inf")) - 1e-6

    def _look(self, job: int, generation: int) -> None:
        """Lets a gang work that is whole, and halts one that is not."""
        gang = self._gangs[job, generation]
        ranks = gang.ranks.values()
        size = next(iter(ranks)).order.world_size
        whole = len(ranks) == size and all(p.works for p in ranks)
        if not whole:
            self._halt(gang)
        elif gang.since_s is None:
            self._watcher.trains(job, generation)
            gang.since_s = self._line.now
            gang.version += 1
            self._go_on(gang, gang.version)

    def _go_on(self, gang: _Gang, version: int) -> None:
        """Works up to the next save, or to the end."""
        job = gang.job
        left_s = self.whole[job] - self.saved_s.get(job, 0.0)

        def then() -> None:
            if gang.version == version and gang.since_s is not None:
                self._save(gang)
                if self.saved_s[job] >= self.whole[job] - 1e-9:
                    self._finish(gang)
                else:
                    self._go_on(gang, version)

        self._line.after(min(SAVES_S, left_s), then)

    def _save(self, gang: _Gang) -> None:
        job = gang.job
        if gang.since_s is not None:
            did_s = self._line.now - gang.since_s
            gang.since_s = self._line.now
            self.worked_s[job] = self.worked_s.get(job, 0.0) + did_s
            self.saved_s[job] = self.saved_s.get(job, 0.0) + did_s

    def _halt(self, gang: _Gang) -> None:
        job = gang.job
        if gang.since_s is not None:
            did_s = self._line.now - gang.since_s
            self.worked_s[job] = self.worked_s.get(job, 0.0) + did_s
            self.lost_s[job] = self.lost_s.get(job, 0.0) + did_s
            self._rest(gang)

    def _rest(self, gang: _Gang) -> None:
        gang.since_s = None
        gang.version += 1
        self._watcher.rests(gang.job, gang.generation)

    def _finish(self, gang: _Gang) -> None:
        self._rest(gang)
        self.ends[gang.job] = self.ends.get(gang.job, 0) + 1
        for process in gang.ranks.values():
            end = _ender(self, process, self.code[gang.job])
            self._line.after(self._rng.choice((0.0, 0.01, 0.5)), end)


def _ender(programs: Programs, process: Process, code: int) -> Callable[[], None]:
    return lambda: programs.end(process, code)

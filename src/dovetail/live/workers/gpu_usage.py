"""Which worker is on each GPU in truth, as far as reports tell: the plan's seats are its wishes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dovetail.live.workers.gpu_assignment import Gpu, GpuAssignment
from dovetail.live.workers.worker_state import LONG_AGO
from dovetail.wire.agent import looser_bound

WorkerKey = tuple[int, int]
"""A job and a worker of it."""
ROUNDED = 1 + 1e-9
"""Parts of a GPU's memory add up to it but for what rounding adds."""


@dataclass(slots=True)
class UnknownWorker:
    """A worker that no live job wants, and when it was last told to end."""

    node: int
    gpus: tuple[int, ...]
    told_s: float = LONG_AGO

    @property
    def held(self) -> tuple[Gpu, ...]:
        """Returns the GPUs it is on."""
        return tuple((self.node, gpu) for gpu in self.gpus)


class GpuUsage:
    """Who holds GPUs: workers, from the order to start them until their agent says they ended."""

    def __init__(self) -> None:
        self._on: dict[Gpu, set[WorkerKey]] = {}
        self._of: dict[int, dict[int, tuple[Gpu, ...]]] = {}
        self._held: dict[int, Mapping[int, int]] = {}
        self.strays: dict[WorkerKey, UnknownWorker] = {}
        self.changed = False

    def put(self, job: int, workers: dict[int, tuple[Gpu, ...]], held: Mapping[int, int]) -> None:
        """Sets the GPUs of the workers of a job, and the most each may hold of one (0: no bound).

        `changed` tells that a GPU, or memory of it, was given back.
        """
        self._hold(job, held)
        before = self._of.get(job, {})
        if before == workers:
            return
        for worker, gpus in before.items():
            stray = self.strays.get((job, worker))
            stays = (*workers.get(worker, ()), *(stray.held if stray is not None else ()))
            for gpu in gpus:
                if gpu not in stays:
                    self._leave((job, worker), gpu)
        for worker, gpus in workers.items():
            for gpu in gpus:
                self._on.setdefault(gpu, set()).add((job, worker))
        if workers:
            self._of[job] = workers
        else:
            self._of.pop(job, None)

    def _hold(self, job: int, held: Mapping[int, int]) -> None:
        before = self._held.get(job, {})
        if before == held:
            return
        both = [(before[w], held[w]) for w in before.keys() & held.keys()]
        self.changed |= any(old != new and looser_bound(old, new) == old for old, new in both)
        if held:
            self._held[job] = held
        else:
            del self._held[job]

    def has_room(self, job: int, gpu: Gpu, wanted_bytes: int, memory_bytes: float) -> bool:
        """Tells whether a worker of a job may hold so much of a GPU's memory beside the others.

        So bounds never add up to more than there is, whatever order messages come in.
        """
        held = [self._held.get(j, {}).get(w, 0) for j, w in self._on.get(gpu, ()) if j != job]
        if not held:
            return True
        bounded = wanted_bytes > 0 and all(held)
        return bounded and wanted_bytes + sum(held) <= memory_bytes * ROUNDED

    def add_stray(self, key: WorkerKey, node: int, gpus: tuple[int, ...]) -> None:
        """Takes note of a worker that no live job wants."""
        if key not in self.strays:
            self.strays[key] = stray = UnknownWorker(node, gpus)
            for gpu in stray.held:
                self._on.setdefault(gpu, set()).add(key)

    def drop_stray(self, key: WorkerKey) -> None:
        """Takes note that such a worker is gone."""
        stray, (job, worker) = self.strays.pop(key, None), key
        # One that was a stray when its start was told may be of its gang since the inventory.
        wanted = self._of.get(job, {}).get(worker, ())
        for gpu in stray.held if stray is not None else ():
            if gpu not in wanted:
                self._leave(key, gpu)

    def jobs_on(self, node: int, gpus: int) -> list[int]:
        """Returns the jobs that have workers on a node of so many GPUs, strays too."""
        return sorted({job for gpu in range(gpus) for job in self.jobs_at(node, gpu)})

    def jobs_at(self, node: int, gpu: int) -> set[int]:
        """Returns the jobs that have workers on a GPU, strays too."""
        return {job for job, _ in self._on.get((node, gpu), ())}

    def is_vacant(self, node: int, gpu: int) -> bool:
        """Tells whether nobody is on a GPU."""
        return (node, gpu) not in self._on

    def is_free(self, job: int, node: int, gpu: int, seats: GpuAssignment) -> bool:
        """Tells whether all on a GPU are of other jobs and meant to be there beside this one."""
        return not self.in_the_way(node, gpu, seats) and all(
            j != job for j, _ in self._on.get((node, gpu), ())
        )

    def in_the_way(self, node: int, gpu: int, seats: GpuAssignment) -> list[int]:
        """Returns the jobs that have workers on a GPU who are not meant to be there."""
        meant = seats.on.get((node, gpu), {})
        return sorted({j for j, w in self._on.get((node, gpu), ()) if meant.get(j) != w})

    def _leave(self, key: WorkerKey, gpu: Gpu) -> None:
        there = self._on[gpu]
        there.discard(key)
        if not there:
            del self._on[gpu]
        self.changed = True

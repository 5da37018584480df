"""Which workers are on each GPU in fact, as far as reports show; the plan is in `GpuAssignment`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dovetail.core.units import LONG_AGO_S, RELATIVE_TOLERANCE
from dovetail.live.workers.gpu_assignment import Gpu, GpuAssignment
from dovetail.wire.agent import looser_bound

WorkerKey = tuple[int, int]
"""A job and a worker of it."""
ROUNDED = 1 + RELATIVE_TOLERANCE
"""Parts of a GPU's memory add up to it but for what rounding adds."""


@dataclass(slots=True)
class UnknownWorker:
    """A worker that no unfinished job wants, and when it was last ordered to end."""

    node: int
    gpus: tuple[int, ...]
    end_sent_s: float = LONG_AGO_S

    @property
    def on(self) -> tuple[Gpu, ...]:
        """Returns the GPUs that it is on."""
        return tuple((self.node, gpu) for gpu in self.gpus)


class GpuUsage:
    """The workers on each GPU, from the order to start them until their agent reports their end.

    `unknown` are workers that no gang has. `changed` is set when a GPU, or memory of one, becomes
    free; its reader clears it.
    """

    def __init__(self) -> None:
        self._on: dict[Gpu, set[WorkerKey]] = {}
        self._of: dict[int, dict[int, tuple[Gpu, ...]]] = {}
        self._held: dict[int, Mapping[int, int]] = {}
        self.unknown: dict[WorkerKey, UnknownWorker] = {}
        self.changed = False

    def update(
        self, job: int, workers: dict[int, tuple[Gpu, ...]], held: Mapping[int, int]
    ) -> None:
        """Sets the GPUs of the workers of a job, and the memory each may hold (0: no bound)."""
        self._update_memory(job, held)
        before = self._of.get(job, {})
        if before == workers:
            return
        for worker, gpus in before.items():
            unknown = self.unknown.get((job, worker))
            # The same worker may be known both to its gang and as an unknown one.
            stays = (*workers.get(worker, ()), *(unknown.on if unknown is not None else ()))
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

    def _update_memory(self, job: int, held: Mapping[int, int]) -> None:
        before = self._held.get(job, {})
        if before == held:
            return
        # Workers that came or went change the GPUs too, which `update` notices.
        both = [(before[w], held[w]) for w in before.keys() & held.keys()]
        self.changed |= any(old != new and looser_bound(old, new) == old for old, new in both)
        if held:
            self._held[job] = held
        else:
            del self._held[job]

    def has_room(self, job: int, gpu: Gpu, wanted_bytes: int, memory_bytes: float) -> bool:
        """Returns whether a worker of a job may hold so much of a GPU beside the others."""
        # Counted is what the others may still hold, not what they are to hold: so the bounds
        # never add up to more than there is, in whatever order messages arrive.
        held = [self._held.get(j, {}).get(w, 0) for j, w in self._on.get(gpu, ()) if j != job]
        if not held:
            return True
        # A worker without a bound may hold all of it: beside such a one there is never room.
        bounded = wanted_bytes > 0 and all(held)
        return bounded and wanted_bytes + sum(held) <= memory_bytes * ROUNDED

    def add_unknown(self, key: WorkerKey, node: int, gpus: tuple[int, ...]) -> None:
        """Adds a worker that no unfinished job wants."""
        if key not in self.unknown:
            self.unknown[key] = unknown = UnknownWorker(node, gpus)
            for gpu in unknown.on:
                self._on.setdefault(gpu, set()).add(key)

    def drop_unknown(self, key: WorkerKey) -> None:
        """Removes a worker that no job wants: it is gone, or its gang has it now."""
        unknown, (job, worker) = self.unknown.pop(key, None), key
        # A report of its start may have come before the inventory that gave it to its gang.
        wanted = self._of.get(job, {}).get(worker, ())
        for gpu in unknown.on if unknown is not None else ():
            if gpu not in wanted:
                self._leave(key, gpu)

    def jobs_on(self, node: int, gpus: int) -> list[int]:
        """Returns the jobs that have workers on a node of so many GPUs, also unknown workers."""
        return sorted({job for gpu in range(gpus) for job in self.jobs_at(node, gpu)})

    def jobs_at(self, node: int, gpu: int) -> set[int]:
        """Returns the jobs that have workers on a GPU, also unknown workers."""
        return {job for job, _ in self._on.get((node, gpu), ())}

    def is_vacant(self, node: int, gpu: int) -> bool:
        """Returns whether no worker is on a GPU."""
        return (node, gpu) not in self._on

    def is_free(self, job: int, node: int, gpu: int, assignment: GpuAssignment) -> bool:
        """Returns whether a GPU has only workers of other jobs that are assigned to it."""
        return not self.blocking_jobs(node, gpu, assignment) and all(
            j != job for j, _ in self._on.get((node, gpu), ())
        )

    def blocking_jobs(self, node: int, gpu: int, assignment: GpuAssignment) -> list[int]:
        """Returns the jobs that have workers on a GPU that are not assigned to it."""
        assigned = assignment.on.get((node, gpu), {})
        return sorted({j for j, w in self._on.get((node, gpu), ()) if assigned.get(j) != w})

    def _leave(self, key: WorkerKey, gpu: Gpu) -> None:
        there = self._on[gpu]
        there.discard(key)
        if not there:
            del self._on[gpu]
        self.changed = True

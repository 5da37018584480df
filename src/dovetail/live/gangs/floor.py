"""Which worker is on each GPU in truth, as far as reports tell: the plan's seats are its wishes."""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.live.gangs.crew import LONG_AGO
from dovetail.live.gangs.seating import Gpu, Seats

Key = tuple[int, int]
"""A job and a worker of it."""


@dataclass(slots=True)
class Stray:
    """A worker that no live job wants, and when it was last told to end."""

    node: int
    gpu: int
    told_s: float = LONG_AGO


class Floor:
    """Who holds GPUs: workers, from the order to start them until their agent says they ended."""

    def __init__(self) -> None:
        self._on: dict[Gpu, set[Key]] = {}
        self._of: dict[int, dict[int, Gpu]] = {}
        self.strays: dict[Key, Stray] = {}
        self.changed = False

    def put(self, job: int, workers: dict[int, Gpu]) -> None:
        """Sets where the workers of a job are; `changed` tells that a GPU was given back."""
        before = self._of.get(job, {})
        if before == workers:
            return
        for worker, gpu in before.items():
            if workers.get(worker) != gpu:
                self._leave((job, worker), gpu)
        for worker, gpu in workers.items():
            self._on.setdefault(gpu, set()).add((job, worker))
        if workers:
            self._of[job] = workers
        else:
            self._of.pop(job, None)

    def add_stray(self, key: Key, node: int, gpu: int) -> None:
        """Takes note of a worker that no live job wants."""
        if key not in self.strays:
            self.strays[key] = Stray(node, gpu)
            self._on.setdefault((node, gpu), set()).add(key)

    def drop_stray(self, key: Key) -> None:
        """Takes note that such a worker is gone."""
        stray = self.strays.pop(key, None)
        if stray is not None:
            self._leave(key, (stray.node, stray.gpu))

    def jobs_on(self, node: int, gpus: int) -> list[int]:
        """Returns the jobs that have workers on a node of so many GPUs, strays too."""
        return sorted({j for gpu in range(gpus) for j, _ in self._on.get((node, gpu), ())})

    def is_vacant(self, node: int, gpu: int) -> bool:
        """Tells whether nobody is on a GPU."""
        return (node, gpu) not in self._on

    def is_free(self, job: int, node: int, gpu: int, seats: Seats) -> bool:
        """Tells whether all on a GPU are of other jobs and meant to be there beside this one."""
        return not self.in_the_way(node, gpu, seats) and all(
            j != job for j, _ in self._on.get((node, gpu), ())
        )

    def in_the_way(self, node: int, gpu: int, seats: Seats) -> list[int]:
        """Returns the jobs that have workers on a GPU who are not meant to be there."""
        meant = seats.on.get((node, gpu), {})
        return sorted({j for j, w in self._on.get((node, gpu), ()) if meant.get(j) != w})

    def _leave(self, key: Key, gpu: Gpu) -> None:
        there = self._on[gpu]
        there.discard(key)
        if not there:
            del self._on[gpu]
        self.changed = True

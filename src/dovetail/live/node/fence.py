"""What an agent refuses: older controllers, older generations, and used worker numbers.

Pure bookkeeping, bounded in size: of each job the newest generation and the used numbers as
runs, and of jobs without workers here only the latest.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

JOBS_KEPT = 1000
"""Jobs without workers here that are remembered; an order cannot be older than so many jobs."""

Runs = list[list[int]]
"""Sorted, disjoint [first, last] of whole numbers."""


def add(runs: Runs, number: int) -> None:
    """Adds a number to sorted runs, joining those that it closes up."""
    at = bisect_right(runs, [number, number])
    if at and runs[at - 1][1] >= number - 1:
        at -= 1
        runs[at][1] = max(runs[at][1], number)
    else:
        runs.insert(at, [number, number])
    if at + 1 < len(runs) and runs[at + 1][0] <= runs[at][1] + 1:
        runs[at][1] = max(runs[at][1], runs.pop(at + 1)[1])


def contains(runs: Runs, number: int) -> bool:
    """True if a number is in one of the runs."""
    at = bisect_right(runs, [number, number])
    return any(first <= number <= last for first, last in runs[max(0, at - 1) : at + 1])


class Fence:
    """The newest controller, and per job the newest generation and the numbers used up."""

    def __init__(
        self,
        epoch: int = -1,
        jobs: Sequence[tuple[int, int, Sequence[Sequence[int]]]] = (),
        void_before: int = 0,
    ) -> None:
        self.epoch = epoch
        self.void_before = void_before
        self._generation: dict[int, int] = {job: generation for job, generation, _ in jobs}
        self._used: dict[int, Runs] = {job: [list(r) for r in runs] for job, _, runs in jobs}

    def accept_epoch(self, epoch: int) -> bool:
        """Returns whether an order of this controller counts, and records the newest epoch."""
        if epoch > self.epoch:
            # A new controller counts its requests for inventories anew.
            self.epoch, self.void_before = epoch, 0
            self.store()
        return epoch == self.epoch

    def void(self, before: int) -> bool:
        """Records that starts ordered before this request for an inventory are void.

        Returns whether that is news.
        """
        is_news = before > self.void_before
        if is_news:
            self.void_before = before
            self.store()
        return is_news

    def is_void(self, serial: int) -> bool:
        """Returns whether a start came before an inventory that did not show its worker."""
        return serial < self.void_before

    def accept_generation(self, job: int, generation: int) -> bool:
        """Returns whether a generation is the newest of its job so far, and records it."""
        newest = self._generation.get(job, -1)
        if generation > newest:
            self._generation[job] = generation
            self._used.setdefault(job, [])
            self.store()
        return generation >= newest

    def use_up(self, job: int, worker: int) -> None:
        """Records that this number must never be started (again)."""
        add(self._used.setdefault(job, []), worker)
        self.store()

    def is_used_up(self, job: int, worker: int) -> bool:
        """True if this number was used up."""
        return contains(self._used.get(job, []), worker)

    def retire(self, job: int) -> None:
        """Records that a job has no worker here; `trim` drops the oldest such jobs."""
        self._used[job] = self._used.pop(job, [])
        self._generation.setdefault(job, -1)

    def trim(self, busy: Sequence[int]) -> None:
        """Drops the jobs that retired first, never one that has workers here."""
        excess = len(self._used) - JOBS_KEPT - len(busy)
        if excess <= 0:
            return
        # The table is in the order of retirement: `retire` moves a job to its end.
        with_workers = frozenset(busy)
        for job in [j for j in self._used if j not in with_workers][:excess]:
            del self._used[job]
            self._generation.pop(job, None)

    def store(self) -> None:
        """Stores the fence after each change; this one is in memory only."""

    def jobs(self) -> list[tuple[int, int, Runs]]:
        """Returns the newest generation and the used numbers of each job, to restore the fence."""
        known = dict.fromkeys([*self._used, *self._generation])
        return [(j, self._generation.get(j, -1), self._used.get(j, [])) for j in known]

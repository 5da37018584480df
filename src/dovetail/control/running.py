"""The running jobs as dense columns, so that a policy can rank thousands of them at once.

Ranking 3,000 running jobs takes 40 microseconds, and 900 with one entry at a time. A job that stops
gives its slot to the job of the last slot. Arrays are written when a policy reads them, and then
only the slots that changed: a policy that never reads them pays for no array.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dovetail.core.job import Floats, Ints
from dovetail.core.length_distribution import DistributionTable

_COLUMNS = ("length_s", "done_s", "rate", "since_s", "attained", "placed_s", "gpus", "row")


class RunningTable:
    """Columns of the running jobs at `now`; rows are in no particular order.

    `row` is that of a job in the `lengths`, -1 where its length is one number.
    """

    def __init__(self, lengths: DistributionTable) -> None:
        self.now = 0.0
        self._lengths = lengths
        self._slot: dict[int, int] = {}
        self._job_of: list[int] = []
        self._rows: list[tuple[float, ...]] = []
        self._stale: set[int] = set()
        self._is_current = True
        self._job_buffer: Ints = np.zeros(64, np.int64)
        self._buffer: NDArray[np.float64] = np.zeros((len(_COLUMNS), 64))
        self._jobs, self._columns = self._job_buffer[:0], self._buffer[:, :0]

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def jobs(self) -> Ints:
        """Returns the running jobs."""
        if not self._is_current:
            self._refresh()
        return self._jobs

    @property
    def gpus(self) -> Floats:
        """Returns the GPUs each job holds."""
        if not self._is_current:
            self._refresh()
        gpus: Floats = self._columns[6]
        return gpus

    @property
    def left_s(self) -> Floats:
        """Returns the mean of what is left, given the progress so far."""
        if not self._is_current:
            self._refresh()
        length, done, rate, since = self._columns[:4]
        made = done + rate * np.maximum(self.now - since, 0.0)
        left: Floats = np.maximum(length - made, 0.0)
        if len(self._lengths):
            row = self._columns[7].astype(np.int64)
            told = np.flatnonzero(row >= 0)
            left[told] = self._lengths.left_s(row[told], made[told])
        return left

    @property
    def attained_gpu_s(self) -> Floats:
        """Returns the GPU-seconds held so far, switching included."""
        if not self._is_current:
            self._refresh()
        attained, placed, gpus = self._columns[4:7]
        return np.asarray(attained + gpus * (self.now - placed))

    def put(self, job: int, row: tuple[float, ...]) -> None:
        """Writes the row of a job (in the order of the columns), taking a slot if it has none."""
        slot = self._slot.get(job)
        if slot is None:
            slot = self._slot[job] = len(self._rows)
            self._job_of.append(job)
            self._rows.append(row)
        else:
            self._rows[slot] = row
        self._stale.add(slot)
        self._is_current = False

    def drop(self, job: int) -> None:
        """Gives the slot of a job back."""
        slot = self._slot.pop(job)
        moved, row = self._job_of.pop(), self._rows.pop()
        if moved != job:
            self._job_of[slot], self._rows[slot] = moved, row
            self._slot[moved] = slot
            self._stale.add(slot)
        self._is_current = False

    def _refresh(self) -> None:
        """Writes the stale slots into the arrays."""
        count = len(self._rows)
        while count > len(self._job_buffer):
            self._job_buffer = np.concatenate([self._job_buffer] * 2)
            self._buffer = np.concatenate([self._buffer] * 2, axis=1)
        for slot in self._stale:
            if slot < count:
                self._job_buffer[slot] = self._job_of[slot]
                self._buffer[:, slot] = self._rows[slot]
        self._stale.clear()
        self._jobs, self._columns = self._job_buffer[:count], self._buffer[:, :count]
        self._is_current = True

"""Measures the stages of an iteration: storage, CPU, compute and network."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

KEPT = 101
"""Iterations over which medians are taken."""
TIMED_FIRST, TIMED_EVERY = 16, 16
"""Where timing is costly, the first iterations are timed, then one in `TIMED_EVERY`."""
STORAGE, CPU, COMPUTE, NETWORK, INPUT = range(5)
CLOCK_DIGITS = 9
"""The resolution of the clocks: nanoseconds."""
Stages = tuple[float, float, float, float]


class StageTimer:
    """Measures the stages of iterations.

    Storage is the time that reading samples waited, and CPU the time it computed, per iteration
    and divided by the number of parallel loaders. Network is the time the training loop waited
    for other workers, beyond what the backward pass hid. Compute is the rest, without waiting for
    input.
    """

    def __init__(self, loaders: int) -> None:
        self._loaders = max(1, loaders)
        self.begin()
        self._kept: deque[Stages] = deque(maxlen=KEPT)
        self._iterations: deque[float] = deque(maxlen=KEPT)
        self._asked = 0
        self.is_timing = True

    def look(self, *, seldom: bool) -> bool:
        """Decides whether to time the next iteration; with `seldom`, only some are timed."""
        self.is_timing = not seldom or self._asked < TIMED_FIRST or self._asked % TIMED_EVERY == 0
        self._asked += 1
        return self.is_timing

    def begin(self) -> None:
        """Starts an iteration."""
        self._now = [0.0] * 5
        self._began_s = time.perf_counter()

    def read(self, storage_s: float, cpu_s: float) -> None:
        """Adds the times of reading a micro-batch."""
        self._now[STORAGE] += storage_s / self._loaders
        self._now[CPU] += cpu_s / self._loaders

    @contextmanager
    def waiting(self, stage: int) -> Iterator[None]:
        """Times the training loop waiting for other workers (NETWORK) or for samples (INPUT)."""
        began_s = time.perf_counter()
        yield
        self._now[stage] += time.perf_counter() - began_s

    def end(self) -> None:
        """Ends an iteration."""
        if not self.is_timing:
            return
        took_s = time.perf_counter() - self._began_s
        # Waiting for input is no stage: it is what loaders did not hide of storage and CPU.
        storage, cpu, _, network, input_s = self._now
        self._kept.append((storage, cpu, max(0.0, took_s - input_s - network), network))
        self._iterations.append(took_s)

    def forget(self) -> None:
        """Discards all measurements: batches are split in another way now."""
        self._asked = 0
        self._kept.clear()
        self._iterations.clear()

    @property
    def iteration_s(self) -> float:
        """Returns the median duration of an iteration."""
        return statistics.median(self._iterations) if self._iterations else 0.0

    @property
    def stage_s(self) -> tuple[float, ...]:
        """Returns the median of each stage, or nothing before the first iteration."""
        if not self._kept:
            return ()
        medians = (statistics.median(s[i] for s in self._kept) for i in range(4))
        # Differences of clock readings carry digits below the clocks' resolution; reports do not.
        return tuple(round(median_s, CLOCK_DIGITS) for median_s in medians)

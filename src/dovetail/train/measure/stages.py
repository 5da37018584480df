"""How long the stages of an iteration take: storage, CPU, GPU (or computing), network."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

KEPT = 101
"""Iterations over which medians are taken."""
TIMED_FIRST, TIMED_EVERY = 16, 16
"""Where timing costs: so many iterations are timed at first, and one in so many after that."""
STORAGE, CPU, COMPUTE, NETWORK = range(4)
CLOCK_DIGITS = 9
"""Clocks count nanoseconds."""
Stages = tuple[float, float, float, float]


class Stopwatch:
    """Times the stages of iterations as they pass.

    Storage is what reading samples waited, CPU what it computed, both per iteration and divided
    by the loaders that do it side by side. Network is what the training loop waited for others,
    the part that the backward pass did not hide; computing is all the rest but waiting for input.
    """

    def __init__(self, loaders: int) -> None:
        self._loaders = max(1, loaders)
        self._now = [0.0] * 4
        self._waited_s = 0.0
        self._began_s = time.perf_counter()
        self._kept: deque[Stages] = deque(maxlen=KEPT)
        self._iterations: deque[float] = deque(maxlen=KEPT)
        self._asked = 0
        self.is_timing = True

    def look(self, *, seldom: bool) -> bool:
        """Returns whether the next iteration is to be timed; not each one where that costs."""
        self.is_timing = not seldom or self._asked < TIMED_FIRST or self._asked % TIMED_EVERY == 0
        self._asked += 1
        return self.is_timing

    def begin(self) -> None:
        """Starts an iteration."""
        self._now = [0.0] * 4
        self._waited_s = 0.0
        self._began_s = time.perf_counter()

    def read(self, storage_s: float, cpu_s: float) -> None:
        """Adds what reading a micro-batch took."""
        self._now[STORAGE] += storage_s / self._loaders
        self._now[CPU] += cpu_s / self._loaders

    @contextmanager
    def input(self) -> Iterator[None]:
        """Times the training loop waiting for samples."""
        began_s = time.perf_counter()
        yield
        self._waited_s += time.perf_counter() - began_s

    @contextmanager
    def network(self) -> Iterator[None]:
        """Times the training loop waiting for the other workers."""
        began_s = time.perf_counter()
        yield
        self._now[NETWORK] += time.perf_counter() - began_s

    def end(self) -> float:
        """Ends an iteration; returns its seconds."""
        took_s = time.perf_counter() - self._began_s
        if not self.is_timing:
            return took_s
        self._now[COMPUTE] = max(0.0, took_s - self._waited_s - self._now[NETWORK])
        storage, cpu, compute, network = self._now
        self._kept.append((storage, cpu, compute, network))
        self._iterations.append(took_s)
        return took_s

    def forget(self) -> None:
        """Starts anew, for another manner of training."""
        self._asked = 0
        self._kept.clear()
        self._iterations.clear()

    @property
    def iteration_s(self) -> float:
        """Returns the median iteration."""
        return statistics.median(self._iterations) if self._iterations else 0.0

    @property
    def stage_s(self) -> tuple[float, ...]:
        """Returns the median of each stage, or nothing before the first iteration."""
        if not self._kept:
            return ()
        medians = (statistics.median(s[i] for s in self._kept) for i in range(4))
        # What is left of one clock by another may be less than either can tell, and no report is.
        return tuple(round(median_s, CLOCK_DIGITS) for median_s in medians)

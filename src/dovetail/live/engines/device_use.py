"""Whether the workers of a node use what they have: GPUs by the driver, CPU slots by CPU time.

A worker is idle while its GPU computes nothing, or while its processes take less than a twentieth
of one core. The time counts from the last look that found it busy.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from dovetail.wire.agent import IdleReport, IdleWorker

LOOK_S = 5.0
"""How often it looks, in seconds of the machine."""
REPORT_S = 10.0
BUSY_CORES = 0.05
BUSY_PERCENT = 1.0
TICKS_PER_S = float(os.sysconf("SC_CLK_TCK"))

Key = tuple[int, int]
"""A worker: (job, number)."""
Workers = Mapping[Key, tuple[int, tuple[int, ...]]]
"""The process of the keeper of each worker, and its GPUs."""


@dataclass(slots=True)
class _Seen:
    """A worker at the last look: its CPU time, when that was read, and when it was last busy."""

    cpu_s: float
    at_s: float
    busy_s: float


class DeviceUsage:
    """Looks at the workers of one node now and then, and reports those that are idle.

    `used` are the GPUs by their use in percent, where the driver tells it; None for CPU slots.
    """

    def __init__(
        self,
        used: Callable[[], Mapping[int, float]] | None,
        clock: Callable[[], float] = time.monotonic,
        cpu_s: Callable[[Sequence[int]], dict[int, float]] | None = None,
    ) -> None:
        self._used, self._clock, self._cpu_s = used, clock, cpu_s or cpu_seconds
        self._seen: dict[Key, _Seen] = {}
        self._look_s = self._report_s = clock()
        self._told = False

    def tick(
        self,
        workers: Callable[[], Workers],
        least_s: Callable[[], float],
    ) -> IdleReport | None:
        """Looks if it is time; returns a report of the workers idle for at least `least_s`.

        The report repeats all that are idle; an empty one takes the last one back.
        """
        now = self._clock()
        if now < self._look_s:
            return None
        self._look_s = now + LOOK_S
        self._look(workers(), now)
        if now < self._report_s or not (self._seen or self._told):
            return None
        self._report_s = now + REPORT_S
        shortest_s = least_s()
        idle = [
            IdleWorker(*key, now - seen.busy_s)
            for key, seen in sorted(self._seen.items())
            if now - seen.busy_s >= shortest_s
        ]
        was_told, self._told = self._told, bool(idle)
        return IdleReport(tuple(idle)) if idle or was_told else None

    def _look(self, workers: Workers, now: float) -> None:
        used = self._used() if self._used is not None else None
        taken = self._cpu_s([keeper for keeper, _ in workers.values()]) if used is None else {}
        seen: dict[Key, _Seen] = {}
        for key, (keeper, gpus) in workers.items():
            before = self._seen.get(key) or _Seen(0.0, now, now)
            cpu_s = taken.get(keeper, before.cpu_s)
            if used is not None:
                # What the driver does not tell counts as use: nobody loses a GPU for that.
                busy = any(used.get(gpu, 100.0) >= BUSY_PERCENT for gpu in gpus)
            else:
                passed_s = now - before.at_s
                busy = keeper not in taken or cpu_s - before.cpu_s >= BUSY_CORES * passed_s
            seen[key] = _Seen(cpu_s, now, now if busy else before.busy_s)
        self._seen = seen


def cpu_seconds(roots: Sequence[int]) -> dict[int, float]:
    """Returns the CPU time of some processes with all that they started, ended ones included."""
    if not roots:
        return {}
    parents: dict[int, int] = {}
    own_s: dict[int, float] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with suppress(OSError, IndexError, ValueError), open(f"/proc/{name}/stat") as file:
                # After the name, which may hold spaces: state, parent, ..., utime to cstime.
                fields = file.read().rpartition(")")[2].split()
                parents[int(name)] = int(fields[1])
                own_s[int(name)] = sum(map(int, fields[11:15])) / TICKS_PER_S
    total_s = {root: own_s[root] for root in roots if root in own_s}
    for pid, taken_s in own_s.items():
        above = parents.get(pid, 0)
        while above and above not in total_s:
            above = parents.get(above, 0)
        if above and pid not in total_s:
            total_s[above] += taken_s
    return total_s

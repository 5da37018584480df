"""Two optimal preemptive orders on a single machine.

Shortest remaining first minimises the sum of completion times (and the number of unfinished
jobs at every instant, whatever the speed does). Smallest total size first minimises the sum of
mean busy times. Both give lower bounds, since such a machine is stronger than any real cluster.
"""

from heapq import heappop, heappush

import numpy as np
import numpy.typing as npt

from dovetail.algorithms.arrays import Floats, Ints
from dovetail.algorithms.speed import SpeedTimeline


def srpt_completions(
    release_s: npt.ArrayLike, size: npt.ArrayLike, speed: SpeedTimeline | None = None
) -> Floats:
    """Returns when each job ends under preemptive shortest-remaining-first; ties (release, index).

    Without `speed` the machine does one unit of size a second. Releases in any order. A job
    of size zero ends when it is released. O(n log n).
    """
    release, sizes, order = _checked(release_s, size)
    arrival = release if speed is None else speed.work_by(release)
    ends = np.empty(release.size)
    ends[order] = _srpt(arrival[order].tolist(), sizes[order].tolist())
    # While the machine stands still, equal amounts of work may map to times before the release.
    return ends if speed is None else np.maximum(speed.time_of(ends), release)


def mean_busy_times(
    release_s: npt.ArrayLike, size: npt.ArrayLike, speed: SpeedTimeline | None = None
) -> Floats:
    """Returns when, on average, each job's work is done under preemptive smallest-size-first.

    Priority is the total size, ties (release, index). The sum of these times is the least
    possible on this machine. A job of size zero is busy at its release. O(n log n).
    """
    release, sizes, order = _checked(release_s, size)
    arrival = release if speed is None else speed.work_by(release)
    owner, start, end = _smallest_first(arrival[order].tolist(), sizes[order].tolist())
    if speed is None:
        moment = (end - start) * (end + start) / 2
    else:
        with np.errstate(invalid="ignore"):
            moment = speed.time_integral(end) - speed.time_integral(start)
        moment[np.isnan(moment)] = np.inf  # both ends are beyond a stopped machine's work
    busy = np.bincount(order[owner], weights=moment, minlength=release.size)
    worked = np.bincount(order[owner], weights=end - start, minlength=release.size)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(worked > 0, busy / worked, release)


def _checked(release_s: npt.ArrayLike, size: npt.ArrayLike) -> tuple[Floats, Floats, Ints]:
    """Returns releases, sizes and the order (release, index). Raises ValueError."""
    release = np.asarray(release_s, dtype=np.float64)
    sizes = np.asarray(size, dtype=np.float64)
    if release.ndim != 1 or release.shape != sizes.shape:
        raise ValueError("a single machine needs as many sizes as releases")
    if not (np.isfinite(release).all() and np.isfinite(sizes).all()) or bool((sizes < 0).any()):
        raise ValueError("releases and sizes must be finite, sizes not negative")
    return release, sizes, np.argsort(release, kind="stable").astype(np.int64)


def _srpt(arrival: list[float], left: list[float]) -> list[float]:
    """Returns completions of jobs in arrival order, on a machine of speed 1.

    The heap holds waiting jobs as (left, position); the running job is kept outside it.
    """
    ends = [0.0] * len(left)
    waiting: list[tuple[float, int]] = []
    running: tuple[float, int] | None = None
    now = 0.0
    for position, release in enumerate(arrival):
        while running is not None:
            end = now + running[0]
            if end > release:
                running = (end - release, running[1])
                break
            ends[running[1]] = now = end
            running = heappop(waiting) if waiting else None
        now = release
        newcomer = (left[position], position)
        if running is None:
            running = newcomer
        elif newcomer < running:
            heappush(waiting, running)
            running = newcomer
        else:
            heappush(waiting, newcomer)
    while running is not None:
        now += running[0]
        ends[running[1]] = now
        running = heappop(waiting) if waiting else None
    return ends


def _smallest_first(arrival: list[float], size: list[float]) -> tuple[Ints, Floats, Floats]:
    """Returns the periods (position, start, end) in which jobs run, on a machine of speed 1."""
    left = list(size)
    present: list[tuple[float, int]] = []
    owner: list[int] = []
    start: list[float] = []
    end: list[float] = []
    now = 0.0
    for position in range(len(arrival) + 1):
        until = arrival[position] if position < len(arrival) else np.inf
        while present and now < until:
            job = present[0][1]
            stop = min(now + left[job], until)
            if stop < until or now + left[job] == until:
                heappop(present)
            left[job] -= stop - now
            owner.append(job)
            start.append(now)
            end.append(stop)
            now = stop
        now = max(now, until)
        if position < len(arrival) and size[position] > 0:
            heappush(present, (size[position], position))
    return np.array(owner, dtype=np.int64), np.array(start), np.array(end)

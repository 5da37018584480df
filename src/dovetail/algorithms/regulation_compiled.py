"""The optimum of `regulation.regulate`: dynamic programming over (job, GPUs to hand out)."""

from __future__ import annotations

import numpy as np

from dovetail.algorithms.arrays import Ints
from dovetail.algorithms.compiled import compiled

IMPOSSIBLE = 1 << 40
"""The cost of an impossible state; sums of differences stay far below half of it."""


def nearest_shares(targets: Ints, sure: Ints, caps: Ints, gpus_per_machine: int, idle: int) -> Ints:
    """Returns allowed shares from `sure` to `caps`, with `idle` GPUs more in all if possible.

    All jobs have a share. `least[i, t]` is the least sum of differences of jobs i, i+1, ... if they
    get t GPUs beyond `sure`. Reading forwards, each job takes the most that keeps the optimum.
    """
    least = np.full((targets.size + 1, idle + 1), IMPOSSIBLE, dtype=np.int64)
    least[-1, 0] = 0
    for i in range(targets.size - 1, -1, -1):
        _add_job(least, i, targets[i], sure[i], caps[i], gpus_per_machine)
    possible = np.flatnonzero(least[0] < IMPOSSIBLE // 2)
    chosen = np.empty_like(sure)
    _read_off(least, targets, sure, caps, gpus_per_machine, possible[-1], chosen)
    return chosen


@compiled
def _add_job(least: Ints, i: int, target: int, sure: int, cap: int, machine: int) -> None:
    """Fills row i: the job keeps its sure share, doubles below a machine, or has whole machines."""
    after, here = least[i + 1], least[i]
    for t in range(len(here)):
        here[t] = after[t] + target - sure
    share = 2 * sure
    while share < machine and share <= cap:
        for t in range(share - sure, len(here)):
            here[t] = min(here[t], after[t - share + sure] + share - target)
        share *= 2
    first = (sure // machine + 1) * machine - sure
    last = cap // machine * machine - sure
    if first > last:
        return
    # Whole machines all cost `target` less than they are, so the best is a minimum over a window
    # that slides along each residue: `queue` holds its candidates, rising.
    queue = np.empty(len(here) // machine + 1, dtype=np.int64)
    for residue in range(min(machine, len(here) - first)):
        head, tail = 0, 0
        for v in range(residue, len(here) - first, machine):
            while tail > head and after[queue[tail - 1]] - queue[tail - 1] >= after[v] - v:
                tail -= 1
            queue[tail] = v
            tail += 1
            t = v + first
            while queue[head] < t - last:
                head += 1
            best = queue[head]
            here[t] = min(here[t], after[best] - best + t + sure - target)


@compiled
def _read_off(
    least: Ints, targets: Ints, sure: Ints, caps: Ints, machine: int, left: int, chosen: Ints
) -> None:
    """Writes the shares of one optimum that hands out `left` GPUs; earlier jobs get more."""
    for i in range(len(targets)):
        share = min(caps[i], sure[i] + left) // machine * machine
        if share <= sure[i]:
            share = machine // 2
        while share > sure[i]:
            more = share - sure[i]
            if share <= caps[i] and more <= left:
                cost = least[i + 1, left - more] + abs(share - targets[i])
                if cost == least[i, left]:
                    break
            share = share - machine if share > machine else share // 2
        chosen[i] = max(share, sure[i])
        left -= chosen[i] - sure[i]

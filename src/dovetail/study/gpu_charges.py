"""What jobs that share GPUs are charged, from the jobs of a trace and the physics of a run.

Which two jobs meet a schedule decides, so every two of the trace may that their owners, the memory
of a GPU and the powers allow. `ways_to_share` and `turns` are all that is known of the physics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from dovetail.algorithms.bounds import Powers
from dovetail.algorithms.gpu_charges import LEAST_CHARGE, Pairs, charges
from dovetail.core.beliefs import Physics, SizedJob, on_nodes
from dovetail.core.cluster import Cluster
from dovetail.core.job import Bools, Floats, Ints
from dovetail.core.legality import PHASES
from dovetail.core.trace import Trace
from dovetail.physics.sharing.turns import exclusive_s

PAIRED_AREA = 0.98
PAIRED_KINDS = 64
"""Kinds whose pairs are looked at: those with most area, until it is so much of all. The others
count as free guests: the bound loses their area, and the number of pairs does not grow for ever."""
HARD_LIMIT = 1e-4
"""A limit far below every utilisation: how much it slows a job tells its utilisation."""


class _Kinds(NamedTuple):
    """The kinds of jobs that may share: an example, its GPUs, how many jobs, their area.

    Jobs of a kind that resize are a kind of their own.
    """

    example: Ints
    gpus: Ints
    jobs: Ints
    area: Floats
    resizes: Bools

    def take(self, rows: Ints) -> _Kinds:
        """Returns some of the kinds."""
        example, gpus, jobs, area, resizes = self
        return _Kinds(example[rows], gpus[rows], jobs[rows], area[rows], resizes[rows])


def job_charges(
    trace: Trace, cluster: Cluster, physics: Physics, powers: Powers, area_gpu_s: Floats
) -> Floats:
    """Returns the charge of each job, 1 for jobs that share with nobody.

    `area_gpu_s` is the area of each job if it had its GPUs to itself.
    """
    jobs = trace.jobs
    charge = np.ones(len(trace))
    shares = np.flatnonzero(jobs.shareable & (jobs.gpu_part == 1.0))
    if not shares.size or not (powers.sharing or powers.interleaving):
        return charge
    resizes = jobs.elastic[shares] & (jobs.min_gpus[shares] < jobs.max_gpus[shares])
    key = 2 * physics.kind_of[shares] + (resizes & powers.elastic)
    found, first, which, count = np.unique(
        key, return_index=True, return_inverse=True, return_counts=True
    )
    area = np.bincount(which, area_gpu_s[shares]).astype(np.float64)
    kinds = _Kinds(
        shares[first], jobs.gpus[shares[first]], count, area, (found % 2).astype(np.bool_)
    )
    charge[shares] = _of_kinds(kinds, cluster, physics, powers)[which]
    return charge


def _of_kinds(kinds: _Kinds, cluster: Cluster, physics: Physics, powers: Powers) -> Floats:
    """Returns the charge of each kind that may share."""
    families = turns(physics, kinds.example.tolist()) if powers.interleaving else []
    for use in families:
        # On other GPUs the stages are others; a seat is a seat on all.
        use[kinds.resizes & np.isfinite(use[:, -1]), :-1] = 0.0
    if not powers.sharing:
        return charges(kinds.area, Pairs.none(), families)
    largest = np.argsort(-kinds.area, kind="stable")
    covered = np.cumsum(kinds.area[largest])
    enough = int(np.searchsorted(covered, PAIRED_AREA * covered[-1])) + 1
    paired = np.sort(largest[: min(enough, PAIRED_KINDS)])
    some = kinds.take(paired)
    pairs = _pairs(some, cluster, physics, limits=powers.limits)
    charge = np.full(kinds.area.size, LEAST_CHARGE)
    charge[paired] = charges(some.area, pairs, [family[paired] for family in families])
    if paired.size < charge.size:
        # On one GPU are one less guests than members of the largest set.
        charge[paired] *= 1 - (PHASES - 1) * LEAST_CHARGE
    return charge


def _pairs(kinds: _Kinds, cluster: Cluster, physics: Physics, *, limits: bool) -> Pairs:
    """Returns all ways in which two jobs may be on one GPU."""
    steps = [
        [1] if resizes else _halvings(physics, job)
        for job, resizes in zip(kinds.example.tolist(), kinds.resizes.tolist(), strict=True)
    ]
    sides, kind = _sides(kinds, steps, cluster.nodes)
    held = np.array([physics.memory.footprint_bytes(job, k) for job, k, *_ in sides])
    memory_bytes = max(group.gpu_memory_bytes for group in cluster.groups)
    resizes = kinds.resizes[kind]
    unknown = resizes[:, None] | resizes
    may = (held[:, None] + held <= memory_bytes) | unknown
    may &= (kind[:, None] != kind) | (kinds.jobs[kind] > 1)
    first, second = np.nonzero(may)
    found = [
        Pairs(
            kind[first],
            kind[second],
            np.where(unknown[first, second], 1.0, mine[first, second]),
            np.where(unknown[first, second], 1.0, theirs[first, second]),
        )
        for mine, theirs in ways_to_share(physics, sides, limits=limits)
    ]
    return Pairs(*(np.concatenate(columns) for columns in zip(*found, strict=True)))


def _sides(
    kinds: _Kinds, steps: Sequence[Sequence[int]], nodes: int
) -> tuple[list[SizedJob], Ints]:
    """Returns all sides of kinds, and their kinds: each cut, well placed and spread over nodes.

    A job that is spread does less on its GPUs, so whom it meets there may be faster.
    """
    sides, kind = [], []
    rows = zip(kinds.example.tolist(), kinds.gpus.tolist(), steps, strict=True)
    for number, (job, gpus, cuts) in enumerate(rows):
        spreads = [0, *(n for n in (2, 4, 8) if n < min(gpus, nodes)), *_farthest(gpus, nodes)]
        sides += [SizedJob(job, cut, gpus, spread) for cut in cuts for spread in spreads]
        kind += [number] * (len(cuts) * len(spreads))
    return sides, np.array(kind, np.int64)


def _farthest(gpus: int, nodes: int) -> list[int]:
    """Returns the most nodes on which so many GPUs may lie, if it is more than one."""
    most = min(gpus, nodes)
    return [most] if most > 1 else []


def _halvings(physics: Physics, job: int) -> list[int]:
    """Returns the accumulation steps to which a batch is cut by halves (SJF-BSBF Algorithm 2)."""
    return [1 << n for n in range(max(1, physics.batches.most_steps(job)).bit_length())]


def ways_to_share(
    physics: Physics, sides: Sequence[SizedJob], *, limits: bool
) -> list[tuple[Floats, Floats]]:
    """Returns how fast each of `sides` runs beside each, and the other: over alone as requested.

    Arrays of shape [sides, sides]. With `limits` one may have all that it can use of a GPU, and
    the other the rest; no limits between those and none are better (docs/concepts/bounds.md).
    """
    free = physics.pair_rates(sides, sides)
    if not limits:
        return [free]
    mine, theirs = physics.sharing.interferences(sides, sides)
    alone = free[0][:, 0] * mine[:, 0]
    used = np.array([_utilization(physics, side) for side in sides])
    contested = np.maximum(0.0, used[:, None] + used - 1)
    # `physics.sharing.limits.shared_slowdown`, the first one whole and the second on the rest.
    slowed, slows = (
        1 - 1 / (ratio * (1 - np.minimum(1 - 1 / ratio, contested / own)))
        for ratio, own in ((mine, used[:, None]), (theirs, used))
    )
    rest = np.minimum(1.0, (1 - used[:, None]) / used)
    return [free, (alone[:, None] * (1 - slowed * rest), alone * rest * (1 - slows))]


def _utilization(physics: Physics, side: SizedJob) -> float:
    """Returns how busy a job alone keeps each of its GPUs."""
    job, steps, gpus, nodes = side
    free = on_nodes(gpus, nodes or 1, steps)
    limited = replace(free, fractions=(HARD_LIMIT,) * gpus)
    slowdowns = (physics.sharing.slowdown(job, one, ()) for one in (limited, free))
    return HARD_LIMIT * next(slowdowns) / next(slowdowns)


def turns(physics: Physics, examples: Sequence[int]) -> list[Floats]:
    """Returns for sets of 2, 3 and 4 members how much of each resource each kind uses.

    Of a second at full speed on one GPU: its stages on the resources that serve one member at a
    time, and one of the set's seats, as no cycle is shorter than an iteration alone. A cycle is
    longer than its busiest resource by the contention of the set. A kind whose stages are not
    known takes turns on the whole GPU: no set with it does more than one job.
    """
    known = physics.sharing.interleaving
    kind = physics.kind_of[np.asarray(examples, np.int64)]
    alone_s = known.iteration_s[kind]
    with np.errstate(divide="ignore", invalid="ignore"):
        share = exclusive_s(known)[kind] / alone_s[:, None]
    # A set may be a part of a larger one whose factor is smaller.
    least = list(accumulate(reversed(known.contention), min))[::-1]
    found = []
    for members in range(2, PHASES + 1):
        seat = np.full((kind.size, 1), 1 / members)
        use = np.hstack((share * least[members - 1], seat))
        use[alone_s == 0] = np.inf
        found.append(use)
    return found

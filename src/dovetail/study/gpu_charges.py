"""What jobs that share GPUs are charged, from the jobs of a trace and the physics of a run.

Which two jobs meet a schedule decides, so every two of the trace may that their owners, the memory
of a GPU and the powers allow. `ways_to_share` and `turns` are all that is known of the physics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
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
SINGLE_STEPS = 4
"""Numbers of accumulation steps that are looked at one by one; larger ones from 2^n + 1 to 2^(n+1)
together."""
RIPPLE = 5e-3
"""How far above that of a range's ends a speed in it may be: the most found was 0.0012
(`tests/study/test_charges_hold.py`)."""
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
    families = turns(kinds, cluster, physics) if powers.interleaving else []
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
    structure = physics.structure
    # No neighbour is known of a job that resizes, and of a pipeline no way to spread it is best.
    unknown = kinds.resizes | [bool(structure.graph(job)) for job in kinds.example.tolist()]
    steps = [
        [(1, 1)] if free else step_ranges(physics.batches.most_steps(job))
        for job, free in zip(kinds.example.tolist(), unknown.tolist(), strict=True)
    ]
    sides, kind = _sides(kinds, steps, cluster)
    held = np.array([physics.memory.footprint_bytes(side.job, side.most) for side in sides])
    memory_bytes = max(group.gpu_memory_bytes for group in cluster.groups)
    free = unknown[kind][:, None] | unknown[kind]
    may = (held[:, None] + held <= memory_bytes) | free
    may &= (kind[:, None] != kind) | (kinds.jobs[kind] > 1)
    first, second = np.nonzero(may)
    found = [
        Pairs(
            kind[first],
            kind[second],
            np.where(free[first, second], 1.0, mine[first, second]),
            np.where(free[first, second], 1.0, theirs[first, second]),
        )
        for mine, theirs in ways_to_share(physics, sides, limits=limits)
    ]
    return Pairs(*(np.concatenate(columns) for columns in zip(*found, strict=True)))


class JobInSteps(NamedTuple):
    """A job on GPUs of so many nodes, its batch in `fewest` to `most` steps."""

    job: int
    fewest: int
    most: int
    gpus: int
    nodes: int

    def at(self, steps: int) -> SizedJob:
        """Returns the job in so many steps."""
        return SizedJob(self.job, steps, self.gpus, self.nodes)


def step_ranges(most: int) -> list[tuple[int, int]]:
    """Returns ranges, ends included, of all numbers of steps to `most`."""
    ends = list(range(1, max(1, min(most, SINGLE_STEPS)) + 1))
    while ends[-1] < most:
        ends.append(min(2 * ends[-1], most))
    return [(before + 1, end) for before, end in zip([0, *ends], ends, strict=False)]


def _sides(
    kinds: _Kinds, steps: Sequence[Sequence[tuple[int, int]]], cluster: Cluster
) -> tuple[list[JobInSteps], Ints]:
    """Returns all sides of kinds, and their kinds: each cut, well placed and spread over nodes.

    A job that is spread does less on its GPUs, so whom it meets there may be faster.
    """
    sides, kind = [], []
    rows = zip(kinds.example.tolist(), kinds.gpus.tolist(), steps, strict=True)
    for number, (job, gpus, cuts) in enumerate(rows):
        spreads = _spreads(gpus, cluster)
        sides += [JobInSteps(job, *cut, gpus, nodes) for cut in cuts for nodes in spreads]
        kind += [number] * (len(cuts) * len(spreads))
    return sides, np.array(kind, np.int64)


def _spreads(gpus: int, cluster: Cluster) -> list[int]:
    """Returns the numbers of nodes that differ: as few as can be (0), two, three or more."""
    fewest, most = -(-gpus // max(cluster.installed)), min(gpus, cluster.nodes)
    return [0, *(n for n in (2, 3) if fewest < n <= most)]


def ways_to_share(
    physics: Physics, sides: Sequence[JobInSteps], *, limits: bool
) -> list[tuple[Floats, Floats]]:
    """Returns how fast, at most, each of `sides` runs beside each, and the other.

    Arrays of shape [sides, sides], over alone as requested. A job is fastest in its fewest steps
    beside a neighbour in its most, and the neighbour the other way round. With `limits` one may
    have all that it can use of a GPU, and the other the rest; no limits between those and none are
    better (docs/concepts/bounds.md).
    """
    light, heavy = [s.at(s.fewest) for s in sides], [s.at(s.most) for s in sides]
    ranges = np.array([side.most > side.fewest for side in sides])
    ripple = np.where(ranges[:, None] | ranges, 1 + RIPPLE, 1.0)
    speed = physics.pair_rates(light, heavy)[0]
    free = speed * ripple, (speed * ripple).T
    if not limits:
        return [free]
    ratio = physics.sharing.interferences(light, heavy)[0]
    alone = speed[:, 0] * ratio[:, 0]
    ratio = np.maximum(1.0, ratio / ripple)
    used = np.array([_utilization(physics, side) for side in light])
    least = np.array([_utilization(physics, side) for side in heavy])
    # `physics.sharing.limits.shared_slowdown`, the first one whole and the second on the rest.
    contested = np.maximum(0.0, used[:, None] + used - 1)
    slowed = 1 - 1 / (ratio * (1 - np.minimum(1 - 1 / ratio, contested / used[:, None])))
    rest = np.minimum(1.0, (1 - used[:, None]) / used)
    most_rest = np.minimum(1.0, (1 - least[:, None]) / least)
    return [free, (alone[:, None] * (1 - slowed * rest), alone * most_rest * (1 - slowed.T))]


def _utilization(physics: Physics, side: SizedJob) -> float:
    """Returns how busy a job alone keeps each of its GPUs."""
    job, steps, gpus, nodes = side
    free = on_nodes(gpus, nodes or 1, steps)
    limited = replace(free, fractions=(HARD_LIMIT,) * gpus)
    slowdowns = (physics.sharing.slowdown(job, one, ()) for one in (limited, free))
    return HARD_LIMIT * next(slowdowns) / next(slowdowns)


def turns(kinds: _Kinds, cluster: Cluster, physics: Physics) -> list[Floats]:
    """Returns for sets of 2, 3 and 4 members how much of each resource each kind uses.

    Of a second at full speed on one GPU: its stages on the resources that serve one member at a
    time, and one of the set's seats, as no cycle is shorter than an iteration alone. The cycle of
    the jobs on a GPU is longer than its busiest resource by the contention of so many; of a chain
    each member has the longest cycle of its GPUs, which is no shorter. A kind whose stages are not
    known takes turns on the whole GPU: no set with it does more than one job.
    """
    known = physics.sharing.interleaving
    alone_s = known.iteration_s[physics.kind_of[kinds.example]]
    rows = zip(kinds.example.tolist(), kinds.gpus.tolist(), alone_s.tolist(), strict=True)
    shares = np.array([_least_shares(physics, *row, cluster) for row in rows])
    share = exclusive_s(known._replace(stage_s=shares))
    found = []
    for members in range(2, PHASES + 1):
        seat = np.full((alone_s.size, 1), 1 / members)
        use = np.hstack((share * known.contention[members - 1], seat))
        use[alone_s == 0] = np.inf
        found.append(use)
    return found


def _least_shares(
    physics: Physics, job: int, gpus: int, alone_s: float, cluster: Cluster
) -> list[float]:
    """Returns the least share of each stage in the iteration alone as requested, wherever.

    A ring of three nodes may beat one of two. Of a pipeline it is the share in the iteration as
    placed: how long its own takes there, its stages do not tell.
    """
    fewest, pipeline = -(-gpus // max(cluster.installed)), bool(physics.structure.graph(job))
    placed = [on_nodes(gpus, nodes or fewest) for nodes in _spreads(gpus, cluster)]
    rows = [physics.sharing.stages(job, placement) for placement in placed]
    shares = [[s / ((whole_s if pipeline else alone_s) or 1.0) for s in of] for of, whole_s in rows]
    return [min(column) for column in zip(*shares, strict=True)]

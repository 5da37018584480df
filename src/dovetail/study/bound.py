"""Computes lower bounds on the mean JCT of a trace for the powers of a policy.

The rigid bound applies to a policy that keeps every job on its requested GPUs; other bounds allow
resizing or sharing. There is no bound for a run that violates an assumption (jobs that end before
their work is done, a window of the jobs).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from dovetail.algorithms.bounds import SPAN, Bound, LowerBounds, Powers, lower_bounds
from dovetail.algorithms.demand import (
    JobDemand,
    ScalingCurve,
    elastic_demand,
    plain_demand,
    rigid_demand,
)
from dovetail.algorithms.speed import SpeedTimeline
from dovetail.core.beliefs import Physics
from dovetail.core.cluster import Cluster
from dovetail.core.job import Floats
from dovetail.core.policy import Policy
from dovetail.core.trace import Trace
from dovetail.physics.sharing.turns import InterleaveRule
from dovetail.study.cluster_parts import (
    fastest,
    gpu_speeds,
    joined,
    parts_of,
    requested_speeds,
)
from dovetail.study.gpu_charges import job_charges
from dovetail.study.options import Options
from dovetail.study.run import build_physics, placeable
from dovetail.study.top_speeds import TopSpeeds

CHANGES_WORK = "change batch"
"""The power to change batch sizes changes the work of a job, which no bound supports."""


def powers_of(policy: Policy) -> Powers:
    """Returns the powers that decide which bound applies to a policy."""
    return Powers(
        elastic="resize" in policy.powers,
        sharing="share" in policy.powers,
        interleaving="interleave" in policy.powers,
        limits={"restrict", "share"} <= policy.powers,
    )


def judges(policy: Policy) -> bool:
    """True if a bound applies to a policy."""
    return CHANGES_WORK not in policy.powers


def bound_for(trace: Trace, options: Options, policy: Policy) -> LowerBounds | None:
    """Returns the bounds that apply to a policy in a run, None if none does."""
    powers = powers_of(policy)
    if not judges(policy) or objection(trace, options, powers):
        return None
    return bound(trace, options, powers)


def objection(trace: Trace, options: Options, powers: Powers) -> str:
    """Returns the reason why no bound holds for runs with these powers, empty if one holds."""
    if options.cancelled == "clock":
        return "cancelled jobs end by the clock, before their work is done"
    if (trace.jobs.time_limit_s < trace.duration_s).any():
        return "time limits end some jobs before their work is done"
    # On its own GPUs a job that reaches its limit has held them for at least its duration; on
    # fewer, or beside a neighbour, it may be ended having cost less than its work.
    if powers != Powers() and np.isfinite(trace.jobs.time_limit_s).any():
        return "time limits may end jobs that run slower, before their work is done"
    if powers.interleaving and not InterleaveRule.parse(options.cycle).floor:
        return "without a floor a set of jobs may run faster than each of them alone"
    if options.window.warm_up_s or options.window.drain_s:
        return "only the jobs of a window are counted"
    return ""


def bound(trace: Trace, options: Options, powers: Powers) -> LowerBounds:
    """Returns the lower bounds of a trace on a cluster for policies with these powers.

    Jobs that the cluster can never hold are left out, as in a run. Parts of GPUs count as parts. A
    job without GPU competes for none and counts with its run time alone. Raises InputError.
    """
    trace, _ = placeable(trace, options)
    hosted = trace.jobs.asked_gpus == 0
    if not hosted.any():
        return _on_gpus(trace, options, powers)
    kinds = [trace.take(np.flatnonzero(rows)) for rows in (~hosted, hosted) if rows.any()]
    found = [_spans(kinds[-1], options, powers)]
    if len(kinds) == 2:
        found = [_on_gpus(kinds[0], options, powers), *found]
    return joined(powers, found, [float(one.jobs.submit_s.min()) for one in kinds])


def _spans(trace: Trace, options: Options, powers: Powers) -> LowerBounds:
    """Returns the bounds of jobs without GPU: none is done before its run time has passed."""
    physics = build_physics(trace, options)
    _, nodes_of = parts_of(trace, options.cluster)
    speeds = gpu_speeds(options.cluster, physics)
    shortest_s = trace.duration_s / (fastest(speeds, nodes_of) * requested_speeds(trace, physics))
    submit_s = trace.jobs.submit_s
    makespan_s = float((submit_s + shortest_s).max() - submit_s.min())
    return LowerBounds(powers, len(trace), (Bound(SPAN, float(shortest_s.mean())),), makespan_s)


def _on_gpus(trace: Trace, options: Options, powers: Powers) -> LowerBounds:
    """Returns the bounds of jobs that hold GPUs, or parts of them."""
    physics = build_physics(trace, options)
    parts, nodes_of = parts_of(trace, options.cluster)
    speeds = gpu_speeds(options.cluster, physics)
    alike = set(speeds) == {1.0} and len({g.gpu_type for g in options.cluster.groups}) < 2
    over = np.ones(len(trace)) if alike else requested_speeds(trace, physics)
    demand = _demand(trace, options, powers, physics, _Gpus(speeds, nodes_of, over))
    if len(parts) == 1:
        return lower_bounds(demand, _capacity(trace, options, speeds, parts[0].nodes), powers)
    found = [
        lower_bounds(
            demand.subset(part.jobs), _capacity(trace, options, speeds, part.nodes), powers
        )
        for part in parts
    ]
    first_s = [float(trace.jobs.submit_s[part.jobs].min()) for part in parts]
    return joined(powers, found, first_s)


class _Gpus(NamedTuple):
    """The speed of the GPUs of each node, and the nodes that each job may use.

    All areas are in GPU-seconds of the type that the first job requests: a GPU of twice its speed
    supplies two a second, and a job that holds it gains as much. `over` is the speed of that type
    over the one for which a job's length is known.
    """

    speeds: list[float]
    nodes_of: list[int]
    over: Floats


def _demand(
    trace: Trace, options: Options, powers: Powers, physics: Physics, where: _Gpus
) -> JobDemand:
    """Returns the demand of all jobs."""
    jobs, alike = trace.jobs, set(where.speeds) == {1.0} and bool((where.over == 1.0).all())
    best = np.ones(len(trace)) if alike else fastest(where.speeds, where.nodes_of) * where.over
    tops = TopSpeeds(options.cluster, physics)
    if powers.elastic:
        demand = _elastic(trace, options.cluster, physics, tops, where)
    elif alike:
        shortest_s = _shortest_s(trace, physics, tops)
        demand = rigid_demand(jobs.submit_s, shortest_s, jobs.asked_gpus)
    else:
        shortest_s = _shortest_s(trace, physics, tops)
        area_gpu_s = shortest_s * jobs.asked_gpus / where.over
        demand = plain_demand(jobs.submit_s, shortest_s / best, area_gpu_s)
    charge = job_charges(trace, options.cluster, physics, powers, demand.area_gpu_s)
    return demand.charged(charge)


def _shortest_s(trace: Trace, physics: Physics, tops: TopSpeeds) -> Floats:
    """Returns the least time of each job on its requested GPUs of the first type, wherever.

    It is the duration, except where a placement may beat the one that counts as well placed.
    """
    jobs = trace.jobs
    kind_of = physics.kind_of
    kinds, example = np.unique(kind_of, return_index=True)
    top = np.ones(int(kinds[-1]) + 1)
    top[kinds] = [tops.of(job, int(jobs.gpus[job])) for job in example.tolist()]
    return trace.duration_s / np.maximum(top[kind_of], 1.0)


def _elastic(
    trace: Trace, cluster: Cluster, physics: Physics, tops: TopSpeeds, where: _Gpus
) -> JobDemand:
    """Returns the demand of jobs that may run on any count their owner allows.

    Work is in solo seconds on the requested GPUs, so a curve is the speed at each count, on each
    speed of GPU; jobs of equal kind, range and nodes share one.
    """
    jobs = trace.jobs
    curves: list[ScalingCurve] = []
    known: dict[tuple[int, int, int, int, float, float], int] = {}
    which = np.zeros(len(trace), np.int64)
    columns = zip(
        physics.kind_of.tolist(),
        jobs.gpus.tolist(),
        jobs.min_gpus.tolist(),
        jobs.max_gpus.tolist(),
        jobs.elastic.tolist(),
        where.nodes_of,
        where.over.tolist(),
        jobs.gpu_part.tolist(),
        strict=True,
    )
    for job, (kind, gpus, low, high, elastic, nodes, over, part) in enumerate(columns):
        least, most = (low, high) if elastic else (gpus, gpus)
        key = (kind, least, most, nodes, over, part)
        if key not in known:
            known[key] = len(curves)
            gpus_of: dict[float, int] = {}
            for node, speed in enumerate(where.speeds):
                if nodes >> node & 1:
                    gpus_of[speed] = gpus_of.get(speed, 0) + cluster.installed[node]
            # A gang is as fast as its slowest GPU, so the others are no slower.
            reach = list(accumulate(gpus_of[s] for s in sorted(gpus_of, reverse=True)))
            counts = range(least, max(least, min(most, reach[-1])) + 1)
            speeds = [(g, tops.of(job, g)) for g in counts]
            points = _fastest_of(
                [
                    (g * part * s, top * s * over)
                    for s, within in zip(sorted(gpus_of, reverse=True), reach, strict=True)
                    for g, top in speeds
                    if g <= max(within, least)
                ]
            )
            curves.append(ScalingCurve.of(list(points), list(points.values())))
        which[job] = known[key]
    return elastic_demand(jobs.submit_s, trace.duration_s, which, curves)


def _fastest_of(points: list[tuple[float, float]]) -> dict[float, float]:
    """Returns the highest throughput at each area a second."""
    highest: dict[float, float] = {}
    for area, throughput in points:
        highest[area] = max(throughput, highest.get(area, 0.0))
    return highest


def _capacity(trace: Trace, options: Options, speeds: Sequence[float], nodes: int) -> SpeedTimeline:
    """Returns the GPU-seconds of the first type that a set of nodes supplies a second."""

    def supply(cluster: Cluster) -> float:
        open_gpus = enumerate(cluster.capacity)
        return float(sum(gpus * speeds[n] for n, gpus in open_gpus if nodes >> n & 1))

    first_s = float(trace.jobs.submit_s[0])
    cluster = options.cluster
    if not options.capacity:
        return SpeedTimeline.constant(supply(cluster), first_s)
    times, gpus = [first_s], [supply(cluster)]
    for at_s, changes in options.capacity:
        cluster = cluster.with_nodes(changes)
        if at_s <= times[-1]:
            gpus[-1] = supply(cluster)
        else:
            times.append(at_s)
            gpus.append(supply(cluster))
    return SpeedTimeline.of(times, gpus)

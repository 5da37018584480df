"""Computes lower bounds on the mean JCT of a trace for the powers of a policy.

The rigid bound applies to a policy that keeps every job on its requested GPUs; other bounds allow
resizing or sharing. There is no bound for a run that violates an assumption (jobs that end before
their work is done, a window of the jobs).
"""

from __future__ import annotations

import numpy as np

from dovetail.algorithms.bounds import LowerBounds, Powers, lower_bounds
from dovetail.algorithms.demand import JobDemand, ScalingCurve, elastic_demand, rigid_demand
from dovetail.algorithms.interleaving import interleaved_demand
from dovetail.algorithms.speed import SpeedTimeline
from dovetail.core.beliefs import Physics
from dovetail.core.job import Floats
from dovetail.core.policy import Policy
from dovetail.core.trace import Trace
from dovetail.physics.sharing.interleave import InterleaveRule, exclusive_s
from dovetail.study.options import Options
from dovetail.study.run import build_physics, placeable

PAIR_MAX = 2.0
"""The largest total speed of two jobs on one GPU: neither is faster than alone."""
INTERLEAVED_MAX = 4.0
"""The largest total speed of an interleave set: four resources, four jobs (Muri)."""


CHANGES_WORK = "change batch"
"""The power to change batch sizes changes the work of a job, which no bound supports."""


def powers_of(policy: Policy) -> Powers:
    """Returns the powers that decide which bound applies to a policy."""
    return Powers(
        elastic="resize" in policy.powers,
        sharing="share" in policy.powers,
        interleaving="interleave" in policy.powers,
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
    if len({g.gpu_type for g in options.cluster.groups}) > 1:
        return "the cluster mixes GPU types, whose speeds the bounds do not know"
    return ""


def bound(trace: Trace, options: Options, powers: Powers) -> LowerBounds:
    """Returns the lower bounds of a trace on a cluster for policies with these powers.

    Jobs that the cluster can never hold are left out, as in a run. Raises InputError.
    """
    trace, _ = placeable(trace, options)
    physics = build_physics(trace, options)
    capacity = _capacity(trace, options)
    shareable = bool(trace.jobs.shareable.any())
    if powers == Powers(interleaving=True):
        demand = _interleaved(trace, physics, capacity)
    elif powers.elastic:
        demand = _elastic(trace, physics)
    else:
        demand = rigid_demand(trace.jobs.submit_s, _shortest_s(trace, physics), trace.jobs.gpus)
    if (powers.sharing or (powers.interleaving and powers.elastic)) and shareable:
        demand = demand.shared(INTERLEAVED_MAX if powers.interleaving else PAIR_MAX)
    return lower_bounds(demand, capacity, powers)


def _shortest_s(trace: Trace, physics: Physics) -> Floats:
    """Returns the least time of each job on its requested GPUs, wherever they are.

    It is the duration, except for pipelines, where a placement may beat the well placed one.
    """
    jobs = trace.jobs
    kind_of = physics.kind_of
    kinds, example = np.unique(kind_of, return_index=True)
    top = np.ones(int(kinds[-1]) + 1)
    top[kinds] = [physics.speed.top(job, int(jobs.gpus[job])) for job in example.tolist()]
    return trace.duration_s / np.maximum(top[kind_of], 1.0)


def _interleaved(trace: Trace, physics: Physics, capacity: SpeedTimeline) -> JobDemand:
    """Returns the demand of jobs on their requested GPUs whose stages may take turns.

    Of each GPU a job needs every resource for its stage, alone or in a set, and one of the seats
    of a set. A job that takes no turns, or whose stages are unknown, needs it whole.
    """
    jobs = trace.jobs
    stage_s = exclusive_s(physics.sharing.interleaving)[physics.kind_of]
    alone_s = physics.sharing.interleaving.iteration_s[physics.kind_of]
    known = jobs.shareable & (alone_s > 0)
    share = np.ones((len(trace), stage_s.shape[1] + 1))
    share[known, :-1] = np.minimum(stage_s[known] / alone_s[known, None], 1.0)
    share[known, -1] = 1 / INTERLEAVED_MAX
    shortest_s = _shortest_s(trace, physics)
    busy_gpu_s = share * (shortest_s * jobs.gpus)[:, None]
    return interleaved_demand(jobs.submit_s, shortest_s, busy_gpu_s, capacity).demand


def _elastic(trace: Trace, physics: Physics) -> JobDemand:
    """Returns the demand of jobs that may run on any count their owner allows.

    Work is in solo seconds on the requested GPUs, so a curve is the speed at each count; jobs
    of equal kind and range share one.
    """
    jobs = trace.jobs
    curves: list[ScalingCurve] = []
    known: dict[tuple[int, int, int], int] = {}
    which = np.zeros(len(trace), np.int64)
    columns = zip(
        physics.kind_of.tolist(),
        jobs.gpus.tolist(),
        jobs.min_gpus.tolist(),
        jobs.max_gpus.tolist(),
        jobs.elastic.tolist(),
        strict=True,
    )
    for job, (kind, gpus, low, high, elastic) in enumerate(columns):
        key = (kind, low, high) if elastic else (kind, gpus, gpus)
        if key not in known:
            known[key] = len(curves)
            counts = list(range(key[1], key[2] + 1))
            speeds = [physics.speed.top(job, g) for g in counts]
            curves.append(ScalingCurve.of(counts, speeds))
        which[job] = known[key]
    return elastic_demand(jobs.submit_s, trace.duration_s, which, curves)


def _capacity(trace: Trace, options: Options) -> SpeedTimeline:
    first_s = float(trace.jobs.submit_s[0])
    if not options.capacity:
        return SpeedTimeline.constant(float(options.cluster.gpus), first_s)
    cluster = options.cluster
    times, gpus = [first_s], [float(cluster.gpus)]
    for at_s, changes in options.capacity:
        cluster = cluster.with_nodes(changes)
        if at_s <= times[-1]:
            gpus[-1] = float(cluster.gpus)
        else:
            times.append(at_s)
            gpus.append(float(cluster.gpus))
    return SpeedTimeline.of(times, gpus)

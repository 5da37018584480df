"""How far below the best schedule each bound lies: small instances, all schedules tried.

python -m benchmarks.bound_looseness [--instances 60] [--powers 'sharing, rigid'] [--cluster 2x2]

Jobs of the zoo on a few GPUs, of one node or of nodes of several sizes. The best schedule is that
of all which change at arrivals and ends, by the physics of the simulator, without switching costs.
One that changes in between may be better, so the ratios are no larger than those to the optimum.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations, combinations_with_replacement, permutations, product
from math import inf
from time import process_time

import numpy as np

from dovetail.algorithms.bounds import Powers
from dovetail.core.beliefs import Physics
from dovetail.core.cluster import Cluster
from dovetail.core.job import JobTable, Labels
from dovetail.core.placement import Interleave, Placement
from dovetail.core.trace import Trace
from dovetail.physics.zoo.models import zoo
from dovetail.study.bound import bound
from dovetail.study.options import Options
from dovetail.study.run import build_physics

JOBS = 4
ONE_NODE = Cluster.parse("1x4")
STEPS = (1, 2)
LIMITS = (1.0, 0.6)
"""Accumulation steps and limits that are tried for jobs that share."""
KINDS = (
    Powers(),
    Powers(elastic=True),
    Powers(sharing=True),
    Powers(sharing=True, limits=True),
    Powers(interleaving=True),
    Powers(sharing=True, interleaving=True),
    Powers(elastic=True, sharing=True),
    Powers(elastic=True, interleaving=True),
    Powers(elastic=True, sharing=True, interleaving=True),
)
Rates = tuple[float, ...]
"""Solo seconds of progress per second of each job of the trace."""
Held = dict[int, Placement]
Gpus = tuple[tuple[int, int], ...]
"""Some GPUs: their nodes, and their numbers there."""


def drawn(
    rng: np.random.Generator, powers: Powers, jobs: int = JOBS, cluster: Cluster = ONE_NODE
) -> Trace:
    """Returns jobs of random models, sizes, lengths and arrivals that crowd four GPUs."""
    most = cluster.installed_gpus
    names = sorted(name for name, profile in zoo().items() if profile.max_gpus.value >= most)
    gpus = rng.choice([1, 2, 2, 4], jobs)
    sizes = (np.ones(jobs, np.int64), np.full(jobs, most)) if powers.elastic else (gpus, gpus)
    table = JobTable.build(
        [str(job) for job in range(jobs)],
        np.sort(rng.choice([0.0, 0.0, 200.0, 600.0, 1500.0], jobs)),
        gpus.astype(np.int64),
        min_gpus=sizes[0],
        max_gpus=sizes[1],
        elastic=np.full(jobs, powers.elastic),
        shareable=rng.uniform(size=jobs) < 0.9,
        model=Labels.of([names[i] for i in rng.integers(0, len(names), jobs).tolist()]),
    )
    ends = np.zeros(jobs, np.int8)
    return Trace(table, rng.lognormal(6.5, 0.8, jobs), np.full(jobs, np.nan), ends, "drawn")


def least_mean_jct_s(trace: Trace, options: Options, powers: Powers) -> float:
    """Returns the mean JCT of the best schedule that changes at arrivals and ends."""
    physics, cluster = build_physics(trace, options), options.cluster
    ways = cache(lambda present: _ways(trace, physics, cluster, present, powers))
    submit_s = trace.jobs.submit_s.tolist()
    top = [max(rates[j] for rates in ways((j,))) for j in range(len(trace))]

    def least(now: float, left: dict[int, float], spent: float, best: float) -> float:
        """Returns the least sum of flows, `spent` of it before `now`, or `best` if none is less."""
        hopeful = sum(s / top[j] for j, s in left.items())
        if spent + hopeful >= best:
            return best
        if not left:
            return spent
        present = tuple(j for j in left if submit_s[j] <= now)
        arrival = min((submit_s[j] for j in left if submit_s[j] > now), default=inf)
        if not present:
            return least(arrival, left, spent, best)
        for rates in ways(present):
            ends = {j: left[j] / rates[j] for j in present if rates[j] > 0}
            step = min([arrival - now, *ends.values()])
            after = {
                j: s - step * rates[j] if j in present else s
                for j, s in left.items()
                if ends.get(j, inf) > step * (1 + 1e-12)
            }
            best = least(now + step, after, spent + step * len(present), best)
        return best

    whole = dict(enumerate(trace.duration_s.tolist()))
    return least(min(submit_s), whole, 0.0, inf) / len(trace)


def _ways(
    trace: Trace, physics: Physics, cluster: Cluster, present: Sequence[int], powers: Powers
) -> list[Rates]:
    """Returns the rates of all legal plans that no other one beats for every job, best first."""
    found: set[Rates] = set()
    for held in _plans(trace, cluster, present, powers):
        rates = _rates(trace, physics, cluster, held)
        if rates:
            found.add(rates)
    kept = [
        one
        for one in found
        if not any(o != one and all(a >= b for a, b in zip(o, one, strict=True)) for o in found)
    ]
    return sorted(kept, key=sum, reverse=True)


def _plans(
    trace: Trace, cluster: Cluster, present: Sequence[int], powers: Powers
) -> Iterator[Held]:
    """Yields where each job may be, apart, side by side or in sets that take turns."""
    yield from _side_by_side(trace, cluster, present, powers)
    if powers.interleaving:
        yield from _in_turns(trace, cluster, present)


def _side_by_side(
    trace: Trace, cluster: Cluster, present: Sequence[int], powers: Powers
) -> Iterator[Held]:
    willing = [j for j in present if trace.jobs.shareable[j]] if powers.sharing else []
    on_gpu = [(), *((j,) for j in present), *combinations(willing, 2)]
    names = _names(cluster.installed)
    settings = tuple(product(STEPS, LIMITS if powers.limits else (1.0,)))
    # GPUs of a node are alike.
    by_node = [tuple(combinations_with_replacement(on_gpu, gpus)) for gpus in cluster.installed]
    for nodes in product(*by_node):
        on = dict(zip(names, (jobs for node in nodes for jobs in node), strict=True))
        ids = {j: tuple(gpu for gpu, jobs in on.items() if j in jobs) for j in present}
        if not all(_may_be(trace, j, len(of)) for j, of in ids.items() if of):
            continue
        shared = [j for j in present if any(j in jobs and len(jobs) > 1 for jobs in on.values())]
        for chosen in product(settings, repeat=len(shared)):
            of_job = dict(zip(shared, chosen, strict=True))
            yield {j: _on(of, *of_job.get(j, (1, 1.0))) for j, of in ids.items() if of}


def _in_turns(trace: Trace, cluster: Cluster, present: Sequence[int]) -> Iterator[Held]:
    """Yields one set of two to four jobs on the same GPUs, and the others apart."""
    willing = [j for j in present if trace.jobs.shareable[j]]
    for members in range(2, len(willing) + 1):
        for some in combinations(willing, members):
            others = [j for j in present if j not in some]
            for counts in product(*(range(gpus + 1) for gpus in cluster.installed)):
                if not all(_may_be(trace, j, sum(counts)) for j in some):
                    continue
                on = _on(_names(counts))
                for rest in _apart(trace, others, cluster.installed, counts):
                    for phases in permutations(range(4), members):
                        seats = {
                            j: replace(on, interleave=Interleave(0, phase))
                            for j, phase in zip(some, phases, strict=True)
                        }
                        yield {**seats, **rest}


def _apart(
    trace: Trace, jobs: Sequence[int], installed: Sequence[int], taken: Sequence[int]
) -> Iterator[Held]:
    """Yields where jobs may be alone on the GPUs behind the first ones of each node, the taken."""
    if not jobs:
        yield {}
        return
    free = [range(gpus - used + 1) for gpus, used in zip(installed, taken, strict=True)]
    for counts in product(*free):
        if sum(counts) and not _may_be(trace, jobs[0], sum(counts)):
            continue
        mine = {jobs[0]: _on(_names(counts, taken))} if sum(counts) else {}
        after = [used + more for used, more in zip(taken, counts, strict=True)]
        for rest in _apart(trace, jobs[1:], installed, after):
            yield {**mine, **rest}


def _may_be(trace: Trace, job: int, gpus: int) -> bool:
    return bool(trace.jobs.min_gpus[job] <= gpus <= trace.jobs.max_gpus[job])


def _names(counts: Sequence[int], first: Sequence[int] = ()) -> Gpus:
    """Returns so many GPUs of each node, from the `first` on."""
    starts = first or (0,) * len(counts)
    return tuple(
        (node, start + gpu)
        for node, (count, start) in enumerate(zip(counts, starts, strict=True))
        for gpu in range(count)
    )


def _on(names: Gpus, steps: int = 1, limit: float = 1.0) -> Placement:
    by_node = {node: tuple(g for n, g in names if n == node) for node, _ in names}
    spans = tuple((node, len(ids)) for node, ids in by_node.items())
    fractions = (limit,) * len(names) if limit < 1 else ()
    return Placement(spans, tuple(by_node.values()), steps, fractions)


def _rates(trace: Trace, physics: Physics, cluster: Cluster, held: Held) -> Rates:
    """Returns the rate of each job, nothing if some do not fit the memory of a GPU."""
    on_gpu: dict[tuple[int, int], list[tuple[int, Placement]]] = {}
    for job, placement in held.items():
        for gpu in placement.named():
            on_gpu.setdefault(gpu, []).append((job, placement))
    memory_bytes = cluster.groups[0].gpu_memory_bytes
    for occupants in on_gpu.values():
        if len(occupants) > 1 and not physics.memory.fits(occupants, memory_bytes):
            return ()
    rates = [0.0] * len(trace)
    for job, placement in held.items():
        beside = dict(pair for gpu in placement.named() for pair in on_gpu[gpu] if pair[0] != job)
        rates[job] = physics.rate(job, placement, list(beside.items()))
    return tuple(rates)


def looseness(trace: Trace, powers: Powers, cluster: Cluster = ONE_NODE) -> dict[str, float]:
    """Returns each bound, and the best of them, over the mean JCT of the best schedule."""
    options = Options(cluster)
    exact_s = least_mean_jct_s(trace, options, powers)
    found = bound(trace, options, powers)
    ratios = {one.name: one.mean_jct_s / exact_s for one in found.bounds}
    return {**ratios, "best": found.mean_jct_s / exact_s}


def main() -> None:
    """Prints the ratios of each kind of powers: median, mean and least."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--instances", type=int, default=60)
    parser.add_argument("--powers", default="", help="only those with these words")
    parser.add_argument("--cluster", type=Cluster.parse, default=ONE_NODE, help="of four GPUs")
    given = parser.parse_args()
    instances, cluster = given.instances, given.cluster
    for powers in [one for one in KINDS if given.powers in ("", one.words)]:
        rng, began = np.random.default_rng(7), process_time()
        every = [
            looseness(drawn(rng, powers, JOBS, cluster), powers, cluster) for _ in range(instances)
        ]
        print(f"{powers.words}, {instances} instances, {process_time() - began:.0f} s of CPU")
        for name in every[0]:
            ratios = [one[name] for one in every]
            middle, mean, least = np.median(ratios), np.mean(ratios), min(ratios)
            print(f"  {name:20} median {middle:.3f}  mean {mean:.3f}  least {least:.3f}")


if __name__ == "__main__":
    main()

"""How far below the best schedule each bound lies: small instances, all schedules tried.

python -m benchmarks.bound_looseness [--instances 60] [--powers 'sharing, rigid']

Jobs of the zoo on one node. The best schedule is that of all which change at arrivals and ends, by
the physics of the simulator, without switching costs. One that changes in between may be better, so
the ratios are no larger than those to the optimum.
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

GPUS, JOBS = 4, 4
CLUSTER = Cluster.parse(f"1x{GPUS}")
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


def drawn(rng: np.random.Generator, powers: Powers, jobs: int = JOBS) -> Trace:
    """Returns jobs of random models, sizes, lengths and arrivals that crowd one node."""
    names = sorted(name for name, profile in zoo().items() if profile.max_gpus.value >= GPUS)
    gpus = rng.choice([1, 2, 2, 4], jobs)
    sizes = (np.ones(jobs, np.int64), np.full(jobs, GPUS)) if powers.elastic else (gpus, gpus)
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
    physics = build_physics(trace, options)
    ways = cache(lambda present: _ways(trace, physics, present, powers))
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


def _ways(trace: Trace, physics: Physics, present: Sequence[int], powers: Powers) -> list[Rates]:
    """Returns the rates of all legal plans that no other one beats for every job, best first."""
    found: set[Rates] = set()
    for held in _plans(trace, present, powers):
        rates = _rates(trace, physics, held)
        if rates:
            found.add(rates)
    kept = [
        one
        for one in found
        if not any(o != one and all(a >= b for a, b in zip(o, one, strict=True)) for o in found)
    ]
    return sorted(kept, key=sum, reverse=True)


def _plans(trace: Trace, present: Sequence[int], powers: Powers) -> Iterator[Held]:
    """Yields where each job may be, apart, side by side or in sets that take turns."""
    yield from _side_by_side(trace, present, powers)
    if powers.interleaving:
        yield from _in_turns(trace, present)


def _side_by_side(trace: Trace, present: Sequence[int], powers: Powers) -> Iterator[Held]:
    willing = [j for j in present if trace.jobs.shareable[j]] if powers.sharing else []
    on_gpu = [(), *((j,) for j in present), *combinations(willing, 2)]
    for gpus in combinations_with_replacement(on_gpu, GPUS):
        ids = {j: tuple(g for g, jobs in enumerate(gpus) if j in jobs) for j in present}
        if not all(_may_be(trace, j, len(of)) for j, of in ids.items() if of):
            continue
        shared = [j for j in present if any(j in jobs and len(jobs) > 1 for jobs in gpus)]
        settings = tuple(product(STEPS, LIMITS if powers.limits else (1.0,)))
        for chosen in product(settings, repeat=len(shared)):
            of_job = dict(zip(shared, chosen, strict=True))
            yield {j: _on(of, *of_job.get(j, (1, 1.0))) for j, of in ids.items() if of}


def _in_turns(trace: Trace, present: Sequence[int]) -> Iterator[Held]:
    """Yields one set of two to four jobs on the same GPUs, and the others apart."""
    willing = [j for j in present if trace.jobs.shareable[j]]
    for members in range(2, len(willing) + 1):
        for some in combinations(willing, members):
            others = [j for j in present if j not in some]
            for gpus in range(1, GPUS + 1):
                if not all(_may_be(trace, j, gpus) for j in some):
                    continue
                ids = tuple(range(gpus))
                for rest in _apart(trace, others, gpus):
                    for phases in permutations(range(4), members):
                        seats = {
                            j: replace(_on(ids), interleave=Interleave(0, phase))
                            for j, phase in zip(some, phases, strict=True)
                        }
                        yield {**seats, **rest}


def _apart(trace: Trace, jobs: Sequence[int], first: int) -> Iterator[Held]:
    """Yields where jobs may be alone on the GPUs from one on."""
    for counts in product(range(GPUS + 1 - first), repeat=len(jobs)):
        if sum(counts) > GPUS - first:
            continue
        if all(_may_be(trace, j, n) for j, n in zip(jobs, counts, strict=True) if n):
            held, at = {}, first
            for j, n in zip(jobs, counts, strict=True):
                if n:
                    held[j] = _on(tuple(range(at, at + n)))
                at += n
            yield held


def _may_be(trace: Trace, job: int, gpus: int) -> bool:
    return bool(trace.jobs.min_gpus[job] <= gpus <= trace.jobs.max_gpus[job])


def _on(ids: tuple[int, ...], steps: int = 1, limit: float = 1.0) -> Placement:
    fractions = (limit,) * len(ids) if limit < 1 else ()
    return Placement(((0, len(ids)),), (ids,), steps, fractions)


def _rates(trace: Trace, physics: Physics, held: Held) -> Rates:
    """Returns the rate of each job, nothing if some do not fit the memory of a GPU."""
    on_gpu = {g: [(j, p) for j, p in held.items() if g in p.gpu_ids[0]] for g in range(GPUS)}
    memory_bytes = CLUSTER.groups[0].gpu_memory_bytes
    for occupants in on_gpu.values():
        if len(occupants) > 1 and not physics.memory.fits(occupants, memory_bytes):
            return ()
    rates = [0.0] * len(trace)
    for job, placement in held.items():
        beside = dict(pair for g in placement.gpu_ids[0] for pair in on_gpu[g] if pair[0] != job)
        rates[job] = physics.rate(job, placement, list(beside.items()))
    return tuple(rates)


def looseness(trace: Trace, powers: Powers) -> dict[str, float]:
    """Returns each bound, and the best of them, over the mean JCT of the best schedule."""
    options = Options(CLUSTER)
    exact_s = least_mean_jct_s(trace, options, powers)
    found = bound(trace, options, powers)
    ratios = {one.name: one.mean_jct_s / exact_s for one in found.bounds}
    return {**ratios, "best": found.mean_jct_s / exact_s}


def main() -> None:
    """Prints the ratios of each kind of powers: median, mean and least."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--instances", type=int, default=60)
    parser.add_argument("--powers", default="", help="only those with these words")
    given = parser.parse_args()
    instances = given.instances
    for powers in [one for one in KINDS if given.powers in ("", one.words)]:
        rng, began = np.random.default_rng(7), process_time()
        every = [looseness(drawn(rng, powers), powers) for _ in range(instances)]
        print(f"{powers.words}, {instances} instances, {process_time() - began:.0f} s of CPU")
        for name in every[0]:
            ratios = [one[name] for one in every]
            middle, mean, least = np.median(ratios), np.mean(ratios), min(ratios)
            print(f"  {name:20} median {middle:.3f}  mean {mean:.3f}  least {least:.3f}")


if __name__ == "__main__":
    main()

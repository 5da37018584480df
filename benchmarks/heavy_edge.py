"""How good and how fast Heavy-Edge is, against an integer programme that minimises the iteration.

    python benchmarks/heavy_edge.py
    python benchmarks/heavy_edge.py --cases 20 --gpus 4,8,16,32 --limit-s 60

A case: eight servers of eight GPUs have 1 to 8 of them free, each number as likely, and a job takes
all of a server's before the next one's, the last in part: from the servers with most free first, as
A-SRPT does for jobs that communicate much, or in the order drawn. Every model of A-SRPT with a plan
for the count; ring and double tree; the paper's links (300 GB/s inside, 10 Gbit/s between).
Both collectives have the same best placement, since (6) is the same for both.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator
from statistics import mean, quantiles
from typing import NamedTuple

from dovetail.algorithms.exact_replicas import exact_replicas
from dovetail.algorithms.heavy_edge import heavy_edge
from dovetail.algorithms.job_graph import COLLECTIVES, job_graph
from dovetail.algorithms.pipeline_time import iteration_s, replicas_held
from dovetail.core.job import PipelineStage
from dovetail.physics.pipelined import pipelined
from dovetail.physics.planner import TESTBED, plan

TIMED = 40
"""Times each placement is made anew to time it."""
SERVERS = 8


class Case(NamedTuple):
    """One job on one set of free GPUs: Heavy-Edge over best by collective."""

    model: str
    gpus: int
    capacities: tuple[int, ...]
    over_best: dict[str, float]
    proven: bool
    exact_s: float


def availability(
    draw: random.Random, gpus: int, width: int, *, most_first: bool
) -> tuple[int, ...]:
    """Returns the GPUs taken of each server, whole replicas of `width` slices only.

    Servers have 1 to 8 free GPUs, as many as a cluster of `SERVERS` has or as it takes. A-SRPT
    takes communication-heavy jobs to the servers with most free GPUs first; else in any order.
    """
    free = [draw.randint(1, TESTBED.gpus) // width * width for _ in range(SERVERS)]
    while sum(free) < gpus:
        free.append(draw.randint(1, TESTBED.gpus) // width * width)
    taken: list[int] = []
    for here in sorted(free, reverse=True) if most_first else free:
        taken.append(min(here, gpus - sum(taken)))
    return tuple(here for here in taken if here)


def cases(
    counts: list[int], repeats: int, limit_s: float, seed: int, *, most_first: bool
) -> Iterator[Case]:
    """Yields every model at every count it has a plan for, on some draws of free GPUs."""
    draw = random.Random(seed)
    for name, model in pipelined().items():
        for gpus in counts:
            graph = plan(model, gpus)
            if not graph:
                continue
            for _ in range(repeats):
                taken = availability(draw, gpus, model.slices, most_first=most_first)
                yield one_case(name, graph, taken, limit_s)


def one_case(
    name: str, graph: tuple[PipelineStage, ...], capacities: tuple[int, ...], limit_s: float
) -> Case:
    """Returns one comparison."""
    began = time.perf_counter()
    best = exact_replicas(graph, capacities, TESTBED, limit_s=limit_s)
    exact_s = time.perf_counter() - began
    assert best is not None
    over = {}
    for collective in COLLECTIVES:
        servers = heavy_edge(graph, capacities, collective)
        assert servers is not None
        over[collective] = iteration_s(graph, replicas_held(graph, servers), TESTBED)
    proven = best.bound_s >= best.iteration_s * (1 - 1e-3)
    least_s = best.iteration_s if proven else best.bound_s
    return Case(
        name,
        sum(capacities),
        capacities,
        {collective: seconds / least_s for collective, seconds in over.items()},
        proven,
        exact_s,
    )


def report(found: list[Case]) -> None:
    """Prints Heavy-Edge's iteration over the best one, by model and over all."""
    print("iteration by Heavy-Edge over the shortest possible")
    head = "".join(f"{c + ' ' + w:>13}" for c in COLLECTIVES for w in ("mean", "p90", "worst"))
    print(f"{'model':<14}{'cases':>6}{'proven':>8}{head}{'exact mean':>12}")
    for name in [*dict.fromkeys(case.model for case in found), "all"]:
        mine = [case for case in found if name in (case.model, "all")]
        cells = ""
        for collective in COLLECTIVES:
            ratios = sorted(case.over_best[collective] for case in mine)
            p90 = quantiles(ratios, n=10)[-1] if len(ratios) > 1 else ratios[0]
            cells += f"{mean(ratios):>13.3f}{p90:>13.3f}{ratios[-1]:>13.3f}"
        exact_s = mean(case.exact_s for case in mine)
        proven = sum(case.proven for case in mine)
        print(f"{name:<14}{len(mine):>6}{proven:>8}{cells}{exact_s:>10.2f} s")
    worst = max(found, key=lambda case: case.over_best[COLLECTIVES[0]])
    print(f"worst: {worst.model} on {worst.gpus} GPUs, taken {worst.capacities}")


def speed(counts: list[int], seed: int) -> None:
    """Prints how long a placement takes, in CPU time, the job's graph known and not."""
    draw = random.Random(seed)
    print("\nmilliseconds of a placement; `fresh`: the job's graph is made too")
    print(f"{'model':<14}{'p50':>8}{'p99':>8}{'fresh p50':>11}{'fresh p99':>11}")
    for name, model in pipelined().items():
        known, fresh = [], []
        for graph in filter(None, (plan(model, gpus) for gpus in counts)):
            gpus = sum(stage.gpus for stage in graph)
            for _ in range(TIMED):
                taken = availability(draw, gpus, model.slices, most_first=False)
                job_graph.cache_clear()
                for times in (fresh, known):
                    began = time.thread_time()
                    heavy_edge(graph, taken)
                    times.append(1e3 * (time.thread_time() - began))
        cells = [quantiles(times, n=100)[k] for times in (known, fresh) for k in (49, 98)]
        print(f"{name:<14}{cells[0]:>8.3f}{cells[1]:>8.3f}{cells[2]:>11.3f}{cells[3]:>11.3f}")


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=10, help="draws for each model and count")
    parser.add_argument("--gpus", default="2,4,8,16,32", help="GPU counts")
    parser.add_argument("--limit-s", type=float, default=20.0, help="of each integer programme")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    counts = [int(word) for word in given.gpus.split(",")]
    for most_first, said in ((True, "most free GPUs first"), (False, "in any order")):
        print(f"servers taken {said}")
        report([*cases(counts, given.cases, given.limit_s, given.seed, most_first=most_first)])
    speed(counts, given.seed)


if __name__ == "__main__":
    main()

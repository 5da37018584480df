"""How good and how fast Heavy-Edge and what refines it are, against an integer programme.

    python benchmarks/heavy_edge.py
    python benchmarks/heavy_edge.py --cases 20 --gpus 4,8,16,32 --limit-s 60

A case: eight servers of eight GPUs have 1 to 8 of them free, each number as likely, and a job takes
all of a server's before the next one's, the last in part: from the servers with most free first, as
A-SRPT does for jobs that communicate much, or in the order drawn. Every model of A-SRPT with a plan
for the count: the planner's, or with `--plans shortest` the one that is fastest when well placed.
The paper's links (300 GB/s inside, 10 Gbit/s between). Ways: Heavy-Edge with the ring's or the
double tree's graph, and replicas refined from the ring's (our own). All have the same best
placement: (6) is the same for both collectives.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Iterator, Mapping
from statistics import mean, quantiles
from typing import NamedTuple

from benchmarks.double_tree import tree_graph
from dovetail.algorithms.heavy_edge import cut, heavy_edge
from dovetail.algorithms.job_graph import job_graph
from dovetail.algorithms.pipeline_time import iteration_s, packed_s, replicas_held
from dovetail.algorithms.refined_replicas import ReplicaTimes, refined_replicas
from dovetail.core.job import PipelineStage
from dovetail.physics.pipelines.pipelined import Pipelined, pipelined
from dovetail.physics.pipelines.planner import TESTBED, plan, plans
from papers.a_srpt.exact_replicas import exact_replicas

TIMED = 40
"""Times each placement is made anew to time it."""
SERVERS = 8
Graph = tuple[PipelineStage, ...]
Planner = Callable[[Pipelined, int], Graph]
Way = Callable[[Graph, tuple[int, ...]], tuple[int, ...] | None]


def _refined(graph: Graph, taken: tuple[int, ...]) -> tuple[int, ...] | None:
    return refined_replicas(graph, taken, (TESTBED,) * len(taken))


WAYS: Mapping[str, Way] = {
    "ring": heavy_edge,
    "tree": lambda graph, taken: cut(tree_graph(graph), taken),
    "refined": _refined,
}


def shortest(model: Pipelined, gpus: int) -> Graph:
    """Returns the plan with the shortest iteration on full servers, its ranks by Heavy-Edge."""
    return min(plans(model, gpus), key=lambda g: (packed_s(g, TESTBED), len(g)), default=())


PLANS: Mapping[str, Planner] = {"mean": plan, "shortest": shortest}


class Case(NamedTuple):
    """One job on one set of free GPUs: the iteration over the best one by way."""

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
    made: Planner,
    counts: list[int],
    repeats: int,
    limit_s: float,
    seed: int,
    *,
    most_first: bool,
) -> Iterator[Case]:
    """Yields every model at every count it has a plan for, on some draws of free GPUs."""
    draw = random.Random(seed)
    for name, model in pipelined().items():
        for gpus in counts:
            graph = made(model, gpus)
            if not graph:
                continue
            for _ in range(repeats):
                taken = availability(draw, gpus, model.slices, most_first=most_first)
                yield one_case(name, graph, taken, limit_s)


def one_case(name: str, graph: Graph, capacities: tuple[int, ...], limit_s: float) -> Case:
    """Returns one comparison."""
    began = time.perf_counter()
    best = exact_replicas(graph, capacities, TESTBED, limit_s=limit_s)
    exact_s = time.perf_counter() - began
    assert best is not None
    over = {}
    for way, place in WAYS.items():
        servers = place(graph, capacities)
        assert servers is not None
        over[way] = iteration_s(graph, replicas_held(graph, servers), TESTBED)
    proven = best.bound_s >= best.iteration_s * (1 - 1e-3)
    least_s = best.iteration_s if proven else best.bound_s
    return Case(
        name,
        sum(capacities),
        capacities,
        {way: seconds / least_s for way, seconds in over.items()},
        proven,
        exact_s,
    )


def percentile(values: list[float], k: int) -> float:
    """Returns what k in 100 values do not exceed."""
    return quantiles(values, n=100, method="inclusive")[k - 1] if len(values) > 1 else values[0]


def report(found: list[Case]) -> None:
    """Prints the iteration over the best one, by model and over all."""
    print("iteration over the shortest possible: Heavy-Edge by ring and tree, and refined")
    head = "".join(f"{c + ' ' + w:>14}" for c in WAYS for w in ("mean", "p90", "worst"))
    print(f"{'model':<14}{'cases':>6}{'proven':>8}{head}{'exact mean':>12}")
    for name in [*dict.fromkeys(case.model for case in found), "all"]:
        mine = [case for case in found if name in (case.model, "all")]
        cells = ""
        for way in WAYS:
            ratios = sorted(case.over_best[way] for case in mine)
            p90 = percentile(ratios, 90)
            cells += f"{mean(ratios):>14.3f}{p90:>14.3f}{ratios[-1]:>14.3f}"
        exact_s = mean(case.exact_s for case in mine)
        proven = sum(case.proven for case in mine)
        print(f"{name:<14}{len(mine):>6}{proven:>8}{cells}{exact_s:>10.2f} s")
    for way in WAYS:
        worst = max(found, key=lambda case: case.over_best[way])
        print(f"worst by {way}: {worst.model} on {worst.gpus} GPUs, taken {worst.capacities}")


def speed(made: Planner, counts: list[int], seed: int) -> None:
    """Prints how long a placement takes, in CPU time, the job's tables known and not."""
    draw = random.Random(seed)
    print("\nmilliseconds of a placement; `fresh`: the job's graph and tables are made too")
    head = "".join(f"{word:>11}" for word in ("p50", "p99", "fresh p50", "fresh p99"))
    print(f"{'model':<14}{'way':<9}{head}")
    for name, model in pipelined().items():
        taken = [
            (graph, availability(draw, sum(s.gpus for s in graph), model.slices, most_first=False))
            for graph in filter(None, (made(model, gpus) for gpus in counts))
            for _ in range(TIMED)
        ]
        for way in ("ring", "refined") if taken else ():
            known, fresh = [], []
            for graph, capacities in taken:
                job_graph.cache_clear()
                ReplicaTimes.of.cache_clear()
                for times in (fresh, known):
                    began = time.thread_time()
                    WAYS[way](graph, capacities)
                    times.append(1e3 * (time.thread_time() - began))
            cells = [percentile(times, k) for times in (known, fresh) for k in (50, 99)]
            print(f"{name:<14}{way:<9}{''.join(f'{cell:>11.3f}' for cell in cells)}")


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=10, help="draws for each model and count")
    parser.add_argument("--gpus", default="2,4,8,16,32", help="GPU counts")
    parser.add_argument("--limit-s", type=float, default=20.0, help="of each integer programme")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plans", choices=[*PLANS], default="mean")
    given = parser.parse_args()
    made = PLANS[given.plans]
    counts = [int(word) for word in given.gpus.split(",")]
    for most_first, said in ((True, "most free GPUs first"), (False, "in any order")):
        print(f"servers taken {said}")
        drawn = cases(made, counts, given.cases, given.limit_s, given.seed, most_first=most_first)
        report([*drawn])
    speed(made, counts, given.seed)


if __name__ == "__main__":
    main()

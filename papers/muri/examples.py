"""The Muri paper's worked examples: Tables 1 and 2, Figures 4, 6 and 7, from the zoo's stages.

Nothing is simulated here: cycles and efficiencies follow from stage times (equations 2 to 4).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dovetail.algorithms.stage_cycle import barrier_s, orderings
from dovetail.core.beliefs import Interleaving
from dovetail.physics.sharing.service_demand import well_placed_demand
from dovetail.physics.sharing.turns import (
    InterleaveCycles,
    InterleaveRule,
    MemberStages,
    interleaving_of,
)
from dovetail.physics.zoo.models import lookup
from papers.frame.claim import Claim, near, ratio_band
from papers.muri.best_cycles import best_ordering, efficiency
from papers.muri.published import SHARED, SHARED_BAND, SHARED_SUM, SPREAD, STAGES

GPUS = 16
"""Both tables were measured on two machines of eight GPUs."""
LEAST_PERCENT = 1.0
"""Stages shorter than this share of an iteration are within the profiler's grain."""
RULES = (
    ("equation 3", "barrier,no-contention"),
    ("equation 3, measured contention", "barrier"),
    ("overlapped cycle, measured contention", "overlapped"),
)


def claims() -> Iterator[Claim]:
    """Yields every example."""
    yield from table_1()
    yield from table_2()
    yield from figure_4()
    yield from figure_6()
    yield from figure_7()


def table_1() -> Iterator[Claim]:
    """Yields the share of an iteration that each stage takes alone."""
    part = "Table 1: stages, per cent of an iteration on 16 GPUs"
    known = _stages(tuple(STAGES))
    for kind, (name, *published) in enumerate(STAGES.values()):
        storage, cpu, gpu, network = 100 * known.stage_s[kind] / known.iteration_s[kind]
        words = ("load and preprocess", "propagate", "synchronise")
        for word, ours, theirs in zip(words, (storage + cpu, gpu, network), published, strict=True):
            band = ratio_band(theirs, SPREAD) if theirs >= LEAST_PERCENT else (0.0, LEAST_PERCENT)
            yield Claim(part, f"{name}: {word}", float(ours), "%", theirs, band)


def table_2() -> Iterator[Claim]:
    """Yields how fast four jobs of four bottlenecks run when they take turns."""
    part = "Table 2: four jobs on the same 16 GPUs"
    names = tuple(SHARED)
    known = _stages(names)
    samples = [lookup(f"muri/{model}").batch.value.on_each_of(GPUS) * GPUS for model in names]
    for one, alone_s, (name, alone, _) in zip(
        samples, known.iteration_s, SHARED.values(), strict=True
    ):
        yield near(part, f"{name} alone, samples/s", float(one / alone_s), "", alone, SPREAD)
    for words, rule in RULES:
        cycle_s = _cycle_s(_stages(names, rule))
        band = SHARED_BAND if words == RULES[-1][0] else SPREAD
        why = WHY_TABLE_2 if "no-contention" not in rule else WHY_NO_CONTENTION
        for one, (name, _, together) in zip(samples, SHARED.values(), strict=True):
            what = f"{name} in the set, samples/s, {words}"
            allowed = ratio_band(together, band)
            yield Claim(part, what, one / cycle_s, "", together, allowed, why=why)
        total = sum(
            one / cycle_s / alone
            for one, (_, alone, _) in zip(samples, SHARED.values(), strict=True)
        )
        allowed, what = ratio_band(SHARED_SUM, band), f"sum of the four, {words}"
        yield Claim(part, what, total, "x", SHARED_SUM, allowed, why=why)


def _cycle_s(known: Interleaving) -> float:
    """Returns the cycle of the best set of all kinds."""
    _, offsets = best_ordering(known.stage_s.tolist(), known.cycle)
    first, *others = (
        MemberStages(tuple(known.stage_s[kind].tolist()), float(known.iteration_s[kind]), offset)
        for kind, offset in enumerate(offsets)
    )
    return InterleaveCycles(known).slowdown(first, others) * first.iteration_s


def figure_4() -> Iterator[Claim]:
    """Yields the efficiencies that the text works out for two plans of four jobs."""
    part = "Figures 4 and 5: who is grouped with whom decides the efficiency"
    busy_cpu, busy_gpu = (2.0, 1.0), (1.0, 2.0)
    for words, pair, published in (
        ("A and B", (busy_cpu, busy_gpu), 1.0),
        ("A and C", (busy_cpu, busy_cpu), 0.75),
    ):
        cycle, _ = best_ordering(pair)
        band = ratio_band(published, 1e-9)
        yield Claim(part, f"efficiency of {words}", efficiency(pair, cycle), "", published, band)


def figure_6() -> Iterator[Claim]:
    """Yields the cycle of the two jobs of Figure 6 in the best and the worst ordering."""
    part = "Figure 6: the ordering of jobs decides the cycle"
    jobs = ((1.0, 2.0, 1.0, 1.0), (1.0, 1.0, 2.0, 1.0))
    cycles = [barrier_s(jobs, offsets) for offsets in orderings(2, 4)]
    yield Claim(part, "best ordering: no longer than either alone", min(cycles), "units")
    yield Claim(part, "worst ordering", max(cycles), "units")
    longer = max(cycles) / min(cycles)
    yield Claim(part, "the worst takes longer", longer, "x", holds=longer > 1)


def figure_7() -> Iterator[Claim]:
    """Yields what a job of two GPUs does to a partner that it shares but one of them with."""
    part = "Figure 7: sets that differ from GPU to GPU slow each other"
    a, b, c = (1.0, 1.0), (1.0, 2.0), (1.0, 1.0)
    with_b, with_c = best_ordering((a, b))[0], best_ordering((a, c))[0]
    yield Claim(part, "cycle of A and C, on their own", with_c, "units")
    what = "C waits for A, whose other worker waits for B"
    yield Claim(part, what, max(with_b, with_c), "units", holds=max(with_b, with_c) > with_c)


def _stages(names: tuple[str, ...], rule: str = "barrier") -> Interleaving:
    demands = [well_placed_demand(lookup(f"muri/{name}"), GPUS) for name in names]
    known = interleaving_of(demands, InterleaveRule.parse(rule))
    assert np.all(known.iteration_s > 0)
    return known


WHY_TABLE_2 = (
    "all four make one iteration per cycle, in the paper too: its throughputs in the set imply one "
    "cycle of 1.16 to 1.17 s; equation 3 has barriers, on which the factors count twice"
)
WHY_NO_CONTENTION = (
    "equation 3 knows nothing of contention: the authors measured cycles of four to take 1.35 "
    "times as long"
)

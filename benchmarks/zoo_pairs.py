"""All pairs of the zoo, in free competition and in turns: what each loses, and to what.

Four sums of speeds, of jobs of a speed of 1 alone:

- *fluid*: the most that the capacities allow. Free competition never exceeds it.
- *lock step*: the most where both make one iteration in the same time, as turns have it. It is
  less than fluid, since the shorter member waits.
- *in order*: the best cycle of the rule, without contention: a stage holds its resource whole,
  also between its kernels, and stages come in the order of resources.
- *turns*: the same with the measured factor of contention.

So turns lose to fluid, and at most as much to free competition, by the product of three factors,
none below 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement

import numpy as np

from dovetail.algorithms.arrays import Bools, Floats
from dovetail.physics.sharing.contention import shipped_contention
from dovetail.physics.sharing.interference import MeasuredInterference
from dovetail.physics.sharing.service_demand import GPU, ServiceDemand, well_placed_demand
from dovetail.physics.sharing.turns import InterleaveRule, interleaving_of
from dovetail.physics.zoo.models import zoo
from papers.muri.best_cycles import best_cycles

GPUS = (1, 4, 16)


@dataclass(frozen=True)
class Reading:
    """What is believed of the host: how many jobs a GPU's share feeds, and the rule of turns."""

    words: str
    host_capacity: float
    cycle: str


READINGS = (
    Reading("host of Muri's servers", shipped_contention().host_capacity.value, "overlapped"),
    Reading("host of one job", 1.0, "barrier,no-contention"),
)


@dataclass(frozen=True, eq=False)
class PairSums:
    """Sums of speeds of pairs of models whose stages are known. All arrays are [pairs].

    `by_law` tells where the pair was not measured: there free competition is the law's.
    """

    names: tuple[tuple[str, str], ...]
    by_law: Bools
    free: Floats
    fluid: Floats
    lock_step: Floats
    in_order: Floats
    turns: Floats


def pair_sums(gpus: int, reading: Reading, family: str = "") -> PairSums:
    """Returns the sums over all pairs of a family (of all, by default), so large."""
    rule = InterleaveRule.parse(reading.cycle)
    models = [p for p in zoo().values() if p.stages is not None and family in ("", p.family)]
    demands = [well_placed_demand(model, gpus) for model in models]
    sets = np.array(list(combinations_with_replacement(range(len(demands)), 2)))
    interference = MeasuredInterference(host_capacity=reading.host_capacity)
    mine, theirs = interference.ratios(demands, demands)
    known = interleaving_of(demands, rule)
    both_s, longest_s = known.iteration_s[sets].sum(axis=1), known.iteration_s[sets].max(axis=1)
    held = held_shares(demands)
    capacity = np.array([reading.host_capacity, reading.host_capacity, 1.0, 1.0])
    used_s = (held * known.iteration_s[:, None])[sets].sum(axis=1)
    lock_step_s = np.maximum(longest_s, (used_s / capacity).max(axis=1))
    in_order_s = best_cycles(known.stage_s, sets, known.cycle)
    turns_s = in_order_s * known.contention[1]
    return PairSums(
        tuple((models[i].full_name, models[j].full_name) for i, j in sets),
        np.array([not interference.is_measured(models[i], models[j]) for i, j in sets]),
        (1 / mine + 1 / theirs)[sets[:, 0], sets[:, 1]],
        fluid_sums(held[sets[:, 0]], held[sets[:, 1]], capacity),
        both_s / lock_step_s,
        both_s / np.maximum(in_order_s, longest_s),
        both_s / np.maximum(turns_s, longest_s),
    )


def held_shares(demands: Sequence[ServiceDemand]) -> Floats:
    """Returns the shares of an iteration alone in which each resource is in use."""
    law = shipped_contention().law.value
    held = np.array([demand.shares for demand in demands])
    held[:, GPU] *= [law.fill(demand.load) for demand in demands]
    return held


def fluid_sums(one: Floats, two: Floats, capacity: Floats) -> Floats:
    """Returns the largest sums of two speeds, each at most 1, that the capacities allow.

    `one` and `two` [pairs, resources] are what each uses at a speed of 1. A linear programme in
    two unknowns has its best answer where two of its constraints meet.
    """
    pairs = np.ones(len(one))
    first = [*one.T, pairs, 0 * pairs, -pairs, 0 * pairs]
    second = [*two.T, 0 * pairs, pairs, 0 * pairs, -pairs]
    most = [*(c * pairs for c in capacity), pairs, pairs, 0 * pairs, 0 * pairs]
    best = np.zeros(len(one))
    for i, j in combinations(range(len(first)), 2):
        det = first[i] * second[j] - first[j] * second[i]
        meets = np.abs(det) > 1e-12
        safe = np.where(meets, det, 1.0)
        x = (most[i] * second[j] - most[j] * second[i]) / safe
        y = (first[i] * most[j] - first[j] * most[i]) / safe
        for a, b, c in zip(first, second, most, strict=True):
            meets &= a * x + b * y <= c + 1e-9
        best = np.where(meets, np.maximum(best, x + y), best)
    return best


def print_sums() -> None:
    """Prints medians over pairs, and what turns lose to."""
    print("\nsums of the two speeds, medians over the pairs of models with known stages")
    print(f"{'reading':<24}{'pairs of':<9}{'GPUs':>5}{'pairs':>6}{'fluid':>7}{'free':>6}", end="")
    print(f"{'turns':>7}  turns lose to: lock step, order, contention   turns win")
    for reading in READINGS:
        for family in ("", "muri"):
            for gpus in GPUS:
                one = pair_sums(gpus, reading, family)
                middles = [float(np.median(x)) for x in (one.fluid, one.free, one.turns)]
                lost = (
                    one.fluid / one.lock_step,
                    one.lock_step / one.in_order,
                    one.in_order / one.turns,
                )
                factors = "".join(f"{np.median(x):>9.2f}" for x in lost)
                print(f"{reading.words:<24}{family or 'all':<9}{gpus:>5}{len(one.free):>6}", end="")
                print(f"{middles[0]:>7.2f}{middles[1]:>6.2f}{middles[2]:>7.2f}", end="")
                print(f"  {factors}{100 * np.mean(one.turns > one.free):>19.0f}%")

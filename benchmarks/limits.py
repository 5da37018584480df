"""Refits utilisations to measured pairs, and says how far what limits do can be trusted.

    python -m benchmarks.limits --data ../shared [--output limits.toml]

The number predicted is the slowdown of a pair, both limits whole: `max(1, u_1 + u_2)` against
`(u_1 + u_2) / (u_1 / xi_1 + u_2 / xi_2)`. Held out: each model whole, a quarter of the pairs, two
other types of GPU (Gavel, MIT), and Lucid's pairs on one RTX 3090 (S-Lab License 1.0,
non-commercial: read here, and nothing of them is in the package). Then what the law makes of
squeezing the second of two jobs of the zoo, as GIMBAL's Figure 2(a) does.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares
from scipy.stats import spearmanr
from tools.zoo.limits import (
    DemandFit,
    WholePairs,
    dump_demand,
    fit_demand,
    fit_known_demand,
    models_held_out,
    other_types,
    pairs_held_out,
    whole_pairs,
)

from benchmarks.interference import lucid_models, lucid_sides
from dovetail.physics.sharing.interference import GpuLoad, MeasuredInterference
from dovetail.physics.sharing.limits import (
    LEAST,
    Demand,
    shared_slowdown,
    shipped_demand,
)
from dovetail.physics.speed.throughput import fewest_steps
from dovetail.physics.zoo.models import lookup, zoo
from dovetail.physics.zoo.profile import FitError
from dovetail.profiling.least_squares import error_of
from tools.zoo.fit_placements import read_csv
from tools.zoo.pairs import FITTED_ON

Floats = NDArray[np.float64]
PAIRS_SHOWN = (
    ("pollux/cifar10", "pollux/deepspeech2"),
    ("pollux/imagenet", "pollux/ncf"),
    ("pollux/imagenet", "pollux/imagenet"),
    ("pollux/bert", "pollux/cifar10"),
    ("pollux/bert", "pollux/imagenet"),
)
LIMITS = [x / 10 for x in range(10, 0, -1)]
GPUS = 2
"""Of each job, as in Figure 2(a)."""


def row(what: str, law: FitError, constant: FitError | None = None) -> None:
    shares = "".join(f"{100 * x:>7.1f}%" for x in (law.mean, law.p90, law.worst))
    other = f"{100 * constant.mean:>9.1f}%" if constant else ""
    print(f"{what:<40}{law.rows:>6}{shares}{other}")


def held_out(data: Path, pairs: WholePairs, fit: DemandFit) -> None:
    print(f"{'slowdown of a pair':<40}{'rows':>6}{'mean':>8}{'p90':>8}{'worst':>8}{'constant':>10}")
    row("fitted", error_of(fit.predicted(pairs), fit.measured(pairs)))
    for one in (*models_held_out(pairs), pairs_held_out(pairs), *other_types(data, fit)):
        row(one.what, one.law, one.constant)
    low, middle, high = np.quantile(fit.together(pairs), [0.1, 0.5, 0.9])
    print(f"of one GPU a pair gets {middle:.2f} (10 and 90 %: {low:.2f}, {high:.2f})")
    wanted = fit.utilization(pairs.load, pairs.outside)
    alone = 1 - wanted[:, ::-1]
    less = (wanted / pairs.ratio < alone).any(axis=1).mean()
    print(f"pairs of which one gets less than its neighbour leaves: {100 * less:.0f} %")


def variants(pairs: WholePairs) -> None:
    """Takes one part of the law away at a time, and predicts pairs held out at random."""
    print("\nthe law without one of its parts, a quarter of the pairs held out, 10 draws")
    row("whole", pairs_held_out(pairs).law)
    same = replace(pairs, load=np.ones_like(pairs.load))
    row("without the load", pairs_held_out(same).law)
    inside = replace(pairs, outside=np.zeros_like(pairs.outside))
    row("without the share outside the GPU", pairs_held_out(inside).law)


def penalty(pairs: WholePairs, fit: DemandFit) -> None:
    """Fits a penalty c of free competition for all pairs: slowdown (u_1 + u_2) * (1 + c * O)."""
    wanted, measured = fit.utilization(pairs.load, pairs.outside).sum(axis=1), fit.measured(pairs)
    most = np.maximum(0.0, wanted - 1)

    def misfit(x: Floats) -> Floats:
        return np.asarray(np.log(wanted * (1 + x[0] * most) / measured))

    found = least_squares(misfit, [0.1], loss="soft_l1", f_scale=0.2)
    print(f"penalty of free competition, one for all pairs: {found.x[0]:.3f}")


def against_lucid(data: Path, fit: DemandFit) -> None:
    models = lucid_models(data)
    sides = lucid_sides(data)
    both = [
        (one, two)
        for one, two in zip(sides[0::2], sides[1::2], strict=True)
        if all(s[0] in models and s[1] in models[s[0]].load for s in (one, two))
    ]
    load = np.array([[models[s[0]].load[s[1]] for s in pair] for pair in both])
    used = np.array([[models[s[0]].busiest / 100 for s in pair] for pair in both])
    ratio = np.array([[s[4] for s in pair] for pair in both])
    print(f"\nLucid, RTX 3090: {len(both)} pairs of models timed alone at three batches")
    busy = used.min(axis=1) >= 0.5
    for what, share in (("times alone", np.ones_like(used)), ("GPU utilisation as share", used)):
        demand = np.maximum(LEAST, share * utilization(fit.law, load))
        measured = demand.sum(axis=1) / (demand / ratio).sum(axis=1)
        predicted = np.maximum(1.0, demand.sum(axis=1))
        for which, rows_of in (("all", used.min(axis=1) >= 0), ("both on the GPU", busy)):
            seen = measured[rows_of]
            constant = error_of(np.full(len(seen), seen.mean()), seen)
            row(f"{what}, {which}", error_of(predicted[rows_of], seen), constant)
            print(f"  rank correlation {spearmanr(predicted[rows_of], seen).statistic:.2f}")
    rows = read_csv(data / "data" / "lucid" / "single_data.csv")
    told, ours = [], []
    for one in rows:
        key, batch = f"{one['model']}/{one['dataset']}/{one['amp']}", int(one["batchsize"])
        if key in models and batch in models[key].load and models[key].busiest >= 50:
            told.append(float(one["gpu_util"]) / 100)
            ours.append(float(utilization(fit.law, np.array([models[key].load[batch]]))[0]))
    print(f"  measured utilisation of {len(told)} configurations alone, median", end=" ")
    print(f"{np.median(told):.2f}; by the law {np.median(ours):.2f}", end="")
    print(f", rank correlation {spearmanr(told, ours).statistic:.2f}")


def utilization(law: Demand, load: Floats) -> Floats:
    grown: Floats = np.minimum(load, law.heaviest) ** law.power
    return np.asarray(grown / (law.half + grown))


def squeezes() -> None:
    measured, known = MeasuredInterference(), shipped_demand()
    print(f"\nspeeds of both on {GPUS} GPUs each as the second is squeezed: limit, first, second")
    for pair in PAIRS_SHOWN:
        profiles = [lookup(name) for name in pair]
        batch = [p.batch.value.on_each_of(GPUS) for p in profiles]
        micro = [b / fewest_steps(p, b) for p, b in zip(profiles, batch, strict=True)]
        used = [known.utilization(p, b) for p, b in zip(profiles, micro, strict=True)]
        loads = [GpuLoad(p, b) for p, b in zip(profiles, micro, strict=True)]
        xi = [measured.ratio(loads[i], loads[1 - i]) for i in (0, 1)]
        print(f"  {' + '.join(pair)}: utilisation {used[0]:.2f}, {used[1]:.2f}")
        said = [
            (limit, 1 / shared_slowdown(used[0], 1.0, used[1], limit, xi[0]),
             1 / shared_slowdown(used[1], limit, used[0], 1.0, xi[1]))
            for limit in LIMITS
        ]  # fmt: skip
        print("   " + "; ".join(f"{100 * x:.0f}: {a:.2f} {b:.2f}" for x, a, b in said))


def gains() -> None:
    """Compares the mean completion of two jobs of one length, packed, with one after the other."""
    known, measured = shipped_demand(), MeasuredInterference()
    free, limited, best_at = [], [], []
    sides = [(p, b / fewest_steps(p, b)) for p in zoo().values()
             for b in [p.batch.value.on_each_of(GPUS)]]  # fmt: skip
    for (one, batch), (two, other) in product(sides, sides):
        used = known.utilization(one, batch), known.utilization(two, other)
        mine, theirs = GpuLoad(one, batch), GpuLoad(two, other)
        xi = measured.ratio(mine, theirs), measured.ratio(theirs, mine)
        means = [
            mean_completion(shared_slowdown(used[0], 1.0, used[1], x, xi[0]),
                            shared_slowdown(used[1], x, used[0], 1.0, xi[1]))
            for x in LIMITS
        ]  # fmt: skip
        free.append(1.5 / means[0])
        limited.append(1.5 / min(means))
        best_at.append(LIMITS[int(np.argmin(means))])
    won, ever = np.mean(np.array(free) > 1), np.mean(np.array(limited) > 1)
    print(
        f"\n{len(free)} ordered pairs of the zoo, packed for the length of one each, limits on the"
    )
    print(f"second: free competition beats one after the other in {100 * won:.0f} %, some limit")
    print(f"in {100 * ever:.0f} %; medians of the gain {np.median(free):.2f} and", end=" ")
    print(f"{np.median(limited):.2f}; the best limit is 10 % in", end=" ")
    print(f"{100 * np.mean(np.array(best_at) < 0.15):.0f} %, 100 % in", end=" ")
    print(f"{100 * np.mean(np.array(best_at) > 0.95):.0f} % of them")


def mean_completion(slow: float, other: float) -> float:
    """Returns the mean completion of two jobs of length 1; the last one ends alone and whole."""
    first, last = min(slow, other), max(slow, other)
    return (first + first + 1 - first / last) / 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="holds data/")
    parser.add_argument("--output", type=Path, help="write the refit law to this file")
    given = parser.parse_args()
    pairs = whole_pairs(given.data, FITTED_ON)
    fit = fit_demand(pairs)
    law = fit.law
    print(f"half {law.half:.3f}, power {law.power:.3f}, heaviest {law.heaviest:.1f}", end="")
    print(f", share outside the GPU {fit.outside_share:.3f}\n")
    held_out(given.data, pairs, fit)
    variants(pairs)
    penalty(pairs, fit)
    against_lucid(given.data, fit)
    squeezes()
    gains()
    if given.output:
        given.output.write_text(dump_demand(fit_known_demand(given.data)))


if __name__ == "__main__":
    main()

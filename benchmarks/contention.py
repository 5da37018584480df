"""How far the law of jobs that share GPUs can be trusted: errors by source, and what it says.

    python -m benchmarks.contention --data ../shared [-o FOLDER] [--processes FOLDER]

The errors are of ratios (iteration time shared over alone) on rows that no fit has seen, beside
those of one ratio for all, and the mean of the laws before. Then: which part of the law is worth
what, what sharing gains, the inference of SJF-BSBF, all pairs of the zoo in both readings of the
host, and what limits do to them. With -o: `contention.png`, predicted against measured.

Iteration times alone (Pollux, ElasticFlow, AFS) are not about sharing: `python -m tools.zoo fit`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from benchmarks.colocation_profile import FREE, LIMIT, LOCK_STEP
from benchmarks.scatter import Panel, save, scatter
from benchmarks.sharing_sources import (
    deepshare,
    error_rows,
    lucid,
    lucid_utilization,
    muri,
    percent,
    processes,
    sums_of_processes,
)
from benchmarks.zoo_pairs import print_sums
from dovetail.physics.sharing.interference import MeasuredInterference
from dovetail.physics.sharing.limits import shared_slowdown, utilization
from dovetail.physics.sharing.service_demand import ServiceDemand, well_placed_demand
from dovetail.physics.zoo.models import lookup, zoo
from papers.muri.published import SHARED
from tools.zoo.pairs import (
    FITTED_ON,
    OTHER_TYPES,
    Config,
    HeldOut,
    PairRows,
    alone_s,
    config_of,
    fit_law,
    mean_ratio,
    models_held_out,
    other_types,
    pair_rows,
    pairs_held_out,
    read_pairs,
)
from tools.zoo.sharing import Throughput, infer_ratio

Floats = NDArray[np.float64]
MEASURED_HERE = Path(__file__).parent / "colocation_profiles"
BEFORE = {
    ("Gavel, V100", "ResNet-18"): 0.084,
    ("Gavel, V100", "ResNet-50"): 0.094,
    ("Gavel, V100", "Transformer"): 0.147,
    ("Gavel, V100", "LM"): 0.093,
    ("Gavel, V100", "Recommendation"): 0.405,
    ("Gavel, V100", "a quarter of the pairs, 10 draws"): 0.098,
    ("Gavel, other GPUs", "p100"): 0.296,
    ("Gavel, other GPUs", "k80"): 0.232,
    ("Lucid, RTX 3090", "GPU stage as measured"): 0.079,
    ("Lucid, RTX 3090", "unknown, both on the GPU"): 0.146,
    ("Lucid, RTX 3090", "unknown, one outside it"): 0.636,
}
"""Mean errors of the laws that this one replaced, as docs/concepts/physics.md had them."""
SQUEEZED = (
    ("pollux/cifar10", "pollux/deepspeech2"),
    ("pollux/imagenet", "pollux/ncf"),
    ("pollux/imagenet", "pollux/imagenet"),
    ("pollux/bert", "pollux/cifar10"),
    ("pollux/bert", "pollux/imagenet"),
)
LIMITS = [x / 10 for x in range(10, 0, -1)]
GPUS = 2
"""Of each job whose neighbour is limited, as in GIMBAL's Figure 2(a)."""
TICKS = (1, 1.5, 2, 3, 4, 5)


@dataclass(frozen=True, eq=False)
class Source:
    """Rows of one source; `shown` is the panel that draws them, if any does."""

    name: str
    rows: Sequence[HeldOut]
    shown: str


def sources(data: Path, ours: Path = MEASURED_HERE) -> list[Source]:
    """Returns what every source says."""
    rows = pair_rows(data, FITTED_ON)
    fit = fit_law(rows, np.ones(len(rows.ratio), bool))
    found = [
        Source("Gavel, V100", models_held_out(rows), "Gavel, V100: models held out"),
        Source("Gavel, V100", [pairs_held_out(rows)], "Gavel, V100: pairs held out"),
        Source("Gavel, other GPUs", other_types(data, fit, mean_ratio(rows)), "Gavel: P100, K80"),
    ]
    of_lucid = lucid(data)
    found.append(Source("Lucid, RTX 3090", of_lucid[:1], "Lucid: RTX 3090"))
    found.append(Source("Lucid, RTX 3090", of_lucid[1:], ""))
    found.append(Source("DeepShare, networks", [deepshare(data)], "DeepShare: networks"))
    found.append(Source("Muri, in turns", [muri()], "Muri: four in turns"))
    here = processes(sorted(ours.glob("*.json")))
    panels = {FREE: "ours: free competition", LOCK_STEP: "ours: in lock step", LIMIT: ""}
    for way, shown in panels.items():
        rows_of = [one for one in here if one.what.startswith(way)]
        found.append(Source("ours, CPU slots", rows_of, shown))
    return found


def print_errors(found: Iterable[Source]) -> None:
    """Prints the table of errors."""
    print(f"{'source':<20}{'held out':<34}{'rows':>6}{'mean':>8}{'p90':>8}{'worst':>8}", end="")
    print(f"{'one ratio':>10}{'before':>8}")
    for source in found:
        for words in error_rows(source.rows):
            before = BEFORE.get((source.name, words[0]))
            cells = f"{words[1]:>6}" + "".join(f"{cell:>8}" for cell in words[2:5])
            last = percent(before) if before is not None else ""
            print(f"{source.name:<20}{words[0]:<34}{cells}{words[5]:>10}{last:>8}")


def print_table_2(cycle: HeldOut) -> None:
    """Prints samples a second of the four jobs that take turns."""
    print(f"\nMuri, Table 2: samples/s in turns ({cycle.what})")
    for (name, alone, shared), slow in zip(SHARED.values(), cycle.predicted, strict=True):
        print(f"  {name:<12}{shared:>8.0f} published{alone / slow:>8.0f} ours", end="")
        print(f"{100 * (alone / slow / shared - 1):>+7.1f}%")


def print_processes(folder: Path) -> None:
    """Prints sums of the speeds of our own processes, by the law and as measured."""
    print("\nour processes, sums of speeds, medians over sets: law, measured freely and in turns")
    for path in sorted(folder.glob("*.json")):
        for what, law, measured in sums_of_processes(path):
            said = ", ".join(f"{way} {value:.2f}" for way, value in measured.items())
            print(f"  {path.stem:<16}{what:<26}law {law:.2f}; {said}")


# What the law is made of, and what sharing is worth.


def print_parts(rows: PairRows) -> None:
    """Takes one part of the law away at a time, and predicts pairs held out at random."""
    size, whole = len(rows.ratio), pairs_held_out
    mine = tuple((f"{name}?", batch) for name, batch in rows.mine)
    other = tuple((f"{name}?", batch) for name, batch in rows.other)
    print("\nthe law without one of its parts, a quarter of the pairs held out, 10 draws")
    without: tuple[tuple[str, Callable[[PairRows], HeldOut], PairRows], ...] = (
        ("whole", whole, rows),
        ("all weigh the same", partial(pairs_held_out, weighted=False), rows),
        ("all of one load", whole, replace(rows, load=np.ones(size), other_load=np.ones(size))),
        ("no share outside the GPU", whole, replace(rows, mine=mine, other=other)),
    )
    for what, held_out, variant in without:
        error = held_out(variant).law
        print(
            f"  {what:<32}{percent(error.mean):>8}{percent(error.p90):>8}{percent(error.worst):>8}"
        )


def print_ratios(data: Path) -> None:
    """Prints sums of speeds, ratios by type of GPU, and what a doubled batch does."""
    rows = pair_rows(data, FITTED_ON)
    both = 1 / rows.ratio[0::2] + 1 / rows.ratio[1::2]
    low, middle, high = np.quantile(both, [0.1, 0.5, 0.9])
    print(f"\nsum of both speeds, {len(both)} pairs on a V100: ", end="")
    print(f"median {middle:.2f}, 10 and 90 % {low:.2f} and {high:.2f}")
    print("sides, mean ratio (geometric), sides not slowed: ", end="")
    for gpu_type in (FITTED_ON, *OTHER_TYPES):
        some = pair_rows(data, gpu_type)
        ones = int((some.ratio == 1).sum())
        print(f"{gpu_type} {len(some.ratio)}, {mean_ratio(some):.2f}, {ones}", end="; ")
    print()
    found: dict[tuple[Config, Config], list[float]] = {}
    for mine, other, ratio in zip(rows.mine, rows.other, rows.ratio, strict=True):
        found.setdefault((mine, other), []).append(float(ratio))
    mean = {pair: sum(ratios) / len(ratios) for pair, ratios in found.items()}
    for what, step in (("neighbour's", (1, 2)), ("own", (2, 1))):
        changes = [
            mean[larger] / ratio
            for ((a, x), (b, y)), ratio in mean.items()
            if (larger := ((a, x * step[0]), (b, y * step[1]))) in mean
        ]
        up, down = sum(c > 1.02 for c in changes), sum(c < 0.98 for c in changes)
        print(
            f"as the {what} batch doubles, {up} ratios rise and {down} fall by over 2 %, ", end=""
        )
        print(f"of {len(changes)}")


def print_inferred(data: Path) -> None:
    """Prints how well SJF-BSBF's inference, one ratio for all batches, fits one V100's pairs."""
    name = "ResNet-50"
    rows = read_pairs(data, FITTED_ON)
    alone = [
        Throughput(batch / seconds, batch)
        for (model, batch), seconds in alone_s(rows).items()
        if model == name
    ]
    shared: dict[Config, list[Throughput]] = {}
    for row in rows:
        for side, beside in (("a", "b"), ("b", "a")):
            model, batch = config_of(row[f"model_{side}"])
            if model == name:
                rate = float(row[f"shared_{side}_steps_per_s"]) * batch
                shared.setdefault(config_of(row[f"model_{beside}"]), []).append(
                    Throughput(rate, batch)
                )
    fits = [infer_ratio(alone, some) for some in shared.values() if len(some) > 2]
    misfit = [fit.shared_error.mean for fit in fits]
    print(f"\nSJF-BSBF's inference for {name} on a V100 beside {len(fits)} neighbours: ", end="")
    print(f"misfit {percent(float(np.mean(misfit)))} in the mean, {percent(max(misfit))} at most")


def print_utilization(data: Path) -> None:
    """Prints utilisations alone, as Lucid's authors measured them and by the law."""
    told, ours = lucid_utilization(data)
    print(f"\nGPU utilisation of {len(told)} configurations alone (Lucid), medians: ", end="")
    print(f"{np.median(told):.2f} measured, {np.median(ours):.2f} by the law, ", end="")
    print(f"rank correlation {spearmanr(told, ours).statistic:.2f}")


# Limits.


@dataclass(frozen=True, eq=False)
class Limited:
    """Two jobs, the second of which may be limited: utilisations and ratios of each."""

    used: tuple[float, float]
    free: tuple[float, float]

    @staticmethod
    def of(one: ServiceDemand, other: ServiceDemand, law: MeasuredInterference) -> Limited:
        return Limited(
            (utilization(one), utilization(other)), (law.ratio(one, other), law.ratio(other, one))
        )

    def slowdowns(self, limit: float) -> tuple[float, float]:
        (one, two), (first, second) = self.used, self.free
        return (
            shared_slowdown(one, 1.0, two, limit, first),
            shared_slowdown(two, limit, one, 1.0, second),
        )

    def mean_completion(self, limit: float) -> float:
        """Returns the mean completion of two jobs of length 1; the last ends alone and whole."""
        first, last = sorted(self.slowdowns(limit))
        return (first + first + 1 - first / last) / 2


def print_limits() -> None:
    """Prints what squeezing the second of two jobs does, and what the best limit gains."""
    law = MeasuredInterference()
    print(f"\nspeeds of both on {GPUS} GPUs each as the second is squeezed: limit, first, second")
    for names in SQUEEZED:
        one, other = (well_placed_demand(lookup(name), GPUS) for name in names)
        pair = Limited.of(one, other, law)
        said = [(limit, *(1 / slow for slow in pair.slowdowns(limit))) for limit in LIMITS]
        print(f"  {' + '.join(names)}: utilisation {pair.used[0]:.2f}, {pair.used[1]:.2f}")
        print("   " + "; ".join(f"{100 * x:.0f}: {a:.2f} {b:.2f}" for x, a, b in said))
    demands = [well_placed_demand(profile, GPUS) for profile in zoo().values()]
    means = np.array(
        [
            [Limited.of(one, other, law).mean_completion(limit) for limit in LIMITS]
            for one, other in product(demands, demands)
        ]
    )
    free, best = 1.5 / means[:, 0], 1.5 / means.min(axis=1)
    at = np.array(LIMITS)[means.argmin(axis=1)]
    print(f"{len(means)} ordered pairs of the zoo, packed for the length of one each, limits on")
    print(f"the second: free competition beats one after the other in {np.mean(free > 1):.0%},")
    print(
        f"some limit in {np.mean(best > 1):.0%}; medians of the gain {np.median(free):.2f}", end=""
    )
    print(
        f" and {np.median(best):.2f}; the best limit is 10 % in {np.mean(at < 0.15):.0%},", end=""
    )
    print(f" 100 % in {np.mean(at > 0.95):.0%} of them")


# The picture.


def panels(found: Iterable[Source]) -> list[Panel]:
    """Returns a panel for each source that is shown, a colour for each set of rows."""
    return [
        Panel(source.shown, [(one.predicted, one.measured) for one in source.rows], TICKS)
        for source in found
        if source.shown
    ]


def main() -> None:
    """Prints all comparisons, and draws."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="holds data/")
    parser.add_argument("-o", "--output", type=Path, help="folder for contention.png")
    parser.add_argument(
        "--processes", type=Path, default=MEASURED_HERE, help="folder of measured sets"
    )
    given = parser.parse_args()
    found = sources(given.data, given.processes)
    print_errors(found)
    print_table_2(next(source.rows[0] for source in found if source.name.startswith("Muri")))
    print_processes(given.processes)
    print_parts(pair_rows(given.data, FITTED_ON))
    print_ratios(given.data)
    print_inferred(given.data)
    print_utilization(given.data)
    print_sums()
    print_limits()
    if given.output:
        save(scatter(panels(found), "ratio"), given.output / "contention")


if __name__ == "__main__":
    main()

"""How far the ratios of shared GPUs can be trusted: cross-checks that the package does not need.

    python benchmarks/interference.py --data ../shared

The errors on held-out models and pairs are `python -m tools.zoo pairs --data ../shared`. This adds

- a device and an author the law has not seen: Lucid's pairs on one RTX 3090 (S-Lab License 1.0,
  non-commercial: read here, and nothing of them is in the package);
- the procedure of SJF-BSBF: equation (7) fitted to throughputs alone and shared, and the ratio
  inferred, on Gavel's V100 rows of ResNet-50;
- what sharing gains at all: the sum of both speeds over one job alone, on the V100;
- what each part of the law is worth, GPU types compared, and what a doubled batch does;
- whether Gavel measured pairs on more than one GPU.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from dovetail.physics.sharing.contention import shipped_contention
from dovetail.profiling.least_squares import error_of
from tools.zoo.fit_placements import read_csv
from tools.zoo.pairs import (
    FITTED_ON,
    OTHER_TYPES,
    Config,
    alone_s,
    config_of,
    loads,
    mean_ratio,
    pair_rows,
    pairs_held_out,
    read_pairs,
)
from tools.zoo.sharing import Throughput, infer_ratio

Floats = NDArray[np.float64]
UTILISATION_SHARE = 50.0
"""A model whose busiest batch keeps the GPU busy for less than this percentage works outside it."""


@dataclass(frozen=True)
class LucidModel:
    """Loads by batch of one model alone, and its GPU utilisation at the busiest batch."""

    load: dict[int, float]
    busiest: float


def lucid_models(data: Path) -> dict[str, LucidModel]:
    rows = read_csv(data / "data" / "lucid" / "single_data.csv")
    keys = [f"{row['model']}/{row['dataset']}/{row['amp']}" for row in rows]
    seconds = {
        (key, int(row["batchsize"])): int(row["batchsize"]) / float(row["speed"])
        for key, row in zip(keys, rows, strict=True)
    }
    load = loads(seconds)
    found = {}
    for key in dict.fromkeys(key for key, _ in load):
        busiest = max(float(r["gpu_util"]) for k, r in zip(keys, rows, strict=True) if k == key)
        found[key] = LucidModel({b: x for (k, b), x in load.items() if k == key}, busiest)
    return found


def lucid_sides(data: Path) -> list[tuple[str, int, str, int, float]]:
    """Returns model and batch of oneself and of the neighbour, and the ratio."""
    found = []
    for row in read_csv(data / "data" / "lucid" / "colocate_info.csv"):
        one, two = (
            (f"{row[f'model{i}']}/{row[f'dataset{i}']}/{row[f'amp{i}']}", int(row[f"batchsize{i}"]))
            for i in (1, 2)
        )
        found.append((*one, *two, max(1.0, 1 / float(row["speed1"]))))
        found.append((*two, *one, max(1.0, 1 / float(row["speed2"]))))
    return found


def against_lucid(data: Path) -> None:
    models = lucid_models(data)
    sides = [s for s in lucid_sides(data) if s[0] in models and s[2] in models]
    sides = [s for s in sides if s[1] in models[s[0]].load and s[3] in models[s[2]].load]
    measured = np.array([ratio for *_, ratio in sides])
    from_times = predicted(models, sides, dict.fromkeys(models, 1.0))
    utilised = predicted(models, sides, {k: one.busiest / 100 for k, one in models.items()})
    busy = np.array(
        [
            min(models[mine].busiest, models[other].busiest) >= UTILISATION_SHARE
            for mine, _, other, _, _ in sides
        ]
    )
    every = np.ones(len(sides), bool)
    print(f"\nLucid, RTX 3090: {len(sides)} sides of models timed alone at three batches")
    print(f"{'':<40}{'rows':>6}{'mean':>8}{'p90':>8}{'worst':>8}{'rank':>6}{'ratio':>7}{'ours':>6}")
    for what, ours, rows in (
        ("times alone, all", from_times, every),
        ("times alone, both work on the GPU", from_times, busy),
        ("times alone, one outside it", from_times, ~busy),
        ("GPU utilisation as the share, all", utilised, every),
        ("their own mean for all", np.full(len(sides), measured.mean()), every),
    ):
        error = error_of(ours[rows], measured[rows])
        shares = "".join(f"{100 * x:>7.1f}%" for x in (error.mean, error.p90, error.worst))
        rank = spearmanr(ours[rows], measured[rows]).statistic if np.ptp(ours) else 0.0
        middles = f"{np.median(measured[rows]):>7.2f}{np.median(ours[rows]):>6.2f}"
        print(f"{what:<40}{error.rows:>6}{shares}{rank:>6.2f}{middles}")


def predicted(
    models: dict[str, LucidModel],
    sides: list[tuple[str, int, str, int, float]],
    share: dict[str, float],
) -> Floats:
    """Returns the ratios by the shipped law, with the GPU shares given."""
    law = shipped_contention().law.value
    return np.array(
        [
            1 + law.excess(models[a].load[x], share[a], models[b].load[y], share[b])
            for a, x, b, y, _ in sides
        ]
    )


def inferred_ratios(data: Path) -> None:
    """Fits equation (7) to ResNet-50 alone and beside each neighbour, on one V100."""
    mine = "ResNet-50"
    rows = read_pairs(data, FITTED_ON)
    alone = [
        Throughput(batch / seconds, batch)
        for (name, batch), seconds in alone_s(rows).items()
        if name == mine
    ]
    shared: dict[Config, dict[int, Throughput]] = {}
    for row in rows:
        for side, other in (("a", "b"), ("b", "a")):
            name, batch = config_of(row[f"model_{side}"])
            if name == mine:
                rate = float(row[f"shared_{side}_steps_per_s"]) * batch
                beside = config_of(row[f"model_{other}"])
                shared.setdefault(beside, {})[batch] = Throughput(rate, batch)
    print(f"\n{mine} on a V100, equation (7) alone and beside a neighbour, at batches of 16 to 128")
    print(f"{'beside':<24}{'rows':>5}{'ratio':>7}{'misfit':>8}{'a, ms':>8}{'b, ms':>7}")
    first = infer_ratio(alone, alone)
    compute, own = first.compute, 100 * first.alone_error.mean
    times = f"{1e3 * compute.a_s:>8.1f}{1e3 * compute.b_s_per_sample:>7.2f}"
    print(f"{'alone':<24}{len(alone):>5}{1:>7.2f}{own:>7.1f}%{times}")
    for (name, batch), found in shared.items():
        if len(found) < 3:
            continue
        both = list(found.values())
        one = infer_ratio(alone, both)
        compute = infer_ratio(both, both).compute
        misfit = f"{100 * one.shared_error.mean:>7.1f}%"
        times = f"{1e3 * compute.a_s:>8.1f}{1e3 * compute.b_s_per_sample:>7.2f}"
        print(f"{f'{name} {batch}':<24}{len(both):>5}{one.ratio:>7.2f}{misfit}{times}")


def gain_of_sharing(data: Path) -> None:
    rows = pair_rows(data, FITTED_ON)
    both = 1 / rows.ratio[0::2] + 1 / rows.ratio[1::2]
    low, middle, high = np.quantile(both, [0.1, 0.5, 0.9])
    print(
        f"\nsum of both speeds, {len(both)} pairs on a V100: {middle:.2f} ({low:.2f}, {high:.2f})"
    )
    low, middle, high = np.quantile(rows.ratio, [0.1, 0.5, 0.9])
    print(f"ratios: median {middle:.2f}, 10 and 90 % {low:.2f} and {high:.2f}", end="")
    print(f", largest {rows.ratio.max():.2f}")


def devices(data: Path) -> None:
    print("\nGPU types: sides, mean ratio (geometric), ratios of exactly 1")
    for gpu_type in (FITTED_ON, *OTHER_TYPES):
        rows = pair_rows(data, gpu_type)
        ones = int((rows.ratio == 1).sum())
        print(f"  {gpu_type}: {len(rows.ratio)}, {mean_ratio(rows):.2f}, {ones}")


def doubled_batches(data: Path) -> None:
    """Counts how often a ratio rises or falls by over 2 % as one of the two batches doubles."""
    rows = pair_rows(data, FITTED_ON)
    found: dict[tuple[Config, Config], list[float]] = {}
    for mine, other, ratio in zip(rows.mine, rows.other, rows.ratio, strict=True):
        found.setdefault((mine, other), []).append(float(ratio))
    mean = {pair: sum(ratios) / len(ratios) for pair, ratios in found.items()}
    print("\nas a batch doubles, ratios that rise and fall by over 2 %")
    for what, step in (("neighbour's", (1, 2)), ("own", (2, 1))):
        changes = [
            mean[larger] / ratio
            for ((a, x), (b, y)), ratio in mean.items()
            if (larger := ((a, x * step[0]), (b, y * step[1]))) in mean
        ]
        up, down = sum(c > 1.02 for c in changes), sum(c < 0.98 for c in changes)
        print(f"  {what}: {up} rise, {down} fall, of {len(changes)}")


def sensitivity(data: Path) -> None:
    """Takes one part of the law away at a time, and predicts pairs held out at random."""
    rows = pair_rows(data, FITTED_ON)
    size = len(rows.ratio)
    mine = tuple((f"{name}?", batch) for name, batch in rows.mine)
    other = tuple((f"{name}?", batch) for name, batch in rows.other)
    print("\nthe law without one of its parts, a quarter of the pairs held out, 10 draws")
    for what, variant in (
        ("whole", rows),
        ("without the own load", replace(rows, load=np.zeros(size))),
        ("without the neighbour's load", replace(rows, other_load=np.ones(size))),
        ("without the share outside the GPU", replace(rows, mine=mine, other=other)),
    ):
        error = pairs_held_out(variant).law
        shares = "".join(f"{100 * x:>7.1f}%" for x in (error.mean, error.p90, error.worst))
        print(f"{what:<40}{error.rows:>6}{shares}")


def pairs_on_more_gpus(data: Path) -> None:
    print(
        "\npairs in Gavel's other tables: GPUs of each job, pairs listed, pairs with a throughput"
    )
    for name in ("simulation_throughputs", "physical_cluster_throughputs"):
        tables = json.loads((data / "data" / "gavel" / f"{name}.json").read_text())
        count: dict[int, list[int]] = {}
        for table in tables.values():
            for job, row in table.items():
                gpus = int(job.rsplit(",", 1)[1].strip(" )"))
                rates = [both for other, both in row.items() if other != "null"]
                seen = count.setdefault(gpus, [0, 0])
                seen[0] += len(rates)
                seen[1] += sum(1 for both in rates if max(both) > 0)
        shown = "; ".join(f"{gpus}: {n}, {seen}" for gpus, (n, seen) in sorted(count.items()))
        print(f"  {name}: {shown}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="holds data/")
    data = parser.parse_args().data
    against_lucid(data)
    inferred_ratios(data)
    gain_of_sharing(data)
    sensitivity(data)
    devices(data)
    doubled_batches(data)
    pairs_on_more_gpus(data)


if __name__ == "__main__":
    main()

"""What others measured of jobs that share resources, beside what our law says of the same.

Each function reads one public source and returns rows as predicted and as measured. Predictions
use demands of the jobs alone; of a job beside another nothing is used but what a fit has kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.colocation_profile import (
    FREE,
    LIMIT,
    LOCK_STEP,
    TOKENS,
    Entry,
    Profile,
    read_profile,
)
from dovetail.algorithms.processor_sharing import slowdowns
from dovetail.algorithms.stage_cycle import OVERLAPPED, barrier_s
from dovetail.physics.sharing.contention import shipped_contention
from dovetail.physics.sharing.limits import LEAST, shared_slowdown
from dovetail.physics.sharing.service_demand import GPU, RESOURCES, well_placed_demand
from dovetail.physics.sharing.turns import InterleaveRule, interleaving_of
from dovetail.physics.zoo.models import zoo
from dovetail.profiling.least_squares import solve_least_squares
from papers.muri.best_cycles import best_cycles
from papers.muri.published import SHARED
from tools.zoo.fit_placements import read_csv
from tools.zoo.pairs import HeldOut, gpu_ratios, loads

Floats = NDArray[np.float64]
NETWORK = 3
DEEPSHARE_DRAWS = 4
HELD_OUT_SHARE = 0.25
LEAST_SPEED = 0.1
"""A measured speed below it is counted as it: one cell of 1,296 would decide a fit."""
MACHINES_GPUS = 16
"""Of Muri's Table 2: two machines of eight."""
ON_THE_GPU = 0.5
"""A model whose busiest batch keeps the GPU busy for less works outside it."""


# Lucid: pairs on one RTX 3090 (S-Lab License 1.0, non-commercial: read, never shipped).


@dataclass(frozen=True)
class LucidModel:
    """Loads by batch of a model alone, and its GPU utilisation at the busiest batch."""

    load: Mapping[int, float]
    busiest: float


LucidSide = tuple[str, int, str, int, float]
"""Model and batch of oneself and of the neighbour, and the ratio."""


def lucid_models(data: Path) -> dict[str, LucidModel]:
    """Returns the models that Lucid's authors timed alone at three batches or more."""
    rows = read_csv(data / "data" / "lucid" / "single_data.csv")
    keys = [f"{row['model']}/{row['dataset']}/{row['amp']}" for row in rows]
    load = loads(
        {
            (key, int(row["batchsize"])): int(row["batchsize"]) / float(row["speed"])
            for key, row in zip(keys, rows, strict=True)
        }
    )
    found = {}
    for key in dict.fromkeys(key for key, _ in load):
        busiest = max(float(r["gpu_util"]) for k, r in zip(keys, rows, strict=True) if k == key)
        found[key] = LucidModel({b: x for (k, b), x in load.items() if k == key}, busiest / 100)
    return found


def lucid_sides(data: Path, models: Mapping[str, LucidModel]) -> list[LucidSide]:
    """Returns both sides of the pairs of which both were timed alone; a ratio below 1 counts 1."""
    found: list[LucidSide] = []
    for row in read_csv(data / "data" / "lucid" / "colocate_info.csv"):
        one, two = (
            (f"{row[f'model{i}']}/{row[f'dataset{i}']}/{row[f'amp{i}']}", int(row[f"batchsize{i}"]))
            for i in (1, 2)
        )
        if all(name in models and batch in models[name].load for name, batch in (one, two)):
            found.append((*one, *two, max(1.0, 1 / float(row["speed1"]))))
            found.append((*two, *one, max(1.0, 1 / float(row["speed2"]))))
    return found


def lucid(data: Path) -> list[HeldOut]:
    """Returns Lucid's pairs, with the GPU stage as measured and, of times alone, unknown."""
    models = lucid_models(data)
    sides = lucid_sides(data, models)
    measured = np.array([ratio for *_, ratio in sides])
    used = np.array([[models[a].busiest, models[b].busiest] for a, _, b, _, _ in sides])
    load = np.array([[models[a].load[x], models[b].load[y]] for a, x, b, y, _ in sides])
    law = shipped_contention().law.value
    mean = np.full(len(sides), measured.mean())
    busy = used.min(axis=1) >= ON_THE_GPU
    known = gpu_ratios(law, tuple(load.T), tuple(used.T))
    unknown = gpu_ratios(law, tuple(load.T), tuple(np.ones_like(used.T)))
    return [
        HeldOut("GPU stage as measured", known, measured, mean),
        HeldOut("unknown, both on the GPU", unknown[busy], measured[busy], mean[busy]),
        HeldOut("unknown, one outside it", unknown[~busy], measured[~busy], mean[~busy]),
    ]


def lucid_utilization(data: Path) -> tuple[Floats, Floats]:
    """Returns utilisations alone of models that work on the GPU: measured, and by the law."""
    models, law = lucid_models(data), shipped_contention().law.value
    told, ours = [], []
    for row in read_csv(data / "data" / "lucid" / "single_data.csv"):
        model = models.get(f"{row['model']}/{row['dataset']}/{row['amp']}")
        if model and int(row["batchsize"]) in model.load and model.busiest >= ON_THE_GPU:
            told.append(float(row["gpu_util"]) / 100)
            ours.append(law.fill(model.load[int(row["batchsize"])]))
    return np.array(told), np.array(ours)


# DeepShare: jobs that share the network of their nodes, not their GPUs.


def deepshare(data: Path) -> HeldOut:
    """Returns cells held out of the fit of one network demand for each of six models."""
    names, measured = _deepshare_cells(data)
    models = list(dict.fromkeys(name.split(",")[0] for name in names))
    model = np.array([models.index(name.split(",")[0]) for name in names])
    mine, other = (side.ravel() for side in np.meshgrid(model, model, indexing="ij"))
    known = np.isfinite(measured)
    mine, other, measured = mine[known], other[known], measured[known]
    random, law, seen, constant = np.random.default_rng(0), [], [], []
    for _ in range(DEEPSHARE_DRAWS):
        held = random.random(len(measured)) < HELD_OUT_SHARE

        def misfit(x: Floats, kept: NDArray[np.bool_] = ~held) -> Floats:
            ratios = on_the_network(x[mine], x[other])
            return np.asarray(np.log(ratios / measured)[kept])

        bounds = ([0.0] * len(models), [1.0] * len(models))
        start = [[0.5] * len(models)]
        share = solve_least_squares(misfit, start, bounds, loss="soft_l1", f_scale=0.1)
        law.append(on_the_network(share[mine], share[other])[held])
        seen.append(measured[held])
        mean = float(np.exp(np.log(measured[~held]).mean()))
        constant.append(np.full(int(held.sum()), mean))
    what = f"a quarter of the cells, {DEEPSHARE_DRAWS} draws"
    return HeldOut(what, np.concatenate(law), np.concatenate(seen), np.concatenate(constant))


def _deepshare_cells(data: Path) -> tuple[list[str], Floats]:
    """Returns the configurations, and the ratio of each beside each, by rows."""
    rows = read_csv(data / "data" / "deepshare" / "shared_thp_ratio.csv")
    names = [row[""] for row in rows]
    speed = np.array([[float(row[name] or "nan") for name in names] for row in rows])
    return names, np.asarray(1 / np.maximum(speed, LEAST_SPEED)).ravel()


def on_the_network(mine: Floats, other: Floats) -> Floats:
    """Returns ratios of pairs that share a link alone, by their demands on it."""
    stages = np.stack([mine, other], axis=1)[..., None]
    return slowdowns(stages, stages, np.ones_like(stages), np.ones((1, 1, 1)))[:, 0]


# Muri: four jobs that take turns.


def muri() -> HeldOut:
    """Returns what the four jobs of Table 2 slow down to, all in one cycle by the default rule."""
    rule = InterleaveRule()
    demands = [well_placed_demand(zoo()[f"muri/{name}"], MACHINES_GPUS) for name in SHARED]
    known = interleaving_of(demands, rule)
    cycle_s = float(best_cycles(known.stage_s, np.arange(len(demands))[None], OVERLAPPED)[0])
    cycle_s = max(cycle_s * rule.contention[len(demands) - 1], float(known.iteration_s.max()))
    samples = [d.micro_batch * MACHINES_GPUS for d in demands]
    alone = np.array([alone for _, alone, _ in SHARED.values()])
    shared = np.array([together for _, _, together in SHARED.values()])
    predicted = alone * cycle_s / np.array(samples)
    measured = alone / shared
    mean = np.full(len(measured), float(np.exp(np.log(measured).mean())))
    return HeldOut(f"four jobs, cycle {cycle_s:.3f} s", predicted, measured, mean)


# Processes of our own on CPU slots (`python -m benchmarks.colocation`).


def processes(paths: Iterable[Path]) -> list[HeldOut]:
    """Returns ratios of measured sets in free competition, in lock step and under limits.

    All come from the demands of the members alone, in the same run: each resource serves one at
    full speed, and all members weigh the same. Loaders work so many batches `ahead`.
    """
    found: dict[str, list[tuple[float, float]]] = {}
    for profile in map(read_profile, paths):
        for entry in profile.entries:
            if entry.way in (FREE, LOCK_STEP, LIMIT) and (len(entry.kinds) > 1):
                loaders = "ahead" if entry.ahead else "not ahead"
                what = f"{entry.way}, sets of {len(entry.kinds)}, {loaders}"
                found.setdefault(what, []).extend(_of_entry(entry, profile))
    tables = {what: np.array(rows) for what, rows in found.items()}
    return [
        HeldOut(what, table[:, 0], table[:, 1], np.full(len(table), table[:, 1].mean()))
        for what, table in tables.items()
    ]


def _of_entry(entry: Entry, profile: Profile) -> Iterator[tuple[float, float]]:
    """Yields the ratio of each member as predicted and as measured."""
    own = [profile.alone(kind, entry.ahead) for kind in entry.kinds]
    alone_s = np.array([1 / np.median(one.rates_per_s[0]) for one in own])
    stage_s = np.array([one.used_s[0] for one in own])
    shares = np.minimum(1.0, stage_s / alone_s[:, None])
    ratios = slowdowns(shares[None], shares[None], np.ones((1, *shares.shape)), ONE_OF_EACH)[0]
    if entry.way == LOCK_STEP:
        ratios = barrier_s(stage_s.tolist(), entry.offsets) / alone_s
    elif entry.way == LIMIT:
        ratios = _limited(np.maximum(LEAST, shares[:, GPU]), ratios, entry)
    speeds = np.mean(profile.of_alone(entry), axis=1)
    yield from zip(ratios.tolist(), (1 / speeds).tolist(), strict=True)


def sums_of_processes(path: Path) -> Iterator[tuple[str, float, dict[str, float]]]:
    """Yields, by kind of set, medians of the sum of speeds: by the law freely, and as measured."""
    profile = read_profile(path)
    sets = [(len(e.kinds), e.ahead) for e in profile.entries if len(e.kinds) > 1]
    for size, ahead in dict.fromkeys(sets):
        of_size = [e for e in profile.entries if (len(e.kinds), e.ahead) == (size, ahead)]
        law = [
            sum(1 / ratio for ratio, _ in _of_entry(entry, profile))
            for entry in of_size
            if entry.way == FREE
        ]
        measured = {
            way: float(np.median([np.mean(profile.sums(e)) for e in of_size if e.way == way]))
            for way in (FREE, TOKENS, LOCK_STEP)
        }
        what = f"{len(law)} sets of {size}, {'ahead' if ahead else 'not ahead'}"
        yield what, float(np.median(law)), measured


ONE_OF_EACH: Floats = np.ones((1, 1, RESOURCES))


def _limited(used: Floats, free: Floats, entry: Entry) -> Floats:
    """Returns the ratios of two, one of which may use a share of the computing alone."""
    first, second = (entry.share if n == entry.limited else 1.0 for n in range(2))
    (one, two), (slow, slower) = used, free
    return np.array(
        [
            shared_slowdown(one, first, two, second, slow),
            shared_slowdown(two, second, one, first, slower),
        ]
    )


def error_rows(rows: Sequence[HeldOut]) -> Iterator[tuple[str, ...]]:
    """Yields the words of each row: name, rows, mean, 90th percentile, worst, one ratio for all."""
    for one in rows:
        law = one.law
        yield (
            one.what,
            str(law.rows),
            *map(percent, (law.mean, law.p90, law.worst)),
            percent(one.constant.mean),
        )


def percent(share: float) -> str:
    """Returns a share as per cent."""
    return f"{100 * share:.1f}%"

"""Fits the law of contention to Gavel's measured pairs, and says how well it does on others.

Gavel's authors ran 26 configurations of 7 models alone and in pairs on one GPU, of three types.
The V100's pairs are fitted. Models are held out whole (as oneself and as the neighbour), then
pairs at random; the law is also held against the two other types, which it has not seen.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dovetail.algorithms.processor_sharing import slowdowns
from dovetail.physics.sharing.contention import Contention, KnownContention
from dovetail.physics.sharing.interference import LEAST, ROOMY_HOST
from dovetail.physics.sharing.pairs import MeasuredPair, PairRatio
from dovetail.physics.sharing.service_demand import GPU, RESOURCES
from dovetail.physics.zoo.profile import FitError
from dovetail.physics.zoo.profile_file import ProfileSet, dump_profiles
from dovetail.physics.zoo.provenance import Provenance, Sourced
from dovetail.profiling.least_squares import error_of, solve_least_squares
from tools.zoo.fit_placements import read_csv

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

FITTED_ON = "v100"
OTHER_TYPES = ("p100", "k80")
OUTSIDE_THE_GPU = "Recommendation"
"""Its iterations are mostly spent outside the GPU, which its times alone do not tell."""
FEWEST_BATCHES = 3
HELD_OUT_SHARE = 0.25
SPLITS = 10
SOURCE = (
    "Gavel (stanford-futuredata/gavel, scheduler, oracle_throughputs.json, MIT): throughputs alone "
    "and in pairs on one V100"
)
HOST_CAPACITY = 92 / 8 / 4
HOST_SOURCE = (
    "Muri (Rivendile/Muri, simulator/cluster_spec, Apache-2.0): 92 cores for 8 GPUs, 4 loaders a "
    "job; eight jobs of one GPU load there as fast as one within 10 %"
)
SAME_AS = {
    "pollux/cifar10": ("ResNet-18", "ResNet-18 on CIFAR-10 in both; the T4 taken as a V100"),
    "pollux/imagenet": ("ResNet-50", "ResNet-50 on ImageNet in both; the T4 taken as a V100"),
    "elasticflow/resnet50": ("ResNet-50", "ResNet-50 on ImageNet; the A100 taken as a V100"),
    "afs/resnet50": ("ResNet-50", "ResNet-50 on ImageNet; the GTX 1080 taken as a V100"),
}
"""Models of the zoo whose architecture and task Gavel measured too."""
Config = tuple[str, int]


@dataclass(frozen=True)
class PairRows:
    """Measured sides of pairs in columns: who, beside whom, and the ratio of iteration times."""

    mine: tuple[Config, ...]
    other: tuple[Config, ...]
    load: Floats
    other_load: Floats
    ratio: Floats

    def of(self, models: Sequence[str]) -> Bools:
        """Returns which rows have one of the models on either side."""
        sides = zip(self.mine, self.other, strict=True)
        return np.array([mine[0] in models or other[0] in models for mine, other in sides])

    def sharing(self, model: str) -> tuple[Bools, Bools]:
        """Returns where a model is oneself, and where it is the neighbour."""
        mine = np.array([config[0] == model for config in self.mine])
        return mine, np.array([config[0] == model for config in self.other])


@dataclass(frozen=True, slots=True)
class PairFit:
    """The law's constants, and the share of the model that works outside the GPU."""

    law: Contention
    outside_share: float

    def predicted(self, rows: PairRows) -> Floats:
        """Returns the ratios the law gives."""
        shares = [self._shares(outside) for outside in rows.sharing(OUTSIDE_THE_GPU)]
        return gpu_ratios(self.law, (rows.load, rows.other_load), shares)

    def utilization(self, outside: Bools, load: Floats) -> Floats:
        """Returns the share of an iteration alone in which the GPU works."""
        _, held, _ = _on_the_gpu(self.law, load, self._shares(outside))
        return held[:, GPU]

    def _shares(self, outside: Bools) -> Floats:
        return np.where(outside, self.outside_share, 1.0)


def gpu_ratios(law: Contention, loads: Sequence[Floats], shares: Sequence[Floats]) -> Floats:
    """Returns the ratios of first members by loads and GPU stages (shares of the iteration).

    Both have one array of rows for each member of a set.
    """
    members = [_on_the_gpu(law, *each) for each in zip(loads, shares, strict=True)]
    stages, held, weight = (np.stack(parts, axis=1) for parts in zip(*members, strict=True))
    return slowdowns(stages, held, weight, ROOMY_HOST)[:, 0]


def _on_the_gpu(law: Contention, load: Floats, share: Floats) -> tuple[Floats, Floats, Floats]:
    """Returns stages, what is held of them, and weights, each [rows, resources]."""
    counted = np.clip(load, law.lightest, law.heaviest)
    stages, weight = np.zeros((len(load), RESOURCES)), np.ones((len(load), RESOURCES))
    stages[:, GPU] = share
    weight[:, GPU] = counted**law.weight_power
    held = stages.copy()
    held[:, GPU] *= counted / (law.half + counted)
    return stages, held, weight


def read_pairs(data: Path, gpu_type: str) -> list[dict[str, str]]:
    """Returns the measured pairs of a GPU type, without those that did not fit its memory.

    A configuration whose time alone is copied from another type was not measured, and is left out.
    """
    rows = read_csv(data / "data" / "gavel" / "pairwise_interference_derived.csv")
    alone: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        for side in "ab":
            rate = row[f"alone_{side}_steps_per_s"]
            alone.setdefault((row[f"model_{side}"], rate), set()).add(row["gpu"])
    copied = {model for (model, _), types in alone.items() if len(types) > 1 and gpu_type in types}
    return [
        row
        for row in rows
        if row["gpu"] == gpu_type
        and not {row["model_a"], row["model_b"]} & copied
        and float(row["shared_a_steps_per_s"]) > 0
        and float(row["shared_b_steps_per_s"]) > 0
    ]


def config_of(job_type: str) -> Config:
    """Returns model and batch of a name such as `ResNet-18 (batch size 16)`; no batch counts 1."""
    found = re.fullmatch(r"(.+?) \(batch size (\d+)\)", job_type)
    return (found[1], int(found[2])) if found else (job_type, 1)


def alone_s(pairs: Sequence[dict[str, str]]) -> dict[Config, float]:
    """Returns the seconds of an iteration alone of every configuration.

    Steps of the recommendation model are passes over its data, so its times are of one sample; a
    load, being a quotient of times, needs no more.
    """
    times = {}
    for row in pairs:
        for side in "ab":
            model, batch = config_of(row[f"model_{side}"])
            rate = float(row[f"alone_{side}_steps_per_s"])
            times[model, batch] = (batch if model == OUTSIDE_THE_GPU else 1) / rate
    return times


def loads(times: dict[Config, float]) -> dict[Config, float]:
    """Returns the load of each configuration of the models timed at several batches."""
    from scipy.optimize import nnls

    found: dict[Config, float] = {}
    for model in dict.fromkeys(name for name, _ in times):
        batches = np.array(sorted(batch for name, batch in times if name == model), float)
        if len(batches) < FEWEST_BATCHES:
            continue
        seconds = np.array([times[model, int(batch)] for batch in batches])
        columns = np.column_stack([np.ones_like(batches), batches]) / seconds[:, None]
        fixed_s, slope_s = nnls(columns, np.ones_like(batches))[0]
        for batch in batches:
            found[model, int(batch)] = slope_s * batch / fixed_s if fixed_s else np.inf
    return found


def pair_rows(data: Path, gpu_type: str) -> PairRows:
    """Returns the measured sides of models timed at several batches; a ratio below 1 counts 1."""
    pairs = read_pairs(data, gpu_type)
    load = loads(alone_s(pairs))
    sides = [
        (mine, other, max(1.0, 1 / float(row[f"ratio_{side}_shared_over_alone"])))
        for row in pairs
        for side, mine, other in _sides(row)
        if mine in load and other in load
    ]
    mine, other, ratio = zip(*sides, strict=True)
    return PairRows(
        mine,
        other,
        np.array([load[config] for config in mine]),
        np.array([load[config] for config in other]),
        np.array(ratio),
    )


def _sides(row: dict[str, str]) -> tuple[tuple[str, Config, Config], tuple[str, Config, Config]]:
    a, b = config_of(row["model_a"]), config_of(row["model_b"])
    return ("a", a, b), ("b", b, a)


def fit_law(rows: PairRows, kept: Bools, *, weighted: bool = True) -> PairFit:
    """Returns the law that fits the kept rows best, by the logarithms of their ratios.

    The share of the model outside the GPU is 1, as of an unknown model, if no kept row has it.
    Unless `weighted`, all jobs weigh the same.
    """
    # Each pair has a row for either side, so these are all loads of the kept rows.
    lightest, heaviest = float(rows.load[kept].min()), float(rows.load[kept].max())
    outside = bool((np.logical_or(*rows.sharing(OUTSIDE_THE_GPU)) & kept).any())

    def fit_of(x: Floats) -> PairFit:
        power = float(x[1]) if weighted else 0.0
        law = Contention(float(np.exp(x[0])), power, lightest, heaviest)
        return PairFit(law, float(np.exp(x[2])) if outside else 1.0)

    def residuals(x: Floats) -> Floats:
        misfit: Floats = np.log(fit_of(x).predicted(rows) / rows.ratio)[kept]
        return misfit

    bounds = ([-9, 0, -9], [9, 2, 0])
    start = [-0.8, 0.5, -0.8]
    return fit_of(solve_least_squares(residuals, [start], bounds, loss="soft_l1", f_scale=0.2))


@dataclass(frozen=True, slots=True, eq=False)
class HeldOut:
    """Rows that a fit has not seen: as predicted, as measured, and the mean of the others."""

    what: str
    predicted: Floats
    measured: Floats
    mean: Floats

    @property
    def law(self) -> FitError:
        """Returns the errors of the law."""
        return error_of(self.predicted, self.measured)

    @property
    def constant(self) -> FitError:
        """Returns the errors of one ratio for all."""
        return error_of(self.mean, self.measured)


def models_held_out(rows: PairRows) -> list[HeldOut]:
    """Returns the errors on each model that the fit has never met, on either side of a pair."""
    names = list(dict.fromkeys(model for model, _ in rows.mine))
    return [_held_out(name, rows, rows.of([name])) for name in names]


def pairs_held_out(rows: PairRows, *, weighted: bool = True) -> HeldOut:
    """Returns the errors on pairs drawn at random (both of their sides), over seeded splits."""
    keys = ["+".join(sorted(map(str, pair))) for pair in zip(rows.mine, rows.other, strict=True)]
    pair = np.unique(keys, return_inverse=True)[1]
    random = np.random.default_rng(0)
    law, constant, seen = [], [], []
    for _ in range(SPLITS):
        drawn = random.permutation(pair.max() + 1)[: round(HELD_OUT_SHARE * (pair.max() + 1))]
        held = np.isin(pair, drawn)
        fit = fit_law(rows, ~held, weighted=weighted)
        law.append(fit.predicted(rows)[held])
        constant.append(np.full(held.sum(), _mean_ratio(rows, ~held)))
        seen.append(rows.ratio[held])
    what = f"a quarter of the pairs, {SPLITS} draws"
    return HeldOut(what, *map(np.concatenate, (law, seen, constant)))


def other_types(data: Path, fit: PairFit, constant: float) -> list[HeldOut]:
    """Returns the errors of the law, with its one mean, on the GPU types it has not seen."""
    found = []
    for gpu_type in OTHER_TYPES:
        rows = pair_rows(data, gpu_type)
        mean = np.full(len(rows.ratio), constant)
        found.append(HeldOut(gpu_type, fit.predicted(rows), rows.ratio, mean))
    return found


def batches_held_out(rows: PairRows, fit: PairFit, models: Sequence[str]) -> FitError:
    """Returns the errors of the table at a configuration left out of it, on either side."""
    predicted: list[float] = []
    measured: list[float] = []
    for config in sorted({c for c in rows.mine if c[0] in models}):
        for mine, other in ((m, o) for m in models for o in models if config[0] in (m, o)):
            kept: list[int] = []
            held: list[int] = []
            for i, (a, b) in enumerate(zip(rows.mine, rows.other, strict=True)):
                if (a[0], b[0]) == (mine, other):
                    (held if config in (a, b) else kept).append(i)
            predicted += _left_out(rows, fit, kept, held).tolist()
            measured += [rows.ratio[i] for i in held]
    return error_of(np.array(predicted), np.array(measured))


def _left_out(rows: PairRows, fit: PairFit, kept: Sequence[int], held: Sequence[int]) -> Floats:
    """Returns the ratios of held rows of one pair, by the table of its kept rows."""
    law = fit.predicted(rows) - 1.0
    measured = [(rows.mine[i][1], rows.other[i][1], float(rows.ratio[i])) for i in kept]
    table = MeasuredPair(measured, [max(LEAST, float(law[i])) for i in kept])
    factors = [float(table.factors([rows.mine[i][1]], [rows.other[i][1]])[0, 0]) for i in held]
    return np.asarray(1.0 + np.array(factors) * law[list(held)])


def _held_out(what: str, rows: PairRows, held: Bools) -> HeldOut:
    measured = rows.ratio[held]
    predicted = fit_law(rows, ~held).predicted(rows)[held]
    constant = np.full(len(measured), _mean_ratio(rows, ~held))
    return HeldOut(what, predicted, measured, constant)


def mean_ratio(rows: PairRows) -> float:
    """Returns the geometric mean of all ratios."""
    return _mean_ratio(rows, np.ones(len(rows.ratio), bool))


def _mean_ratio(rows: PairRows, kept: Bools) -> float:
    return float(np.exp(np.log(rows.ratio[kept]).mean()))


@dataclass(frozen=True)
class PairReport:
    """How well the law does where it was not fitted; `rank` orders pairs of the other types."""

    law: Contention
    outside_share: float
    held_out: tuple[HeldOut, ...]
    other_types: tuple[HeldOut, ...]
    rank: dict[str, float]
    batches: FitError


def pair_report(data: Path) -> PairReport:
    """Returns the law and its errors on models, pairs, GPU types and batches it has not seen."""
    from scipy.stats import spearmanr

    rows = pair_rows(data, FITTED_ON)
    fit = fit_law(rows, np.ones(len(rows.ratio), bool))
    ranks = {}
    for gpu_type in OTHER_TYPES:
        others = pair_rows(data, gpu_type)
        ranks[gpu_type] = float(spearmanr(fit.predicted(others), others.ratio).statistic)
    names = list(dict.fromkeys(name for name, _ in SAME_AS.values()))
    return PairReport(
        fit.law,
        fit.outside_share,
        (*models_held_out(rows), pairs_held_out(rows)),
        tuple(other_types(data, fit, mean_ratio(rows))),
        ranks,
        batches_held_out(rows, fit, names),
    )


def fit_contention(data: Path) -> KnownContention:
    """Returns what `interference.toml` holds, made anew from the data."""
    rows = pair_rows(data, FITTED_ON)
    fit = fit_law(rows, np.ones(len(rows.ratio), bool))
    names = tuple(dict.fromkeys(name for name, _ in SAME_AS.values()))
    outside, _ = rows.sharing(OUTSIDE_THE_GPU)
    return KnownContention(
        law=Sourced(fit.law, Provenance.FITTED, SOURCE),
        host_capacity=Sourced(HOST_CAPACITY, Provenance.DERIVED, HOST_SOURCE),
        median_ratio=float(np.median(rows.ratio)),
        median_utilization=float(np.median(fit.utilization(outside, rows.load))),
        measured_as={
            model: Sourced(name, Provenance.ASSUMED, why) for model, (name, why) in SAME_AS.items()
        },
        pairs=tuple(_measured_pairs(read_pairs(data, FITTED_ON), names)),
    )


def _measured_pairs(pairs: Sequence[dict[str, str]], names: Sequence[str]) -> list[PairRatio]:
    found = []
    for row in pairs:
        (first, batch), (second, other) = config_of(row["model_a"]), config_of(row["model_b"])
        if first in names and second in names:
            ratios = [max(1.0, 1 / float(row[f"ratio_{side}_shared_over_alone"])) for side in "ab"]
            rounded = [round(ratio, 4) for ratio in ratios]
            found.append(PairRatio(first, batch, second, other, *rounded))
    return found


def dump_contention(known: KnownContention) -> str:
    """Returns it as TOML that `parse_contention` reads back to an equal value."""
    pairs = ProfileSet(
        family="gavel",
        title="Pairs of models on one V100, and the law of contention fitted to them",
        licence="MIT (measurements); the ratios and the constants here are derived",
        sources=(("gavel", known.law.source),),
        profiles=(),
        pairs=known.pairs,
    )
    head, _, rows = dump_profiles(pairs).partition("\n[[pair]]")
    medians = {
        "median_ratio": known.median_ratio,
        "median_utilization": known.median_utilization,
    }
    law = {**asdict(known.law.value), **medians}
    lines = [head, "[law]", *toml_lines(law, replace(known.law, source="gavel"))]
    host = known.host_capacity
    lines += ["", "[host]", *toml_lines({"capacity": host.value}, host)]
    for model, name in known.measured_as.items():
        lines += ["", "[[measured_as]]", *toml_lines({"model": model, "name": name.value}, name)]
    return "\n".join(lines) + "\n\n[[pair]]" + rows


def toml_lines(values: Mapping[str, object], entry: Sourced[object]) -> list[str]:
    """Returns values and where they come from as lines of TOML."""
    row = {**values, "provenance": str(entry.provenance), "source": entry.source}
    # A JSON text or number is a TOML one.
    return [f"{key} = {json.dumps(value)}" for key, value in row.items()]

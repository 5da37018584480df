"""Fits utilisations to Gavel's measured pairs, and says how well they do on others.

The pairs ran with both limits whole. What two jobs get together tells how busy each keeps a GPU:
where they want more than one GPU, `u_1 / xi_1 + u_2 / xi_2 = 1`. So the measured number is the
*slowdown of a pair*, `(u_1 + u_2) / (u_1 / xi_1 + u_2 / xi_2)`, a mean of its two ratios, and the
predicted one is `max(1, u_1 + u_2)`. Models are held out whole, then pairs at random.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dovetail.physics.sharing.limits import Demand, KnownDemand
from dovetail.physics.zoo.provenance import Provenance, Sourced
from dovetail.profiling.least_squares import error_of, solve_least_squares
from tools.zoo.pairs import (
    FITTED_ON,
    HELD_OUT_SHARE,
    OTHER_TYPES,
    OUTSIDE_THE_GPU,
    SPLITS,
    HeldOut,
    alone_s,
    config_of,
    loads,
    read_pairs,
    toml_lines,
)

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

SOURCE = (
    "Gavel (stanford-futuredata/gavel, scheduler, oracle_throughputs.json, MIT): throughputs alone "
    "and in pairs on one V100"
)


@dataclass(frozen=True)
class WholePairs:
    """Measured pairs in columns of both sides [pairs, 2]: loads, outside the GPU, ratios."""

    models: tuple[tuple[str, str], ...]
    load: Floats
    outside: Bools
    ratio: Floats

    def of(self, model: str) -> Bools:
        """Returns which pairs have the model on either side."""
        return np.array([model in pair for pair in self.models])


@dataclass(frozen=True, slots=True)
class DemandFit:
    """The law's constants, and the share of the model that works outside the GPU."""

    law: Demand
    outside_share: float

    def utilization(self, load: Floats, outside: Bools) -> Floats:
        """Returns the utilisations of configurations."""
        grown: Floats = np.minimum(load, self.law.heaviest) ** self.law.power
        share = np.where(outside, self.outside_share, 1.0)
        return np.asarray(share * grown / (self.law.half + grown))

    def predicted(self, pairs: WholePairs) -> Floats:
        """Returns the slowdowns of pairs that the law gives."""
        return np.asarray(np.maximum(1.0, self.utilization(pairs.load, pairs.outside).sum(axis=1)))

    def measured(self, pairs: WholePairs) -> Floats:
        """Returns the measured slowdowns of pairs, their sides weighted by utilisation."""
        used = self.utilization(pairs.load, pairs.outside)
        return np.asarray(used.sum(axis=1) / (used / pairs.ratio).sum(axis=1))

    def together(self, pairs: WholePairs) -> Floats:
        """Returns how much of a GPU each pair got: 1 where the law is exact and they contest."""
        used = self.utilization(pairs.load, pairs.outside)
        return np.asarray((used / pairs.ratio).sum(axis=1))


def whole_pairs(data: Path, gpu_type: str) -> WholePairs:
    """Returns the pairs of models timed at several batches; a ratio below 1 counts 1."""
    rows = read_pairs(data, gpu_type)
    load = loads(alone_s(rows))
    kept = [
        (a, b, row)
        for row in rows
        for a, b in [(config_of(row["model_a"]), config_of(row["model_b"]))]
        if a in load and b in load
    ]
    return WholePairs(
        tuple((a[0], b[0]) for a, b, _ in kept),
        np.array([[load[a], load[b]] for a, b, _ in kept]),
        np.array([[side[0] == OUTSIDE_THE_GPU for side in (a, b)] for a, b, _ in kept]),
        np.array(
            [
                [max(1.0, 1 / float(row[f"ratio_{side}_shared_over_alone"])) for side in "ab"]
                for _, _, row in kept
            ]
        ),
    )


def fit_demand(pairs: WholePairs, kept: Bools | None = None) -> DemandFit:
    """Returns the law that fits the kept pairs best, by the logarithms of their slowdowns.

    The share of the model outside the GPU is 1, as of an unknown model, if no kept pair has it.
    """
    kept = np.ones(len(pairs.models), bool) if kept is None else kept
    heaviest = float(pairs.load[kept].max())
    outside = bool(pairs.outside[kept].any())

    def fit_of(x: Floats) -> DemandFit:
        return DemandFit(
            Demand(float(np.exp(x[0])), float(x[1]), heaviest), float(x[2]) if outside else 1.0
        )

    def residuals(x: Floats) -> Floats:
        fit = fit_of(x)
        # Above one GPU and below it alike, so that no pair is out of the fit's sight.
        wanted = fit.utilization(pairs.load, pairs.outside).sum(axis=1)
        misfit: Floats = np.log(wanted / fit.measured(pairs))[kept]
        return misfit

    bounds = ([-6, 0.1, 0.05], [4, 2, 1])
    return fit_of(
        solve_least_squares(residuals, [[-1, 0.5, 0.5]], bounds, loss="soft_l1", f_scale=0.2)
    )


def models_held_out(pairs: WholePairs) -> list[HeldOut]:
    """Returns the errors on each model that the fit has never met, on either side of a pair."""
    names = dict.fromkeys(name for pair in pairs.models for name in pair)
    return [_held_out(name, pairs, [pairs.of(name)]) for name in names]


def pairs_held_out(pairs: WholePairs) -> HeldOut:
    """Returns the errors on pairs drawn at random, over seeded splits."""
    random = np.random.default_rng(0)
    count = len(pairs.models)
    draws = [random.permutation(count) < round(HELD_OUT_SHARE * count) for _ in range(SPLITS)]
    return _held_out(f"a quarter of the pairs, {SPLITS} draws", pairs, draws)


def other_types(data: Path, fit: DemandFit) -> list[HeldOut]:
    """Returns the errors on the GPU types the fit has not seen, beside the fitted mean."""
    fitted = fit.measured(whole_pairs(data, FITTED_ON))
    found = []
    for gpu_type in OTHER_TYPES:
        pairs = whole_pairs(data, gpu_type)
        constant = np.full(len(pairs.models), _mean(fitted))
        measured = fit.measured(pairs)
        law = error_of(fit.predicted(pairs), measured)
        found.append(HeldOut(gpu_type, law, error_of(constant, measured)))
    return found


def _held_out(what: str, pairs: WholePairs, draws: list[Bools]) -> HeldOut:
    law, constant, seen = [], [], []
    for held in draws:
        fit = fit_demand(pairs, ~held)
        measured = fit.measured(pairs)
        law.append(fit.predicted(pairs)[held])
        constant.append(np.full(held.sum(), _mean(measured[~held])))
        seen.append(measured[held])
    truth = np.concatenate(seen)
    return HeldOut(
        what, error_of(np.concatenate(law), truth), error_of(np.concatenate(constant), truth)
    )


def _mean(values: Floats) -> float:
    return float(np.exp(np.log(values).mean()))


def fit_known_demand(data: Path) -> KnownDemand:
    """Returns what `limits.toml` holds, made anew from the data."""
    pairs = whole_pairs(data, FITTED_ON)
    fit = fit_demand(pairs)
    used = fit.utilization(pairs.load, pairs.outside)
    nearest = (
        f"the share fitted to Gavel's {OUTSIDE_THE_GPU} model, the nearest in kind: "
        "a small network fed from the host"
    )
    return KnownDemand(
        Sourced(fit.law, Provenance.FITTED, SOURCE),
        float(np.median(used)),
        {"pollux/ncf": Sourced(fit.outside_share, Provenance.ASSUMED, nearest)},
    )


def dump_demand(known: KnownDemand) -> str:
    """Returns it as TOML that `parse_demand` reads back to an equal value."""
    law = {**asdict(known.law.value), "median": known.median}
    lines = ["[law]", *toml_lines(law, known.law)]
    for model, share in known.shares.items():
        lines += ["", "[[share]]", *toml_lines({"model": model, "value": share.value}, share)]
    return "\n".join(lines) + "\n"

"""Fits equation (7) to step times measured over placements and batch sizes.

Rows are those of the Pollux authors: GPUs per node of the placement, samples per GPU, and the
seconds of a step without accumulation (so s = 1). Whole placements are held out, never single
rows: rows of one placement differ in batch only, and would betray their neighbours.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dovetail.core.errors import InputError
from dovetail.physics.speed.compute import Compute, iteration_s
from dovetail.physics.speed.network import Network, RingLink
from dovetail.physics.zoo.profile import FitError
from dovetail.profiling.least_squares import error_of, solve_least_squares

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

HELD_OUT_SHARE = 0.25
SPLIT_SEED = 7
LEAST_S = 1e-9
"""Floor of the fitted seconds: the search runs over logarithms."""


@dataclass(frozen=True)
class Steps:
    """Measured step times in columns; `placement` numbers the distinct placements."""

    nodes: Floats
    gpus: Floats
    batch: Floats
    step_s: Floats
    placement: NDArray[np.int64]

    def take(self, rows: Bools) -> Steps:
        """Returns the rows where `rows` is true."""
        return Steps(
            self.nodes[rows],
            self.gpus[rows],
            self.batch[rows],
            self.step_s[rows],
            self.placement[rows],
        )

    def split(self) -> tuple[Steps, Steps]:
        """Returns rows to fit and rows held out: a seeded quarter of the multi-GPU placements."""
        candidates = np.unique(self.placement[self.gpus > 1])
        drawn = np.random.default_rng(SPLIT_SEED).permutation(candidates)
        held = np.isin(self.placement, drawn[: round(HELD_OUT_SHARE * len(drawn))])
        return self.take(~held), self.take(held)


@dataclass(frozen=True, slots=True)
class PlacementFit:
    """What a fit gives: the parameters of equation (7) and the errors on held-out rows."""

    compute: Compute
    overlap: float
    network: Network
    held_out: FitError


def read_steps(folder: Path) -> Steps:
    """Returns the rows of `placements.csv` and `scalability.csv` in a model's folder."""
    rows: list[tuple[float, float, float, float]] = []
    keys: list[str] = []
    for row in read_csv(folder / "placements.csv"):
        spans = [int(digit) for digit in row["placement"]]
        rows.append((len(spans), sum(spans), float(row["local_bsz"]), float(row["step_time"])))
        keys.append(row["placement"])
    for row in read_csv(folder / "scalability.csv"):
        size = (float(row["num_nodes"]), float(row["num_replicas"]))
        rows.append((*size, float(row["local_bsz"]), float(row["step_time"])))
        keys.append(f"{row['num_nodes']} nodes, {row['num_replicas']} GPUs")
    nodes, gpus, batch, step_s = np.array(rows).T
    return Steps(nodes, gpus, batch, step_s, np.unique(keys, return_inverse=True)[1])


def read_csv(path: Path) -> list[dict[str, str]]:
    """Returns the rows of a CSV file with a header. Raises InputError."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))
    except OSError as trouble:
        raise InputError(str(path), f"cannot be read: {trouble.strerror}") from trouble


def fit_steps(steps: Steps, gradient_bytes: float) -> PlacementFit:
    """Returns the parameters that fit the rows not held out, and the errors on those held out."""
    seen, held = steps.split()
    weight = _weights(seen)
    alone = seen.gpus == 1
    slope = seen.step_s[alone].max() / seen.batch[alone].max()
    start = [0.5 * seen.step_s.min(), slope, 1e-4, 1e-2, 1e-3, 1e-1]
    low = np.log([LEAST_S] * 6 + [1e-3, 1e-3])
    high = np.log([1e2] * 6 + [1e2, 1e1])

    def residuals(x: Floats) -> Floats:
        return np.asarray(weight * np.log(_predicted_s(np.exp(x), seen) / seen.step_s))

    # Two starts, almost no overlap and much: the search is local and the valley is curved.
    starts = [np.log([*start, excess, 0.1]) for excess in (0.1, 1.5)]
    best = np.exp(solve_least_squares(residuals, starts, (low, high), loss="soft_l1", f_scale=0.1))
    return PlacementFit(
        compute=Compute(float(best[0]), float(best[1])),
        overlap=1 + float(best[6]),
        network=_network(best, gradient_bytes),
        held_out=error_of(_predicted_s(best, held), held.step_s),
    )


REGIONS = ("one GPU", "one node", "2 to 4 nodes", "6 to 16 nodes")
"""The regions of the measurements, which count alike in a fit however many rows they have."""


def region_of(steps: Steps) -> NDArray[np.int64]:
    """Returns the position in `REGIONS` of each row."""
    conditions = [steps.gpus == 1, steps.nodes == 1, steps.nodes <= 4]
    return np.asarray(np.select(conditions, [0, 1, 2], default=3))


def _weights(steps: Steps) -> Floats:
    region = region_of(steps)
    counts = np.bincount(region, minlength=len(REGIONS))
    return np.asarray(np.sqrt(len(region) / (len(counts) * counts[region])))


def _predicted_s(x: Floats, steps: Steps) -> Floats:
    """Returns equation (7) with s = 1.

    x: a_comp, b_comp, seconds a hop and for all bytes inside a node, what both grow by across
    nodes (so that leaving a node never helps), d - 1, and by how much of itself the exchange
    of exactly two nodes is longer.
    """
    across = steps.nodes > 1
    hop_s = x[2] + across * x[4]
    bytes_s = x[3] + across * x[5]
    hops = 2 * (steps.gpus - 1)
    comm_s = (hops * hop_s + hops / steps.gpus * bytes_s) * (1 + (steps.nodes == 2) * x[7])
    predicted = iteration_s(
        Compute(float(x[0]), float(x[1])),
        batch=steps.batch,
        steps=1.0,
        comm_s=comm_s,
        overlap=1 + float(x[6]),
    )
    return np.asarray(predicted)


def _network(x: Floats, gradient_bytes: float) -> Network:
    hop_s, bytes_s, longer = float(x[2] + x[4]), float(x[3] + x[5]), 1 + float(x[7])
    return Network(
        within=RingLink(float(x[2]), gradient_bytes / float(x[3])),
        across=RingLink(hop_s, gradient_bytes / bytes_s),
        pair=RingLink(hop_s * longer, gradient_bytes / (bytes_s * longer)),
    )

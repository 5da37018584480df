"""How far the iteration times of plans are from measured ones: mixed parallelism on A800 servers.

The data (reconfigurable-dl-scheduler, Apache-2.0) has no asynchronous pipelines: these are
Megatron's, synchronous, d replicas of p stages of t slices. Blocks and equations are those of the
planner; fitted are how much of the device each model reaches, its fixed seconds, and the NIC. It is
a check of the equations: no profile takes a number from here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from types import MappingProxyType

import numpy as np

from dovetail.algorithms.pipeline_time import Links, replicas_held, stage_parts
from dovetail.core.job import Floats, PipelineStage
from dovetail.physics.pipelines.pipelined import Pipelined
from dovetail.physics.pipelines.planner import slice_bytes
from dovetail.profiling.least_squares import solve_least_squares
from tools.zoo.fit_placements import read_csv
from tools.zoo.networks import FP16_BYTES, Transformer, transformer
from tools.zoo.predicted_times import PredictedTimes

GPUS_PER_NODE = 8
PEAK_FLOPS_PER_S = 312e12
"""Of an A800 in FP16, on its data sheet."""
FOLDS = 5
INTRA_BYTES_PER_S = 200e9
"""Each way between two A800 of a server, on the data sheet; fitted, it would run to infinity."""
START = 16e9
"""Where the fit begins: bytes per second through the NIC of a server."""
SHAPES: Mapping[str, tuple[Transformer, int]] = MappingProxyType(
    {
        # Shapes and batches follow from the parameters and tokens the data's profile states.
        "gpt2": (Transformer(48, 1600, 6400, 25, 50257, tokens=1024), 48),
        "t5": (
            Transformer(24, 1024, 4224, 16, 250112, tokens=512, decoders=24),
            32,
        ),
        "llama7": (Transformer(32, 4096, 16512, 32, 32000, tokens=2048), 64),
    }
)
"""Gated feed-forward parts (three matrices) count with half as much width again."""


@dataclass(frozen=True, slots=True)
class PlanRow:
    """One measured configuration: replicas, slices, stages, and GPUs on each node."""

    model: str
    replicas: int
    slices: int
    stages: int
    nodes: tuple[int, ...]
    iteration_s: float


@dataclass(frozen=True, slots=True)
class PlanFit:
    """What the fit found: efficiency and fixed seconds, links, and rows held out, by model."""

    efficiency: Mapping[str, float]
    fixed_s: Mapping[str, float]
    links: Links
    held_out: Mapping[str, PredictedTimes]


def read_plans(data: Path) -> list[PlanRow]:
    """Returns the measured configurations of the models whose shape we know."""
    rows = []
    for model in SHAPES:
        path = data / "data" / "morphling-mlsys25" / "traces" / model / "placements.csv"
        for line in read_csv(path):
            given, seconds = line["exec_plan"], float(line["iter_time"])
            if len(given) == 3 and given.isdecimal() and seconds > 0:
                d, t, p = (int(digit) for digit in given)
                nodes = tuple(int(digit) for digit in line["placement"])
                if d * t * p == sum(nodes):
                    rows.append(PlanRow(model, d, t, p, nodes, seconds))
    return rows


def fit_plans(data: Path) -> PlanFit:
    """Returns the fit to all rows, and what each fold says of those it did not see."""
    rows = read_plans(data)
    truth = np.array([row.iteration_s for row in rows])
    guessed = np.zeros(len(rows))
    fold = np.random.default_rng(0).permutation(len(rows)) % FOLDS
    for k in range(FOLDS):
        seen = [row for row, f in zip(rows, fold, strict=True) if f != k]
        found = _fitted(seen)
        guessed[fold == k] = [_seconds(r, found) for r, f in zip(rows, fold, strict=True) if f == k]
    all_rows = _fitted(rows)
    models = np.array([row.model for row in rows])
    names = [*dict.fromkeys(models.tolist())]
    return PlanFit(
        {m: float(np.exp(all_rows[1 + 2 * i])) for i, m in enumerate(SHAPES)},
        {m: float(np.exp(all_rows[2 + 2 * i])) for i, m in enumerate(SHAPES)},
        _links(all_rows),
        {m: PredictedTimes(guessed[models == m], truth[models == m]) for m in names},
    )


def _fitted(rows: Sequence[PlanRow]) -> Floats:
    """Returns logarithms: the NIC, then efficiency and fixed seconds of each model."""
    start = [START, *(x for _ in SHAPES for x in (0.4, 0.05))]
    least = [1e8, *(x for _ in SHAPES for x in (0.01, 1e-4))]
    # No device exceeds its peak.
    most = [1e12, *(x for _ in SHAPES for x in (1.0, 10.0))]

    def off(found: Floats) -> Floats:
        return np.array([np.log(_seconds(row, found) / row.iteration_s) for row in rows])

    bounds = np.log(least), np.log(most)
    return solve_least_squares(off, [np.log(start)], bounds, loss="soft_l1", f_scale=0.1)


def _links(found: Floats) -> Links:
    return Links(INTRA_BYTES_PER_S, float(np.exp(found[0])), GPUS_PER_NODE)


def _seconds(row: PlanRow, found: Floats) -> float:
    at = 1 + 2 * list(SHAPES).index(row.model)
    efficiency, fixed_s = float(np.exp(found[at])), float(np.exp(found[at + 1]))
    return fixed_s + predicted_s(row, efficiency, _links(found))


def predicted_s(row: PlanRow, efficiency: float, links: Links) -> float:
    """Returns the seconds of one synchronous iteration: each sample is a micro-batch."""
    shape, batch = SHAPES[row.model]
    rate = efficiency * PEAK_FLOPS_PER_S
    model = Pipelined(row.model, transformer(shape), batch, rate, FP16_BYTES, 16, slices=row.slices)
    samples = batch / row.replicas
    within = row.slices <= min(row.nodes)
    wire = links.intra_bytes_per_s if within else links.nic_bytes_per_s / links.gpus
    graph = tuple(
        _stage(model, cut, samples, row.replicas, wire) for cut in even_cuts(model, row.stages)
    )
    server_of = [m for m, gpus in enumerate(row.nodes) for _ in range(gpus)]
    return barrier_s(graph, replicas_held(graph, server_of), links, max(1, int(samples)))


def barrier_s(
    stages: Sequence[PipelineStage],
    replicas: Sequence[Sequence[float]],
    links: Links,
    micro_batches: int,
) -> float:
    """Returns the seconds of an iteration of a synchronous pipeline (GPipe, 1F1B).

    With m micro-batches and S stages: `(m + S - 1) / m` times the slowest stage without its
    AllReduce, since the pipeline fills and drains once an iteration, and then the slowest
    AllReduce. `replicas[m][s]` are the replicas of stage s on server m.
    """
    parts = [
        stage_parts(stages, s, held, links)
        for held in replicas
        for s, here in enumerate(held)
        if here > 0
    ]
    bubble = (micro_batches + len(stages) - 1) / micro_batches
    busy_s = max(part.compute_s + part.exchange_s for part in parts)
    return bubble * busy_s + max(part.all_reduce_s for part in parts)


def even_cuts(model: Pipelined, stages: int) -> tuple[tuple[int, int], ...]:
    """Returns the first block and the end of each of so many about equally busy stages."""
    flops = [0.0, *accumulate(block.flops for block in model.blocks)]
    edges = np.searchsorted(flops, flops[-1] * np.arange(1, stages) / stages).tolist()
    return tuple(pairwise([0, *edges, len(model.blocks)]))


def _stage(
    model: Pipelined, cut: tuple[int, int], samples: float, replicas: int, wire: float
) -> PipelineStage:
    first, end = cut
    flops = samples * sum(block.flops for block in model.blocks[first:end])
    busy_s = flops / (model.flops_per_s * model.slices)
    exchange_s = slice_bytes(model, first, end, samples) / wire
    handed = model.number_bytes * samples
    return PipelineStage(
        replicas,
        busy_s + exchange_s,
        model.backward_factor * busy_s + exchange_s,
        handed * model.blocks[first - 1].out_values if first else 0.0,
        handed * model.blocks[end - 1].out_values if end < len(model.blocks) else 0.0,
        model.number_bytes * sum(block.parameters for block in model.blocks[first:end]),
        model.slices,
    )

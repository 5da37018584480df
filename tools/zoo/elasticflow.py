"""Makes the ElasticFlow authors' models from their throughputs on A100.

The ITP traces they extended name these models. One batch of each is the profile's; the others
are never fitted, and the error on them is the profile's `fit_error`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from dovetail.core.errors import InputError
from dovetail.physics.speed.throughput import iteration_s
from dovetail.physics.zoo.architecture import architectures
from dovetail.physics.zoo.device import device
from dovetail.physics.zoo.profile import Batch, Curve, ModelProfile
from dovetail.physics.zoo.profile_file import ProfileSet
from dovetail.physics.zoo.provenance import Sourced
from dovetail.profiling.fit_curve import Servers, fit_curve
from tools.zoo.fit_placements import read_csv
from tools.zoo.from_curve import (
    ASSUMED,
    DERIVED,
    FITTED,
    MEASURED,
    measured_points,
    names_of,
    profile_from_curve,
)
from tools.zoo.input_pipeline import derived_stages
from tools.zoo.largest_batch import largest_batch
from tools.zoo.predicted_times import PredictedTimes

SOURCE = (
    "ElasticFlow artifact (pkusys/ElasticFlow, scheduler, throughputs_A100, Apache-2.0): "
    "iterations a second at fixed global batch"
)
SERVERS = Servers(gpus_per_node=8, within=300e9, across=200e9)
"""NVLink of the A100 and eight InfiniBand ports of 200 Gbit/s."""

DEFAULT_BATCH = 128
"""Most of the models were measured at it; Deep Speech 2 at most at 64."""


def fit_elasticflow(data: Path) -> ProfileSet:
    """Returns the models of the ElasticFlow authors with their scaling curves."""
    folder = data / "data" / "elasticflow" / "throughputs_A100"
    profiles = [_model(name, folder / f"{name}.csv") for name in names_of("elasticflow")]
    return ProfileSet(
        family="elasticflow",
        title="Models of the ElasticFlow authors on A100 servers",
        licence="Apache-2.0 (measurements); the parameters here are derived",
        sources=(("elasticflow", SOURCE),),
        profiles=tuple(profiles),
    )


def _model(name: str, path: Path) -> ModelProfile:
    curves = read_curves(path)
    size = max(batch for batch in curves if batch <= DEFAULT_BATCH)
    facts = architectures()[f"elasticflow/{name}"]
    fitting = largest_batch(facts.memory.value, device("a100").memory_bytes.value) or size
    batch = Batch(size, per_gpu=False, max_per_gpu=min(max(curves), fitting))
    fit = fit_curve(measured_points(curves[size]), batch, SERVERS, facts.gradient_bytes.value)
    profile = profile_from_curve(
        name,
        "elasticflow",
        curves[size],
        fit,
        SOURCE,
        gpu_type=Sourced("a100", MEASURED, SOURCE),
        gpus_per_node=Sourced(SERVERS.gpus_per_node, ASSUMED, "servers of eight A100"),
        batch=Sourced(batch, DERIVED, "one batch of the source; per GPU what 40 GB hold"),
        compute=Sourced(fit.compute, FITTED, SOURCE),
    )
    times = curves[size].iteration_s
    peak = curves[size].gpus[times.index(min(times))]
    return replace(
        profile,
        max_gpus=Sourced(peak, DERIVED, "where the measured throughput peaks"),
        stages=derived_stages(profile),
        fit_error=Sourced(other_batches(profile, curves).error, MEASURED, "at the other batches"),
    )


def read_curves(path: Path) -> dict[int, Curve]:
    """Returns a curve per global batch; counts that did not run are left out."""
    curves = {}
    for row in read_csv(path):
        batch = int(row.pop("global_batch_size"))
        ran = {int(gpus): float(rate) for gpus, rate in row.items() if rate and float(rate) > 0}
        curves[batch] = Curve(tuple(ran), tuple(1 / rate for rate in ran.values()))
    if not curves:
        raise InputError(str(path), "has no rows")
    return curves


def other_batches(profile: ModelProfile, curves: dict[int, Curve]) -> PredictedTimes:
    """Returns the iteration times at all batches but the one that was fitted."""
    predicted, measured = [], []
    for batch, curve in curves.items():
        if batch == profile.batch.value.size:
            continue
        for gpus, time_s in zip(curve.gpus, curve.iteration_s, strict=True):
            predicted.append(iteration_s(profile, gpus=gpus, batch_per_gpu=batch / gpus))
            measured.append(time_s)
    return PredictedTimes(np.array(predicted), np.array(measured))

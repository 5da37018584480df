"""Makes the Muri authors' models: iteration, stage and start-up times by GPU count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dovetail.core.errors import InputError
from dovetail.physics.speed.compute import Compute, overlapped_s
from dovetail.physics.speed.network import Network, RingLink
from dovetail.physics.zoo.architecture import architectures
from dovetail.physics.zoo.profile import Batch, Curve, ModelProfile, StageTimes, Startup
from dovetail.physics.zoo.profile_file import ProfileSet
from dovetail.physics.zoo.provenance import Sourced
from dovetail.profiling.fit_curve import FIXED_SHARE, OVERLAP_MAX, CurveFit
from tools.zoo.fit_placements import read_csv
from tools.zoo.from_curve import ASSUMED, MEASURED, names_of, profile_from_curve

SOURCE = (
    "Muri artifact (Rivendile/Muri, simulator/trace-data, Apache-2.0): iteration and stage times "
    "on V100, eight per server"
)
Floats = NDArray[np.float64]
GPUS_PER_NODE = 8
FASTEST_LINK = 150e9
"""Bytes/s one GPU can send over NVLink of the V100's generation, in one direction."""
RL_MODELS = ("a2c", "dqn")
"""Their load stage is simulation of the environment on the CPU; elsewhere it is storage."""


def fit_muri(data: Path) -> ProfileSet:
    """Returns Muri's models with iteration, stage and start-up times by GPU count."""
    path = data / "data" / "muri" / "stage_profiles_derived.csv"
    rows = read_csv(path)
    profiles = []
    for name in names_of("muri"):
        mine = [row for row in rows if row["model"] == name]
        if not mine:
            raise InputError(str(path), f"has no rows of {name}")
        profiles.append(_muri_model(name, mine))
    return ProfileSet(
        family="muri",
        title="Models of the Muri authors on V100 servers",
        licence="Apache-2.0 (measurements); the parameters here are derived",
        sources=(("muri", SOURCE),),
        profiles=tuple(profiles),
    )


def _muri_model(name: str, rows: Sequence[dict[str, str]]) -> ModelProfile:
    facts = architectures()[f"muri/{name}"]
    gpus = tuple(int(row["num_gpu"]) for row in rows)
    curve = Curve(gpus, tuple(float(row["iteration_ms"]) / 1e3 for row in rows))
    size = int(rows[0]["batch_size_per_gpu"])
    batch = Batch(size, per_gpu=True, max_per_gpu=size)
    exchange_s = [float(row["stage2_network_ms"]) / 1e3 for row in rows]
    fit = fit_timed_exchange(
        curve,
        exchange_s,
        batch,
        gpus_per_node=GPUS_PER_NODE,
        gradient_bytes=facts.gradient_bytes.value,
    )
    one_batch = "one batch size was measured: a tenth of the iteration is assumed not to grow"
    startup = Startup(gpus, tuple(float(row["startup_overhead_s"]) for row in rows))
    profile = profile_from_curve(
        name,
        "muri",
        curve,
        fit,
        SOURCE,
        gpu_type=Sourced("v100", MEASURED, SOURCE),
        gpus_per_node=Sourced(GPUS_PER_NODE, MEASURED, SOURCE),
        batch=Sourced(batch, MEASURED, f"{SOURCE}; larger batches were not measured"),
        compute=Sourced(fit.compute, ASSUMED, f"{SOURCE}; {one_batch}"),
    )
    return replace(
        profile,
        stages=Sourced(tuple(_muri_stages(name, row) for row in rows), MEASURED, _load_is(name)),
        startup=Sourced(startup, MEASURED, SOURCE),
    )


def _load_is(name: str) -> str:
    resource = "CPU (the environment)" if name in RL_MODELS else "storage"
    return f"{SOURCE}; the one load stage of the source counts as {resource}"


def _muri_stages(name: str, row: dict[str, str]) -> StageTimes:
    load_s, gpu_s, network_s = (
        float(row[key]) / 1e3
        for key in ("stage0_load_cpu_ms", "stage1_gpu_ms", "stage2_network_ms")
    )
    on_cpu = name in RL_MODELS
    return StageTimes(
        gpus=int(row["num_gpu"]),
        storage_s=0.0 if on_cpu else load_s,
        cpu_s=load_s if on_cpu else 0.0,
        gpu_s=gpu_s,
        network_s=network_s,
    )


def fit_timed_exchange(
    curve: Curve,
    exchange_s: Sequence[float],
    batch: Batch,
    *,
    gpus_per_node: int,
    gradient_bytes: float,
) -> CurveFit:
    """Returns the parameters of a weak scaling curve whose all-reduce was timed by itself.

    The links are a non-negative least squares on the exchange times; the overlap is what
    brings equation (7) nearest to the iteration times.
    """
    from scipy.optimize import minimize_scalar

    gpus, times = np.array(curve.gpus, float), np.array(curve.iteration_s)
    rows = _ring_rows(gpus, gpus_per_node)
    x = _timed_ring(rows, np.array(exchange_s), gradient_bytes / FASTEST_LINK)
    comm_s = rows @ x

    def misfit(overlap: float) -> float:
        return float(np.sum(np.log(overlapped_s(times[0], comm_s, overlap) / times) ** 2))

    found = minimize_scalar(misfit, bounds=(1.0, OVERLAP_MAX), method="bounded")
    alone_s = curve.iteration_s[0]
    return CurveFit(
        compute=Compute(FIXED_SHARE * alone_s, (1 - FIXED_SHARE) * alone_s / batch.size),
        overlap=float(found.x),
        network=Network(
            RingLink(float(x[0]), gradient_bytes / float(x[1])),
            RingLink(float(x[0] + x[2]), gradient_bytes / float(x[1] + x[3])),
        ),
    )


def _timed_ring(rows: Floats, timed_s: Floats, least_s: float) -> Floats:
    """Returns seconds a hop, for all bytes (at least `least_s`), and what both grow by outside."""
    from scipy.optimize import nnls

    seen = timed_s > 0
    above_s = np.maximum(timed_s - rows[:, 1] * least_s, 0)
    x = nnls(rows[seen] / timed_s[seen, None], above_s[seen] / timed_s[seen])[0]
    x[1] += least_s
    return np.asarray(x)


def _ring_rows(gpus: Floats, gpus_per_node: int) -> Floats:
    """Returns what multiplies a hop and all bytes, and what both grow by across nodes."""
    hops = 2 * (gpus - 1)
    across = gpus > gpus_per_node
    return np.column_stack([hops, hops / gpus, hops * across, hops / gpus * across])

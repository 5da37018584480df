"""Makes the Muri authors' models: iteration, stage and start-up times by GPU count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dovetail.core.errors import InputError
from dovetail.physics.zoo.architecture import architectures
from dovetail.physics.zoo.profile import Batch, Curve, ModelProfile, StageTimes, Startup
from dovetail.physics.zoo.profile_file import ProfileSet
from dovetail.physics.zoo.provenance import Sourced
from dovetail.profiling.fit_curve import fit_timed_exchange
from dovetail.profiling.fit_placements import read_csv
from dovetail.profiling.from_curve import ASSUMED, MEASURED, names_of, profile_from_curve

SOURCE = (
    "Muri artifact (Rivendile/Muri, simulator/trace-data, Apache-2.0): iteration and stage times "
    "on V100, eight per server"
)
GPUS_PER_NODE = 8
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

"""Refits the model zoo from the public measurements: the only writer of `profiles/`.

`dovetail models fit --data DIR` runs it. Times come from the data, parameter counts and
memory from `profiles/architectures.toml`; only derived parameters are written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from dovetail.core.errors import InputError
from dovetail.physics.architecture import architectures
from dovetail.physics.compute import Compute
from dovetail.physics.device import device
from dovetail.physics.fit_curve import CurveFit, Servers, fit_curve, fit_timed_exchange
from dovetail.physics.fit_placements import fit_steps, read_csv, read_steps
from dovetail.physics.profile import Batch, Curve, ModelProfile, StageTimes, Startup
from dovetail.physics.profile_file import ProfileSet
from dovetail.physics.provenance import Provenance, Sourced
from dovetail.physics.throughput import throughput_table

MEASURED, FITTED, DERIVED, ASSUMED = Provenance

POLLUX_SOURCE = (
    "Pollux artifact (petuum/adaptdl, branch osdi21-artifact, simulator/traces, Apache-2.0): "
    "step times over placements on AWS nodes with four T4"
)
AFS_SOURCE = (
    "AFS model curves (TuftsNATLab/PCS, simulation/models.py, MIT): iteration times of the "
    "AFS authors at fixed global batch, GTX 1080, four per server, 40 Gbit/s; "
    "counts between their measured ones are filled in linearly"
)
MURI_SOURCE = (
    "Muri artifact (Rivendile/Muri, simulator/trace-data, Apache-2.0): iteration and stage times "
    "on V100, eight per server"
)
POLLUX_GPUS_MAX = 64
MURI_GPUS_PER_NODE = 8
AFS_SERVERS = Servers(gpus_per_node=4, within=12e9, across=5e9)
"""PCIe 3.0 x16 and one port of 40 Gbit/s."""
RL_MODELS = ("a2c", "dqn")
"""Their load stage is simulation of the environment on the CPU; elsewhere it is storage."""


def fit_pollux(data: Path) -> ProfileSet:
    """Returns the six Pollux models, fitted over placements and batch sizes."""
    folder = data / "data" / "pollux-osdi21"
    names = _names("pollux")
    batches = _usual_batches(folder)
    profiles = [_pollux_model(folder, name, batches[name]) for name in names]
    return ProfileSet(
        family="pollux",
        title="Six models of the Pollux authors on T4 nodes",
        licence="Apache-2.0 (measurements); the parameters here are derived",
        sources=(("pollux", POLLUX_SOURCE),),
        profiles=tuple(profiles),
    )


def _pollux_model(folder: Path, name: str, batch: int) -> ModelProfile:
    facts = architectures()[f"pollux/{name}"]
    steps = read_steps(folder / "traces" / name)
    fit = fit_steps(steps, facts.gradient_bytes.value)
    largest = int(steps.batch[steps.gpus == 1].max())
    profile = ModelProfile(
        name=name,
        family="pollux",
        title=facts.title,
        aliases=facts.aliases,
        gpu_type=Sourced("t4", MEASURED, POLLUX_SOURCE),
        gpus_per_node=Sourced(4, MEASURED, POLLUX_SOURCE),
        batch=Sourced(
            Batch(batch, per_gpu=False, max_per_gpu=largest),
            DERIVED,
            "the most frequent global batch of the source's workloads; the most that ran on a T4",
        ),
        max_gpus=Sourced(POLLUX_GPUS_MAX, ASSUMED, "as many as were measured"),
        parameters=facts.parameters,
        gradient_bytes=facts.gradient_bytes,
        compute=(("t4", Sourced(fit.compute, FITTED, POLLUX_SOURCE)),),
        overlap=Sourced(fit.overlap, FITTED, POLLUX_SOURCE),
        network=Sourced(fit.network, FITTED, POLLUX_SOURCE),
        memory=facts.memory,
        fit_error=Sourced(fit.held_out, MEASURED, "on a seeded quarter of the placements"),
    )
    best = int(np.argmax(throughput_table(profile, POLLUX_GPUS_MAX)))
    peak = Sourced(best, DERIVED, "where the fitted throughput at the default batch peaks")
    return replace(profile, max_gpus=peak)


def _usual_batches(folder: Path) -> dict[str, int]:
    counts: dict[str, Counter[int]] = {}
    for path in sorted(folder.glob("workloads*/workload-*.csv")):
        for row in read_csv(path):
            batches = counts.setdefault(row["application"], Counter())
            batches[int(row["batch_size"])] += 1
    if not counts:
        raise InputError(str(folder), "has no workloads*/workload-N.csv")
    return {name: batches.most_common(1)[0][0] for name, batches in counts.items()}


def fit_afs(data: Path) -> ProfileSet:
    """Returns the AFS authors' models with their scaling curves."""
    path = data / "traces" / "profiles" / "afs" / "afs_step_times.csv"
    rows = read_csv(path)
    profiles = []
    for name in _names("afs"):
        published = architectures()[f"afs/{name}"].aliases[0]
        mine = [row for row in rows if row["model_name"] == published]
        if not mine:
            raise InputError(str(path), f"has no rows of {published}")
        curve = Curve(
            tuple(int(row["num_gpus"]) for row in mine),
            tuple(int(row["step_time_us"]) / 1e6 for row in mine),
        )
        profiles.append(_afs_model(name, curve, int(published.partition("Model")[2])))
    return ProfileSet(
        family="afs",
        title="Models of the AFS authors on GTX 1080 servers",
        licence="MIT (measurements); the parameters here are derived",
        sources=(("afs", AFS_SOURCE),),
        profiles=tuple(profiles),
    )


def _afs_model(name: str, curve: Curve, global_batch: int) -> ModelProfile:
    facts = architectures()[f"afs/{name}"]
    gpu = device("gtx1080")
    fitting = facts.memory.value.largest_batch(gpu.memory_bytes.value) or global_batch
    batch = Batch(global_batch, per_gpu=False, max_per_gpu=min(global_batch, fitting))
    fit = fit_curve(curve, batch, AFS_SERVERS, facts.gradient_bytes.value)
    bed = f"{AFS_SOURCE}; section 5 of the AFS paper"
    return _from_curve(
        name,
        "afs",
        curve,
        fit,
        AFS_SOURCE,
        gpu_type=Sourced("gtx1080", MEASURED, bed),
        gpus_per_node=Sourced(AFS_SERVERS.gpus_per_node, MEASURED, bed),
        batch=Sourced(batch, DERIVED, "global batch of the source; per GPU what 8 GB hold"),
        compute=Sourced(fit.compute, FITTED, AFS_SOURCE),
    )


def fit_muri(data: Path) -> ProfileSet:
    """Returns Muri's models with iteration, stage and start-up times by GPU count."""
    path = data / "data" / "muri" / "stage_profiles_derived.csv"
    rows = read_csv(path)
    profiles = []
    for name in _names("muri"):
        mine = [row for row in rows if row["model"] == name]
        if not mine:
            raise InputError(str(path), f"has no rows of {name}")
        profiles.append(_muri_model(name, mine))
    return ProfileSet(
        family="muri",
        title="Models of the Muri authors on V100 servers",
        licence="Apache-2.0 (measurements); the parameters here are derived",
        sources=(("muri", MURI_SOURCE),),
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
        gpus_per_node=MURI_GPUS_PER_NODE,
        gradient_bytes=facts.gradient_bytes.value,
    )
    one_batch = "one batch size was measured: a tenth of the iteration is assumed not to grow"
    startup = Startup(gpus, tuple(float(row["startup_overhead_s"]) for row in rows))
    profile = _from_curve(
        name,
        "muri",
        curve,
        fit,
        MURI_SOURCE,
        gpu_type=Sourced("v100", MEASURED, MURI_SOURCE),
        gpus_per_node=Sourced(MURI_GPUS_PER_NODE, MEASURED, MURI_SOURCE),
        batch=Sourced(batch, MEASURED, f"{MURI_SOURCE}; larger batches were not measured"),
        compute=Sourced(fit.compute, ASSUMED, f"{MURI_SOURCE}; {one_batch}"),
    )
    return replace(
        profile,
        stages=Sourced(tuple(_muri_stages(name, row) for row in rows), MEASURED, _load_is(name)),
        startup=Sourced(startup, MEASURED, MURI_SOURCE),
    )


def _load_is(name: str) -> str:
    resource = "CPU (the environment)" if name in RL_MODELS else "storage"
    return f"{MURI_SOURCE}; the one load stage of the source counts as {resource}"


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


def _from_curve(
    name: str,
    family: str,
    curve: Curve,
    fit: CurveFit,
    source: str,
    *,
    gpu_type: Sourced[str],
    gpus_per_node: Sourced[int],
    batch: Sourced[Batch],
    compute: Sourced[Compute],
) -> ModelProfile:
    facts = architectures()[f"{family}/{name}"]
    left_out = None
    if fit.left_out:
        left_out = Sourced(fit.left_out, MEASURED, "each measured count left out in turn")
    return ModelProfile(
        name=name,
        family=family,
        title=facts.title,
        aliases=facts.aliases,
        gpu_type=gpu_type,
        gpus_per_node=gpus_per_node,
        batch=batch,
        max_gpus=Sourced(curve.gpus[-1], MEASURED, f"{source}; the most that were measured"),
        parameters=facts.parameters,
        gradient_bytes=facts.gradient_bytes,
        compute=((gpu_type.value, compute),),
        overlap=Sourced(fit.overlap, FITTED, source),
        network=Sourced(fit.network, FITTED, source),
        memory=facts.memory,
        curve=Sourced(curve, MEASURED, source),
        fit_error=left_out,
    )


def _names(family: str) -> list[str]:
    return [name.partition("/")[2] for name in architectures() if name.startswith(f"{family}/")]


FITS: dict[str, Callable[[Path], ProfileSet]] = {
    "pollux": fit_pollux,
    "afs": fit_afs,
    "muri": fit_muri,
}
"""How each committed profile set is made from the data."""


def refit(family: str, data: Path) -> ProfileSet:
    """Returns a profile set made anew from the data. Raises InputError."""
    if family not in FITS:
        raise InputError(f"family '{family}'", "is unknown", f"one of {', '.join(FITS)}")
    try:
        return FITS[family](data)
    except (KeyError, ValueError) as trouble:
        raise InputError(
            str(data), f"the data of {family} cannot be used: {trouble!r}"
        ) from trouble

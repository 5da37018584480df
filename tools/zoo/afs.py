"""Makes the AFS authors' models from their scaling curves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dovetail.core.errors import InputError
from dovetail.physics.zoo.architecture import architectures
from dovetail.physics.zoo.device import device
from dovetail.physics.zoo.profile import Batch, Curve, ModelProfile
from dovetail.physics.zoo.profile_file import ProfileSet
from dovetail.physics.zoo.provenance import Sourced
from dovetail.profiling.fit_curve import Servers, fit_curve
from tools.zoo.fit_placements import read_csv
from tools.zoo.from_curve import (
    DERIVED,
    FITTED,
    MEASURED,
    left_out_times,
    measured_points,
    names_of,
    profile_from_curve,
)
from tools.zoo.input_pipeline import derived_stages
from tools.zoo.largest_batch import largest_batch

SOURCE = (
    "AFS model curves (TuftsNATLab/PCS, simulation/models.py, MIT): iteration times of the "
    "AFS authors at fixed global batch, GTX 1080, four per server, 40 Gbit/s; "
    "counts between their measured ones are filled in linearly"
)
SERVERS = Servers(gpus_per_node=4, within=12e9, across=5e9)
"""PCIe 3.0 x16 and one port of 40 Gbit/s."""


def fit_afs(data: Path) -> ProfileSet:
    """Returns the AFS authors' models with their scaling curves."""
    path = data / "traces" / "profiles" / "afs" / "afs_step_times.csv"
    rows = read_csv(path)
    profiles = []
    for name in names_of("afs"):
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
        sources=(("afs", SOURCE),),
        profiles=tuple(profiles),
    )


def _afs_model(name: str, curve: Curve, global_batch: int) -> ModelProfile:
    facts = architectures()[f"afs/{name}"]
    gpu = device("gtx1080")
    fitting = largest_batch(facts.memory.value, gpu.memory_bytes.value) or global_batch
    batch = Batch(global_batch, per_gpu=False, max_per_gpu=min(global_batch, fitting))
    points, gradient_bytes = measured_points(curve), facts.gradient_bytes.value
    fit = fit_curve(points, batch, SERVERS, gradient_bytes)
    left_out = left_out_times(points, batch, SERVERS, gradient_bytes)
    bed = f"{SOURCE}; section 5 of the AFS paper"
    profile = profile_from_curve(
        name,
        "afs",
        curve,
        fit,
        SOURCE,
        gpu_type=Sourced("gtx1080", MEASURED, bed),
        gpus_per_node=Sourced(SERVERS.gpus_per_node, MEASURED, bed),
        batch=Sourced(batch, DERIVED, "global batch of the source; per GPU what 8 GB hold"),
        compute=Sourced(fit.compute, FITTED, SOURCE),
        left_out=left_out.error if left_out else None,
    )
    return replace(profile, stages=derived_stages(profile))

"""Makes the Pollux authors' models: equation (7) fitted over placements and batch sizes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np

from dovetail.core.errors import InputError
from dovetail.physics.speed.throughput import throughput_table
from dovetail.physics.zoo.architecture import architectures
from dovetail.physics.zoo.profile import Batch, ModelProfile
from dovetail.physics.zoo.profile_file import ProfileSet
from dovetail.physics.zoo.provenance import Sourced
from tools.zoo.efficiency import EPOCHS, MOST_PER_GPU, fit_efficiency, read_trainings
from tools.zoo.fit_placements import fit_steps, read_csv, read_steps
from tools.zoo.from_curve import ASSUMED, DERIVED, FITTED, MEASURED, names_of
from tools.zoo.input_pipeline import derived_stages

SOURCE = (
    "Pollux artifact (petuum/adaptdl, branch osdi21-artifact, simulator/traces, Apache-2.0): "
    "step times over placements on AWS nodes with four T4"
)
TRAININGS = (
    "Pollux artifact (simulator/traces/<model>/validation-<batch>.csv, Apache-2.0): variance over "
    "square of the gradient by epoch and batch, joined to phases (docs/concepts/physics.md)"
)
GPUS_MAX = 64


def fit_pollux(data: Path) -> ProfileSet:
    """Returns the six Pollux models, fitted over placements and batch sizes."""
    folder = data / "data" / "pollux-osdi21"
    names = names_of("pollux")
    batches = _usual_batches(folder)
    profiles = [_pollux_model(folder, name, batches[name]) for name in names]
    return ProfileSet(
        family="pollux",
        title="Six models of the Pollux authors on T4 nodes",
        licence="Apache-2.0 (measurements); the parameters here are derived",
        sources=(("pollux", SOURCE), ("pollux-trainings", TRAININGS)),
        profiles=tuple(profiles),
    )


def _pollux_model(folder: Path, name: str, batch: int) -> ModelProfile:
    facts = architectures()[f"pollux/{name}"]
    steps = read_steps(folder / "traces" / name)
    trainings = read_trainings(folder / "traces" / name, EPOCHS[name])
    fit = fit_steps(steps, facts.gradient_bytes.value)
    least, largest = int(steps.batch.min()), int(steps.batch[steps.gpus == 1].max())
    profile = ModelProfile(
        name=name,
        family="pollux",
        title=facts.title,
        aliases=facts.aliases,
        gpu_type=Sourced("t4", MEASURED, SOURCE),
        gpus_per_node=Sourced(4, MEASURED, SOURCE),
        batch=Sourced(
            Batch(batch, per_gpu=False, max_per_gpu=largest),
            DERIVED,
            "the most frequent global batch of the source's workloads; the most that ran on a T4",
        ),
        max_gpus=Sourced(GPUS_MAX, ASSUMED, "as many as were measured"),
        parameters=facts.parameters,
        gradient_bytes=facts.gradient_bytes,
        compute=(("t4", Sourced(fit.compute, FITTED, SOURCE)),),
        overlap=Sourced(fit.overlap, FITTED, SOURCE),
        network=Sourced(fit.network, FITTED, SOURCE),
        memory=facts.memory,
        fit_error=Sourced(fit.held_out, MEASURED, "on a seeded quarter of the placements"),
        efficiency=Sourced(
            fit_efficiency(trainings, (least, MOST_PER_GPU.get(name, largest))), DERIVED, TRAININGS
        ),
    )
    best = int(np.argmax(throughput_table(profile, GPUS_MAX)))
    peak = Sourced(best, DERIVED, "where the fitted throughput at the default batch peaks")
    return replace(profile, max_gpus=peak, stages=derived_stages(profile))


def _usual_batches(folder: Path) -> dict[str, int]:
    counts: dict[str, Counter[int]] = {}
    for path in sorted(folder.glob("workloads*/workload-*.csv")):
        for row in read_csv(path):
            batches = counts.setdefault(row["application"], Counter())
            batches[int(row["batch_size"])] += 1
    if not counts:
        raise InputError(str(folder), "has no workloads*/workload-N.csv")
    return {name: batches.most_common(1)[0][0] for name, batches in counts.items()}

"""Builds the profile of a model from the dry runs of its script, in the form of the zoo."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dovetail.core.cluster import DEFAULT_LINKS
from dovetail.live.engines.devices import slug
from dovetail.physics.memory import MemoryLaw
from dovetail.physics.speed.compute import Compute
from dovetail.physics.speed.network import Network
from dovetail.physics.zoo.profile import Batch, Curve, ModelProfile, StageTimes
from dovetail.physics.zoo.profile_file import ProfileSet
from dovetail.physics.zoo.provenance import Provenance, Sourced
from dovetail.profiling.dry_run import MeasuredSubBatch, ParallelRun, SingleWorkerRun
from dovetail.profiling.fit_curve import Servers, fit_curve

MEASURED, FITTED, DERIVED, ASSUMED = Provenance
LOOPBACK = Servers(1 << 10, 25e9, 12.5e9)
"""Workers of one machine: no exchange is faster than memory (assumed)."""
HERE = "run"


def profile_set(
    name: str,
    single: SingleWorkerRun,
    parallel: Sequence[ParallelRun],
    *,
    slots: int,
    where: str,
    family: str,
) -> ProfileSet:
    """Returns a set with the one model; `where` is the host, the day and the command."""
    model = _profile(name, single, parallel, slots, where, slug(family) or "here")
    return ProfileSet(
        family=model.family,
        title=f"Measured on {family}",
        licence="yours",
        sources=((HERE, where),),
        profiles=(model,),
    )


def _profile(
    name: str,
    single: SingleWorkerRun,
    parallel: Sequence[ParallelRun],
    slots: int,
    where: str,
    family: str,
) -> ModelProfile:
    gpu_type, rows = slug(single.device), single.sub_batches
    gradient_bytes = 4.0 * single.parameters
    batch = Batch(single.batch_size, False, max(row.samples for row in rows))
    curve = Curve(
        (1, *(run.workers for run in parallel)),
        (rows[0].iteration_s, *(run.iteration_s for run in parallel)),
    )
    counts = ", ".join(str(n) for n in curve.gpus)
    overlap, network = _exchange(curve, batch, gradient_bytes, where)
    return ModelProfile(
        name=name,
        family=family,
        title=single.model,
        aliases=() if single.model == name else (single.model,),
        gpu_type=Sourced(gpu_type, MEASURED, where),
        gpus_per_node=Sourced(slots, MEASURED, where),
        batch=Sourced(batch, MEASURED, "the script's own, shared by all workers"),
        max_gpus=Sourced(curve.gpus[-1], MEASURED, f"{where}; the most that were tried"),
        parameters=Sourced(float(single.parameters), MEASURED, "counted in the model"),
        gradient_bytes=Sourced(gradient_bytes, DERIVED, "parameters x 4 bytes (FP32)"),
        compute=((gpu_type, _compute(rows, where)),),
        overlap=overlap,
        network=network,
        memory=_memory(rows, where),
        curve=Sourced(curve, MEASURED, f"{where}; {counts} workers, median iteration"),
        stages=_stages(rows, parallel, where),
    )


def _exchange(
    curve: Curve, batch: Batch, gradient_bytes: float, where: str
) -> tuple[Sourced[float], Sourced[Network]]:
    """Returns overlap and network: fitted to the curve, or assumed from a single point."""
    if len(curve.gpus) < 2 or not gradient_bytes:
        return (
            Sourced(1.0, ASSUMED, "one worker was measured: no overlap taken"),
            Sourced(Network.of(DEFAULT_LINKS), ASSUMED, "one worker was measured"),
        )
    fit = fit_curve(curve, batch, LOOPBACK, gradient_bytes)
    source = f"{where}; through the curve, which decides at the measured counts"
    return Sourced(fit.overlap, FITTED, source), Sourced(fit.network, FITTED, source)


def _compute(rows: Sequence[MeasuredSubBatch], where: str) -> Sourced[Compute]:
    """Returns a + b*B, from iterations of s micro-batches: s*a + b*B (eq. 3, 7)."""
    a_s, b_s = _fit_nonnegative(
        [row.steps for row in rows],
        [row.steps * row.samples for row in rows],
        [row.iteration_s for row in rows],
    )
    return Sourced(Compute(a_s, b_s), FITTED, f"{where}; iterations over sub-batches")


def _memory(rows: Sequence[MeasuredSubBatch], where: str) -> Sourced[MemoryLaw]:
    fixed, each = _fit_nonnegative(
        [1] * len(rows), [row.samples for row in rows], [row.memory_bytes for row in rows]
    )
    return Sourced(MemoryLaw(fixed, each), FITTED, f"{where}; the most held, over sub-batches")


def _fit_nonnegative(
    first: Sequence[float], second: Sequence[float], y: Sequence[float]
) -> tuple[float, float]:
    """Returns x, z >= 0 for which x*first + z*second is nearest to y, each relative to its size."""
    from scipy.optimize import nnls

    # Relative errors: otherwise the whole batch, with the longest times, would decide alone.
    weight = 1.0 / np.array(y, float)
    columns = np.array([first, second], float).T * weight[:, None]
    (x, z), _ = nnls(columns, np.ones(len(y)))
    return float(x), float(z)


def _stages(
    rows: Sequence[MeasuredSubBatch], parallel: Sequence[ParallelRun], where: str
) -> Sourced[tuple[StageTimes, ...]] | None:
    measured = [(1, rows[0].stage_s), *((run.workers, run.stage_s) for run in parallel)]
    stages = tuple(StageTimes(n, *stage_s) for n, stage_s in measured if len(stage_s) == 4)
    return Sourced(stages, MEASURED, f"{where}; median of each stage") if stages else None

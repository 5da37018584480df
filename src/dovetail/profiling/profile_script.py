"""Makes a profile of a model from a dry run of its script, as the zoo holds it."""

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
from dovetail.profiling.dry_run import Alone, MeasuredSubBatch, Together
from dovetail.profiling.fit_curve import Servers, fit_curve

MEASURED, FITTED, DERIVED, ASSUMED = Provenance
LOOPBACK = Servers(1 << 10, 25e9, 12.5e9)
"""Workers of one machine; nothing is exchanged faster than memory allows (assumed)."""
HERE = "run"


def profile_set(
    name: str, alone: Alone, together: Sequence[Together], *, slots: int, where: str, family: str
) -> ProfileSet:
    """Returns a set with the one model; `where` says the host, the day and the command."""
    model = _profile(name, alone, together, slots, where, slug(family) or "here")
    return ProfileSet(
        family=model.family,
        title=f"Measured on {family}",
        licence="yours",
        sources=((HERE, where),),
        profiles=(model,),
    )


def _profile(
    name: str, alone: Alone, together: Sequence[Together], slots: int, where: str, family: str
) -> ModelProfile:
    gpu_type, rows = slug(alone.device), alone.sub_batches
    gradient_bytes = 4.0 * alone.parameters
    batch = Batch(alone.batch_size, False, max(row.samples for row in rows))
    curve = Curve(
        (1, *(t.workers for t in together)),
        (rows[0].iteration_s, *(t.iteration_s for t in together)),
    )
    counts = ", ".join(str(n) for n in curve.gpus)
    return ModelProfile(
        name=name,
        family=family,
        title=alone.model,
        aliases=() if alone.model == name else (alone.model,),
        gpu_type=Sourced(gpu_type, MEASURED, where),
        gpus_per_node=Sourced(slots, MEASURED, where),
        batch=Sourced(batch, MEASURED, "the script's own, shared by all workers"),
        max_gpus=Sourced(curve.gpus[-1], MEASURED, f"{where}; the most that were tried"),
        parameters=Sourced(float(alone.parameters), MEASURED, "counted in the model"),
        gradient_bytes=Sourced(gradient_bytes, DERIVED, "parameters x 4 bytes (FP32)"),
        compute=((gpu_type, _compute(rows, where)),),
        **_exchange(curve, batch, gradient_bytes, where),  # type: ignore[arg-type]
        memory=_memory(rows, where),
        curve=Sourced(curve, MEASURED, f"{where}; {counts} workers, median iteration"),
        stages=_stages(rows, together, where),
    )


def _exchange(
    curve: Curve, batch: Batch, gradient_bytes: float, where: str
) -> dict[str, Sourced[object]]:
    """Returns overlap and network: fitted to the curve, or assumed from a single point."""
    if len(curve.gpus) < 2 or not gradient_bytes:
        return {
            "overlap": Sourced(1.0, ASSUMED, "one worker was measured: no overlap taken"),
            "network": Sourced(Network.of(DEFAULT_LINKS), ASSUMED, "one worker was measured"),
        }
    fit = fit_curve(curve, batch, LOOPBACK, gradient_bytes)
    source = f"{where}; through the curve, which decides at the measured counts"
    return {
        "overlap": Sourced(fit.overlap, FITTED, source),
        "network": Sourced(fit.network, FITTED, source),
    }


def _compute(rows: Sequence[MeasuredSubBatch], where: str) -> Sourced[Compute]:
    """Returns a + b*B, from iterations of s micro-batches: s*a + b*B (eq. 3, 7)."""
    times = [row.iteration_s for row in rows]
    a_s, b_s = _line([float(r.steps) for r in rows], [float(r.steps * r.samples) for r in rows],
                     times)  # fmt: skip
    return Sourced(Compute(a_s, b_s), FITTED, f"{where}; iterations over sub-batches")


def _memory(rows: Sequence[MeasuredSubBatch], where: str) -> Sourced[MemoryLaw]:
    fixed, each = _line(
        [1.0] * len(rows),
        [float(row.samples) for row in rows],
        [float(row.memory_bytes) for row in rows],
    )
    return Sourced(MemoryLaw(fixed, each), FITTED, f"{where}; the most held, over sub-batches")


def _line(
    first: Sequence[float], second: Sequence[float], y: Sequence[float]
) -> tuple[float, float]:
    """Returns x, z >= 0 for which x*first + z*second is nearest to y, each relative to its size."""
    from scipy.optimize import nnls

    weight = 1.0 / np.array(y)
    columns = np.array([first, second]).T * weight[:, None]
    (x, z), _ = nnls(columns, np.ones(len(y)))
    return float(x), float(z)


def _stages(
    rows: Sequence[MeasuredSubBatch], together: Sequence[Together], where: str
) -> Sourced[tuple[StageTimes, ...]] | None:
    measured = [(1, rows[0].stage_s), *((t.workers, t.stage_s) for t in together)]
    found = tuple(StageTimes(n, *stage_s) for n, stage_s in measured if len(stage_s) == 4)
    return Sourced(found, MEASURED, f"{where}; median of each stage") if found else None

"""Profiles made from a scaling curve, and which models of a family to make."""

from __future__ import annotations

import numpy as np

from dovetail.physics.speed.compute import Compute
from dovetail.physics.zoo.architecture import architectures
from dovetail.physics.zoo.profile import Batch, Curve, FitError, ModelProfile
from dovetail.physics.zoo.provenance import Provenance, Sourced
from dovetail.profiling.fit_curve import CurveFit, CurveProblem, Servers
from tools.zoo.predicted_times import PredictedTimes

MEASURED, FITTED, DERIVED, ASSUMED = Provenance


def names_of(family: str) -> list[str]:
    """Returns the models of a family whose facts we know, in the order of the facts."""
    return [name.partition("/")[2] for name in architectures() if name.startswith(f"{family}/")]


def measured_points(curve: Curve) -> Curve:
    """Returns a curve without the points that lie on the straight line of their neighbours.

    The published tables are filled in that way, rounded to a microsecond.
    """
    gpus, times = curve.gpus, curve.iteration_s
    inner = range(1, len(gpus) - 1)
    on_line = {i for i in inner if abs(times[i] - (times[i - 1] + times[i + 1]) / 2) < 2.1e-6}
    kept = [i for i in range(len(gpus)) if i not in on_line]
    return Curve(tuple(gpus[i] for i in kept), tuple(times[i] for i in kept))


def left_out_times(
    curve: Curve, batch: Batch, servers: Servers, gradient_bytes: float
) -> PredictedTimes | None:
    """Returns each inner point as a fit without it predicts it; None with too few points."""
    unknowns = 6
    if len(curve.gpus) <= unknowns + 1:
        return None
    problem = CurveProblem(batch, servers, gradient_bytes, curve.iteration_s[0])
    gpus, times = np.array(curve.gpus, float), np.array(curve.iteration_s)
    predicted = [
        problem.predicted_s(problem.solve(np.delete(gpus, i), np.delete(times, i)), gpus)[i]
        for i in range(1, len(times) - 1)
    ]
    return PredictedTimes(np.array(predicted), times[1:-1])


def profile_from_curve(
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
    left_out: FitError | None = None,
) -> ModelProfile:
    """Returns the profile of a curve and its fit; `source` is the source of both."""
    facts = architectures()[f"{family}/{name}"]
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
        fit_error=(
            Sourced(left_out, MEASURED, "each measured count left out in turn")
            if left_out
            else None
        ),
    )

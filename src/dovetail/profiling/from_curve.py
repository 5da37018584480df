"""Profiles made from a scaling curve, and which models of a family to make."""

from __future__ import annotations

from dovetail.physics.speed.compute import Compute
from dovetail.physics.zoo.architecture import architectures
from dovetail.physics.zoo.profile import Batch, Curve, ModelProfile
from dovetail.physics.zoo.provenance import Provenance, Sourced
from dovetail.profiling.fit_curve import CurveFit

MEASURED, FITTED, DERIVED, ASSUMED = Provenance


def names_of(family: str) -> list[str]:
    """Returns the models of a family whose facts we know, in the order of the facts."""
    return [name.partition("/")[2] for name in architectures() if name.startswith(f"{family}/")]


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
) -> ModelProfile:
    """Returns the profile of a curve and its fit; `source` says where both come from."""
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

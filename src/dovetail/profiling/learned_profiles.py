"""The measurements of a live cluster as a profile set, which the simulator can read.

A profile needs more than was measured. What is missing is assumed, and marked so. Its curve, which
decides, passes through the measured points.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby

import numpy as np

from dovetail.core.cluster import DEFAULT_LINKS
from dovetail.core.errors import InputError
from dovetail.physics.beliefs.measurements import MeasurementKey, Measurements
from dovetail.physics.memory import MemoryLaw
from dovetail.physics.sharing.pairs import PairRatio
from dovetail.physics.speed.compute import Compute
from dovetail.physics.speed.network import Network
from dovetail.physics.zoo.profile import Batch, Curve, ModelProfile, StageTimes
from dovetail.physics.zoo.profile_file import ProfileSet
from dovetail.physics.zoo.provenance import Provenance, Sourced
from dovetail.profiling.fit_curve import FIXED_SHARE

MEASURED, FITTED, DERIVED, ASSUMED = Provenance
UNKNOWN = "nobody said; what the curve shows stands in for it"


def learned_set(stored: str, *, family: str, where: str) -> ProfileSet:
    """Returns the models that a cluster measured, from the measurements in its store.

    `where` names the cluster and the day. Raises InputError where no model was measured.
    """
    measurements = Measurements.load(stored)
    keys = _models(measurements)
    if not keys:
        raise InputError(
            where,
            "no model was measured here",
            "jobs must name their `model`, be written with dovetail.train, and run alone a while",
        )
    return ProfileSet(
        family=family,
        title=f"Learned on {family}",
        licence="yours",
        sources=(("cluster", where),),
        profiles=tuple(_profile(measurements, key, family, where) for key in keys),
        pairs=tuple(_pairs(measurements, keys)),
    )


def _models(measurements: Measurements) -> list[MeasurementKey]:
    """Returns for each model the key of the batch that was measured on most numbers of GPUs.

    Synthetic jobs (`@`) and jobs that are only known by their recurrence (`~`) are not models.
    """
    named = [
        key
        for key in measurements.rated()
        if not key.own and key.name[0] != "~" and "@" not in key.name and measurements.batch(key)
    ]
    by_name = groupby(named, key=lambda key: key.name)
    return [max(same, key=lambda k: (len(measurements.rates(k)), k.batch)) for _, same in by_name]


def _profile(
    measurements: Measurements, key: MeasurementKey, family: str, where: str
) -> ModelProfile:
    rates, batch = measurements.rates(key), measurements.batch(key)
    least = min(rates)
    alone_s = batch * least / rates[least]
    times = {1: alone_s, **{n: batch / rate for n, rate in rates.items()}}
    curve = Curve(tuple(sorted(times)), tuple(times[n] for n in sorted(times)))
    counts = ", ".join(map(str, rates))
    source = f"{where}; measured on {counts} GPUs" + ("" if least == 1 else "; 1 in proportion")
    held = measurements.held_bytes(key)
    a_s, b_s = FIXED_SHARE * alone_s, (1 - FIXED_SHARE) * alone_s / batch
    return ModelProfile(
        name=key.name,
        family=family,
        title=key.name,
        aliases=(),
        gpu_type=Sourced("any", ASSUMED, "a cluster of one kind of GPU"),
        gpus_per_node=Sourced(max(rates), ASSUMED, "as many as were measured together"),
        batch=Sourced(Batch(batch, False, batch), MEASURED, "samples of an iteration"),
        max_gpus=Sourced(max(rates), MEASURED, f"{where}; the most that were tried"),
        parameters=Sourced(0.0, ASSUMED, UNKNOWN),
        gradient_bytes=Sourced(0.0, ASSUMED, UNKNOWN),
        compute=(("any", Sourced(Compute(a_s, b_s), ASSUMED, f"{source}; a tenth is fixed")),),
        overlap=Sourced(1.0, ASSUMED, UNKNOWN),
        network=Sourced(Network.of(DEFAULT_LINKS), ASSUMED, UNKNOWN),
        memory=_memory(held, batch, where),
        curve=Sourced(curve, MEASURED if least == 1 else DERIVED, source),
        stages=_stages(measurements, key, where),
    )


def _memory(held: Mapping[int, float], batch: int, where: str) -> Sourced[MemoryLaw]:
    """Returns memory as a line over the samples of a micro-batch; constant if one is known."""
    if not held:
        return Sourced(MemoryLaw(0.0, 0.0), ASSUMED, "nobody said what it holds")
    samples = np.array([batch / parts for parts in held])
    used = np.array(list(held.values()))
    each = max(0.0, float(np.polyfit(samples, used, 1)[0])) if len(held) > 1 else 0.0
    return Sourced(
        MemoryLaw(max(0.0, float(np.max(used - each * samples))), each),
        FITTED,
        f"{where}; the most held",
    )


def _stages(
    measurements: Measurements, key: MeasurementKey, where: str
) -> Sourced[tuple[StageTimes, ...]] | None:
    rows = [(n, measurements.stage_s(key, n)) for n in measurements.rates(key)]
    stages = tuple(StageTimes(n, *row[:4]) for n, row in rows if len(row) == 5)
    return Sourced(stages, MEASURED, where) if stages else None


def _pairs(measurements: Measurements, keys: list[MeasurementKey]) -> list[PairRatio]:
    """Returns the pairs of which both sides were measured, by the micro-batches of both."""
    pairs = []
    for mine, other in measurements.pairs():
        if mine not in keys or other not in keys or mine > other:
            continue
        other_ratios = measurements.ratios(other, mine)
        for (steps, other_steps), ratio in measurements.ratios(mine, other).items():
            other_ratio = other_ratios.get((other_steps, steps))
            if other_ratio is not None:
                first = max(1, measurements.batch(mine) // steps)
                second = max(1, measurements.batch(other) // other_steps)
                pairs.append(PairRatio(mine.name, first, other.name, second, ratio, other_ratio))
    return pairs

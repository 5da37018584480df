"""How far the zoo's times are from the measurements, by region: the honest part of the zoo."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dovetail.physics.speed.throughput import iteration_s, spread
from dovetail.physics.zoo.profile import FitError, ModelProfile
from dovetail.profiling.least_squares import error_of
from tools.zoo.fit_placements import REGIONS, Steps, read_steps, region_of


def errors_by_region(profile: ModelProfile, data: Path) -> dict[str, FitError]:
    """Returns the errors of a Pollux model by region, through the same call that policies use.

    Held-out rows only, but for one GPU: that placement is always fitted.
    """
    steps = read_steps(data / "data" / "pollux-osdi21" / "traces" / profile.name)
    seen, held = steps.split()
    alone = seen.take(seen.gpus == 1)
    found = {REGIONS[0]: _error(profile, alone)}
    for position, region in enumerate(REGIONS[1:], start=1):
        found[region] = _error(profile, held.take(region_of(held) == position))
    return found


def _error(profile: ModelProfile, steps: Steps) -> FitError:
    predicted_s = [
        iteration_s(
            profile,
            gpus=int(gpus),
            spans=spread(int(gpus), int(nodes)),
            batch_per_gpu=batch,
            accumulation_steps=1,
        )
        for nodes, gpus, batch in zip(steps.nodes, steps.gpus, steps.batch, strict=True)
    ]
    return error_of(np.array(predicted_s), steps.step_s)

"""How far the zoo's times are from the measurements, by region: the honest part of the zoo."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dovetail.physics.speed.throughput import iteration_s, spread
from dovetail.physics.zoo.profile import FitError, ModelProfile
from tools.zoo.fit_placements import REGIONS, Steps, read_steps, region_of
from tools.zoo.predicted_times import PredictedTimes


def errors_by_region(profile: ModelProfile, data: Path) -> dict[str, FitError]:
    """Returns the errors of a Pollux model by region, through the same call that policies use.

    Held-out rows only, but for one GPU: that placement is always fitted.
    """
    seen, held = _steps(profile, data).split()
    alone = seen.take(seen.gpus == 1)
    found = {REGIONS[0]: _times(profile, alone).error}
    for position, region in enumerate(REGIONS[1:], start=1):
        found[region] = _times(profile, held.take(region_of(held) == position)).error
    return found


def held_out_times(profile: ModelProfile, data: Path) -> PredictedTimes:
    """Returns the iteration times of a Pollux model on the placements held out."""
    return _times(profile, _steps(profile, data).split()[1])


def _steps(profile: ModelProfile, data: Path) -> Steps:
    return read_steps(data / "data" / "pollux-osdi21" / "traces" / profile.name)


def _times(profile: ModelProfile, steps: Steps) -> PredictedTimes:
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
    return PredictedTimes(np.array(predicted_s), steps.step_s)

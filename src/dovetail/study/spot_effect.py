"""What a spot tier does: to the jobs on it, which lose GPUs to others, and to these others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.core.job import Bools, Floats
from dovetail.core.units import HOUR_S
from dovetail.study.cells import CellOutcome, Premise, scene_of
from dovetail.study.changes import GridCell
from dovetail.study.uncertainty import Interval, blocks, intervals


@dataclass(frozen=True, slots=True)
class SpotEffect:
    """The jobs on spot with their stops, and both groups' mean JCT against the base, paired.

    `stopped_gpu_h` is what the stops cost: restarts and repeated work; None if not known, as
    starts by profile differ from model to model.
    """

    jobs: int
    gpu_h: float
    stops: int
    stopped_gpu_h: float | None
    spot: Interval
    others: Interval

    def columns(self) -> dict[str, float | None]:
        """Returns the columns of the table."""
        return {
            "spot_jobs": self.jobs,
            "spot_stops": self.stops,
            "spot_stopped_gpu_h": self.stopped_gpu_h,
            "spot_ratio_to_base": self.spot.value,
            "others_ratio_to_base": self.others.value,
        }


def spot_effect(
    premise: Premise, cells: Sequence[GridCell], outcomes: Sequence[CellOutcome], at: int
) -> SpotEffect | None:
    """Returns the effect of the cell at a position, None if it has no spot tier."""
    tier = cells[at].setting.spot
    if tier is None:
        return None
    trace, (base, here) = premise.trace, (outcomes[0], outcomes[at])
    _, _, options = scene_of(premise, cells[at].setting)
    chosen, gpus = tier.rows(trace), trace.jobs.gpus
    whole = options.window.rows(trace.jobs.submit_s)
    for outcome in (base, here):
        whole = whole & ~outcome.left_out & ~outcome.cut & np.isfinite(outcome.jct_s)
    by_profile = bool(options.switching.by_profile)
    stops_gpus = float((here.stops * gpus)[chosen].sum())
    return SpotEffect(
        jobs=int(chosen.sum()),
        gpu_h=float((trace.duration_s * gpus)[chosen].sum()) / HOUR_S,
        stops=int(here.stops[chosen].sum()),
        stopped_gpu_h=None if by_profile else stops_gpus * options.switching.resume_s / HOUR_S,
        spot=_paired(premise, base.jct_s, here.jct_s, whole & chosen),
        others=_paired(premise, base.jct_s, here.jct_s, whole & ~chosen),
    )


def _paired(premise: Premise, base_s: Floats, here_s: Floats, rows: Bools) -> Interval:
    """Returns the ratio of the mean JCTs of some jobs with its interval."""
    if not rows.any():
        return Interval(float("nan"), None, None)
    submit_s = premise.trace.jobs.submit_s[rows]
    samples = blocks(submit_s, {"base": base_s[rows], "here": here_s[rows]})
    return intervals(samples, "base", premise.options.seed)[1]["here"]


def spot_note(premise: Premise, cell: GridCell, effect: SpotEffect) -> str:
    """Returns what spot jobs lose and what the others gain."""
    tier = cell.setting.spot
    assert tier is not None
    every = "save when they are told to stop"
    if tier.repeated_s:
        every = f"repeat {tier.repeated_s / 60:,.0f} min of work on average after a stop"
    cost = "" if effect.stopped_gpu_h is None else f", which costs {effect.stopped_gpu_h:,.1f} "
    cost += "GPU-hours of restarts and repeated work" if cost else ""
    return (
        f"'{cell.label}': {effect.jobs:,} jobs of {effect.gpu_h:,.0f} GPU-hours run on what the "
        f"others leave idle and {every}. They are stopped {effect.stops:,} times{cost}. Mean JCT "
        f"against the base: spot jobs {_times(effect.spot)}, all others {_times(effect.others)}."
    )


def _times(ratio: Interval) -> str:
    text = f"{ratio.value:.2f}x"
    if ratio.low is None or ratio.high is None:
        return f"{text} (no interval)"
    return f"{text} (95 % interval {ratio.low:.2f} to {ratio.high:.2f})"

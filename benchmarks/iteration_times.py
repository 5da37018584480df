"""How far iteration times of jobs alone are from measured ones, by source.

    python -m benchmarks.iteration_times --data ../shared [-o FOLDER]

Rows that no fit has seen, as `python -m tools.zoo fit`, `... benchmark` and
`benchmarks/pipeline_plans.py` have them by model. With -o: `iteration-times.png`, predicted against
measured. Models of `muri` have too few points to leave one out; nothing of `asrpt` was measured.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from benchmarks.scatter import Panel, save, scatter
from dovetail.physics.zoo.models import zoo
from dovetail.physics.zoo.profile import ModelProfile
from tools.zoo.accuracy import held_out_times
from tools.zoo.afs import SERVERS
from tools.zoo.benchmark import interpolated_times
from tools.zoo.elasticflow import other_batches, read_curves
from tools.zoo.from_curve import left_out_times, measured_points
from tools.zoo.plans import fit_plans
from tools.zoo.predicted_times import PredictedTimes

ByModel = Mapping[str, PredictedTimes]


def sources(data: Path) -> dict[str, ByModel]:
    """Returns what was held out of each source, by model."""
    return {
        "pollux: placements held out": {
            name: held_out_times(profile, data) for name, profile in _models("pollux")
        },
        "afs: each count left out": dict(_left_out()),
        "elasticflow: other batches, A100": {
            name: other_batches(profile, read_curves(_throughputs(data) / f"{name}.csv"))
            for name, profile in _models("elasticflow")
        },
        "elasticflow: pollux models, T4": interpolated_times(data),
        "pipelines on A800, a fifth held out": fit_plans(data).held_out,
    }


def _models(family: str) -> list[tuple[str, ModelProfile]]:
    return [(one.name, one) for one in zoo().values() if one.family == family]


def _throughputs(data: Path) -> Path:
    return data / "data" / "elasticflow" / "throughputs_A100"


def _left_out() -> Iterable[tuple[str, PredictedTimes]]:
    for name, profile in _models("afs"):
        assert profile.curve is not None
        points, gradient_bytes = measured_points(profile.curve.value), profile.gradient_bytes.value
        times = left_out_times(points, profile.batch.value, SERVERS, gradient_bytes)
        if times:
            yield name, times


def print_errors(found: Mapping[str, ByModel]) -> None:
    """Prints the errors over all rows of a source, and the least and largest mean of a model."""
    print(f"{'source':<37}{'models':>7}{'rows':>6}{'mean':>8}{'p90':>8}{'worst':>8}", end="")
    print(f"{'best':>8}{'worst model':>13}")
    for source, by_model in found.items():
        error = PredictedTimes.joined(by_model.values()).error
        means = sorted(times.error.mean for times in by_model.values())
        cells = "".join(f"{100 * x:>7.1f}%" for x in (error.mean, error.p90, error.worst, means[0]))
        last = f"{100 * means[-1]:.1f}%"
        print(f"{source:<37}{len(by_model):>7}{error.rows:>6}{cells}{last:>13}")


def panels(found: Mapping[str, ByModel]) -> list[Panel]:
    """Returns a panel for each source, a colour for each model."""
    return [
        Panel(
            source,
            [
                (np.asarray(one.predicted_s), np.asarray(one.measured_s))
                for one in by_model.values()
            ],
        )
        for source, by_model in found.items()
    ]


def main() -> None:
    """Prints the errors, and draws."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="holds data/ and traces/")
    parser.add_argument("-o", "--output", type=Path, help="folder for iteration-times.png")
    given = parser.parse_args()
    found = sources(given.data)
    print_errors(found)
    if given.output:
        save(scatter(panels(found), "seconds"), given.output / "iteration-times")


if __name__ == "__main__":
    main()

"""How good and how fast the physics is: times, and a table that others made of the same data.

`python -m tools.zoo benchmark --data ../shared`. The held-out errors are those of
`python -m tools.zoo fit`. This adds what no fit has seen in this form: ElasticFlow's throughput
tables (Apache-2.0), interpolated by its authors from Pollux's steps at global batches that need
gradient accumulation; and the cost of the calls that policies make.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from dovetail.physics.speed.throughput import iteration_s, throughput_table
from dovetail.physics.zoo.models import lookup, zoo
from tools.zoo.fit import FITS
from tools.zoo.fit_placements import read_csv
from tools.zoo.predicted_times import PredictedTimes


def interpolated_times(data: Path) -> dict[str, PredictedTimes]:
    """Returns the iteration times of ElasticFlow's T4 tables, well placed, by model."""
    folder = data / "data" / "elasticflow" / "throughputs_T4"
    return {path.stem: _of_table(path) for path in sorted(folder.glob("*.csv"))}


def _of_table(path: Path) -> PredictedTimes:
    profile = lookup(path.stem, family="pollux")
    ours, theirs = [], []
    for row in read_csv(path):
        batch = float(row.pop("global_batch_size"))
        for gpus, rate in row.items():
            if rate and rate != "nan":
                n = int(gpus)
                ours.append(iteration_s(profile, gpus=n, batch_per_gpu=batch / n))
                theirs.append(1 / float(rate))
    return PredictedTimes(np.array(ours), np.array(theirs))


def against_elasticflow(data: Path) -> None:
    """Prints the relative errors against ElasticFlow's tables of the T4."""
    print("\niteration times against ElasticFlow's T4 tables, well placed on nodes of four")
    print(f"{'model':<14}{'entries':>8}{'mean':>9}{'p90':>9}{'worst':>9}")
    for name, times in interpolated_times(data).items():
        error = times.error
        shares = "".join(f"{100 * x:>8.1f}%" for x in (error.mean, error.p90, error.worst))
        print(f"{name:<14}{error.rows:>8}{shares}")


def microseconds(act: Callable[[], object], repeats: int) -> float:
    """Returns the time of a call: the least of five means."""
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(repeats):
            act()
        best = min(best, (time.perf_counter() - began) / repeats)
    return 1e6 * best


def speed() -> None:
    """Prints what one iteration time and the throughput tables of all models cost."""
    profile = lookup("pollux/bert")
    call = microseconds(
        lambda: iteration_s(
            profile, gpus=8, spans=(4, 4), batch_per_gpu=12.0, accumulation_steps=2
        ),
        10_000,
    )
    table = microseconds(lambda: throughput_table(profile, 64), 10_000)
    began = time.perf_counter()
    for one in zoo().values():
        throughput_table(one, 2048, gpus_per_node=16)
    fresh_ms = 1e3 * (time.perf_counter() - began)
    print(f"\niteration_s, one placement: {call:.2f} us; a table asked for again: {table:.2f} us")
    print(f"fresh tables of 2048 GPUs for all {len(zoo())} models: {fresh_ms:.1f} ms")


def report(data: Path) -> None:
    """Prints the time of each fit, the errors against ElasticFlow's tables, and the call times."""
    for family, fit in FITS.items():
        began = time.perf_counter()
        models = len(fit(data).profiles)
        print(f"fit {family}: {models} models in {time.perf_counter() - began:.2f} s")
    against_elasticflow(data)
    speed()

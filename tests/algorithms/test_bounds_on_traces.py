"""The bounds on public traces, 64 GPUs: the figures of docs/concepts/bounds.md."""

from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest

from dovetail.algorithms.bounds import (
    MEAN_BUSY,
    PRICED,
    SPAN,
    SQUASHED,
    LowerBounds,
    Powers,
    lower_bounds,
)
from dovetail.algorithms.demand import ScalingCurve, elastic_demand, rigid_demand
from dovetail.algorithms.speed import SpeedTimeline

FloatArray = npt.NDArray[np.float64]
CLUSTER = SpeedTimeline.constant(64)
slow = partial(pytest.param, marks=pytest.mark.slow)


def muri_jobs(data_dir: Path, trace: str) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Returns release, duration and GPUs of every job, by release."""
    rows = pl.read_csv(data_dir / "traces/muri" / f"{trace}.csv.gz").sort("submit_time")
    duration = (rows["iterations"] * rows["iteration_time"]).to_numpy() / 1000
    return rows["submit_time"].to_numpy() / 1000, duration, rows["num_gpu"].to_numpy() * 1.0


def srsf_mean_jct_s(release: FloatArray, duration: FloatArray, gpus: FloatArray) -> float:
    """Returns the mean JCT of least remaining GPU time first, skipping, on one pool of 64."""
    left, done = duration.copy(), np.zeros(release.size)
    present = np.empty(0, dtype=np.int64)
    now, come = float(release[0]), 0
    while come < release.size or present.size:
        if not present.size:
            now = max(now, float(release[come]))
        while come < release.size and release[come] <= now:
            present, come = np.append(present, come), come + 1
        running, free = [], 64.0
        for job in present[np.lexsort((present, left[present] * gpus[present]))]:
            if gpus[job] <= free:
                running.append(job)
                free -= gpus[job]
            if free == 0:
                break
        step = float(left[running].min())
        if come < release.size:
            step = min(step, float(release[come]) - now)
        left[running] -= step
        now += step
        ended = [job for job in running if left[job] <= 1e-9]
        done[ended] = now
        present = np.setdiff1d(present, ended, assume_unique=True)
    return float((done - release).mean())


def elastic_bounds(data_dir: Path, trace: str) -> LowerBounds:
    """Returns the elastic bounds of an AFS trace under the AFS models' scaling curves."""
    folder = data_dir / "data/afs-models"
    jobs = pl.read_csv(folder / f"afs_trace_{trace}.csv").sort("submit_s")
    table = pl.read_csv(folder / "afs_scaling_curves_derived.csv").filter(pl.col("num_gpus") <= 64)
    models = sorted(set(jobs["model"]))
    curves = []
    for model in models:
        rows = table.filter(pl.col("model") == model)
        curves.append(ScalingCurve.of(rows["num_gpus"], 1e6 / rows["us_per_iteration"]))
    curve_of = [models.index(model) for model in jobs["model"]]
    demand = elastic_demand(jobs["submit_s"], jobs["iterations"], curve_of, curves)
    return lower_bounds(demand, CLUSTER, Powers(elastic=True))


@pytest.mark.parametrize(
    ("trace", "span", "squashed", "busy", "priced", "srsf", "x_bound"),
    [
        ("trace3", 46_865, 108_081, 126_931, 138_291, 172_680.190658, 1.249),
        slow("trace4", 119_336, 378_981, 435_728, 446_146, 468_579.905534, 1.050),
        slow("trace2", 99_986, 2_027_316, 2_067_416, 2_042_807, 2_145_393.875432, 1.038),
    ],
)
def test_srsf_on_muris_traces_is_near_the_rigid_bound(
    data_dir: Path,
    trace: str,
    span: float,
    squashed: float,
    busy: float,
    priced: float,
    srsf: float,
    x_bound: float,
) -> None:
    release, duration, gpus = muri_jobs(data_dir, trace)
    found = lower_bounds(rigid_demand(release, duration, gpus), CLUSTER, Powers())
    value = {bound.name: bound.mean_jct_s for bound in found.bounds}
    assert (value[SPAN], value[SQUASHED], value[MEAN_BUSY]) == pytest.approx(
        (span, squashed, busy), abs=1
    )
    assert value[PRICED] == pytest.approx(priced, rel=0.005)
    policy_s = srsf_mean_jct_s(release, duration, gpus)
    assert policy_s == pytest.approx(srsf, rel=1e-9)
    assert policy_s / found.mean_jct_s == pytest.approx(x_bound, abs=0.006)


@pytest.mark.parametrize(
    ("trace", "over_span", "afs_over_span"),
    [("e13805", 1.000, 1.02), slow("103959", 1.015, 1.16), ("ed69ec", 1.168, 1.47)],
)
def test_the_elastic_bound_lies_between_the_span_and_what_afs_reaches(
    data_dir: Path, trace: str, over_span: float, afs_over_span: float
) -> None:
    found = elastic_bounds(data_dir, trace)
    ratio = found.mean_jct_s / found.bounds[0].mean_jct_s
    assert ratio == pytest.approx(over_span, abs=0.006)
    assert ratio < afs_over_span

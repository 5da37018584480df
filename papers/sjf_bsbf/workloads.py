"""The workloads on which SJF-BSBF is tried: the paper's own is not published, its traits are.

`implied`: the mix that its Tables III and IV imply. JCT less queueing of the two policies that
run jobs alone and whole gives 0.55 h of service for jobs of up to 4 GPUs and 1.75 h for larger
ones; the means of all jobs over those of both classes give 12.2 % large ones. Jobs and times are
drawn from Pollux's published workloads and their lengths scaled to those two means. `even`: the
same, with lengths no more uneven than the testbed's iterations. `wide`: the same, with small jobs
of 1, 2 and 4 GPUs in equal parts; `wide even`: both.
`tuned`: Pollux's workloads of 240 jobs as they are. `philly`: jobs of Philly's busiest eight
hours, with their GPUs and run times, and a model drawn for each. `physical`: the testbed's mix,
with iterations drawn evenly in their logarithm; `physical even`: evenly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from dovetail.core.job import JobTable, Labels
from dovetail.core.trace import ENDS, Trace
from dovetail.core.units import HOUR_S
from dovetail.physics.batches.goodput import training
from dovetail.physics.speed.throughput import iteration_s
from dovetail.physics.zoo.models import shipped
from dovetail.study.traces import open_traces
from dovetail.traces.transform import assign_models, busiest_window

MODELS = ("bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3")
BATCH_PER_GPU = {
    "bert": 12,
    "cifar10": 128,
    "deepspeech2": 20,
    "imagenet": 200,
    "ncf": 256,
    "yolov3": 8,
}
"""What a job of one GPU trains with in Pollux's `workloads-realistic`."""
LARGE_ABOVE_GPUS = 4
LARGE_SHARE = 0.122
SERVICE_H = {"small": 0.55, "large": 1.75}
WINDOW_H = 8.0
TUNED, REALISTIC, PHILLY = (
    "data/pollux-osdi21/workloads-1.5",
    "data/pollux-osdi21/workloads-realistic",
    "traces/philly/philly.csv.gz",
)
WORKLOADS = 8
PHYSICAL_SIZES = ((1, 2, 4, 8), (12, 16))
PHYSICAL_JOBS = (20, 10)
PHYSICAL_ITERATIONS = (100, 5000)
WEIGHTS = {1: 150, 2: 1, 4: 5, 6: 34, 8: 33, 12: 36, 16: 26, 24: 2, 32: 1}
"""Jobs by GPUs in Pollux's workloads, rounded, for workloads generated without them."""


@dataclass(frozen=True, slots=True)
class SjfBsbfWorkload:
    """One workload: its kind, how many jobs, a seed, and the folder of the traces ("" if none).

    `load` is what the physical mix asks of its 16 GPUs; the others have the load they have.
    """

    kind: str
    jobs: int
    seed: int
    data: str
    load: float = 1.25

    def trace(self) -> Trace:
        """Returns the workload."""
        if self.kind == "tuned":
            path = Path(self.data) / TUNED / f"workload-{self.seed % WORKLOADS + 1}.csv"
            return open_traces([path])
        if self.kind == "philly":
            return _philly(self)
        return _physical(self) if "physical" in self.kind else _implied(self)


@dataclass(frozen=True, slots=True)
class DrawnJob:
    """A job as it may be drawn."""

    model: str
    gpus: int
    batch: int
    length_s: float


def _implied(workload: SjfBsbfWorkload) -> Trace:
    draw = np.random.default_rng([workload.seed, 1])
    small, large, times_s = _pools(workload.data)
    count = round(LARGE_SHARE * workload.jobs)
    chosen = [
        *_drawn(draw, small, workload.jobs - count, SERVICE_H["small"]),
        *_drawn(draw, large, count, SERVICE_H["large"]),
    ]
    order = draw.permutation(workload.jobs)
    submit_s = np.sort(draw.choice(times_s, workload.jobs, replace=False))
    if "wide" in workload.kind:
        chosen = _widened(draw, chosen)
    if "even" in workload.kind:
        chosen = _evened(draw, chosen)
    return _trace(
        [chosen[i] for i in order.tolist()], submit_s, f"{workload.kind} mix, seed {workload.seed}"
    )


def _widened(draw: np.random.Generator, chosen: Sequence[DrawnJob]) -> list[DrawnJob]:
    """Returns the jobs with 1, 2 or 4 GPUs for each small one, of the same length."""
    widened = []
    for kind in chosen:
        gpus = kind.gpus
        if gpus <= LARGE_ABOVE_GPUS:
            gpus = int(draw.choice((1, 2, LARGE_ABOVE_GPUS)))
        widened.append(DrawnJob(kind.model, gpus, kind.batch // kind.gpus * gpus, kind.length_s))
    return widened


def _evened(draw: np.random.Generator, chosen: Sequence[DrawnJob]) -> list[DrawnJob]:
    """Returns the jobs with lengths as uneven as 100 to 5,000 iterations, of the same means."""
    low, high = PHYSICAL_ITERATIONS
    evened = []
    for kind in chosen:
        mean_h = SERVICE_H["large" if kind.gpus > LARGE_ABOVE_GPUS else "small"]
        part = float(draw.uniform(low, high)) / ((low + high) / 2)
        evened.append(DrawnJob(kind.model, kind.gpus, kind.batch, mean_h * HOUR_S * part))
    return evened


def _drawn(
    draw: np.random.Generator, pool: Sequence[DrawnJob], count: int, mean_h: float
) -> list[DrawnJob]:
    """Returns jobs of a pool, their lengths scaled so that the pool's mean is as wanted."""
    factor = mean_h * HOUR_S / float(np.mean([k.length_s for k in pool]))
    picked = [pool[i] for i in draw.integers(0, len(pool), count).tolist()]
    return [DrawnJob(k.model, k.gpus, k.batch, k.length_s * factor) for k in picked]


@lru_cache(maxsize=4)
def _pools(data: str) -> tuple[list[DrawnJob], list[DrawnJob], list[float]]:
    """Returns the small and the large jobs of Pollux's workloads, and when jobs came."""
    if not data:
        return _generated_pools()
    small: list[DrawnJob] = []
    large: list[DrawnJob] = []
    times_s: list[float] = []
    for number in range(1, WORKLOADS + 1):
        realistic, tuned = (
            open_traces([Path(data) / folder / f"workload-{number}.csv"])
            for folder in (REALISTIC, TUNED)
        )
        small += [k for k in _kinds(realistic) if k.gpus <= LARGE_ABOVE_GPUS]
        large += [k for k in _kinds(tuned) if k.gpus > LARGE_ABOVE_GPUS]
        times_s += tuned.jobs.submit_s.tolist()
    return small, large, times_s


def _kinds(trace: Trace) -> list[DrawnJob]:
    jobs = trace.jobs
    rows = zip(jobs.gpus.tolist(), jobs.batch_size.tolist(), trace.duration_s.tolist(), strict=True)
    return [DrawnJob(jobs.model[i], *row) for i, row in enumerate(rows)]


def _generated_pools() -> tuple[list[DrawnJob], list[DrawnJob], list[float]]:
    """Returns pools made from the zoo's own trainings, with Pollux's counts of GPUs."""
    draw = np.random.default_rng(0)
    sizes = np.array(list(WEIGHTS))
    shares = np.array([WEIGHTS[n] for n in WEIGHTS], float)
    pool: list[DrawnJob] = []
    for gpus in draw.choice(sizes, 2000, p=shares / shares.sum()).tolist():
        model = MODELS[int(draw.integers(len(MODELS)))]
        batch = BATCH_PER_GPU[model] * gpus
        work = training(model, gpus, batch, family="pollux")
        assert work is not None
        pool.append(DrawnJob(model, gpus, batch, work[1]))
    times_s = draw.uniform(0.0, WINDOW_H * HOUR_S, 2000).tolist()
    small = [k for k in pool if k.gpus <= LARGE_ABOVE_GPUS]
    return small, [k for k in pool if k.gpus > LARGE_ABOVE_GPUS], times_s


@lru_cache(maxsize=1)
def _busiest(data: str) -> Trace:
    return busiest_window(open_traces([Path(data) / PHILLY]), WINDOW_H / 24, by="arrivals")


def _philly(workload: SjfBsbfWorkload) -> Trace:
    draw = np.random.default_rng([workload.seed, 2])
    busiest = _busiest(workload.data)
    fits = np.flatnonzero(busiest.jobs.gpus <= 64)
    sample = busiest.take(np.sort(draw.choice(fits, workload.jobs, replace=False)))
    known = shipped()
    able = [(m, p.max_gpus.value) for m in MODELS if (p := known.find(m)) is not None]
    return assign_models(sample, able, seed=workload.seed)


def _physical(workload: SjfBsbfWorkload) -> Trace:
    """Returns 20 jobs of up to 8 GPUs and 10 of 12 or 16, with 100 to 5,000 iterations."""
    draw = np.random.default_rng([workload.seed, 3])
    known = shipped()
    chosen: list[DrawnJob] = []
    for sizes, count in zip(PHYSICAL_SIZES, PHYSICAL_JOBS, strict=True):
        for gpus in draw.choice(sizes, count).tolist():
            model = MODELS[int(draw.integers(len(MODELS)))]
            profile = known.find(model)
            assert profile is not None
            low, high = PHYSICAL_ITERATIONS
            if "even" in workload.kind:
                iterations = float(draw.uniform(low, high))
            else:
                iterations = float(np.exp(draw.uniform(np.log(low), np.log(high))))
            each = BATCH_PER_GPU[model]
            length_s = iterations * iteration_s(profile, gpus=gpus, batch_per_gpu=each)
            chosen.append(DrawnJob(model, gpus, each * gpus, length_s))
    chosen = [chosen[i] for i in draw.permutation(len(chosen)).tolist()]
    span_s = sum(k.length_s * k.gpus for k in chosen) / (16 * workload.load)
    submit_s = np.sort(draw.uniform(0.0, span_s, len(chosen)))
    return _trace(chosen, submit_s, f"testbed mix, seed {workload.seed}")


def _trace(chosen: Sequence[DrawnJob], submit_s: np.ndarray, name: str) -> Trace:
    count = len(chosen)
    jobs = JobTable.build(
        [f"{k.model}-{i}" for i, k in enumerate(chosen)],
        submit_s - submit_s[0],
        np.array([k.gpus for k in chosen], np.int64),
        model=Labels.of([k.model for k in chosen]),
        batch_size=np.array([k.batch for k in chosen], np.int64),
    )
    ends = np.full(count, ENDS.index("completed"), np.int8)
    length_s = np.array([k.length_s for k in chosen])
    return Trace(jobs, length_s, np.full(count, np.nan), ends, name)

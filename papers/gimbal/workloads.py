"""The workloads on which GIMBAL is tried: its own are not published, its Tables 1 and 2 are.

A workload has the jobs of Table 2 by class, with the mean GPUs of each: sizes are 1, 2, 4 or 8,
drawn from the most even distribution of that mean. Durations are drawn from the trace that the
workload is named after; the longest go to the large jobs, which resemble "the longer-term jobs in
production". All are scaled until they ask for as many GPU-hours as the cluster has in the makespan
that the paper prints for Gavel, none for more than a quarter of it (a job longer than the makespan
cannot be). Submissions are those of consecutive jobs of the trace, in so short a time that the
cluster is offered `load` times what it can do. Deadlines are submission + factor x duration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from dovetail.core.job import Floats, Ints, JobTable, Labels
from dovetail.core.trace import Trace
from dovetail.core.units import HOUR_S
from dovetail.physics.zoo.models import shipped
from dovetail.study.traces import open_traces
from dovetail.traces.generate import DEADLINE_FACTORS, Recipe, generate
from papers.frame.scope import Scope

SIZES = (1, 2, 4, 8)
CLASSES = ("small", "medium", "large")
STAND_INS: Mapping[str, tuple[tuple[str, str, tuple[int, ...]], ...]] = {
    "small": (
        ("ResNet-18", "pollux/cifar10", (32, 64, 128)),
        ("MobileNetV2", "muri/shufflenet_v2_x1_0", (32, 64, 128)),
        ("EfficientNet", "muri/resnet18", (32, 64, 128)),
    ),
    "medium": (
        ("DeepSpeech2", "pollux/deepspeech2", (8, 16)),
        ("ResNet-50", "elasticflow/resnet50", (32, 64, 128)),
        ("MobileNetV3", "muri/shufflenet_v2_x1_0", (32, 64, 128)),
        ("VGG-11", "muri/vgg16", (32, 64, 128)),
        ("VGG-16", "elasticflow/vgg16", (32, 64, 128)),
        ("ProxylessNAS", "afs/googlenet", (32, 64, 128)),
        ("Once-for-All", "afs/googlenet", (32, 64, 128)),
    ),
    "large": (("BERT", "elasticflow/bert", (16, 32)), ("LLaMA", "elasticflow/gpt2", (16, 32))),
}
"""By class the models of Table 1: the paper's, ours in its place, and batches on each GPU."""
ON_THE_GPU = {"muri/shufflenet_v2_x1_0": "afs/googlenet", "muri/resnet18": "pollux/cifar10"}
"""What stands in, in a variation, for stand-ins that were measured waiting for their disks."""


@dataclass(frozen=True, slots=True)
class JobMix:
    """A row of Table 2, and the trace that durations and submissions come from."""

    name: str
    jobs: tuple[int, int, int]
    mean_gpus: tuple[float, float, float]
    gavel_h: float
    file: str
    kind: str

    @property
    def work_gpu_s(self) -> float:
        """Returns the GPU-seconds that 32 GPUs have in the published makespan of Gavel."""
        return self.gavel_h * HOUR_S * 32


MIXES = {
    "philly": JobMix(
        "Philly", (43, 86, 21), (2.39, 2.41, 4.85), 4.5, "traces/philly/philly.csv.gz",
        "philly-like",
    ),
    "alibaba": JobMix(
        "Alibaba", (112, 132, 56), (1.98, 2.03, 3.54), 17.6,
        "traces/alibaba_gpu_v2020/gaia_pai-100k.first80000.csv.gz", "pai-like",
    ),
}  # fmt: skip
"""Table 2, and the makespans of section 7.2."""
ABLATION_JOBS = 100
LONGEST_PART = 0.25
LOAD = 2.0


@dataclass(frozen=True, slots=True)
class GimbalWorkload:
    """One workload: a mix, a seed, the folder of traces ("" if none), and what is varied.

    `jobs` other than the mix's keep its shares and the GPU-time of a job.
    """

    mix: str
    seed: int
    data: str
    jobs: int = 0
    load: float = LOAD
    lengths: str = "longest to the large"
    longest: float = LONGEST_PART
    batches: str = "of Table 1"
    models: str = "stand-ins"

    @property
    def of(self) -> JobMix:
        """Returns the row of Table 2."""
        return MIXES[self.mix]

    @property
    def nodes(self) -> int:
        """Returns how many nodes of two GPUs: 16, and for the ablation's 100 jobs 8."""
        return 8 if self.jobs == ABLATION_JOBS else 16

    @property
    def counts(self) -> tuple[int, ...]:
        """Returns how many jobs there are of each class."""
        of, all_jobs = self.of.jobs, sum(self.of.jobs)
        wanted = self.jobs or all_jobs
        small, large = (round(of[i] * wanted / all_jobs) for i in (0, 2))
        return small, wanted - small - large, large

    def trace(self) -> Trace:
        """Returns the workload. The same workload has the same one."""
        return _made(self)


def data_of(scope: Scope) -> str:
    """Returns the folder with both traces, "" where they are not."""
    return str(scope.data) if scope.has(*(m.file for m in MIXES.values())) else ""


@lru_cache(maxsize=128)
def _made(workload: GimbalWorkload) -> Trace:
    draw = np.random.default_rng([workload.seed, list(MIXES).index(workload.mix)])
    count = sum(workload.counts)
    submit_s, drawn_s = _window(workload, draw, count)
    of_class = draw.permutation(np.repeat(np.arange(3), workload.counts))
    duration_s = draw.permutation(drawn_s)
    if workload.lengths == "longest to the large":
        duration_s = _longest_to_the_large(duration_s, of_class)
    gpus = _sizes(workload.of, of_class, draw)
    # A part of the jobs is a part of the work.
    work_gpu_s = workload.of.work_gpu_s * count / sum(workload.of.jobs)
    duration_s = scaled(
        duration_s, gpus, work_gpu_s, workload.longest * workload.of.gavel_h * HOUR_S
    )
    span_s = float((duration_s * gpus).sum()) / (2 * workload.nodes * workload.load)
    submit_s = (submit_s - submit_s[0]) * span_s / max(float(np.ptp(submit_s)), 1.0)
    models, batches = _models(workload, of_class, gpus, draw)
    late = draw.uniform(*DEADLINE_FACTORS, size=count)
    jobs = JobTable.build(
        [f"{CLASSES[c]}-{i}" for i, c in enumerate(of_class.tolist())],
        submit_s,
        gpus,
        model=Labels.of(models),
        batch_size=batches,
        shareable=np.ones(count, bool),
        deadline_s=submit_s + late * duration_s,
    )
    return Trace.of(jobs, duration_s)


def _window(
    workload: GimbalWorkload, draw: np.random.Generator, count: int
) -> tuple[Floats, Floats]:
    """Returns when consecutive jobs of the trace came, and how long any jobs of it ran."""
    submit_s, known_s = _known(workload.mix, workload.data)
    first = int(draw.integers(len(submit_s) - count))
    return submit_s[first : first + count], draw.choice(known_s, count)


@lru_cache(maxsize=4)
def _known(mix: str, data: str) -> tuple[Floats, Floats]:
    of = MIXES[mix]
    if data:
        trace = open_traces([Path(data) / of.file])
    else:
        trace = generate(Recipe(of.kind, jobs=20_000, days=30, seed=1))
    order = np.argsort(trace.jobs.submit_s, kind="stable")
    return trace.jobs.submit_s[order], trace.duration_s[trace.duration_s > 0]


def _longest_to_the_large(duration_s: Floats, of_class: Ints) -> Floats:
    """Returns the durations with the longest given to the jobs of the large class."""
    given = np.empty_like(duration_s)
    order = np.argsort(duration_s, kind="stable")
    large = of_class == CLASSES.index("large")
    rest = len(duration_s) - int(large.sum())
    # Where a job stood among its own stays: the draw decides who of a class is longer.
    for where, part in ((~large, order[:rest]), (large, order[rest:])):
        given[where] = duration_s[np.sort(part)]
    return given


def _sizes(mix: JobMix, of_class: Ints, draw: np.random.Generator) -> Ints:
    drawn = np.empty(len(of_class), np.int64)
    for which, mean in enumerate(mix.mean_gpus):
        rows = of_class == which
        drawn[rows] = draw.choice(SIZES, int(rows.sum()), p=most_even(mean))
    return drawn


def most_even(mean: float) -> Floats:
    """Returns the most even shares (of greatest entropy) of the sizes with a mean of GPUs."""
    from scipy.optimize import brentq

    sizes = np.array(SIZES, float)

    def shares(tilt: float) -> Floats:
        weight = np.exp(tilt * sizes)
        return np.asarray(weight / weight.sum())

    return shares(brentq(lambda tilt: float(shares(tilt) @ sizes) - mean, -5.0, 5.0))


def scaled(duration_s: Floats, gpus: Ints, work_gpu_s: float, longest_s: float) -> Floats:
    """Returns durations scaled to so much work in all, none longer than `longest_s`."""
    low, high = 0.0, longest_s / float(duration_s.min())
    for _ in range(100):
        factor = (low + high) / 2
        work = float((np.minimum(duration_s * factor, longest_s) * gpus).sum())
        low, high = (factor, high) if work < work_gpu_s else (low, factor)
    return np.minimum(duration_s * high, longest_s)


def _models(
    workload: GimbalWorkload, of_class: Ints, gpus: Ints, draw: np.random.Generator
) -> tuple[list[str], Ints]:
    """Returns for each job the stand-in of a model of its class, and its global batch or 0."""
    models, batches = [], []
    for which, wide in zip(of_class.tolist(), gpus.tolist(), strict=True):
        known = STAND_INS[CLASSES[which]]
        _, model, sizes = known[int(draw.integers(len(known)))]
        batch = int(draw.choice(sizes))
        if workload.models == "on the GPU":
            model = ON_THE_GPU.get(model, model)
        profile = shipped().find(model)
        assert profile is not None
        models.append(model)
        most = profile.batch.value.max_per_gpu
        batches.append(0 if workload.batches == "default" else min(batch, most) * wide)
    return models, np.array(batches, np.int64)

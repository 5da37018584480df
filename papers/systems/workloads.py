"""The workloads of the comparison of all systems: windows of traces, made fit for every policy.

A window is so many consecutive jobs of a trace, its submissions stretched until they offer a
load; what the trace does not say is drawn by seed: a model of the zoo for each group of like jobs
(a user's jobs of one size; without users each job), and a deadline as GIMBAL draws them. Jobs
longer than half a day or wider than half of the cluster are left out first, the same for
everybody: with one of them a window of some hundred jobs is about that job.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from dovetail.core.job import Ints, JobTable, Labels
from dovetail.core.trace import Trace
from dovetail.physics.pipelines.pipeline import FAMILY
from dovetail.physics.pipelines.pipelined import pipelined
from dovetail.physics.pipelines.planner import plan
from dovetail.physics.zoo.models import zoo
from dovetail.study.traces import open_traces
from dovetail.traces.generate import DEADLINE_FACTORS, Recipe, generate
from dovetail.traces.transform import rebased, with_load
from papers.frame.scope import Scope

NODES, GPUS_PER_NODE = 8, 4
GPUS = NODES * GPUS_PER_NODE
WIDEST_GPUS = GPUS // 2
LONGEST_S = 43200.0
ANY = "all"
"""Models of the whole zoo, not of one family."""


@dataclass(frozen=True, slots=True)
class TraceSource:
    """A trace by name: a `file` of the data folder, or without one a generated `kind`."""

    name: str
    file: str = ""
    kind: str = ""


REAL = (
    TraceSource("Philly", "traces/philly/afs_vcs/trace_ee9e8c.csv.gz"),
    TraceSource("ITP", "traces/itp/raw/cluster06.csv.gz"),
    TraceSource("Helios", "traces/dirlab/helios_data_training.first12000.csv.gz"),
)
"""A virtual cluster of Philly (2017), a cluster of ITP (2021), and one of Helios (2020), which
has users."""
GENERATED = (
    TraceSource("Philly-like", kind="philly-like"),
    TraceSource("PAI-like", kind="pai-like"),
)
GENERATED_JOBS, GENERATED_DAYS = 12_000, 120.0


def sources(scope: Scope) -> tuple[tuple[TraceSource, ...], str]:
    """Returns the traces, and the folder they are in: "" for generated ones."""
    if scope.has(*(source.file for source in REAL)):
        return REAL, str(scope.data)
    return GENERATED, ""


@dataclass(frozen=True, slots=True)
class WindowWorkload:
    """One window of a trace: the `window`-th of `windows`, evenly spread over it.

    `family` is whose models are drawn; `preemptible` the share of jobs that may be stopped,
    `due` that of jobs with a deadline.
    """

    source: TraceSource
    data: str
    window: int
    windows: int
    jobs: int
    load: float
    seed: int
    family: str = ANY
    preemptible: float = 1.0
    due: float = 1.0

    @property
    def unit(self) -> tuple[str, int]:
        """Returns the window, whatever is drawn for its jobs: what intervals count."""
        return self.source.name, self.window

    def rows(self, known: int) -> Ints:
        """Returns the rows of the window among the known jobs of the trace that are usable."""
        first = round((known - self.jobs) * (self.window + 0.5) / self.windows)
        return np.arange(max(first, 0), min(first + self.jobs, known))

    def trace(self) -> Trace:
        """Returns the jobs. The same workload has the same ones."""
        return _made(self)


@lru_cache(maxsize=64)
def _made(workload: WindowWorkload) -> Trace:
    known = usable(workload.source, workload.data)
    rows = workload.rows(len(known))
    trace = with_load(rebased(known.take(rows)), workload.load, GPUS)
    draw = np.random.default_rng([workload.seed, workload.window])
    models = _models(trace.jobs, workload.family, draw)
    late = draw.uniform(*DEADLINE_FACTORS, size=len(trace))
    stopped = draw.uniform(size=len(trace)) < workload.preemptible
    due = draw.uniform(size=len(trace)) < workload.due
    jobs = replace(
        trace.jobs,
        model=models,
        deadline_s=np.where(due, trace.jobs.submit_s + late * trace.duration_s, np.inf),
        preemptible=stopped,
    )
    return replace(trace, jobs=jobs)


@lru_cache(maxsize=8)
def usable(source: TraceSource, data: str) -> Trace:
    """Returns the jobs of a trace that may be in a window."""
    trace = whole(source, data)
    return trace.take(np.flatnonzero(_kept(trace)))


def whole(source: TraceSource, data: str) -> Trace:
    """Returns a trace as it is."""
    if source.file:
        return open_traces([Path(data) / source.file])
    return generate(Recipe(source.kind, jobs=GENERATED_JOBS, days=GENERATED_DAYS, seed=1))


def left_out(source: TraceSource, data: str) -> tuple[float, float]:
    """Returns the share of a trace's jobs, and of their GPU-time, that is in no window."""
    trace = whole(source, data)
    out = ~_kept(trace)
    asked = trace.jobs.gpus * trace.duration_s
    return float(out.mean()), float(asked[out].sum() / asked.sum())


def _kept(trace: Trace) -> np.ndarray:
    return np.asarray((trace.jobs.gpus <= WIDEST_GPUS) & (trace.duration_s <= LONGEST_S))


def _models(jobs: JobTable, family: str, draw: np.random.Generator) -> Labels:
    """Returns a model for each group of like jobs, evenly among those that can use its GPUs."""
    group = _groups(jobs)
    _, first, number = np.unique(group, return_index=True, return_inverse=True)
    drawn = []
    for example, part in zip(first.tolist(), draw.uniform(size=len(first)).tolist(), strict=True):
        able = _able(int(jobs.gpus[example]), family)
        drawn.append(able[int(part * len(able))] if able else "")
    return Labels.of([drawn[i] for i in number.tolist()])


def _groups(jobs: JobTable) -> Ints:
    """Returns a number for each job: that of its user and size, or its own without a user."""
    own = np.arange(len(jobs)) + (len(jobs.user.names) + 1) * (WIDEST_GPUS + 1)
    shared = jobs.user.codes * (WIDEST_GPUS + 1) + jobs.gpus
    return np.asarray(np.where(jobs.user.codes >= 0, shared, own), dtype=np.int64)


@lru_cache(maxsize=256)
def _able(gpus: int, family: str) -> tuple[str, ...]:
    """Returns the models that scale to so many GPUs; of pipelines, those with a plan for them."""
    return tuple(
        name
        for name, profile in sorted(zoo().items())
        if family in (ANY, profile.family)
        and profile.max_gpus.value >= gpus
        and (profile.family != FAMILY or plan(pipelined()[profile.name], gpus))
    )

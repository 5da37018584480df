"""The jobs of the Muri paper: the authors' own traces, as they are or all at the beginning.

`DATA/data/muri` holds traces 2, 3 and 4 of the paper (trace 1 is not public), trace 3 with one to
four types of jobs, and the trace of the testbed. Without it months are generated.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from dovetail.core.trace import Trace
from dovetail.physics.zoo.models import zoo
from dovetail.study.traces import open_traces
from dovetail.traces.generate import Recipe, generate
from dovetail.traces.transform import assign_models
from papers.frame.scope import Scope

FOLDER = "data/muri"
TRACES = f"{FOLDER}/sim-traces"
BED = f"{FOLDER}/testbed"
STORED = f"{FOLDER}/authors_simulation_results.csv"
"""The artifact's results of Figures 9 to 12, all of trace 3."""
NUMBERS = (2, 3, 4)
TYPES = (1, 2, 3, 4)
GENERATED_JOBS, GENERATED_LOAD = 600, 1.0
CLUSTER = "8x8"
"""Eight machines of eight V100 (section 6.1)."""


@dataclass(frozen=True, slots=True)
class MuriWorkload:
    """Which jobs: a file, or a generated month without one.

    `at_once` submits all at the beginning (the paper's primed traces). `longer` multiplies their
    lengths. Of a long trace `first` keeps so many jobs, 0 all of them. `seed` draws wrong beliefs.
    """

    name: str
    file: str = ""
    at_once: bool = False
    longer: float = 1.0
    first: int = 0
    seed: int = 0

    @property
    def label(self) -> str:
        """Returns what the report calls them, with the paper's prime if all come at once."""
        part = f", first {self.first:,} jobs" if self.first else ""
        return f"{self.name}{chr(39) * self.at_once}{part}"

    def trace(self) -> Trace:
        """Returns the jobs as a trace."""
        return _trace(replace(self, seed=0))

    def __len__(self) -> int:
        return len(self.trace())


@lru_cache(maxsize=12)
def _trace(jobs: MuriWorkload) -> Trace:
    trace = open_traces([Path(jobs.file)]) if jobs.file else _generated()
    if jobs.first:
        trace = trace.take(np.arange(min(jobs.first, len(trace)), dtype=np.int64))
    if jobs.at_once:
        # Who came earlier still stands before others in the table, which is what breaks ties.
        table = replace(trace.jobs, submit_s=np.zeros(len(trace)))
        trace = replace(trace, jobs=table)
    if jobs.longer != 1:
        trace = replace(trace, duration_s=trace.duration_s * jobs.longer)
    return trace


def _generated() -> Trace:
    """Returns a month like Philly's, each job with one of Muri's eight models."""
    month = generate(
        Recipe(
            "philly-like",
            jobs=GENERATED_JOBS,
            days=30.0,
            load=GENERATED_LOAD,
            cluster_gpus=64,
            seed=3,
        )
    )
    models = [(name, 64) for name in zoo() if name.startswith("muri/")]
    return assign_models(month, models, seed=3)


def available(scope: Scope) -> list[MuriWorkload]:
    """Returns the paper's traces that are there, else the generated month."""
    files = {n: f"{TRACES}/trace{n}.csv" for n in NUMBERS}
    found = [
        MuriWorkload(f"trace {n}", str(scope.path(file)))
        for n, file in files.items()
        if scope.has(file)
    ]
    return found or [MuriWorkload("generated month")]


def typed(scope: Scope) -> dict[int, MuriWorkload]:
    """Returns trace 3 with each number of job types (Figure 13), of those that are there."""
    files = {n: f"{TRACES}/job_type_{n}.csv" for n in TYPES}
    return {
        n: MuriWorkload(f"{n} job type{'s' * (n > 1)}", str(scope.path(file)))
        for n, file in files.items()
        if scope.has(file)
    }

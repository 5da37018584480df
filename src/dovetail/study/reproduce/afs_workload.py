"""The jobs of the AFS study: Philly's virtual clusters, each job with a model drawn by seed.

Section 5.1 and Table 3 of the AFS paper (Hwang et al., NSDI'21). Of the eleven traces of Table 3
nine are in the public conversion; the lengths in them are wall seconds on the requested GPUs, so
that a job with another model still takes as long on those.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from dovetail.core.job import Labels
from dovetail.core.trace import Trace
from dovetail.physics.zoo import zoo
from dovetail.study.reproduce.setting import Setting
from dovetail.study.traces import open_traces
from dovetail.workload.generate import Recipe, generate
from dovetail.workload.transform import (
    DAY_S,
    assign_models,
    busiest_window,
    compressed,
    gpu_seconds,
    gpus_for_load,
    rebased,
    time_window,
)

GPUS_PER_NODE = 4
NODES = 16
"""16 servers with four GPUs each (section 5.1)."""

MODELS = tuple(
    f"afs/{name}"
    for name in (
        *("vgg16", "googlenet", "inception4", "resnet50", "dcgan"),
        *("videoprediction", "chatbot", "deepspeech2", "transformer"),
    )
)
"""The nine of Table 4; the zoo has two more of the same authors."""


@dataclass(frozen=True, slots=True)
class VirtualCluster:
    """One row of Table 3: its number there, its name, and how many jobs it has."""

    number: int
    name: str
    jobs: int
    bursty: bool

    @property
    def file(self) -> str:
        """Returns where the data folder has it."""
        return f"traces/philly/afs_vcs/trace_{self.name}.csv.gz"


TABLE_3 = (
    VirtualCluster(1, "0e4a51", 2465, True),
    VirtualCluster(2, "6c71a0", 14791, True),
    VirtualCluster(3, "b436b2", 9033, True),
    VirtualCluster(4, "e13805", 938, False),
    VirtualCluster(5, "6214e9", 51288, True),
    VirtualCluster(6, "7f04ca", 1461, True),
    VirtualCluster(7, "103959", 2677, False),
    VirtualCluster(8, "ee9e8c", 5781, True),
    VirtualCluster(9, "2869ce", 956, False),
    VirtualCluster(10, "11cb48", 19070, False),
    VirtualCluster(11, "ed69ec", 1401, False),
)
"""`bursty`: the six of which section 5.2 says that many jobs come at once and run long."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Jobs by where they come from: a file, or (without one) a generated month.

    `busiest_days` keeps the window that asks for most; `day` only what was submitted on that day
    (the first is 1); `squeezed` lets time pass so many times as fast.
    """

    name: str
    number: int
    file: str = ""
    busiest_days: float = 0.0
    day: int = 0
    squeezed: float = 1.0

    @property
    def label(self) -> str:
        """Returns what a part of the report calls it."""
        if not self.file:
            return f"generated month {self.name}"
        part = f", busiest {self.busiest_days:g} days" if self.busiest_days else ""
        return f"trace {self.number} ({self.name}{part})"

    def jobs(self, models: str, seed: int) -> Trace:
        """Returns the jobs: models `drawn` by seed, or as in the `file`."""
        trace = _jobs_of(self)
        if models == "file" and trace.jobs.model.names:
            return trace
        most = [(name, zoo()[name].max_gpus.value) for name in MODELS]
        return assign_models(trace, most, seed=seed)

    def load(self, nodes: int) -> float:
        """Returns the load the jobs offer to so many nodes."""
        trace = _jobs_of(self)
        span_s = float(trace.jobs.submit_s[-1] - trace.jobs.submit_s[0])
        return gpu_seconds(trace) / (nodes * GPUS_PER_NODE * span_s)

    def nodes_for(self, load: float) -> int:
        """Returns the nodes on which the jobs offer a load, or as many as the widest job needs."""
        trace = _jobs_of(self)
        widest = -(-int(trace.jobs.gpus.max()) // GPUS_PER_NODE)
        return max(round(gpus_for_load(trace, load) / GPUS_PER_NODE), widest, 1)

    def __len__(self) -> int:
        return len(_jobs_of(self))


@lru_cache(maxsize=16)
def _jobs_of(workload: Workload) -> Trace:
    if not workload.file:
        return _generated(workload.number)
    trace = rebased(open_traces([workload.file]))
    if workload.busiest_days:
        trace = busiest_window(trace, workload.busiest_days)
    if workload.day:
        trace = rebased(time_window(trace, (workload.day - 1) * DAY_S, workload.day * DAY_S))
    return trace if workload.squeezed == 1 else compressed(trace, workload.squeezed)


GENERATED = ((4, 0.75, 600), (9, 0.9, 800), (1, 1.3, 1000))
"""Stand-ins: whose place they take, the load on 64 GPUs, jobs in a month."""


def _generated(number: int) -> Trace:
    load, jobs = next((load, jobs) for n, load, jobs in GENERATED if n == number)
    return generate(
        Recipe("philly-like", jobs=jobs, days=30.0, load=load, cluster_gpus=64, seed=number)
    )


def available(setting: Setting) -> list[VirtualCluster]:
    """Returns the virtual clusters whose traces are there."""
    return [vc for vc in TABLE_3 if setting.has(vc.file)]


def of_one_model(trace: Trace, model: str, rows: Sequence[int]) -> Trace:
    """Returns the trace in which some jobs train one model."""
    names = tuple(sorted({*trace.jobs.model.names, model}))
    texts = trace.jobs.model.texts()
    for row in rows:
        texts[row] = model
    codes = np.array([names.index(t) if t else -1 for t in texts], dtype=np.int32)
    return replace(trace, jobs=replace(trace.jobs, model=Labels(codes, names)))

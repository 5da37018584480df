"""The jobs of the AFS paper: Philly's virtual clusters, each job with a model drawn by seed.

Section 5.1 and Table 3 of the AFS paper (Hwang et al., NSDI'21). Of the eleven traces of Table 3
nine are in the public conversion; the lengths in them are wall seconds on the requested GPUs, so
that a job with another model still takes as long on those.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from dovetail.core.job import JobTable, Labels
from dovetail.core.trace import Trace
from dovetail.core.units import DAY_S
from dovetail.physics.zoo.models import zoo
from dovetail.study.traces import open_traces
from dovetail.traces.generate import Recipe, generate
from dovetail.traces.transform import assign_models, compressed, gpus_for_load, rebased, time_window
from papers.frame.scope import Scope

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
class AfsWorkload:
    """Jobs by where they come from: a file, or (without one) a generated month.

    `day` keeps only what was submitted on that day (the first is 0); `squeezed` divides all times.
    `told_s` stands for the scene of Figure 8a, as its prose has it, around a job of so many
    seconds. Models are `drawn` by seed, or as in the `file`.
    """

    name: str
    number: int
    file: str = ""
    day: int = -1
    squeezed: float = 1.0
    told_s: float = 0.0
    seed: int = 0
    models: str = "drawn"

    @property
    def label(self) -> str:
        """Returns what a part of the report calls it."""
        if self.told_s:
            return f"Figure 8a {self.name}, a job of {self.told_s:g} s"
        if not self.file:
            return f"generated month {self.name}"
        return f"trace {self.number} ({self.name})"

    def trace(self) -> Trace:
        """Returns the jobs with their models."""
        trace = self._jobs()
        if self.models == "file" and trace.jobs.model.names:
            return trace
        most = [(name, zoo()[name].max_gpus.value) for name in MODELS]
        drawn = assign_models(trace, most, seed=self.seed)
        return of_one_model(drawn, MONITORED, [0]) if self.told_s else drawn

    def _jobs(self) -> Trace:
        return _jobs_of(replace(self, seed=0, models="drawn"))

    def nodes_for(self, load: float) -> int:
        """Returns the nodes on which the jobs offer a load, or as many as the widest job needs."""
        trace = self._jobs()
        widest = -(-int(trace.jobs.gpus.max()) // GPUS_PER_NODE)
        return max(round(gpus_for_load(trace, load) / GPUS_PER_NODE), widest, 1)

    def __len__(self) -> int:
        return len(self._jobs())


@lru_cache(maxsize=16)
def _jobs_of(workload: AfsWorkload) -> Trace:
    if workload.told_s:
        return _told(workload.told_s)
    if not workload.file:
        return _generated(workload.number)
    trace = rebased(open_traces([workload.file]))
    if workload.day >= 0:
        trace = rebased(time_window(trace, workload.day * DAY_S, (workload.day + 1) * DAY_S))
    return trace if workload.squeezed == 1 else compressed(trace, workload.squeezed)


GENERATED = ((4, 0.75, 600), (9, 0.9, 800), (1, 1.3, 1000))
"""Stand-ins: whose place they take, the load on 64 GPUs, jobs in a month."""


def _generated(number: int) -> Trace:
    load, jobs = next((load, jobs) for n, load, jobs in GENERATED if n == number)
    return generate(
        Recipe("philly-like", jobs=jobs, days=30.0, load=load, cluster_gpus=64, seed=number)
    )


MONITORED = "afs/videoprediction"
"""The model of the job that Figure 8 watches."""
TOLD_JOBS, TOLD_GAPS_S, TOLD_SHORT_S = 19, (2.0, 70.0), (50.0, 95.0)
"""Figure 8a: 19 short jobs, 2 to 70 s apart. How short is our reading: most jobs of that day that
end within three minutes take between these."""


def _told(length_s: float) -> Trace:
    """Returns one job and the short ones that come after it, all on one GPU."""
    rng = np.random.default_rng(8)
    after = np.cumsum(rng.uniform(*TOLD_GAPS_S, size=TOLD_JOBS))
    lengths = np.concatenate(([length_s], rng.uniform(*TOLD_SHORT_S, size=TOLD_JOBS)))
    n = TOLD_JOBS + 1
    jobs = JobTable.build(
        [str(i) for i in range(n)], np.concatenate(([0.0], after)), np.ones(n, dtype=np.int64)
    )
    return Trace.of(jobs, lengths, "Figure 8a as told")


def available(scope: Scope) -> list[VirtualCluster]:
    """Returns the virtual clusters whose traces are there."""
    return [vc for vc in TABLE_3 if scope.has(vc.file)]


def of_one_model(trace: Trace, model: str, rows: Sequence[int]) -> Trace:
    """Returns the trace in which some jobs train one model."""
    names = tuple(sorted({*trace.jobs.model.names, model}))
    texts = trace.jobs.model.texts()
    for row in rows:
        texts[row] = model
    codes = np.array([names.index(t) if t else -1 for t in texts], dtype=np.int32)
    return replace(trace, jobs=replace(trace.jobs, model=Labels(codes, names)))

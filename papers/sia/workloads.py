"""The workloads of the Sia paper: 160 jobs of Philly or Helios in eight hours, on 64 GPUs.

Section 4: six nodes of four T4, three of eight RTX 2080 Ti and two of eight A100, or sixteen of
four T4. A job may have any number of GPUs that its largest batch allows; ncf runs on one. A change
of GPUs costs each model what the authors measured (applications.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dovetail.core.job import Labels
from dovetail.core.trace import Trace
from dovetail.study.traces import open_traces
from papers.sia.measured import A100, RTX, T4, GpuType, MeasuredWork, Node, with_measured_lengths

FOLDER = "data/sia-sosp23"
RESTART_S = {
    "bert": 120.0,
    "cifar10": 50.0,
    "deepspeech2": 25.0,
    "imagenet": 250.0,
    "ncf": 15.0,
    "yolov3": 80.0,
}
RIGID = ("ncf",)
TRACES = {"philly": "Philly", "saturn": "Helios"}
"""Folders of the authors' workloads, and what the paper calls them."""


@dataclass(frozen=True, slots=True)
class SiaCluster:
    """One of the paper's clusters: its short form, types, and the type and machine of each node."""

    text: str
    kinds: tuple[GpuType, ...]
    nodes: tuple[Node, ...]


def _nodes(*groups: tuple[int, int, int]) -> tuple[Node, ...]:
    """Returns the nodes of groups: type, machines, and the nodes that stand for one machine."""
    nodes: list[Node] = []
    for kind, machines, each in groups:
        first = nodes[-1].machine + 1 if nodes else 0
        nodes += [Node(kind, first + m) for m in range(machines) for _ in range(each)]
    return tuple(nodes)


HOMOGENEOUS = SiaCluster("16x4:t4", (T4,), _nodes((0, 16, 1)))
HETEROGENEOUS = SiaCluster(
    "6x4:t4+3x8:rtx+2x8:a100", (T4, RTX, A100), _nodes((0, 6, 1), (1, 3, 1), (2, 2, 1))
)
HALVED = SiaCluster(
    "6x4:t4+6x4:rtx+4x4:a100", (T4, RTX, A100), _nodes((0, 6, 1), (1, 3, 2), (2, 2, 2))
)
"""The same for Pollux, which must see nodes of one size: half a node of eight (section 4.3)."""


@dataclass(frozen=True, slots=True)
class SiaWorkload:
    """One of the authors' workloads, as jobs for one of their clusters."""

    data: str
    source: str
    number: int
    cluster: SiaCluster
    seed: int = 0

    def work(self, trace: Trace) -> MeasuredWork:
        """Returns the measured work of the jobs of a trace."""
        traces = Path(self.data) / FOLDER / "traces"
        return MeasuredWork(trace.jobs, traces, self.cluster.kinds, self.cluster.nodes)

    def trace(self) -> Trace:
        """Returns the jobs, with the lengths that the tables give them."""
        file = Path(self.data) / FOLDER / "workloads" / self.source / f"workload-{self.number}.csv"
        trace = open_traces([file], "pollux")
        jobs, names = trace.jobs, trace.jobs.model.texts()
        elastic = np.array([name not in RIGID for name in names])
        most = {app.name: app.most_gpus() for app in self.work(trace).application}
        types = "|".join(kind.name for kind in reversed(self.cluster.kinds))
        jobs = replace(
            jobs,
            elastic=elastic,
            min_gpus=np.where(elastic, 1, jobs.gpus),
            max_gpus=np.where(elastic, np.maximum([most[n] for n in names], jobs.gpus), jobs.gpus),
            restart_s=np.array([RESTART_S[name] for name in names]),
            gpu_type=Labels.of([types] * len(trace)),
        )
        trace = replace(trace, jobs=jobs)
        return with_measured_lengths(trace, self.work(trace))

"""The jobs of the A-SRPT paper: recurrent ones like PAI's, made from published facts.

PAI's own tables are not part of the data folder. Run times, users and groups are those of
`workload.pai_like`; what that leaves out is drawn here group by group, as the paper does: whether
a group has one GPU or more, how many, and one of the nine models with a plan for so many. The
trace runs at PAI's own pace, 758,223 jobs in two months; the last fifth of it is played, and
predictions are learned from what ended before.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np

from dovetail.algorithms.pipeline_time import Links, packed_s, spread_s
from dovetail.algorithms.refined_replicas import ReplicaTimes
from dovetail.core.beliefs import DoneOf
from dovetail.core.cluster import Cluster, Link, NodeGroup
from dovetail.core.job import Floats, Ints, JobTable, Labels, PipelineStage
from dovetail.core.trace import COMPLETED, ENDS, Trace
from dovetail.forecast.accuracy import moments_of
from dovetail.forecast.boosted import Boosted
from dovetail.forecast.predicted import Predicted
from dovetail.physics.pipelines.pipeline import FAMILY
from dovetail.physics.pipelines.pipelined import pipelined
from dovetail.physics.pipelines.planner import plan
from dovetail.traces.generate import Recipe, generate
from dovetail.traces.pai_like import RECURRENT_SHARE
from dovetail.traces.transform import compressed, offered_load, rebased, stretched
from papers.a_srpt.whole_history import study

ALL_JOBS, ALL_DAYS = 758_223, 60.0
"""The cleaned trace of the paper: two months (section V.A.1-b)."""
PLAYED_SHARE = 0.2
"""The forest learns from the first 80 % (section V.A.1-c)."""
RETRAINED_SHARE = 0.05
"""The forest is trained anew after so many of all jobs (the paper trains it once)."""
SINGLE_SHARE = 0.7
""""Over 70 %" of the trace's jobs have one GPU (section V.B.2-b)."""
WIDTHS = (2, 4, 8, 16, 32)
WIDTH_SHARES = (0.40, 0.25, 0.20, 0.10, 0.05)
"""GPUs of the other groups. Assumption: no table of them is published."""
SCALE = 10.0
"""The testbed's times are a tenth of the trace's (section V.A.1-b)."""


SERVERS = 250
TESTBED_GPUS, TESTBED_BYTES_PER_S = 14, 128e9
"""Two H100 cut into 14, which meet over PCIe (section V.A.1-a)."""


@dataclass(frozen=True, slots=True)
class ASrptCluster:
    """The simulated cluster, of servers of eight GPUs; `testbed` is the paper's one machine."""

    servers: int = SERVERS
    nic_gbit: float = 10.0
    testbed: bool = False

    @property
    def gpus(self) -> int:
        """Returns the GPUs of all servers."""
        return TESTBED_GPUS if self.testbed else 8 * self.servers

    def build(self) -> Cluster:
        """Returns the cluster with its links."""
        if self.testbed:
            inside = Link("node", TESTBED_BYTES_PER_S, nodes=1)
            return Cluster((NodeGroup("all", 1, TESTBED_GPUS),), (inside, Link("fabric", 1.25e9)))
        links = (Link("node", INSIDE_BYTES_PER_S, nodes=1), Link("fabric", self.nic_gbit * 1e9 / 8))
        return Cluster((NodeGroup("all", self.servers, 8),), links)


SIMULATED = ASrptCluster()


@dataclass(frozen=True, slots=True)
class ASrptWorkload:
    """So many consecutive jobs from the last fifth of a trace of `total` jobs.

    `single` is the share of jobs with one GPU, `recurrent` that of jobs in groups of five or more.
    `load` stretches submissions until they offer it to `gpus` GPUs; 0 leaves the trace's own pace.
    That is what jobs would ask for with the usual share on one GPU, so that other shares ask for
    more or less, as in Figure 7; with `as_asked` it is what these jobs do. Groups wider than
    `widest` are cut to it; `faster` divides all times.
    """

    total: int
    jobs: int
    seed: int = 0
    single: float = SINGLE_SHARE
    recurrent: float = RECURRENT_SHARE
    load: float = 0.0
    as_asked: bool = False
    gpus: int = 2000
    widest: int = WIDTHS[-1]
    faster: float = 1.0

    def rows(self) -> Ints:
        """Returns which jobs of the whole trace are played."""
        first = round(self.total * (1 - PLAYED_SHARE))
        room = self.total - first - self.jobs
        draw = np.random.default_rng([self.seed, self.jobs])
        return np.arange(self.jobs) + first + int(draw.integers(max(room, 0) + 1))

    def trace(self) -> Trace:
        """Returns the jobs. The same description gives the same ones."""
        kept = rebased(_whole(self._all()).take(self.rows()))
        if self.load:
            usual = self._all() if self.as_asked else replace(self._all(), single=SINGLE_SHARE)
            asked = offered_load(_whole(usual).take(self.rows()), self.gpus)
            kept = stretched(kept, asked / self.load)
        return compressed(kept, self.faster) if self.faster != 1 else kept

    def taught(self, method: str) -> Taught:
        """Returns a forecast that has learned from the first four fifths and goes on learning."""
        # A group's size and model say nothing beyond the group, so every sweep shares them.
        alike = ASrptWorkload(self.total, 0, self.seed, recurrent=self.recurrent)
        first = int(self.rows()[0])
        every = max(1, round(self.total * RETRAINED_SHARE))
        return Taught(deepcopy(_history(alike, method)), first, self.faster, every)

    def iteration_s(self) -> Floats:
        """Returns the shortest iteration of each job on the paper's links, in trace time."""
        jobs = self.trace().jobs
        kinds = zip(jobs.model.texts(), jobs.gpus.tolist(), strict=True)
        return np.array([shortest_longest(*kind)[0] for kind in kinds])

    def _all(self) -> ASrptWorkload:
        """Returns what decides the whole trace."""
        return replace(self, jobs=0, load=0.0, as_asked=False, gpus=0, faster=1.0)


@lru_cache(maxsize=4)
def _generated(total: int, seed: int, recurrent: float) -> Trace:
    days = ALL_DAYS * total / ALL_JOBS
    made = generate(Recipe("pai-like", total, days, seed, recurrent=recurrent))
    return replace(made, end=np.zeros_like(made.end))


@lru_cache(maxsize=4)
def _whole(which: ASrptWorkload) -> Trace:
    made = _generated(which.total, which.seed, which.recurrent)
    group = made.jobs.recurrence.codes
    draw = np.random.default_rng([which.seed, 17])
    groups = int(group.max()) + 1
    width = np.minimum(draw.choice(WIDTHS, groups, p=WIDTH_SHARES), which.widest)
    width[_singles(group, which.single, draw)] = 1
    model = _models(width.tolist(), draw.uniform(size=groups).tolist())
    gpus = width[group]
    named = Labels.of(model)
    jobs = replace(
        made.jobs, gpus=gpus, min_gpus=gpus, max_gpus=gpus, model=named.take(group.astype(np.int64))
    )
    return replace(made, jobs=jobs)


def _singles(group: np.ndarray, share: float, draw: np.random.Generator) -> Ints:
    """Returns groups, drawn evenly, that make up a share of the jobs."""
    size = np.bincount(group)
    order = draw.permutation(len(size))
    return order[np.cumsum(size[order]) <= share * len(group)]


def _models(widths: list[int], parts: list[float]) -> list[str]:
    able = {gpus: models_on(gpus) for gpus in sorted(set(widths))}
    return [able[g][int(part * len(able[g]))] for g, part in zip(widths, parts, strict=True)]


@lru_cache(maxsize=64)
def models_on(gpus: int) -> tuple[str, ...]:
    """Returns the models of Table I that have a plan for so many GPUs."""
    return tuple(f"{FAMILY}/{name}" for name, m in pipelined().items() if plan(m, gpus))


@lru_cache(maxsize=1024)
def shortest_longest(model: str, gpus: int, nic_gbit: float = 10.0) -> tuple[float, float]:
    """Returns the shortest iteration as A-SRPT estimates it, and the longest."""
    stages, links = _stages(model, gpus), _links(nic_gbit)
    return packed_s(stages, links), spread_s(stages, links)


@lru_cache(maxsize=1024)
def fastest(model: str, gpus: int, nic_gbit: float = 10.0) -> float:
    """Returns how much shorter than A-SRPT's estimate an iteration can be at the very most."""
    stages, links = _stages(model, gpus), _links(nic_gbit)
    return ReplicaTimes.of(stages, links).floor_s / packed_s(stages, links)


def _stages(model: str, gpus: int) -> tuple[PipelineStage, ...]:
    return plan(pipelined()[model.removeprefix(f"{FAMILY}/")], gpus)


def _links(nic_gbit: float) -> Links:
    return Links(INSIDE_BYTES_PER_S, nic_gbit * 1e9 / 8, 8)


INSIDE_BYTES_PER_S = 300e9
"""NVLink of the simulated servers (section V.B.1-a)."""


class Taught:
    """A predictor that ended jobs of the same trace have taught, for jobs from `first` on.

    It goes on learning from jobs that end in the run; what has to be trained is trained anew
    whenever `every` more jobs have come (ALGORITHMS section 5.3).
    """

    knows: ClassVar[frozenset[str]] = frozenset({"length"})
    learns: ClassVar[bool] = True

    def __init__(self, predicted: Predicted, first: int, faster: float, every: int) -> None:
        self._predicted = predicted
        self._first = first
        self._faster = faster
        self._every = every
        self._asked = 0
        self.said_s: dict[int, float] = {}

    def admit(self, jobs: JobTable) -> None:
        """Takes no note: it knows the whole trace."""

    def length_s(self, job: int, now: float) -> float:
        """Returns the predicted run time."""
        self._asked += 1
        if self._asked % self._every == 0:
            self._predicted.learner.train()
        said_s = self._predicted.length_s(job + self._first, now) / self._faster
        self.said_s[job] = said_s
        return said_s

    def distribution(self, job: int, now: float, done_s: DoneOf) -> None:
        """Returns none: in the paper a prediction is one number."""

    def ended(self, job: int, ran_s: float, how: str, now: float) -> None:
        """Learns from a job that is over."""
        self._predicted.ended(job + self._first, ran_s * self._faster, how, now)


@lru_cache(maxsize=6)
def _history(which: ASrptWorkload, method: str) -> Predicted:
    """Returns a predictor trained once, on the jobs that had ended when the last fifth began."""
    trace = _whole(which)
    first = round(which.total * (1 - PLAYED_SHARE))
    before = trace.take(np.arange(first))
    moments = moments_of(before, float(trace.jobs.submit_s[first]))
    predicted = Predicted(trace.jobs, method, which.seed)
    if isinstance(predicted.learner, Boosted):
        # What a submission looked like then is part of what it learns from.
        study(predicted.learner, moments, before.duration_s, before.end == COMPLETED)
        return predicted
    for now, job, over in zip(*(column.tolist() for column in moments), strict=True):
        if over:
            predicted.ended(job, float(before.duration_s[job]), ENDS[COMPLETED], now)
    predicted.learner.train()
    return predicted

"""Requests of users: one `JobRequest`, and the `JobTable` of a whole trace in columns.

A job here is a request. How long it runs is not part of it: that is the world's truth
(`core.trace.Trace`) or a policy's forecast (`core.beliefs.Forecast`). Inside a run every job is an
integer index into the table, sorted by (submission, id): comparing indices breaks ties. A live run
appends jobs as they are admitted, and then the index is the order of admission.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dovetail.core.gpu_parts import exact_sum
from dovetail.core.growth import Growing, sealed

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

NO_LABEL = -1


@dataclass(frozen=True, slots=True)
class PipelineStage:
    """One pipeline stage of a job's parallelism graph (A-SRPT section III), per replica.

    Times in seconds per iteration, data in bytes per iteration. A replica takes `slices` GPUs of
    one node (tensor parallelism); its ranks follow one another.
    """

    replicas: int
    forward_s: float
    backward_s: float
    activation_in_bytes: float
    activation_out_bytes: float
    parameter_bytes: float
    slices: int = 1

    @property
    def gpus(self) -> int:
        """Returns the GPUs of all replicas."""
        return self.replicas * self.slices


@dataclass(frozen=True, slots=True)
class JobRequest:
    """One request, made on demand from a row of a `JobTable`.

    `gpu_part` is the part of each GPU that is requested, in thousandths; 0 is a job without GPU,
    whose one worker (`gpus` is 1) takes CPUs and memory only. `restart_s` is what a change of its
    GPUs costs a job whose program is ended and started anew for it; 0: as for all others.
    """

    job_id: str
    submit_s: float
    gpus: int
    min_gpus: int
    max_gpus: int
    gpu_part: float = 1.0
    user: str = ""
    account: str = ""
    qos: str = ""
    reservation: str = ""
    queue: str = ""
    recurrence: str = ""
    model: str = ""
    gpu_type: str = ""
    topology: str = ""
    priority: float = 0.0
    batch_size: int = 0
    cpus: float = 0.0
    memory_bytes: float = 0.0
    time_limit_s: float = float("inf")
    deadline_s: float = float("inf")
    restart_s: float = 0.0
    elastic: bool = False
    shareable: bool = False
    preemptible: bool = True
    graph: tuple[PipelineStage, ...] = ()


@dataclass(frozen=True, slots=True)
class Labels:
    """A text column: `column[row]` is a text, empty where it is missing.

    `codes` are positions in `names`, -1 where missing; compare codes where speed matters.
    """

    codes: NDArray[np.int32]
    names: Sequence[str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "codes", sealed(self.codes))

    @staticmethod
    def none(n: int) -> Labels:
        """Returns a column of `n` missing values."""
        return Labels(np.full(n, NO_LABEL, dtype=np.int32), ())

    @staticmethod
    def of(values: Sequence[str]) -> Labels:
        """Returns the column for `values`, where an empty text is a missing value."""
        names = tuple(sorted({v for v in values if v}))
        code = {name: i for i, name in enumerate(names)}
        codes = np.fromiter((code.get(v, NO_LABEL) for v in values), np.int32, len(values))
        return Labels(codes, names)

    def __getitem__(self, row: int) -> str:
        """Returns the text of one row, empty when missing."""
        code = int(self.codes[row])
        return "" if code < 0 else self.names[code]

    def __len__(self) -> int:
        return len(self.codes)

    def texts(self) -> list[str]:
        """Returns the whole column as texts."""
        table = [*self.names, ""]
        return [table[c] for c in self.codes.tolist()]

    def take(self, rows: NDArray[np.int64]) -> Labels:
        """Returns the column restricted to `rows`, in that order."""
        return Labels(self.codes[rows], self.names)


LABELS = (
    "user",
    "account",
    "qos",
    "reservation",
    "queue",
    "recurrence",
    "model",
    "gpu_type",
    "topology",
)
"""The text columns of a table."""
NUMBERS = tuple(f.name for f in fields(JobRequest) if f.name not in ("job_id", "graph", *LABELS))
"""The columns of numbers, called as in a `JobRequest`."""


@dataclass(frozen=True)
class JobTable:
    """All requests of a run in columns, sorted by (submission, id). Every column has length n.

    Missing limits and deadlines are infinite. Only `job_id`, `submit_s` and `gpus` are
    required; `JobTable.build` fills in the rest. `append` makes the columns longer; an array
    read before keeps the rows it had.
    """

    job_id: Sequence[str]
    submit_s: Floats
    gpus: Ints
    min_gpus: Ints
    max_gpus: Ints
    gpu_part: Floats
    user: Labels
    account: Labels
    qos: Labels
    reservation: Labels
    queue: Labels
    recurrence: Labels
    model: Labels
    gpu_type: Labels
    topology: Labels
    priority: Floats
    batch_size: Ints
    cpus: Floats
    memory_bytes: Floats
    time_limit_s: Floats
    deadline_s: Floats
    restart_s: Floats
    elastic: Bools
    shareable: Bools
    preemptible: Bools
    graphs: Sequence[tuple[PipelineStage, ...]] = field(default=())
    graph_code: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    numbered: bool = False
    """Whether ids are the numbers that a live cluster gives its jobs, from 1."""

    @staticmethod
    def build(job_id: Sequence[str], submit_s: Floats, gpus: Ints, **columns: object) -> JobTable:
        """Returns a table whose missing columns have their neutral values.

        Raises ValueError when a column has the wrong length or rows are out of order.
        """
        n = len(job_id)
        neutral: dict[str, object] = {
            "min_gpus": gpus,
            "max_gpus": gpus,
            "gpu_part": np.ones(n),
            "priority": np.zeros(n),
            "batch_size": np.zeros(n, np.int64),
            "cpus": np.zeros(n),
            "memory_bytes": np.zeros(n),
            "time_limit_s": np.full(n, np.inf),
            "deadline_s": np.full(n, np.inf),
            "restart_s": np.zeros(n),
            "elastic": np.zeros(n, bool),
            "shareable": np.zeros(n, bool),
            "preemptible": np.ones(n, bool),
            "graph_code": np.full(n, NO_LABEL, np.int32),
        }
        for label in LABELS:
            neutral[label] = Labels.none(n)
        table = JobTable(tuple(job_id), submit_s, gpus, **{**neutral, **columns})  # type: ignore[arg-type]
        table._check()
        return table

    def __post_init__(self) -> None:
        for f in fields(self):
            column = getattr(self, f.name)
            if isinstance(column, np.ndarray):
                object.__setattr__(self, f.name, sealed(column))

    def _check(self) -> None:
        n = len(self.job_id)
        for f in fields(self):
            column = getattr(self, f.name)
            if f.name in ("graphs", "numbered"):
                continue
            length = len(column.codes) if isinstance(column, Labels) else len(column)
            if length != n:
                raise ValueError(f"column {f.name} has {length} rows, expected {n}")
        if n and (np.diff(self.submit_s) < 0).any():
            raise ValueError("jobs must be sorted by submission")
        if (self.gpus < 1).any():
            raise ValueError("every job needs at least one GPU")
        if (self.min_gpus > self.gpus).any() or (self.gpus > self.max_gpus).any():
            raise ValueError("min_gpus <= gpus <= max_gpus must hold")
        if not ((self.gpu_part >= 0) & (self.gpu_part <= 1)).all():
            raise ValueError("the part of a GPU must lie between 0 and 1")
        if (self.max_gpus[self.gpu_part == 0] > 1).any():
            raise ValueError("a job without GPU has one worker")
        if not ((self.restart_s >= 0) & (self.restart_s < np.inf)).all():
            raise ValueError("a restart takes 0 seconds or more")

    def __len__(self) -> int:
        return len(self.job_id)

    @cached_property
    def all_preemptible(self) -> bool:
        """True if every owner allows the job to be stopped."""
        return bool(self.preemptible.all())

    @cached_property
    def has_parts(self) -> bool:
        """True if some job asks for parts of GPUs, or for none."""
        return bool((self.gpu_part != 1.0).any())

    @cached_property
    def asked_gpus(self) -> Floats:
        """The GPUs each job asks for, parts counted as parts: 0 for a job without GPU."""
        return sealed(np.round(self.gpus * self.gpu_part, 3))

    @cached_property
    def any_priority(self) -> bool:
        """True if any job has a priority of its own."""
        return bool(self.priority.any())

    @cached_property
    def any_restart(self) -> bool:
        """True if the program of any job starts anew when its GPUs change."""
        return bool(self.restart_s.any())

    @cached_property
    def least_gpus(self) -> Ints:
        """The fewest GPUs each job may run on: as requested unless it may be resized."""
        return sealed(np.where(self.elastic & self.preemptible, self.min_gpus, self.gpus))

    @cached_property
    def most_gpus(self) -> Ints:
        """The most GPUs each job may run on: as requested unless it may be resized."""
        return sealed(np.where(self.elastic & self.preemptible, self.max_gpus, self.gpus))

    @cached_property
    def widest_gpus(self) -> int:
        """The most GPUs that any job may run on."""
        return int(self.most_gpus.max(initial=0))

    def draw_keys(self, jobs: Ints) -> Ints:
        """Returns the keys of seeded draws about jobs: the same for a job as long as it exists.

        The index of a job in a live cluster changes when the controller restarts; its number, of
        which the first is index 0, does not.
        """
        if not self.numbered:
            return jobs
        ids = self.job_id
        numbers = [int(ids[job]) - 1 for job in jobs.ravel().tolist()]
        return np.array(numbers, np.int64).reshape(jobs.shape)

    def append(self, jobs: Sequence[JobRequest]) -> range:
        """Adds jobs at the end, each in amortised constant time; returns their indices.

        Labels and graphs not seen before are numbered in order of appearance. Raises ValueError,
        and adds nothing, when a job is out of order of submission or asks for no sensible GPUs.
        """
        first, last_s = len(self), float(self.submit_s[-1]) if len(self) else float("-inf")
        for job in jobs:
            if not job.submit_s >= last_s:
                raise ValueError(f"job {job.job_id}: jobs must be sorted by submission")
            if not 1 <= job.min_gpus <= job.gpus <= job.max_gpus:
                raise ValueError(f"job {job.job_id}: 1 <= min_gpus <= gpus <= max_gpus must hold")
            if not 0 <= job.gpu_part <= 1 or (not job.gpu_part and job.max_gpus > 1):
                raise ValueError(f"job {job.job_id}: it asks for no sensible part of a GPU")
            last_s = job.submit_s
        # The table is frozen for its readers; only `append` replaces columns.
        vars(self).update(self._growth.extended(jobs))
        return range(first, len(self))

    @cached_property
    def _growth(self) -> _Growth:
        return _Growth(self)

    def job(self, index: int) -> JobRequest:
        """Returns one row as a `JobRequest`."""
        columns: dict[str, object] = {n: getattr(self, n)[index].item() for n in NUMBERS}
        columns |= {name: getattr(self, name)[index] for name in LABELS}
        code = int(self.graph_code[index])
        graph = self.graphs[code] if code >= 0 else ()
        return JobRequest(job_id=self.job_id[index], graph=graph, **columns)  # type: ignore[arg-type]

    def take(self, rows: NDArray[np.int64]) -> JobTable:
        """Returns the table restricted to `rows` (which must keep the order of submission)."""
        columns: dict[str, object] = {}
        for f in fields(self):
            column = getattr(self, f.name)
            if f.name in ("graphs", "numbered"):
                columns[f.name] = column
            elif f.name == "job_id":
                columns[f.name] = tuple(column[i] for i in rows.tolist())
            elif isinstance(column, Labels):
                columns[f.name] = column.take(rows)
            else:
                columns[f.name] = column[rows]
        table = JobTable(**columns)  # type: ignore[arg-type]
        table._check()
        return table


class _Growth:
    """The buffers behind the columns of a table that grows."""

    def __init__(self, table: JobTable) -> None:
        self._job_id = list(table.job_id)
        self._numbers = {name: Growing(getattr(table, name)) for name in NUMBERS}
        self._labels = {name: _GrowingLabels(getattr(table, name)) for name in LABELS}
        self._graphs = list(table.graphs)
        self._graph_code = Growing(table.graph_code)
        self._code_of = {graph: code for code, graph in enumerate(self._graphs)}
        self._least, self._most = Growing(table.least_gpus), Growing(table.most_gpus)
        self._widest, self._all_preemptible = table.widest_gpus, table.all_preemptible
        self._asked, self._has_parts = Growing(table.asked_gpus), table.has_parts
        self._any_priority, self._any_restart = table.any_priority, table.any_restart

    def extended(self, jobs: Sequence[JobRequest]) -> dict[str, object]:
        """Returns every column, and what is derived from them, with more rows."""
        columns: dict[str, object] = {
            name: sealed(column.extend([getattr(job, name) for job in jobs]))
            for name, column in self._numbers.items()
        }
        for name, labels in self._labels.items():
            columns[name] = labels.extend([getattr(job, name) for job in jobs])
        self._job_id.extend(job.job_id for job in jobs)
        movable = [job.elastic and job.preemptible for job in jobs]
        least = [j.min_gpus if m else j.gpus for j, m in zip(jobs, movable, strict=True)]
        most = [j.max_gpus if m else j.gpus for j, m in zip(jobs, movable, strict=True)]
        self._widest = max(self._widest, *most) if most else self._widest
        self._all_preemptible = self._all_preemptible and all(job.preemptible for job in jobs)
        return columns | {
            "job_id": self._job_id,
            "graphs": self._graphs,
            "graph_code": sealed(self._graph_code.extend([self._code(job.graph) for job in jobs])),
            "least_gpus": sealed(self._least.extend(least)),
            "most_gpus": sealed(self._most.extend(most)),
            "widest_gpus": self._widest,
            "all_preemptible": self._all_preemptible,
            **self._parts(jobs),
        }

    def _parts(self, jobs: Sequence[JobRequest]) -> dict[str, object]:
        asked = [exact_sum(job.gpus * job.gpu_part) for job in jobs]
        self._has_parts = self._has_parts or any(job.gpu_part != 1.0 for job in jobs)
        self._any_priority = self._any_priority or any(job.priority for job in jobs)
        self._any_restart = self._any_restart or any(job.restart_s for job in jobs)
        facts = {"has_parts": self._has_parts, "any_priority": self._any_priority}
        facts["any_restart"] = self._any_restart
        return {"asked_gpus": sealed(self._asked.extend(asked)), **facts}

    def _code(self, graph: tuple[PipelineStage, ...]) -> int:
        if not graph:
            return NO_LABEL
        code = self._code_of.setdefault(graph, len(self._graphs))
        if code == len(self._graphs):
            self._graphs.append(graph)
        return code


class _GrowingLabels:
    """The buffers behind a text column that grows."""

    def __init__(self, labels: Labels) -> None:
        self._codes = Growing(labels.codes)
        self._names = list(labels.names)
        self._code_of = {name: code for code, name in enumerate(self._names)}

    def extend(self, texts: Sequence[str]) -> Labels:
        codes = []
        for text in texts:
            code = self._code_of.setdefault(text, len(self._names)) if text else NO_LABEL
            if code == len(self._names):
                self._names.append(text)
            codes.append(code)
        return Labels(self._codes.extend(codes), self._names)


@dataclass(frozen=True, slots=True)
class Shape:
    """What decides where a job fits: jobs of one shape fit in the same places.

    `groups` are the node groups that the job's queue owns; none means all. `gpu_part` is the part
    of each GPU that a job asks for. `avoided` are nodes that it is not to be placed on.
    """

    gpus: int
    gpu_type: str = ""
    cpus: float = 0.0
    memory_bytes: float = 0.0
    queue: str = ""
    groups: tuple[str, ...] = ()
    topology: str = ""
    account: str = ""
    qos: str = ""
    user: str = ""
    reservation: str = ""
    length_s: float = float("inf")
    gpu_part: float = 1.0
    avoided: tuple[int, ...] = ()
    whole_gpus: int = field(init=False, compare=False, repr=False)
    """The GPUs that must be free as a whole: none for parts, which may join others on a GPU."""
    asked_gpus: float = field(init=False, compare=False, repr=False)
    """The GPUs asked for, parts counted as parts."""

    def __post_init__(self) -> None:
        gpus, whole = self.gpus, self.gpu_part == 1.0
        object.__setattr__(self, "whole_gpus", gpus if whole else 0)
        object.__setattr__(self, "asked_gpus", gpus if whole else exact_sum(gpus * self.gpu_part))

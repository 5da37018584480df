"""The Sia authors' measured tables as physics, for truth and belief: step times by type of GPU.

Step times are those of the very placement, interpolated over samples per GPU; where it was not
measured, between numbers of GPUs and nodes that were (theirs are over a triangulation). Gains are
those of the epoch, interpolated over batches. Else as in their simulator
(sia-simulator/applications.py, job.py); nothing of it is shipped. Policies
are told the truth for every type: the paper's *oracle*, where the authors' Sia learns as it runs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import ceil, inf
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from dovetail.core.beliefs import Batches, BestBatches, Physics, Speed
from dovetail.core.job import Floats, Ints, JobTable
from dovetail.core.placement import Placement
from dovetail.core.trace import Trace
from dovetail.physics.batches.goodput import LATE_S
from tools.zoo.efficiency import EPOCHS, read_trainings
from tools.zoo.fit_placements import read_csv

CANDIDATES = 50
"""Batches tried, in geometric steps (goodput.py)."""
ROUNDING = 1e-8
MOST_GPUS = 64
SLOWDOWN = {"cifar10": 1.8, "ncf": 1.5}
OTHERWISE = 1.2
"""Real jobs are slower than the tables by these factors, say the authors (simulator_config.py)."""


class GpuType(NamedTuple):
    """A type of GPU: its name in cluster files, in the authors' files, and its nodes."""

    name: str
    suffix: str
    gpus_per_node: int
    nodes_measured: int


T4 = GpuType("t4", "aws", 4, 16)
RTX = GpuType("rtx", "rtx", 8, 3)
A100 = GpuType("a100", "dgx-ext", 8, 2)


class TypeTimes:
    """The step and exchange times of one application on one type of GPU.

    A *line* has the times of one placement, or one number of nodes and GPUs, by samples on a GPU.
    """

    def __init__(self, folder: Path, kind: GpuType) -> None:
        self.kind = kind
        placed: dict[str, list[Row]] = {}
        measured: dict[tuple[int, int], list[Row]] = {}
        for row in read_csv(folder / f"placements-{kind.suffix}.csv"):
            key, times = row["placement"], _times(row)
            placed.setdefault(key, []).append(times)
            measured.setdefault((len(key), sum(map(int, key))), []).append(times)
        for row in read_csv(folder / f"scalability-{kind.suffix}.csv"):
            measured.setdefault((int(row["num_nodes"]), int(row["num_replicas"])), []).append(
                _times(row)
            )
        self.placed = {key: _line(rows) for key, rows in placed.items()}
        self.measured = {key: _line(rows) for key, rows in measured.items()}
        sizes = np.concatenate([line[0] for line in self.placed.values()])
        self.least, self.most = int(sizes.min()), int(sizes.max())
        self.gpus_on: dict[int, list[int]] = {}
        for nodes, gpus in sorted(self.measured):
            self.gpus_on.setdefault(nodes, []).append(gpus)

    def most_on(self, spans: Sequence[int]) -> int:
        """Returns the most samples that a GPU of a placement was measured with."""
        line = self.placed.get(_key(spans))
        if line is None:
            line = self.measured.get((len(spans), sum(spans)))
        return self.most if line is None else int(line[0][-1])

    def of(self, spans: Sequence[int], samples: Floats, steps: Floats) -> Floats:
        """Returns the seconds of iterations with so many samples on a GPU in each micro-batch."""
        line = self.placed.get(_key(spans))
        if line is not None:
            whole, exchanged = _on_line(line, samples)
        else:
            whole, exchanged = self._between(len(spans), sum(spans), samples)
        return np.asarray(whole + (steps - 1) * (whole - exchanged))

    def _between(self, nodes: int, gpus: int, samples: Floats) -> Floats:
        """Returns the times between the nearest numbers of nodes and of GPUs that were measured."""
        low, high, part = _bracket(sorted(self.gpus_on), nodes)
        ends = []
        for n in (low, high):
            few, many, share = _bracket(self.gpus_on[n], gpus)
            one, two = (_on_line(self.measured[n, g], samples) for g in (few, many))
            ends.append(one + share * (two - one))
        return np.asarray(ends[0] + part * (ends[1] - ends[0]))


Row = tuple[float, float, float]
"""Samples on a GPU, seconds of a step, and of its exchange."""


def _times(row: Mapping[str, str]) -> Row:
    return float(row["local_bsz"]), float(row["step_time"]), float(row["sync_time"])


def _line(rows: Sequence[Row]) -> Floats:
    """Returns samples, steps and exchanges [3, samples]; what was measured twice, its mean."""
    table = np.array(rows)
    sizes = np.unique(table[:, 0])
    return np.array([table[table[:, 0] == size].mean(axis=0) for size in sizes]).T


def _on_line(line: Floats, samples: Floats) -> Floats:
    return np.array([np.interp(samples, line[0], times) for times in line[1:]])


def _bracket(known: Sequence[int], wanted: int) -> tuple[int, int, float]:
    """Returns the known numbers around one, and where between them it lies; the ends clamp."""
    low = max((k for k in known if k <= wanted), default=known[0])
    high = min((k for k in known if k >= wanted), default=known[-1])
    return low, high, (wanted - low) / (high - low) if high > low else 0.0


def _key(spans: Sequence[int]) -> str:
    turns = (tuple(spans[i:]) + tuple(spans[:i]) for i in range(len(spans)))
    return "".join(map(str, min(turns)))


class _Cells(NamedTuple):
    """What may be chosen on one type: batch, steps and seconds, each [cells, candidates].

    A cell is a number of GPUs on a number of nodes. `took_s` is inf where a batch is not allowed.
    """

    nodes: Ints
    gpus: Ints
    batch: Floats
    steps: Floats
    took_s: Floats


class MeasuredApplication:
    """One application: its trainings, and its step times on each type."""

    def __init__(self, traces: Path, name: str, kinds: Sequence[GpuType]) -> None:
        self.name = name
        self.trainings = read_trainings(traces / name, EPOCHS[name])
        self.work = np.diff(self.trainings.progress, prepend=0.0)
        self.initial, self.largest = (int(self.trainings.batches[i]) for i in (0, -1))
        self.on = [TypeTimes(traces / name, kind) for kind in kinds]
        self.cells = cache(self._cells)
        self.table = cache(self._table)

    def gain(self, batch: Floats, epoch: int) -> Floats:
        """Returns the steps of the initial batch that one of `batch` is worth."""
        known = self.trainings
        square, variance = (
            np.interp(batch, known.batches, column[:, epoch])
            for column in (known.square, known.variance)
        )
        return np.asarray((variance + square) / (variance * self.initial / batch + square))

    def most_gpus(self) -> int:
        """Returns the GPUs beyond which a GPU would have too few samples."""
        return min(MOST_GPUS, self.largest // min(times.least for times in self.on))

    def requested_s(self, gpus: int, batch: int) -> float:
        """Returns the seconds of an iteration as requested, on the first type, well placed."""
        return self.plainly_s(0, even(gpus, ceil(gpus / self.on[0].kind.gpus_per_node)), batch)

    def plainly_s(self, kind: int, spans: Sequence[int], batch: int) -> float:
        """Returns the seconds of an iteration of a batch in as few micro-batches as will do."""
        times, gpus = self.on[kind], sum(spans)
        steps = max(ceil(batch / gpus / times.most_on(spans) - ROUNDING), 1)
        if gpus == 1 and batch > self.initial:
            steps = max(steps, 2)
        took = times.of(spans, np.array([batch / gpus / steps]), np.array([float(steps)]))
        return float(took[0])

    def _cells(self, kind: int, every: bool) -> _Cells:
        times = self.on[kind]
        size, machines = times.kind.gpus_per_node, times.kind.nodes_measured
        known = [
            (nodes, gpus)
            for nodes in range(1, machines + 1)
            for gpus in range(nodes, min(nodes * size, MOST_GPUS) + 1)
            if gpus * times.least <= self.largest
            and (every or gpus == nodes * size or (nodes == 1 and not gpus & (gpus - 1)))
        ]
        columns = zip(*(self._cell(times, *cell) for cell in known), strict=True)
        batch, steps, took_s = (np.array(column) for column in columns)
        nodes_of, gpus_of = np.array(known).T
        return _Cells(nodes_of, gpus_of, batch, steps, took_s)

    def _cell(self, times: TypeTimes, nodes: int, gpus: int) -> tuple[Floats, Floats, Floats]:
        spans = even(gpus, nodes)
        most = times.most_on(spans)
        low = min(max(self.initial, times.least * gpus), self.largest)
        each = np.geomspace(low, self.largest, CANDIDATES) / gpus
        steps = np.maximum(np.ceil(each / most - ROUNDING), 1.0)
        if gpus == 1:  # the noise of one micro-batch cannot be estimated
            steps = np.where(each > self.initial + ROUNDING, np.maximum(steps, 2.0), steps)
        samples = np.ceil(each / steps - ROUNDING)
        samples = np.minimum(samples, np.floor(self.largest / (gpus * steps) + ROUNDING))
        took_s = times.of(spans, samples, steps)
        allowed = (times.least <= samples) & (samples <= most) & (took_s > 0)
        return gpus * steps * samples, steps, np.where(allowed, took_s, inf)

    def _table(self, kind: int, epoch: int, every: bool) -> BestBatches:
        """Returns the best batches, and steps of the initial batch per second with them.

        On powers of two and whole nodes, or on `every` number of GPUs.
        """
        cells = self.cells(kind, every)
        speed = self.gain(np.maximum(cells.batch, 1.0), epoch) / cells.took_s
        best = speed.argmax(axis=1)[:, None]
        chosen = (np.take_along_axis(a, best, 1)[:, 0] for a in (speed, cells.batch, cells.steps))
        shape = (self.on[kind].kind.nodes_measured + 1, MOST_GPUS + 1)
        table = BestBatches(np.zeros(shape), np.zeros(shape, np.int64), np.ones(shape, np.int64))
        for column, values in zip(table, chosen, strict=True):
            column[cells.nodes, cells.gpus] = values
        table.batch[table.speed == 0] = 0
        return table


@cache
def application(traces: Path, name: str, kinds: tuple[GpuType, ...]) -> MeasuredApplication:
    """Returns an application, read once."""
    return MeasuredApplication(traces, name, kinds)


def even(gpus: int, nodes: int) -> tuple[int, ...]:
    """Returns GPUs spread evenly over nodes."""
    least, more = divmod(gpus, nodes)
    return tuple(least + (node < more) for node in range(nodes))


class Node(NamedTuple):
    """The type of a node by number, and the machine that it is part of."""

    kind: int
    machine: int


class MeasuredWork:
    """The application of each job, and when its epochs end, in solo seconds on the first type."""

    def __init__(
        self, jobs: JobTable, traces: Path, kinds: tuple[GpuType, ...], nodes: Sequence[Node]
    ) -> None:
        names = [name.rpartition("/")[2] for name in jobs.model.texts()]
        known = {name: application(traces, name, kinds) for name in sorted(set(names))}
        self.application = [known[name] for name in names]
        self.requested = list(zip(jobs.gpus.tolist(), jobs.batch_size.tolist(), strict=True))
        self.nodes = nodes
        self.ends_s = cache(self._ends_s)
        self.wanted = cache(self._wanted)

    def _ends_s(self, job: int) -> list[float]:
        app = self.application[job]
        spent = [work / self.wanted(job, epoch) for epoch, work in enumerate(app.work)]
        ends_s: list[float] = np.cumsum(spent).tolist()
        return ends_s

    def _wanted(self, job: int, epoch: int) -> float:
        """Returns the steps of the initial batch per second of the job as requested."""
        app, (gpus, batch) = self.application[job], self.requested[job]
        slower = SLOWDOWN.get(app.name, OTHERWISE)
        return float(app.gain(np.array(batch), epoch)) / app.requested_s(gpus, batch) / slower

    def epoch(self, job: int, done_s: float) -> int:
        """Returns the epoch of a job after so much progress."""
        ends_s = self.ends_s(job)
        return min(bisect_right(ends_s, done_s + LATE_S), len(ends_s) - 1)

    def spans(self, placement: Placement) -> tuple[int, tuple[int, ...]]:
        """Returns the type of a placement, the slowest there, and its GPUs by machine."""
        held: dict[int, int] = {}
        for node, gpus in placement.spans:
            machine = self.nodes[node].machine
            held[machine] = held.get(machine, 0) + gpus
        return min(self.nodes[node].kind for node, _ in placement.spans), tuple(held.values())


class MeasuredTypeSpeed:
    """Speeds as placed and best batches by the tables; all else scales linearly."""

    def __init__(self, linear: Speed, work: MeasuredWork) -> None:
        self._work = work
        self.rates, self.top, self.spread = linear.rates, linear.top, linear.spread

    def whole(self, job: int, placement: Placement, done_s: float = 0.0) -> float:
        """Returns the speed that was measured at this epoch."""
        work, epoch = self._work, self._work.epoch(job, done_s)
        app, (kind, spans) = work.application[job], work.spans(placement)
        batch = placement.batch_size or work.requested[job][1]
        if placement.batch_size:
            steps = placement.accumulation_steps
            samples = np.array([batch / placement.gpus / steps])
            took_s = float(app.on[kind].of(spans, samples, np.array([float(steps)]))[0])
        else:
            took_s = app.plainly_s(kind, spans, batch)
        if not took_s > 0:
            raise ValueError(f"nothing was measured about {spans} with a batch of {batch}")
        slower = SLOWDOWN.get(app.name, OTHERWISE)
        return float(app.gain(np.array(batch), epoch)) / took_s / slower / work.wanted(job, epoch)

    def best_batches(self, job: int, done_s: float, max_gpus: int) -> BestBatches:
        """Returns the best batches on the first type, whatever the type of a node."""
        return self.on_type(job, done_s, max_gpus, 0, every=True)

    def on_type(
        self, job: int, done_s: float, max_gpus: int, kind: int, *, every: bool = False
    ) -> BestBatches:
        """Returns the best batches on a type, with speeds over that of the job as requested."""
        work, epoch = self._work, self._work.epoch(job, done_s)
        app = work.application[job]
        slower = SLOWDOWN.get(app.name, OTHERWISE)
        known, cut = app.table(kind, epoch, every), np.s_[:, : max_gpus + 1]
        speed = known.speed[cut] / slower / work.wanted(job, epoch)
        return BestBatches(speed, known.batch[cut], known.steps[cut])


class MeasuredEpochs(Protocol):
    """When the epochs of jobs end."""

    def ends_s(self, job: int) -> list[float]:
        """Returns when each epoch ends, in solo seconds."""


class EpochBatches:
    """Epochs end where the tables say; all else as other `Batches` say."""

    def __init__(self, others: Batches, epochs: MeasuredEpochs) -> None:
        self._epochs = epochs
        self.samples, self.most_steps = others.samples, others.most_steps
        self.accumulated, self.workers = others.accumulated, others.workers

    def phase_end_s(self, job: int, done_s: float) -> float:
        """Returns when the epoch ends, in solo seconds; inf in the last one."""
        ends_s = self._epochs.ends_s(job)
        epoch = bisect_right(ends_s, done_s + LATE_S)
        return ends_s[epoch] if epoch < len(ends_s) - 1 else inf


@dataclass(frozen=True, slots=True, eq=False)
class TypedPhysics(Physics):
    """Physics in which the best batch depends on the type of GPU, as it was measured."""

    work: MeasuredWork

    def best_batches(self, job: int, done_s: float, max_gpus: int, node: int) -> BestBatches:
        """Returns the best batches on the type of a node."""
        assert isinstance(self.speed, MeasuredTypeSpeed)
        return self.speed.on_type(job, done_s, max_gpus, self.work.nodes[node].kind)


def measured_physics(linear: Physics, work: MeasuredWork) -> TypedPhysics:
    """Returns the physics of the tables, given that of jobs that scale linearly."""
    return TypedPhysics(
        speed=MeasuredTypeSpeed(linear.speed, work),
        sharing=linear.sharing,
        memory=linear.memory,
        batches=EpochBatches(linear.batches, work),
        structure=linear.structure,
        work=work,
    )


def with_measured_lengths(trace: Trace, work: MeasuredWork) -> Trace:
    """Returns the trace with the lengths that the tables give its jobs."""
    return replace(trace, duration_s=np.array([work.ends_s(job)[-1] for job in range(len(trace))]))

"""The Pollux authors' measured tables as physics, to part what a policy does from what fits do.

Step times are those of the very placement, interpolated over samples per GPU, or over nodes, GPUs
and samples where it was not measured; gains are those of the epoch, interpolated over batches; all
as in their simulator (simulator/applications.py, simulator/simulator.py). Nothing of it is shipped.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from functools import cache
from math import ceil
from pathlib import Path

import numpy as np

from dovetail.core.beliefs import Physics, Speed
from dovetail.core.job import JobTable
from dovetail.core.placement import Placement
from dovetail.core.trace import Trace
from dovetail.physics.batches.goodput import LATE_S
from papers.sia.measured import EpochBatches
from tools.zoo.efficiency import EPOCHS, MOST_PER_GPU, read_trainings
from tools.zoo.fit_placements import read_csv

PER_NODE = 4


class Application:
    """One application's tables."""

    def __init__(self, traces: Path, name: str) -> None:
        from scipy.interpolate import LinearNDInterpolator

        folder = traces / name
        self.trainings = read_trainings(folder, EPOCHS[name])
        self.steps = np.diff(self.trainings.progress, prepend=0.0)
        self.most = MOST_PER_GPU.get(name, 0)
        rows: dict[str, list[tuple[float, ...]]] = {}
        alike: dict[tuple[float, ...], list[tuple[float, ...]]] = {}
        for row in read_csv(folder / "placements.csv"):
            key, batch = row["placement"], float(row["local_bsz"])
            times = float(row["step_time"]), float(row["sync_time"])
            rows.setdefault(key, []).append((batch, *times))
            gpus = sum(int(digit) for digit in key)
            alike.setdefault((len(key), gpus, batch), []).append(times)
        self.placed = {key: np.array(sorted(found)).T for key, found in rows.items()}
        points = [(*key, *np.mean(found, axis=0)) for key, found in alike.items()]
        columns = ("num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time")
        for row in read_csv(folder / "scalability.csv"):
            points.append(tuple(float(row[c]) for c in columns))
        table = np.array(points)
        self.elsewhere = LinearNDInterpolator(table[:, :3], table[:, 3:])
        self.most = self.most or int(self.placed["1"][0][-1])
        self.step_s = cache(self._step_s)

    def gain(self, batch: float, epoch: int) -> float:
        """Returns the steps of the initial batch that one of `batch` is worth."""
        known = self.trainings
        square, variance = (
            float(np.interp(batch, known.batches, column[:, epoch]))
            for column in (known.square, known.variance)
        )
        return (variance + square) / (variance * float(known.batches[0]) / batch + square)

    def _step_s(self, placement: tuple[int, ...], batch: int, steps: int) -> float:
        """Returns the seconds of an iteration cut into so many micro-batches."""
        turns = [placement[i:] + placement[:i] for i in range(len(placement))]
        key = "".join(map(str, min(turns)))
        micro = batch / sum(placement) / steps
        if key in self.placed:
            sizes, step, sync = self.placed[key]
            whole, exchange = float(np.interp(micro, sizes, step)), np.interp(micro, sizes, sync)
        else:
            point = min(len(placement), 16), sum(placement), micro
            whole, exchange = self.elsewhere([point])[0]
        if not whole > 0:
            raise ValueError(f"nothing was measured about {placement} with {micro} samples")
        return float(whole + (steps - 1) * (whole - exchange))

    def requested_s(self, gpus: int, batch: int) -> float:
        """Returns the seconds of an iteration as requested, well placed."""
        whole, rest = divmod(gpus, PER_NODE)
        placement = (PER_NODE,) * whole + ((rest,) if rest else ())
        steps = ceil(batch / gpus / self.most - 1e-8)
        if gpus == 1 and batch > self.trainings.batches[0]:
            steps = max(steps, 2)
        return self.step_s(placement, batch, steps)


class TableWork:
    """The tables of each job's application."""

    def __init__(self, jobs: JobTable, traces: Path) -> None:
        names = [name.rpartition("/")[2] for name in jobs.model.texts()]
        known = {name: Application(traces, name) for name in sorted(set(names))}
        self.application = [known[name] for name in names]
        self.requested = list(zip(jobs.gpus.tolist(), jobs.batch_size.tolist(), strict=True))
        self._ends_s: dict[tuple[int, int, int], list[float]] = {}

    def ends_s(self, job: int) -> list[float]:
        """Returns when each epoch ends, in solo seconds."""
        app, (gpus, batch) = self.application[job], self.requested[job]
        key = (id(app), gpus, batch)
        if key not in self._ends_s:
            one_s = app.requested_s(gpus, batch)
            spent = [n / app.gain(batch, e) * one_s for e, n in enumerate(app.steps)]
            self._ends_s[key] = np.cumsum(spent).tolist()
        return self._ends_s[key]


class TableSpeed:
    """Speeds as placed by the tables; all else as the profiles say."""

    def __init__(self, profiled: Speed, work: TableWork) -> None:
        self._work = work
        self.rates, self.best_batches = profiled.rates, profiled.best_batches
        self.top, self.spread = profiled.top, profiled.spread

    def whole(self, job: int, placement: Placement, done_s: float = 0.0) -> float:
        """Returns the speed that was measured at this epoch."""
        work = self._work
        app, (gpus, requested) = work.application[job], work.requested[job]
        batch = placement.batch_size or requested
        ends_s = work.ends_s(job)
        epoch = min(bisect_right(ends_s, done_s + LATE_S), len(ends_s) - 1)
        if placement.batch_size:
            spans = tuple(g for _, g in placement.spans)
            took_s = app.step_s(spans, batch, placement.accumulation_steps)
        else:
            took_s = app.requested_s(placement.gpus, batch)
        wanted = app.gain(requested, epoch) / app.requested_s(gpus, requested)
        return app.gain(batch, epoch) / took_s / wanted


def table_physics(profiled: Physics, work: TableWork) -> Physics:
    """Returns the truth by the tables; what policies believe stays as it is."""
    speed, batches = TableSpeed(profiled.speed, work), EpochBatches(profiled.batches, work)
    return replace(profiled, speed=speed, batches=batches)


def with_measured_work(trace: Trace, work: TableWork) -> Trace:
    """Returns the trace with the lengths that the tables give its jobs."""
    return replace(trace, duration_s=np.array([work.ends_s(job)[-1] for job in range(len(trace))]))

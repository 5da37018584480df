"""A trace: the requests of a `JobTable` and their outcomes, which only worlds may see."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from dovetail.core.job import Floats, Ints, JobTable, Labels

COMPLETED, FAILED, CANCELLED, TIMEOUT = 0, 1, 2, 3
ENDS = ("completed", "failed", "cancelled", "timeout")
"""How a job can end; the position is the code used in `Trace.end`."""


@dataclass(frozen=True)
class RecordedRuns:
    """The runs of the jobs that did not end with their first one, job by job in order of time.

    `job` is the row of the job. `begin_s` counts from its first start, `length_s` is the time with
    GPUs, `held_s` the time before the run in which the job was held. `cause` is the state in which
    a log names the end of a run that the job outlived (`PREEMPTED`, `NODE_FAIL`, ...), empty for
    the last run and where no cause is told.
    """

    job: Ints
    begin_s: Floats
    length_s: Floats
    held_s: Floats
    cause: Labels

    def take(self, rows: NDArray[np.int64]) -> RecordedRuns:
        """Returns the runs of the jobs in `rows`, in that order."""
        place = np.full(max(rows.max(initial=-1), self.job.max(initial=-1)) + 1, -1)
        place[rows] = np.arange(len(rows))
        order = np.argsort(place[self.job], kind="stable")
        order = order[place[self.job[order]] >= 0]
        return RecordedRuns(
            place[self.job[order]],
            self.begin_s[order],
            self.length_s[order],
            self.held_s[order],
            self.cause.take(order),
        )

    def scaled(self, scale: float) -> RecordedRuns:
        """Returns the runs with all times multiplied by `scale`."""
        times = (self.begin_s * scale, self.length_s * scale, self.held_s * scale)
        return RecordedRuns(self.job, *times, self.cause)


@dataclass(frozen=True)
class Recorded:
    """What happened to each job on the cluster that wrote the log, row by row.

    Times are on the clock of `submit_s`; NaN where the log does not record them. `start_s` is the
    first start, `end_s` the last end, `wait_s` all time between submission and end without GPUs,
    `restarts` the starts after the first. `nodes` are node names as Slurm writes them, `n[01-03]`.
    `eligible_s` is when nothing but the queue held the job back: holds, begin times, dependencies
    and limits of arrays were over; None where the log does not say. A job arrives then, not at its
    submission, which is in `submitted_s`; None if every job arrives when it is submitted. `wait_s`
    counts from the submission: `held_s` of it is no wait for GPUs. `runs` is None where the log
    tells of no job when each of its runs was.
    """

    start_s: Floats
    end_s: Floats
    wait_s: Floats
    restarts: Ints
    nodes: Labels
    eligible_s: Floats | None = None
    submitted_s: Floats | None = None
    runs: RecordedRuns | None = None

    @property
    def is_listed(self) -> NDArray[np.bool_]:
        """Returns which jobs have a list of their runs."""
        listed = np.zeros(len(self), np.bool_)
        if self.runs is not None:
            listed[self.runs.job] = True
        return listed

    def held_s(self, submit_s: Floats) -> Floats:
        """Returns how long each job was held between its submission and its arrival `submit_s`."""
        return np.zeros(len(self)) if self.submitted_s is None else submit_s - self.submitted_s

    def take(self, rows: NDArray[np.int64]) -> Recorded:
        """Returns the record restricted to `rows`, in that order."""
        return Recorded(
            self.start_s[rows],
            self.end_s[rows],
            self.wait_s[rows],
            self.restarts[rows],
            self.nodes.take(rows),
            None if self.eligible_s is None else self.eligible_s[rows],
            None if self.submitted_s is None else self.submitted_s[rows],
            None if self.runs is None else self.runs.take(rows),
        )

    def retimed(self, shift_s: float, scale: float) -> Recorded:
        """Returns the record with all times shifted, then multiplied by `scale`.

        A submission that would be before second 0 is at second 0.
        """
        eligible_s = None if self.eligible_s is None else (self.eligible_s + shift_s) * scale
        submitted_s, wait_s = self.submitted_s, self.wait_s
        if submitted_s is not None:
            moved_s = submitted_s + shift_s
            submitted_s, wait_s = np.maximum(moved_s, 0.0), wait_s + np.minimum(moved_s, 0.0)
            submitted_s = submitted_s * scale
        return replace(
            self,
            eligible_s=eligible_s,
            submitted_s=submitted_s,
            start_s=(self.start_s + shift_s) * scale,
            end_s=(self.end_s + shift_s) * scale,
            wait_s=wait_s * scale,
            runs=None if self.runs is None else self.runs.scaled(scale),
        )

    def __len__(self) -> int:
        return len(self.start_s)


@dataclass(frozen=True)
class ImportRecord:
    """What an import made of the rows of a log, wherever the trace goes.

    `source` names the files, `counts` is `Trace.counts` of the import. `gpu_s` is the work of the
    jobs that it kept, `lost_gpu_s` that of those it left out, as far as known. `notes` are
    sentences on what the reader assumed. `epoch_s` is the Unix time of second 0 of the trace, None
    where the log has no dates; `zone` the time zone that was given with it. `cluster` is the one
    that fits the whole log, as `--cluster` takes it, empty if the log does not tell one.
    """

    source: str
    format: str
    counts: dict[str, int]
    gpu_s: float
    lost_gpu_s: float
    notes: tuple[str, ...] = ()
    epoch_s: float | None = None
    zone: str = ""
    cluster: str = ""


@dataclass(frozen=True)
class Trace:
    """Requests and outcomes, row by row.

    `duration_s` is the run time alone on the requested GPUs, well placed: the job's work.
    `iterations` is NaN where the trace has none. `end` has positions in `ENDS`.
    `counts`: the source rows that were read, rejected and adjusted, by reason. `recorded` is None
    where the source has no start times, or where the trace was changed so that they say nothing.
    `imported` is None where nobody knows what an import left out.
    """

    jobs: JobTable
    duration_s: Floats
    iterations: Floats
    end: NDArray[np.int8]
    name: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    recorded: Recorded | None = None
    imported: ImportRecord | None = None

    def __post_init__(self) -> None:
        n = len(self.jobs)
        for name in ("duration_s", "iterations", "end"):
            if len(getattr(self, name)) != n:
                raise ValueError(f"{name} must have one entry for each of the {n} jobs")
        if self.recorded is not None and len(self.recorded) != n:
            raise ValueError(f"recorded must have one row for each of the {n} jobs")
        if n and not (np.isfinite(self.duration_s).all() and (self.duration_s > 0).all()):
            raise ValueError("every duration must be finite and positive")

    @staticmethod
    def of(jobs: JobTable, duration_s: Floats, name: str = "") -> Trace:
        """Returns a trace of jobs that all complete after `duration_s`."""
        n = len(jobs)
        return Trace(jobs, duration_s, np.full(n, np.nan), np.zeros(n, np.int8), name)

    def __len__(self) -> int:
        return len(self.jobs)

    def take(self, rows: NDArray[np.int64]) -> Trace:
        """Returns the trace restricted to `rows`, which must keep the order of submission."""
        return Trace(
            self.jobs.take(rows),
            self.duration_s[rows],
            self.iterations[rows],
            self.end[rows],
            self.name,
            self.counts,
            None if self.recorded is None else self.recorded.take(rows),
            self.imported,
        )

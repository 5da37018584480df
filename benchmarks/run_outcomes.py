"""Compares a live run with a simulation of the same jobs: JCT, makespan, queue and efficiency.

Both sides come from event logs of one format, so their metrics are comparable. QL is the mean
number of waiting jobs and CE the mean efficiency of the cluster, from the first submission to the
last end (AFS section 2.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl

from dovetail.core.errors import DovetailError
from dovetail.core.job import Floats, JobTable
from dovetail.core.policy import name_of, parse_policy, registered
from dovetail.core.trace import Trace
from dovetail.live.store.queries import Queries
from dovetail.record.metrics import job_frame, series_frame, summarize
from dovetail.replaying.decisions import Recording, read_recording
from dovetail.replaying.live_log import write_log
from dovetail.study.option_texts import OptionTexts, read_options
from dovetail.study.options import adopted
from dovetail.study.run import simulate
from dovetail.study.traces import with_models
from dovetail.traces.generate import Recipe, generate

POLICIES = ("fifo", "srtf", "tiresias", "afs-p", "sjf-ffs", "sjf-bsbf")
"""The compared policies: simple, preemptive, elastic and sharing ones."""
IDLE = ("no-op",)
"""Policies under which no job ever ends."""
ADOPTED = (("elastic", 0.5), ("shareable", 0.5))


def policies_of(words: str) -> tuple[str, ...]:
    """Returns the policies of a comma-separated list; of `all`, every one, under one name."""
    if words != "all":
        return tuple(words.split(","))
    names = (name for name, entry in registered().items() if name_of(entry()) == name)
    others = (name for name in names if name not in (*POLICIES, *IDLE))
    return (*POLICIES, *others)


def drawn_trace(jobs: int, hours: float, gpus: int, *, load: float = 1.1, seed: int = 0) -> Trace:
    """Returns Philly-like jobs with models of the zoo, half elastic and half shareable.

    All complete and belong to one user. They are numbered from 1, as in a live cluster.
    """
    recipe = Recipe("philly-like", jobs, hours / 24, seed, load=load, cluster_gpus=gpus)
    drawn = generate(recipe)
    table = JobTable.build(
        [str(number) for number in range(1, jobs + 1)], drawn.jobs.submit_s, drawn.jobs.gpus
    )
    plain = Trace.of(table, drawn.duration_s, f"{drawn.name}-{hours:g}h")
    return adopted(with_models(plain, seed), ADOPTED, seed)


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The result of a run: the JCT of each job, and time series from the first submission."""

    jct_s: Mapping[str, float]
    makespan_s: float
    queue_length: float
    efficiency: float
    series: pl.DataFrame

    @property
    def mean_jct_s(self) -> float:
        """Returns the mean JCT."""
        return float(np.mean(list(self.jct_s.values())))

    def at(self, column: str, t_s: Floats) -> Floats:
        """Returns the values of a column at given times, 0 before the first row."""
        known = self.series[column].to_numpy()
        rows = np.searchsorted(self.series["t_s"].to_numpy(), t_s, side="right") - 1
        return np.where(rows < 0, 0.0, known[np.maximum(rows, 0)]).astype(np.float64)


@dataclass(frozen=True, slots=True)
class Fidelity:
    """One policy on one trace, live and simulated.

    Differences are relative: live / simulated - 1.
    """

    policy: str
    live: RunOutcome
    simulated: RunOutcome

    @property
    def jct(self) -> float:
        """Returns the difference of the mean JCT."""
        return self.live.mean_jct_s / self.simulated.mean_jct_s - 1

    @property
    def makespan(self) -> float:
        """Returns the difference of the makespan."""
        return self.live.makespan_s / self.simulated.makespan_s - 1

    @property
    def queue_length(self) -> float:
        """Returns the difference of QL; 0 if no job waited on either side."""
        return _relative(self.live.queue_length, self.simulated.queue_length)

    @property
    def efficiency(self) -> float:
        """Returns the difference of CE."""
        return _relative(self.live.efficiency, self.simulated.efficiency)

    def worst(self) -> tuple[str, float]:
        """Returns the job whose JCT differs most, and its difference."""
        off = {job: s / self.simulated.jct_s[job] - 1 for job, s in self.live.jct_s.items()}
        job = max(off, key=lambda j: abs(off[j]))
        return job, off[job]

    def apart(self, column: str) -> float:
        """Returns the area between both curves, relative to that under the simulated one."""
        times = [o.series["t_s"].to_numpy() for o in (self.live, self.simulated)]
        t_s = np.unique(np.concatenate(times))
        width_s = np.diff(t_s)
        one, other = (o.at(column, t_s[:-1]) for o in (self.live, self.simulated))
        under = float((other * width_s).sum())
        between = float((np.abs(one - other) * width_s).sum())
        return between / under if under else between


def _relative(one: float, other: float) -> float:
    if other:
        return one / other - 1
    return 0.0 if not one else float("inf")


def simulated(trace: Trace, policy: str, given: OptionTexts) -> RunOutcome:
    """Returns the result of a simulation. Raises InputError."""
    result = simulate(trace, parse_policy(policy), read_options({"forecast": "known", **given}))
    return _outcome(result.jobs, result.series, result.summary)


def summary_of(recording: Recording) -> dict[str, float | int | str | None]:
    """Returns the metrics of a recorded run, computed from its log."""
    return summarize(recording.trace, recording.tally(), recording.jobs(), recording.options.window)


def recorded(log: Path) -> RunOutcome:
    """Returns the result of a live run from its exported log. Raises InputError."""
    recording = read_recording(log)
    tally = recording.tally()
    jobs = job_frame(recording.trace, tally)
    summary = summarize(recording.trace, tally, jobs, recording.options.window)
    return _outcome(jobs, series_frame(tally), summary)


def served(queries: Queries) -> RunOutcome:
    """Returns the result of a live run from its store. Raises InputError."""
    with TemporaryDirectory() as folder:
        log = Path(folder) / "events.jsonl"
        write_log(queries, log)
        return recorded(log)


def _outcome(
    jobs: pl.DataFrame, series: pl.DataFrame, summary: Mapping[str, float | int | str | None]
) -> RunOutcome:
    left = jobs.filter(pl.col("jct_s").is_null() | (pl.col("end") != "completed"))
    if len(left):
        raise DovetailError(f"{len(left)} jobs did not complete: {left['job_id'].to_list()[:5]}")
    first_s = jobs["submit_s"].min()
    return RunOutcome(
        jct_s=dict(zip(jobs["job_id"].to_list(), jobs["jct_s"].to_list(), strict=True)),
        makespan_s=float(summary["makespan_s"] or 0.0),
        queue_length=float(summary["avg_queue_length"] or 0.0),
        efficiency=float(summary["cluster_efficiency"] or 0.0),
        series=series.with_columns(pl.col("t_s") - first_s),
    )

"""What the commands do, from a notebook: the same words in, data frames out.

`import dovetail as dt` offers everything here; nothing heavy is imported before it is used.
Options are the texts of the command line (`cluster="32x8"`, `switching="none"`), see
`dovetail.study.option_texts.OptionTexts`. Bad input raises `dovetail.core.errors.InputError`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, fields
from html import escape
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import polars as pl

import dovetail.policies  # registers the policies
from dovetail.algorithms.bounds import Powers
from dovetail.core.errors import InputError
from dovetail.core.policy import parse_policy, registered, spell
from dovetail.core.trace import Trace
from dovetail.core.units import DAY_S
from dovetail.record.result import Comparison, RunResult
from dovetail.replaying.decisions import replay as run_replay
from dovetail.report.tables import comparison_view, run_view
from dovetail.report.words import comparison_sentence, run_sentence
from dovetail.study.bound import bound as find_bound
from dovetail.study.bound import bound_for, objection
from dovetail.study.compare import Replication
from dovetail.study.compare import compare as run_comparison
from dovetail.study.folder import write_comparison, write_run
from dovetail.study.option_texts import OptionTexts, check_window, read_options
from dovetail.study.run import simulate as run_one
from dovetail.study.run import whole_directory, with_bound
from dovetail.study.traces import open_traces, with_models
from dovetail.traces.canonical import to_frame, write_trace
from dovetail.traces.cluster_file import read_cluster
from dovetail.traces.generate import Recipe
from dovetail.traces.generate import generate as make_trace

if TYPE_CHECKING:
    from rich.console import RenderableType

assert dovetail.policies

__all__ = [
    "Bounds",
    "InputError",
    "Ranking",
    "Run",
    "Trace",
    "bound",
    "compare",
    "generate",
    "import_trace",
    "list_models",
    "list_policies",
    "read_trace",
    "replay",
    "simulate",
    "to_frame",
    "write_trace",
]

Source = Trace | str | Path
"""A trace, or the file it is in."""


@dataclass(frozen=True, repr=False)
class Run(RunResult):
    """One policy on one trace: `jobs`, `series`, `spans`, `splits` are frames, `summary` a dict."""

    @property
    def table(self) -> pl.DataFrame:
        """Returns the summary as one row, so that runs stack with `polars.concat`."""
        return pl.DataFrame([self.summary])

    def save(self, folder: str | Path) -> Path:
        """Writes summary, jobs, report, plots and timeline, the folder whole or not at all."""
        with whole_directory(Path(folder)) as part:
            write_run(self, part)
        return Path(folder)

    def __repr__(self) -> str:
        return _as_text(run_view(self))

    def _repr_html_(self) -> str:
        shown = self.splits["size_class"]._repr_html_()
        return f"<p>{escape(run_sentence(self))}</p>{shown}"


@dataclass(frozen=True, repr=False)
class Ranking(Comparison):
    """Policies on one trace: `ranked` is the table, best first; `results` a run for each."""

    @property
    def runs(self) -> dict[str, Run]:
        """Returns the run of each policy, by its full spelling."""
        return {name: _run(result) for name, result in self.results.items()}

    def save(self, folder: str | Path) -> Path:
        """Writes tables, report and plots, the folder whole or not at all."""
        with whole_directory(Path(folder)) as part:
            write_comparison(self, part)
        return Path(folder)

    def __repr__(self) -> str:
        return _as_text(comparison_view(self))

    def _repr_html_(self) -> str:
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.notes)
        shown = self.ranked._repr_html_()
        return f"<p>{escape(comparison_sentence(self))}</p>{shown}<ul>{notes}</ul>"


@dataclass(frozen=True)
class Bounds:
    """How good any schedule can be for policies with some powers, and which bound says so."""

    mean_jct_s: float
    makespan_s: float
    by: str
    powers: str
    jobs: int
    table: pl.DataFrame

    def _repr_html_(self) -> str:
        return f"<p>{self.jobs} jobs; {escape(self.powers)}</p>{self.table._repr_html_()}"


def read_trace(path: str | Path, format: str | None = None) -> Trace:
    """Returns the trace in a file of any known format; `to_frame` shows it."""
    return open_traces([path], format)


def import_trace(
    *paths: str | Path,
    format: str | None = None,
    origin: str = "week",
    cpu_only: str = "reject",
    timezone: str = "",
) -> Trace:
    """Returns one trace of several files of one format, as `dovetail trace import` does.

    `trace.counts` says how many rows were read, refused and adjusted, by reason.
    """
    return open_traces(paths, format, origin=origin, cpu_only=cpu_only, timezone=timezone)


def generate(
    kind: str = "philly-like",
    *,
    jobs: int = 10_000,
    days: float = 30.0,
    seed: int = 0,
    cluster: str | None = None,
    load: float | None = None,
    bursts: float = 1.0,
    deadlines: float = 0.0,
    time_limits: float = 0.0,
) -> Trace:
    """Returns a seeded trace; with `cluster` and `load` run times are stretched to that load."""
    gpus = None if cluster is None else read_cluster(cluster).gpus
    return make_trace(Recipe(kind, jobs, days, seed, load, gpus, bursts, deadlines, time_limits))


def simulate(
    trace: Source,
    policy: str,
    *,
    assign_models: bool = False,
    spans: bool = True,
    judge: bool = True,
    log: str | Path | None = None,
    **given: Unpack[OptionTexts],
) -> Run:
    """Returns what happens when a policy serves a trace.

    `spans` keeps who ran where (large on long traces); `judge` computes the bound; `log` writes
    the event log, which `replay` reads.
    """
    options = read_options(given)
    jobs = _trace(trace)
    if assign_models:
        jobs = with_models(jobs, options.seed)
    check_window(jobs, options)
    chosen = parse_policy(policy)
    log_to = None if log is None else Path(log)
    result = run_one(jobs, chosen, options, log_to=log_to, keep_spans=spans)
    found = bound_for(jobs, options, chosen) if judge else None
    return _run(with_bound(result, None if found is None else found.mean_jct_s))


def compare(
    trace: Source,
    policies: Sequence[str],
    *,
    baseline: str = "",
    windows: int = 0,
    window_days: float = 7.0,
    seeds: int = 1,
    assign_models: bool = False,
    processes: int = 0,
    **given: Unpack[OptionTexts],
) -> Ranking:
    """Returns several policies on a trace, ranked, with intervals and the distance from the best.

    Runs on all cores unless `processes` says otherwise; the answer is the same.
    """
    options = read_options(given)
    jobs = _trace(trace)
    check_window(jobs, options)
    found = run_comparison(
        jobs,
        policies,
        options,
        baseline=baseline,
        replication=Replication(windows, window_days * DAY_S, seeds),
        assign=with_models if assign_models else None,
        processes=processes,
        keep_spans=True,
    )
    return Ranking(**{f.name: getattr(found, f.name) for f in fields(Comparison)})


def bound(
    trace: Source,
    *,
    elastic: bool = False,
    sharing: bool = False,
    interleaving: bool = False,
    **given: Unpack[OptionTexts],
) -> Bounds:
    """Returns the lower bounds on mean JCT and makespan for policies with these powers."""
    options, jobs = read_options(given), _trace(trace)
    powers = Powers(elastic=elastic, sharing=sharing, interleaving=interleaving)
    why_not = objection(jobs, options, powers)
    if why_not:
        raise InputError("bound", f"no bound holds: {why_not}")
    found = find_bound(jobs, options, powers)
    rows = [{"bound": b.name, "mean_jct_s": b.mean_jct_s} for b in found.bounds]
    table = pl.DataFrame(rows).sort("mean_jct_s", descending=True)
    return Bounds(
        found.mean_jct_s, found.makespan_s, found.best.name, powers.words, found.jobs, table
    )


def replay(log: str | Path, policy: str = "") -> pl.DataFrame:
    """Returns every placement that a policy (default: the recorded one) decides otherwise.

    No row means that it decides all the same. `why` explains a difference that is no fault of
    the policy or the log; it is empty for all others.
    """
    found = run_replay(Path(log), policy)
    names = found.trace.jobs.job_id
    rows = [
        (d.t, names[d.job], *(None if p is None else str(p.spans) for p in sides), d.why)
        for d in found.differences
        for sides in ((d.recorded, d.decided),)
    ]
    words = ("job_id", "recorded", "now", "why")
    columns = {"t_s": pl.Float64, **dict.fromkeys(words, pl.String)}
    return pl.DataFrame(rows, schema=columns, orient="row")


def list_policies() -> pl.DataFrame:
    """Returns the policies: what each does, knows and may do, and how it is spelled in full."""
    rows = [
        {
            "policy": name,
            "does": entry.summary,
            "knows": ", ".join(sorted(entry().knows)),
            "powers": ", ".join(sorted(entry().powers)),
            "spelled": spell(entry()),
        }
        for name, entry in registered().items()
    ]
    return pl.DataFrame(rows)


def list_models() -> pl.DataFrame:
    """Returns the models whose speed is known, with their iteration time on one GPU."""
    from dovetail.physics.speed.throughput import iteration_s
    from dovetail.physics.zoo.models import zoo

    rows = [
        {
            "model": name,
            "title": profile.title,
            "gpu_type": profile.gpu_type.value,
            "max_gpus": profile.max_gpus.value,
            "iteration_s": iteration_s(profile, gpus=1),
        }
        for name, profile in zoo().items()
    ]
    return pl.DataFrame(rows)


def _trace(source: Source) -> Trace:
    return source if isinstance(source, Trace) else read_trace(source)


def _run(result: RunResult) -> Run:
    return Run(**{f.name: getattr(result, f.name) for f in dataclasses.fields(RunResult)})


def _as_text(view: RenderableType) -> str:
    from rich.console import Console

    written = StringIO()
    Console(file=written, width=80, highlight=False).print(view)
    return written.getvalue().rstrip()

"""The Python API: the commands as functions that return data frames.

`import dovetail as dt` exports everything here, and imports heavy modules only on use. Options are
the texts of the command line (`cluster="32x8"`, `switching="none"`), see
`dovetail.study.option_texts.OptionTexts`. Bad input raises `dovetail.core.errors.InputError`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from html import escape
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, Unpack

import polars as pl

import dovetail.policies  # registers the policies
from dovetail.algorithms.bounds import Powers
from dovetail.core.errors import InputError as InputError
from dovetail.core.policy import parse_policy, registered, spell
from dovetail.core.trace import Trace as Trace
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
from dovetail.study.inferred import with_inferred_capacity
from dovetail.study.left_out import as_sentence, check_left_out
from dovetail.study.option_texts import OptionTexts, check_window, options_on
from dovetail.study.run import simulate as run_one
from dovetail.study.run import whole_directory, with_bound
from dovetail.study.traces import open_traces, with_models
from dovetail.traces.canonical import to_frame as to_frame
from dovetail.traces.canonical import write_trace as write_trace
from dovetail.traces.cluster_file import read_cluster
from dovetail.traces.generate import Recipe
from dovetail.traces.generate import generate as make_trace

if TYPE_CHECKING:
    from rich.console import RenderableType

assert dovetail.policies

T = TypeVar("T")
Source = Trace | str | Path
"""A trace, or the path of its file."""


@dataclass(frozen=True, repr=False)
class Run(RunResult):
    """The run of one policy: `jobs`, `series`, `spans`, `splits` are frames, `summary` a dict."""

    @property
    def table(self) -> pl.DataFrame:
        """Returns the summary as a frame with one row, for `polars.concat`."""
        return pl.DataFrame([self.summary])

    def save(self, folder: str | Path) -> Path:
        """Writes a folder with summary, jobs, report, plots and timeline, atomically."""
        with whole_directory(Path(folder)) as part:
            write_run(self, part)
        return Path(folder)

    def __repr__(self) -> str:
        return _as_text(run_view(self))

    def _repr_html_(self) -> str:
        table = self.splits["size_class"]._repr_html_()
        return f"<p>{escape(run_sentence(self))}</p>{table}"


@dataclass(frozen=True, repr=False)
class Ranking(Comparison):
    """Several policies on one trace: `ranked` is the table, best first; `results` has the runs."""

    @property
    def runs(self) -> dict[str, Run]:
        """Returns the run of each policy by its full name."""
        return {name: _as(Run, result) for name, result in self.results.items()}

    def save(self, folder: str | Path) -> Path:
        """Writes a folder with tables, report and plots, atomically."""
        with whole_directory(Path(folder)) as part:
            write_comparison(self, part)
        return Path(folder)

    def __repr__(self) -> str:
        return _as_text(comparison_view(self))

    def _repr_html_(self) -> str:
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.notes)
        table = self.ranked._repr_html_()
        first = " ".join([*self.cautions, comparison_sentence(self)])
        return f"<p>{escape(first)}</p>{table}<ul>{notes}</ul>"


@dataclass(frozen=True)
class Bounds:
    """Lower bounds for policies with some powers; `by` is the name of the tightest."""

    mean_jct_s: float
    makespan_s: float
    by: str
    powers: str
    jobs: int
    table: pl.DataFrame

    def _repr_html_(self) -> str:
        return f"<p>{self.jobs} jobs; {escape(self.powers)}</p>{self.table._repr_html_()}"


def read_trace(path: str | Path, format: str | None = None) -> Trace:
    """Returns the trace of a file in any known format; `to_frame` converts it to a data frame."""
    return open_traces([path], format)


def import_trace(
    *paths: str | Path,
    format: str | None = None,
    origin: str = "week",
    cpu_only: str = "",
    fractions: str = "keep",
    timezone: str = "",
) -> Trace:
    """Returns one trace of several files of one format, like `dovetail trace import`.

    `trace.counts` has the number of rows read, rejected and adjusted, by reason.
    """
    return open_traces(
        paths, format, origin=origin, cpu_only=cpu_only, fractions=fractions, timezone=timezone
    )


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
    """Returns a generated trace; with `cluster` and `load`, run times are scaled to that load."""
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
    **option_texts: Unpack[OptionTexts],
) -> Run:
    """Simulates a policy on a trace.

    `spans` keeps the placements over time (large on long traces); `judge` computes the bound; `log`
    is the file for the event log, which `replay` reads.
    """
    jobs = _trace(trace)
    options, _ = options_on(jobs, option_texts)
    if assign_models:
        jobs = with_models(jobs, options.seed)
    check_window(jobs, options)
    check_left_out(jobs, options)
    options, _ = with_inferred_capacity(options, jobs)
    chosen = parse_policy(policy)
    log_to = None if log is None else Path(log)
    result = run_one(jobs, chosen, options, log_to=log_to, keep_spans=spans)
    lower_bound = bound_for(jobs, options, chosen) if judge else None
    bound_s = None if lower_bound is None else lower_bound.mean_jct_s
    return _as(Run, with_bound(result, bound_s))


def compare(
    trace: Source,
    policies: Sequence[str],
    *,
    baseline: str = "",
    site: str = "",
    windows: int = 0,
    window_days: float = 7.0,
    seeds: int = 1,
    assign_models: bool = False,
    processes: int = 0,
    **option_texts: Unpack[OptionTexts],
) -> Ranking:
    """Simulates several policies on a trace and ranks them, with intervals and lower bounds.

    Uses all cores by default; the result does not depend on `processes`.
    """
    jobs = _trace(trace)
    options, assumed = options_on(jobs, option_texts)
    check_window(jobs, options)
    cautions = [as_sentence(note) for note in (*assumed, *check_left_out(jobs, options))]
    comparison = run_comparison(
        jobs,
        policies,
        options,
        baseline=baseline,
        site=site,
        replication=Replication(windows, window_days * DAY_S, seeds),
        assign=with_models if assign_models else None,
        processes=processes,
        keep_spans=True,
        cautions=cautions,
    )
    return _as(Ranking, comparison)


def bound(
    trace: Source,
    *,
    elastic: bool = False,
    sharing: bool = False,
    interleaving: bool = False,
    limits: bool = False,
    **option_texts: Unpack[OptionTexts],
) -> Bounds:
    """Returns the lower bounds on mean JCT and makespan for policies with these powers.

    Raises InputError if no bound holds for the options.
    """
    jobs = _trace(trace)
    options, _ = with_inferred_capacity(options_on(jobs, option_texts)[0], jobs)
    if limits and not sharing:
        raise InputError("limits", "only jobs that share have limits", "set sharing too")
    powers = Powers(elastic=elastic, sharing=sharing, interleaving=interleaving, limits=limits)
    reason = objection(jobs, options, powers)
    if reason:
        raise InputError("bound", f"no bound holds: {reason}")
    check_left_out(jobs, options)
    bounds = find_bound(jobs, options, powers)
    rows = [{"bound": b.name, "mean_jct_s": b.mean_jct_s} for b in bounds.bounds]
    table = pl.DataFrame(rows).sort("mean_jct_s", descending=True)
    return Bounds(
        bounds.mean_jct_s, bounds.makespan_s, bounds.best.name, powers.words, bounds.jobs, table
    )


def replay(log: str | Path, policy: str = "") -> pl.DataFrame:
    """Returns every placement in which a policy, by default the recorded one, differs from a log.

    Without differences, there are no rows. `why` is the explanation of a difference by the log,
    empty if there is none.
    """
    replayed = run_replay(Path(log), policy)
    names = replayed.trace.jobs.job_id
    rows = [
        (d.t, names[d.job], *(None if p is None else str(p.spans) for p in sides), d.why)
        for d in replayed.differences
        for sides in ((d.recorded, d.decided),)
    ]
    words = ("job_id", "recorded", "now", "why")
    columns = {"t_s": pl.Float64, **dict.fromkeys(words, pl.String)}
    return pl.DataFrame(rows, schema=columns, orient="row")


def list_policies() -> pl.DataFrame:
    """Returns the policies with their description, knowledge, powers and full name."""
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
    """Returns the models of the zoo with their iteration time on one GPU."""
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


def _as(kind: Callable[..., T], record: RunResult | Comparison) -> T:
    return kind(**{f.name: getattr(record, f.name) for f in fields(record)})


def _as_text(view: RenderableType) -> str:
    from rich.console import Console

    text = StringIO()
    Console(file=text, width=80, highlight=False).print(view)
    return text.getvalue().rstrip()

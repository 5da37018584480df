"""`dovetail trace`: imports, describes, generates, slices and scales traces."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from dovetail.cli.cluster_options import shown_option
from dovetail.cli.options import json_option
from dovetail.cli.progress import busy
from dovetail.cli.trace_change import convert, scale, slice_command
from dovetail.cli.trace_files import (
    FILE,
    gpus_of,
    import_notes,
    make_folder,
    models_of,
    open_any,
    out_option,
    print_summary,
    step_times_from_zoo,
    training_from_zoo,
    write_and_print,
)
from dovetail.core.errors import InputError

if TYPE_CHECKING:
    from dovetail.forecast.accuracy import Accuracy, Errors
    from dovetail.traces.readers.format import ReadOptions


class ReaderOptions(TypedDict):
    """The options of `trace import` that only some readers take."""

    timezone: str
    columns: str
    work: str
    step_times: Path | None
    iterations: Path | None
    gpus_per_node: int
    spread_days: float


@click.group()
def trace() -> None:
    """Import logs, describe, generate, convert, slice, scale and forecast traces."""


@trace.command("import")
@click.argument("files", nargs=-1, required=True, type=FILE)
@click.option(
    "-o", "--out", type=FILE, required=True, help="File to write; with --apart, a new folder."
)
@click.option("--format", "format_name", help="Format of the files. [default: detected]")
@click.option("--apart", is_flag=True, help="Write one trace for each virtual cluster.")
@shown_option(
    "--origin",
    default="week",
    help="Time 0 for logs with dates: week (Monday 00:00 local time before the first job), first "
    "(the first job), keep (Unix seconds).",
)
@click.option(
    "--cpu-only",
    type=click.Choice(["keep", "reject", "as-one-gpu"]),
    help="Jobs without a GPU. [default: keep for openb and PAI, else reject]",
)
@shown_option(
    "--fractions",
    type=click.Choice(["keep", "round-up"]),
    default="keep",
    help="Parts of a GPU; round-up gives whole ones.",
)
@click.option("--timezone", default="", help="Time zone of local times, e.g. Europe/Berlin.")
@click.option("--columns", default="", help="Slurm: the columns of a log without a header.")
@click.option("--rejects", type=FILE, help="CSV to write of all rows not used: line, reason, text.")
@click.option("--work", default="", help="Muri: iterations (default) or duration.")
@click.option("--step-times", type=FILE, help="CSV (model,gpus,step_time_s) or Gavel JSON.")
@click.option("--iterations", type=FILE, help="Pollux: CSV (model,iterations).")
@click.option(
    "--gpus-per-node",
    type=click.IntRange(0, 4096),
    default=0,
    help="Count GPUs by nodes where the log has none (Kestrel, SWF).",
)
@click.option(
    "--spread-days",
    type=click.FloatRange(0, 36525),
    default=0.0,
    help="Draw submissions over these days where the log has none (ASI).",
)
@json_option
def import_command(
    files: tuple[Path, ...],
    out: Path,
    format_name: str | None,
    apart: bool,
    origin: str,
    cpu_only: str | None,
    fractions: str,
    rejects: Path | None,
    as_json: bool,
    **reader: Unpack[ReaderOptions],
) -> None:
    """Convert logs of one format to a canonical trace.

    Several files become one trace with a queue for each virtual cluster; --apart writes one trace
    for each virtual cluster instead.

    \b
    Example:
      sacct -a -D -X -P -S 2024-03-01 -E 2024-04-01 -o JobID,User,Account,Partition,\\
        QOS,JobName,State,Submit,Eligible,Start,End,Elapsed,Suspended,Timelimit,\\
        NNodes,NodeList,Reservation,AllocTRES,ReqTRES > log.txt
      dovetail trace import log.txt --timezone Europe/Berlin -o month.csv
      dovetail trace import philly/afs_vcs/*.csv.gz -o philly.csv.gz
    """
    import polars as pl

    from dovetail.traces.canonical import write_apart
    from dovetail.traces.importing import import_rows, import_rows_apart, sniff
    from dovetail.traces.loss import never_ran_note
    from dovetail.traces.rejects import write_rejects

    name = format_name or sniff(files[0])
    options = _read_options(name, reader)
    treat = {"cpu_only": cpu_only or "", "fractions": fractions}
    with busy(f"reading {len(files)} files"):
        parts = (
            import_rows_apart(files, name, options=options, origin=origin, **treat)
            if apart
            else {"": import_rows(files, name, options=options, origin=origin, **treat)}
        )
    refused = pl.concat([p.refused for p in parts.values()], how="diagonal")
    if rejects is not None:
        write_rejects(refused, files, rejects)
    last = never_ran_note(refused)
    notes = import_notes(list(parts.values()), rejects)
    if not apart:
        write_and_print({out: parts[""].trace}, name, as_json, notes, last)
        return
    make_folder(out.parent)
    written = write_apart({vc: part.trace for vc, part in parts.items()}, out)
    print_summary(written, name, as_json, notes, last)


_ONLY_FOR = {
    "columns": ("slurm",),
    "gpus_per_node": ("nlr", "swf"),
    "spread_days": ("asi",),
    "work": ("muri",),
}
"""The formats to which an option applies; the readers of others would ignore it."""


def _read_options(format_name: str, reader: ReaderOptions) -> ReadOptions:
    """Returns the options of a reader. Raises InputError for one that it would ignore."""
    from dovetail.traces.readers.format import ReadOptions
    from dovetail.traces.step_times import read_job_iterations, read_step_times

    for option, formats in _ONLY_FOR.items():
        if reader.get(option) and format_name not in formats:
            name = "--" + option.replace("_", "-")
            raise InputError(name, f"does not apply to the format '{format_name}'", "omit it")
    steps, iterations = reader["step_times"], reader["iterations"]
    return ReadOptions(
        step_times_from_zoo(format_name) if steps is None else read_step_times(steps),
        read_job_iterations(iterations) if iterations is not None else None,
        reader["work"] or "iterations",
        reader["timezone"],
        training_from_zoo(format_name) if steps is None else None,
        reader["gpus_per_node"],
        reader["spread_days"],
        columns=tuple(filter(None, (name.strip() for name in reader["columns"].split(",")))),
    )


@trace.command()
@click.argument("file", type=FILE)
@click.option("--cluster", help="Cluster to compare the load with: 16x4, or a number of GPUs.")
@click.option("--load", type=float, help="Print the cluster size that gives this offered load.")
@click.option("--plots", type=FILE, help="Folder for the figure (PNG and SVG).")
@json_option
def describe(
    file: Path, cluster: str | None, load: float | None, plots: Path | None, as_json: bool
) -> None:
    """Describe a trace: job sizes, run times, outcomes, arrivals, utilization and offered load.

    \b
    Example:
      dovetail trace describe month.csv --cluster 16x8 --plots figures
    """
    from rich.console import Console

    from dovetail.study.left_out import lost_rows
    from dovetail.study.utilization import utilization
    from dovetail.traces.describe import describe as described
    from dovetail.traces.describe_text import WIDTH, print_description
    from dovetail.traces.transform import gpus_for_load

    loaded = open_any(file)
    summary = described(loaded, None if cluster is None else gpus_of(cluster))
    summary = replace(summary, utilization=utilization(loaded))
    fitting = None if load is None else gpus_for_load(loaded, load)
    written: list[Path] = []
    if plots is not None:
        from dovetail.traces.describe_plots import plot_description

        make_folder(plots)
        with busy("drawing"):
            written = plot_description(summary, loaded, plots)
    if as_json:
        more = {"gpus_for_load": fitting, "plots": [str(p) for p in written]}
        click.echo(json.dumps({**summary.to_dict(), **more}))
        return
    for note in lost_rows(loaded, 1.0):
        click.echo(f"note: {note}")
    print_description(summary, Console(width=WIDTH))
    if fitting is not None:
        click.echo(f"\nLoad {load:g} is offered on {fitting:,} GPUs")
    for path in written:
        click.echo(f"wrote {path}")


@trace.command()
@click.argument("kind", default="philly-like")
@out_option
@shown_option("--jobs", default=10_000, help="Number of jobs.")
@shown_option("--days", default=30.0, help="Days over which jobs arrive.")
@shown_option("--seed", default=0, help="Random seed.")
@click.option("--cluster", help="Cluster of --load: 16x4, or a number of GPUs.")
@click.option("--load", type=float, help="Offered load on --cluster; scales all run times.")
@shown_option("--bursts", default=1.0, help="Batches: 0 none, 1 as in Philly.")
@shown_option("--deadlines", default=0.0, help="Share of jobs with a deadline.")
@shown_option("--time-limits", default=0.0, help="Share with a time limit.")
@click.option("--models", help="Models to assign: a zoo family (afs), or name:8,name:4.")
@shown_option(
    "--recurrent", default=0.65, help="pai-like: share of jobs in groups of five or more."
)
@json_option
def generate(
    kind: str,
    out: Path,
    jobs: int,
    days: float,
    seed: int,
    cluster: str | None,
    load: float | None,
    bursts: float,
    deadlines: float,
    time_limits: float,
    models: str | None,
    recurrent: float,
    as_json: bool,
) -> None:
    """Generate a trace of a KIND: philly-like (default), pai-like, poisson or burst.

    \b
    Example:
      dovetail trace generate philly-like --jobs 100000 --days 30 \\
        --cluster 6500 --load 0.95 --bursts 1.5 -o month.csv
    """
    from dovetail.traces.generate import Recipe
    from dovetail.traces.generate import generate as generate_trace

    gpus = None if cluster is None else gpus_of(cluster)
    chosen = models_of(models)
    recipe = Recipe(
        kind, jobs, days, seed, load, gpus, bursts, deadlines, time_limits, chosen, recurrent
    )
    with busy("generating"):
        generated = generate_trace(recipe)
    write_and_print({out: generated}, kind, as_json)


for _command in (convert, slice_command, scale):
    trace.add_command(_command)


@trace.command()
@click.argument("file", type=FILE)
@click.option(
    "--methods",
    help="Methods to evaluate, as in boosted,limit. Default: all that predict, and the users' "
    "time limits where jobs have them.",
)
@shown_option("--train", default=0.8, help="Share of jobs to learn from, the earliest.")
@shown_option("--seed", default=0, help="Seed of all that is drawn.")
@json_option
def forecast(file: Path, methods: str | None, train: float, seed: int, as_json: bool) -> None:
    """Measure how well run times can be predicted from earlier jobs, and by the users' limits.

    The errors are those of the later jobs. "held out" learns only from the first jobs, as in the
    A-SRPT paper; "online" also learns during the run, like `--forecast predicted`.

    \b
    Example:
      dovetail trace forecast month.csv --methods boosted,median
    """
    from dovetail.forecast.accuracy import (
        LIMIT,
        PROTOCOLS,
        evaluate,
        evaluate_limits,
        has_later_limits,
        notes,
    )
    from dovetail.forecast.predicted import METHODS

    loaded = open_any(file)
    chosen = [*METHODS, *([LIMIT] if has_later_limits(loaded, train) else [])]
    if methods is not None:
        chosen = [name for name in map(str.strip, methods.split(",")) if name]
    accuracies = []
    for method in chosen:
        if method == LIMIT:
            accuracies.append(evaluate_limits(loaded, train))
            continue
        for protocol in PROTOCOLS:
            with busy(f"{method}, {protocol}"):
                accuracies.append(evaluate(loaded, method, protocol, share=train, seed=seed))
    texts = notes(loaded, accuracies, train)
    if as_json:
        rows = [one.to_dict() for one in accuracies]
        click.echo(json.dumps({"trace": loaded.name, "forecasts": rows, "notes": texts}))
        return
    _print_accuracies(accuracies, texts)


def _print_accuracies(accuracies: list[Accuracy], texts: list[str]) -> None:
    """Prints the errors of each method, in total and by the evidence on the jobs."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Errors of predicted run times", title_justify="left", box=None)
    for name in ("method", "protocol", "known of the job"):
        table.add_column(name)
    for name in ("jobs", "mean s", "median s", "within 10 %", "rank corr.", "in band"):
        table.add_column(name, justify="right")
    for one in accuracies:
        table.add_row(one.method, one.protocol, "(all)", *_cells(one.errors))
        for name, errors in one.by_evidence.items():
            if errors.jobs:
                table.add_row("", "", name, *_cells(errors))
    console = Console(width=120)
    console.print(table)
    console.print(
        "rank corr.: 1 if jobs are in the right order of length, 0 if in none. in band: should be "
        "80 %."
    )
    for text in texts:
        console.print(text, highlight=False)


def _cells(errors: Errors) -> tuple[str, ...]:
    """Returns the formatted cells of a row."""
    return (
        f"{errors.jobs:,}",
        f"{errors.mean_s:,.0f}",
        f"{errors.median_s:,.0f}",
        f"{errors.near:.0%}",
        f"{errors.rank_correlation:.2f}",
        "-" if errors.in_band is None else f"{errors.in_band:.0%}",
    )

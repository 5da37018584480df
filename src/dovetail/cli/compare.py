"""`dovetail compare` and `demo`: simulate several policies on one trace and rank them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from dovetail.cli.cluster_options import shown_option
from dovetail.cli.options import (
    folder_option,
    json_option,
    load_trace,
    output_folder,
    processes_option,
    refuse_unused,
    world_options,
)
from dovetail.cli.progress import bar, busy

if TYPE_CHECKING:
    from dovetail.core.trace import Trace
    from dovetail.record.result import Comparison
    from dovetail.report.why import Why
    from dovetail.study.option_texts import OptionTexts
    from dovetail.study.options import Options

DEMO_POLICIES = "fifo backfill sjf srtf srsf tiresias gittins afs-p"
DEMO_ELASTIC = 0.5
"""The share of the demo's jobs that may be resized: an assumption, as logs do not mark them."""


@click.command()
@click.argument("trace", type=click.Path())
@click.option("--policies", "-p", required=True, help="Policies, separated by commas or spaces.")
@click.option("--baseline", default="", help="Policy to compare with. [default: the first]")
@click.option(
    "--site",
    default="",
    help="Policy whose replay is held against the record. [default: slurm for a log of sacct, else "
    "backfill, else the baseline]",
)
@click.option("--why", "why_of", default="", help="Policy: whose waiting it saves, and how.")
@click.option("--by", default="", help="Waits by queue, account, user or size: mean, median, 90 %.")
@world_options
@click.option("--windows", default=0, help="Number of windows of the trace to replicate over.")
@shown_option("--window-days", default=7.0, help="Length of a window.")
@shown_option("--seeds", default=1, help="Number of seeds to replicate over.")
@processes_option
@folder_option
@json_option
def compare(
    trace: str,
    policies: str,
    baseline: str,
    site: str,
    why_of: str,
    by: str,
    windows: int,
    window_days: float,
    seeds: int,
    processes: int,
    output: Path | None,
    as_json: bool,
    format_name: str | None,
    assign_models: bool,
    **option_texts: Unpack[OptionTexts],
) -> None:
    """Simulate several policies on a trace and rank them.

    If the trace records starts, its first row is what happened, and the error of the replay of the
    site's scheduler (--site) is printed. Policies are told what a site has; rows marked 'known'
    are told true lengths.

    Confidence intervals come from blocks of time within the run, or, with --windows or --seeds,
    from replicates. Separate policies by spaces if one of them has several parameters:
    --policies "fifo srtf tiresias:thresholds=3250/7200,inside=list".

    \b
    Example:
      dovetail compare month.csv --policies fifo,backfill,sjf,srtf --cluster 32x8 -o report
    """
    from dovetail.core.units import DAY_S
    from dovetail.study import compare as study
    from dovetail.study.option_texts import split_policies
    from dovetail.study.traces import with_models
    from dovetail.traces.loss import import_sentence

    _check_use(windows, by, as_json)
    with output_folder(output) as folder:
        jobs, options, cautions = _opened(trace, format_name, option_texts)
        with bar("comparing", 1.0) as show:
            comparison = study.compare(
                jobs,
                split_policies(policies),
                options,
                baseline=baseline,
                site=site,
                replication=study.Replication(windows, window_days * DAY_S, seeds),
                assign=with_models if assign_models else None,
                processes=processes,
                keep_spans=folder is not None,
                progress=show,
                cautions=cautions,
                notes=[import_sentence(jobs)],
            )
        reason = _why(comparison, why_of)
        _write(comparison, folder)
    _print(comparison, as_json, reason, by)
    if output and not as_json:
        click.echo(f"written to {output}, report: {output / 'report.html'}", err=True)


def _check_use(windows: int, by: str, as_json: bool) -> None:
    from dovetail.core.errors import InputError
    from dovetail.report.waits_by import check_split

    refuse_unused("--window-days", "--windows", used=windows > 0)
    check_split(by)
    if by and as_json:
        raise InputError("--by", "--json has the waits of every group already", "leave one out")


def _opened(
    trace: str, format_name: str | None, option_texts: OptionTexts
) -> tuple[Trace, Options, list[str]]:
    """Returns the trace, the options of its runs, and what must be said first."""
    from dovetail.study.left_out import as_sentence, check_left_out
    from dovetail.study.option_texts import check_window, options_on, read_options

    read_options(option_texts)  # Raises an error before the trace is read.
    jobs = load_trace(trace, format_name, None)
    refuse_unused("--site", "a trace that records starts", used=jobs.recorded is not None)
    options, assumed = options_on(jobs, option_texts)
    check_window(jobs, options)
    notes = (*assumed, *check_left_out(jobs, options))
    return jobs, options, [as_sentence(note) for note in notes]


@click.command()
@shown_option("--jobs", default=8000, help="Number of jobs.")
@shown_option("--days", default=30.0, help="Length of the trace.")
@shown_option("--load", default=0.9, help="Offered load on the cluster.")
@shown_option("--cluster", default="32x8", help="NODESxGPUS, or a TOML file.")
@shown_option("--policies", default=DEMO_POLICIES, help="Policies, separated by spaces.")
@shown_option("--seed", default=1, type=click.IntRange(0), help="Seed of the trace.")
@processes_option
@folder_option
@json_option
def demo(
    jobs: int,
    days: float,
    load: float,
    cluster: str,
    policies: str,
    seed: int,
    processes: int,
    output: Path | None,
    as_json: bool,
) -> None:
    """Generate a trace of one month, compare policies on it and write a report.

    Every job has a time limit, one in four the longest; half of the jobs are elastic.

    \b
    Example:
      dovetail demo -o demo-report
    """
    from dovetail.forecast.available import AVAILABLE
    from dovetail.study.compare import compare as run
    from dovetail.study.option_texts import split_policies
    from dovetail.study.options import Options
    from dovetail.traces.canonical import write_trace
    from dovetail.traces.cluster_file import read_cluster
    from dovetail.traces.generate import Recipe, generate
    from dovetail.traces.transform import adopted

    machines = read_cluster(cluster)
    recipe = Recipe(
        "philly-like", jobs, days, seed, load, cluster_gpus=machines.gpus, time_limits=1.0
    )
    with output_folder(output) as folder:
        trace = adopted(generate(recipe), elastic=DEMO_ELASTIC, seed=seed)
        click.echo(
            f"{len(trace)} jobs in {days:g} days, offered load {load:g} on {machines.gpus} GPUs, "
            f"each with a time limit, {DEMO_ELASTIC:.0%} elastic, seed {seed}",
            err=True,
        )
        with bar("comparing", 1.0) as show:
            comparison = run(
                trace,
                split_policies(policies),
                Options(machines, forecast=AVAILABLE, seed=seed),
                processes=processes,
                keep_spans=folder is not None,
                progress=show,
            )
        if folder is not None:
            write_trace(trace, folder / "trace.csv")
        _write(comparison, folder)
    _print(comparison, as_json)
    if output is not None and not as_json:
        again = f'--policies "{policies}" --cluster {cluster} --seed {seed}'
        click.echo(f"\nReport with plots: {output / 'report.html'}")
        click.echo(f"To repeat: dovetail compare {output / 'trace.csv'} {again}")


def _write(comparison: Comparison, folder: Path | None) -> None:
    from dovetail.study.folder import write_comparison

    if folder is not None:
        with busy("writing the report"):
            write_comparison(comparison, folder)


def _why(comparison: Comparison, policy: str) -> Why | None:
    """Returns why a policy differs from the baseline, if asked. Raises InputError."""
    from dovetail.core.errors import InputError, nearest
    from dovetail.report.why import why

    if not policy:
        return None
    names = [name for name in comparison.results if name not in ("recorded", comparison.baseline)]
    chosen = [n for n in names if policy in (n, n.partition(":")[0])]
    if not chosen:
        raise InputError(
            "--why",
            f"'{policy}' is none of the policies beside the baseline",
            nearest(policy, names),
        )
    found = why(comparison, chosen[0])
    if found is None:
        raise InputError("--why", f"no job ended under '{policy}' and the baseline")
    return found


def _print(comparison: Comparison, as_json: bool, reason: Why | None = None, by: str = "") -> None:
    from dovetail.cli.terminal import show
    from dovetail.report.tables import comparison_view, why_view
    from dovetail.report.waits_by import waits_by
    from dovetail.study.folder import comparison_dict

    if as_json:
        why = {} if reason is None else {"why": reason.as_dict()}
        click.echo(json.dumps({**comparison_dict(comparison), **why}))
        return
    views = [comparison_view(comparison)]
    if reason is not None:
        views.append(why_view(reason))
    if by:
        views.append(waits_by(comparison, by))
    show(views[0])
    for view in views[1:]:
        click.echo()
        show(view)

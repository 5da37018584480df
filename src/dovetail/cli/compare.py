"""`dovetail compare`: simulates several policies on one trace and ranks them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from dovetail.cli.options import (
    folder_option,
    json_option,
    load_trace,
    output_folder,
    processes_option,
    world_options,
)
from dovetail.cli.progress import bar, busy

if TYPE_CHECKING:
    from dovetail.study.option_texts import OptionTexts


@click.command()
@click.argument("trace", type=click.Path())
@click.option("--policies", "-p", required=True, help="Policies, separated by commas or spaces.")
@click.option("--baseline", default="", help="Policy to compare with. [default: the first]")
@world_options
@click.option("--windows", default=0, help="Number of windows of the trace to replicate over.")
@click.option("--window-days", default=7.0, show_default=True, help="Length of a window.")
@click.option("--seeds", default=1, show_default=True, help="Number of seeds to replicate over.")
@processes_option
@folder_option
@json_option
def compare(
    trace: str,
    policies: str,
    baseline: str,
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

    Confidence intervals come from blocks of time within the run, or, with --windows or --seeds,
    from replicates. Separate policies by spaces if one of them has several parameters:
    --policies "fifo srtf tiresias:thresholds=3250/7200,inside=list".

    \b
    Example:
      dovetail compare month.csv --policies fifo,backfill,sjf,srtf --cluster 32x8 -o report
    """
    from dovetail.core.units import DAY_S
    from dovetail.report.tables import comparison_view
    from dovetail.study.compare import Replication
    from dovetail.study.compare import compare as run
    from dovetail.study.folder import comparison_dict, write_comparison
    from dovetail.study.option_texts import check_window, read_options, split_policies
    from dovetail.study.traces import with_models

    options = read_options(option_texts)
    replication = Replication(windows, window_days * DAY_S, seeds)
    with output_folder(output) as folder:
        jobs = load_trace(trace, format_name, None)
        check_window(jobs, options)
        with bar("comparing", 1.0) as show:
            comparison = run(
                jobs,
                split_policies(policies),
                options,
                baseline=baseline,
                replication=replication,
                assign=with_models if assign_models else None,
                processes=processes,
                keep_spans=folder is not None,
                progress=show,
            )
        if folder is not None:
            with busy("writing"):
                write_comparison(comparison, folder)
    if as_json:
        click.echo(json.dumps(comparison_dict(comparison)))
        return
    from dovetail.cli.terminal import show as print_view

    print_view(comparison_view(comparison))
    if output is not None:
        click.echo(f"written to {output}, report: {output / 'report.html'}", err=True)

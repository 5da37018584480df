"""`dovetail compare`: several policies on one trace, ranked, with intervals and the bound."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from dovetail.cli.options import load_trace, read_options, world_options
from dovetail.cli.progress import bar


@click.command()
@click.argument("trace", type=click.Path())
@click.option("--policies", "-p", required=True, help="Names joined by commas, or by blanks.")
@click.option(
    "--baseline", default="", help="The policy to measure against; the first if not said."
)
@world_options
@click.option("--windows", default=0, help="Replicate over this many windows of the trace.")
@click.option("--window-days", default=7.0, show_default=True, help="How long a window is.")
@click.option("--seeds", default=1, show_default=True, help="Seeds in each window.")
@click.option("--processes", default=0, help="How many at once; all cores if not said.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="A folder to write.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
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
    **given: Any,
) -> None:
    """Replay a trace under several policies and rank them.

    A policy with several parameters is written between blanks:
    --policies "fifo srtf tiresias:thresholds=3250/7200,inside=list".

    \b
    Example:
      dovetail compare month.csv --policies fifo,backfill,sjf,srtf --cluster 32x8 -o report
    """
    from dovetail.study.compare import DAY_S, Replication
    from dovetail.study.compare import compare as run
    from dovetail.study.run import whole_directory

    options = read_options(given)
    jobs = load_trace(trace, format_name, options.seed, assign_models)
    replication = Replication(windows, window_days * DAY_S, seeds)

    def go(folder: Path | None) -> None:
        with bar("comparing", 1.0, quiet=as_json) as show:
            comparison = run(
                jobs,
                split_policies(policies),
                options,
                baseline=baseline,
                replication=replication,
                processes=processes,
                progress=lambda done, total: show(done / total),
            )
        if folder is not None:
            write_comparison(comparison, folder)
        if as_json:
            click.echo(json.dumps(comparison_dict(comparison)))
        else:
            from dovetail.record.tables import print_comparison

            print_comparison(comparison)

    if output is None:
        go(None)
    else:
        with whole_directory(output) as folder:
            go(folder)
        if not as_json:
            click.echo(f"written to {output}", err=True)


def split_policies(text: str) -> list[str]:
    """Returns the policies of a list: by blanks if there are any, else by commas.

    `a:x=1,b` cannot be told from a policy with a second parameter, so a part with `=` and no
    colon belongs to the policy before it.
    """
    if " " in text.strip():
        return text.split()
    found: list[str] = []
    for part in filter(None, text.split(",")):
        if found and "=" in part and ":" not in part:
            found[-1] += "," + part
        else:
            found.append(part)
    return found


def comparison_dict(comparison: Any) -> dict[str, Any]:
    """Returns a comparison as plain values."""
    return {
        "baseline": comparison.baseline,
        "bound": comparison.bound,
        "notes": comparison.notes,
        "policies": comparison.ranked.to_dicts(),
        "summaries": {name: r.summary for name, r in comparison.results.items()},
        "gpu_seconds": {name: r.gpu_seconds for name, r in comparison.results.items()},
    }


def write_comparison(comparison: Any, folder: Path) -> None:
    """Writes the tables, the report and every policy's `jobs.csv`."""
    from dovetail.record.plots import save_comparison_plots
    from dovetail.record.report import write_comparison_report
    from dovetail.study.run import write_tables

    text = json.dumps(comparison_dict(comparison), indent=1) + "\n"
    (folder / "comparison.json").write_text(text)
    comparison.ranked.write_csv(folder / "comparison.csv")
    write_comparison_report(comparison, folder / "report.html")
    plots = folder / "plots"
    plots.mkdir()
    save_comparison_plots(comparison, plots)
    for number, (name, result) in enumerate(comparison.results.items()):
        part = folder / f"{number:02d}-{name.partition(':')[0]}"
        part.mkdir()
        write_tables(result, part)

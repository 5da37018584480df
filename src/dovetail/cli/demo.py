"""`dovetail demo`: compares seven policies on a generated Philly-like trace of one month."""

from __future__ import annotations

import json
from pathlib import Path

import click

from dovetail.cli.options import folder_option, json_option, output_folder, processes_option
from dovetail.cli.progress import bar, busy
from dovetail.cli.terminal import show as show_view

POLICIES = "fifo backfill sjf srtf srsf tiresias gittins"
CLUSTER = "32x8"


@click.command()
@click.option("--jobs", default=8000, show_default=True, help="Number of jobs.")
@click.option("--days", default=30.0, show_default=True, help="Length of the trace.")
@click.option("--load", default=0.9, show_default=True, help="Offered load on the cluster.")
@click.option("--cluster", default=CLUSTER, show_default=True, help="NODESxGPUS, or a TOML file.")
@click.option(
    "--policies", default=POLICIES, show_default=True, help="Policies, separated by spaces."
)
@click.option(
    "--seed", default=1, type=click.IntRange(0), show_default=True, help="Seed of the trace."
)
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

    \b
    Example:
      dovetail demo -o demo-report
    """
    from dovetail.report.tables import comparison_view
    from dovetail.study.compare import compare
    from dovetail.study.folder import comparison_dict, write_comparison
    from dovetail.study.option_texts import split_policies
    from dovetail.study.options import Options
    from dovetail.traces.canonical import write_trace
    from dovetail.traces.cluster_file import read_cluster
    from dovetail.traces.generate import Recipe, generate

    machines = read_cluster(cluster)
    recipe = Recipe(
        "philly-like", jobs=jobs, days=days, load=load, cluster_gpus=machines.gpus, seed=seed
    )
    with output_folder(output) as folder:
        trace = generate(recipe)
        click.echo(
            f"{len(trace)} jobs in {days:g} days, offered load {load:g} on {machines.gpus} GPUs, "
            f"seed {seed}",
            err=True,
        )
        with bar("comparing", 1.0) as show:
            comparison = compare(
                trace,
                split_policies(policies),
                Options(machines, seed=seed),
                processes=processes,
                keep_spans=folder is not None,
                progress=show,
            )
        if folder is not None:
            with busy("writing the report"):
                write_trace(trace, folder / "trace.csv")
                write_comparison(comparison, folder)
    if as_json:
        click.echo(json.dumps(comparison_dict(comparison)))
        return
    show_view(comparison_view(comparison))
    if output is not None:
        again = f'--policies "{policies}" --cluster {cluster} --seed {seed}'
        click.echo(f"\nReport with plots: {output / 'report.html'}")
        click.echo(f"To repeat: dovetail compare {output / 'trace.csv'} {again}")

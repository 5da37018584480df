"""`dovetail demo`: one seeded Philly-like month under seven policies, start to finish."""

from __future__ import annotations

from pathlib import Path

import click

from dovetail.cli.progress import bar

POLICIES = "fifo backfill sjf srtf srsf tiresias gittins"
CLUSTER = "32x8"


@click.command()
@click.option("--jobs", default=8000, show_default=True, help="How many jobs a month brings.")
@click.option("--days", default=30.0, show_default=True, help="How long the trace is.")
@click.option("--load", default=0.9, show_default=True, help="Offered load on the cluster.")
@click.option("--cluster", default=CLUSTER, show_default=True)
@click.option("--policies", default=POLICIES, show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="A folder to write.")
def demo(
    jobs: int,
    days: float,
    load: float,
    cluster: str,
    policies: str,
    seed: int,
    output: Path | None,
) -> None:
    """Generate a month of jobs, compare policies on it and write a report.

    \b
    Example:
      dovetail demo -o demo-report
    """
    from dovetail.cli.compare import split_policies
    from dovetail.cli.screen import show as print_view
    from dovetail.record.tables import comparison_view
    from dovetail.study.compare import compare
    from dovetail.study.folder import write_comparison
    from dovetail.study.options import Options
    from dovetail.study.run import whole_directory
    from dovetail.workload.canonical import write_trace
    from dovetail.workload.cluster_file import read_cluster
    from dovetail.workload.generate import Recipe, generate

    machines = read_cluster(cluster)
    trace = generate(
        Recipe("philly-like", jobs=jobs, days=days, load=load, cluster_gpus=machines.gpus, seed=seed)
    )
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
            progress=lambda done, total: show(done / total),
        )
    print_view(comparison_view(comparison))
    if output is not None:
        with whole_directory(output) as folder:
            write_trace(trace, folder / "trace.csv")
            write_comparison(comparison, folder)
        click.echo(f"report: {output / 'report.html'}", err=True)

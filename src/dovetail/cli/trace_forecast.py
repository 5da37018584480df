"""`dovetail trace forecast`: the accuracy of predicted run times on a trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dovetail.cli.trace_files import FILE, busy, json_option, open_any

if TYPE_CHECKING:
    from dovetail.forecast.accuracy import Accuracy, Errors


@click.command()
@click.argument("file", type=FILE)
@click.option(
    "--methods",
    default="boosted,forest,median,mean,overall",
    show_default=True,
    help="Methods to evaluate.",
)
@click.option(
    "--train", default=0.8, show_default=True, help="Share of jobs to learn from, the earliest."
)
@click.option("--seed", default=0, show_default=True, help="Seed of all that is drawn.")
@json_option
def forecast(file: Path, methods: str, train: float, seed: int, as_json: bool) -> None:
    """Measure how well run times can be predicted from earlier jobs.

    The errors are those of the later jobs. "held out" learns only from the first jobs, as in the
    A-SRPT paper; "online" also learns during the run, like `--forecast predicted`.

    \b
    Example:
      dovetail trace forecast month.csv --methods boosted,median
    """
    from dovetail.forecast.accuracy import PROTOCOLS, evaluate

    loaded = open_any(file)
    accuracies = []
    for method in filter(None, (m.strip() for m in methods.split(","))):
        for protocol in PROTOCOLS:
            with busy(f"{method}, {protocol}"):
                accuracies.append(evaluate(loaded, method, protocol, share=train, seed=seed))
    if as_json:
        click.echo(
            json.dumps({"trace": loaded.name, "forecasts": [f.to_dict() for f in accuracies]})
        )
        return
    _print(accuracies)


def _print(accuracies: list[Accuracy]) -> None:
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


def _cells(errors: Errors) -> tuple[str, ...]:
    """Returns the formatted cells of a row."""
    return (
        f"{errors.jobs:,}",
        f"{errors.mean_s:,.0f}",
        f"{errors.median_s:,.0f}",
        f"{errors.near:.0%}",
        f"{errors.rank_correlation:.2f}",
        f"{errors.in_band:.0%}",
    )

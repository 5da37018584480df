"""`dovetail bound`: how good any schedule of a trace could be."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import click

from dovetail.cli.options import load_trace, world_options
from dovetail.cli.progress import busy

if TYPE_CHECKING:
    from dovetail.algorithms.bounds import LowerBounds


@click.command()
@click.argument("trace", type=click.Path())
@world_options
@click.option("--elastic", is_flag=True, help="Allow policies that resize jobs.")
@click.option("--sharing", is_flag=True, help="Allow policies that put two jobs on a GPU.")
@click.option("--interleaving", is_flag=True, help="Allow policies that interleave jobs' stages.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def bound(
    trace: str,
    elastic: bool,
    sharing: bool,
    interleaving: bool,
    as_json: bool,
    format_name: str | None,
    assign_models: bool,
    **given: Any,
) -> None:
    """Print lower bounds on the mean JCT and the makespan.

    No schedule with the allowed powers can do better; the largest bound is the one to judge by.
    Without --elastic, --sharing and --interleaving every job has its GPUs for itself, as many
    as it asked for.

    \b
    Example:
      dovetail bound month.csv --cluster 32x8
    """
    from dovetail.algorithms.bounds import Powers
    from dovetail.core.errors import InputError
    from dovetail.study.bound import bound as run
    from dovetail.study.bound import objection
    from dovetail.study.option_texts import OptionTexts, read_options

    options = read_options(cast(OptionTexts, given))
    jobs = load_trace(trace, format_name, options.seed if assign_models else None)
    powers = Powers(elastic=elastic, sharing=sharing, interleaving=interleaving)
    why_not = objection(jobs, options, powers)
    if why_not:
        raise InputError("bound", f"no bound holds: {why_not}")
    with busy("bound"):
        found = run(jobs, options, powers)
    left_out = len(jobs) - found.jobs
    if as_json:
        click.echo(json.dumps({**_dict(found), "left_out": left_out}))
        return
    _print(found)
    if left_out:
        click.echo(f"  {left_out} jobs can never fit this cluster and were left out")


def _dict(found: LowerBounds) -> dict[str, object]:
    return {
        "powers": found.powers.words,
        "jobs": found.jobs,
        "bound_s": found.mean_jct_s,
        "by": found.best.name,
        "bounds": {b.name: b.mean_jct_s for b in found.bounds},
        "makespan_s": found.makespan_s,
    }


def _print(found: LowerBounds) -> None:
    from dovetail.report.words import duration

    click.echo(f"{found.jobs} jobs; powers allowed: {found.powers.words}")
    for b in sorted(found.bounds, key=lambda b: -b.mean_jct_s):
        mark = "  <- the bound" if b is found.best else ""
        click.echo(f"  mean JCT at least {duration(b.mean_jct_s):>10}  by {b.name}{mark}")
    click.echo(f"  makespan at least {duration(found.makespan_s):>10}")

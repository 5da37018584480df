"""`dovetail bound`: lower bounds on the mean JCT and the makespan of any schedule."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Unpack

import click

from dovetail.cli.options import json_option, load_trace, say_left_out, world_options
from dovetail.cli.progress import busy

if TYPE_CHECKING:
    from dovetail.algorithms.bounds import LowerBounds
    from dovetail.study.option_texts import OptionTexts


@click.command()
@click.argument("trace", type=click.Path())
@world_options
@click.option("--elastic", is_flag=True, help="Allow policies that resize jobs.")
@click.option("--sharing", is_flag=True, help="Allow policies that run two jobs on one GPU.")
@click.option("--limits", is_flag=True, help="Allow limits on what sharing jobs have of a GPU.")
@click.option("--interleaving", is_flag=True, help="Allow policies that interleave stages.")
@json_option
def bound(
    trace: str,
    elastic: bool,
    sharing: bool,
    limits: bool,
    interleaving: bool,
    as_json: bool,
    format_name: str | None,
    assign_models: bool,
    **option_texts: Unpack[OptionTexts],
) -> None:
    """Print lower bounds on the mean JCT and the makespan of any schedule.

    No schedule with the allowed powers can do better; the largest bound is the tightest. By
    default every job runs alone on exactly the GPUs it requests; --elastic, --sharing and
    --interleaving relax this.

    \b
    Example:
      dovetail bound month.csv --cluster 32x8
    """
    from dovetail.algorithms.bounds import Powers
    from dovetail.core.errors import InputError
    from dovetail.study.bound import bound as run
    from dovetail.study.bound import objection
    from dovetail.study.inferred import with_inferred_capacity
    from dovetail.study.left_out import part_notes
    from dovetail.study.option_texts import options_on, read_options

    options = read_options(option_texts)
    jobs = load_trace(trace, format_name, options.seed if assign_models else None)
    options, assumed = options_on(jobs, option_texts)
    options, _ = with_inferred_capacity(options, jobs)
    say_left_out(jobs, options, as_json)
    if limits and not sharing:
        raise InputError("--limits", "only jobs that share have limits", "add --sharing")
    powers = Powers(elastic=elastic, sharing=sharing, interleaving=interleaving, limits=limits)
    reason = objection(jobs, options, powers)
    if reason:
        raise InputError("bound", f"no bound holds: {reason}")
    with busy("bound"):
        bounds = run(jobs, options, powers)
    left_out = len(jobs) - bounds.jobs
    for note in (*assumed, *part_notes(jobs.jobs)):
        click.echo(f"note: {note}", err=as_json)
    if as_json:
        click.echo(json.dumps({**_dict(bounds), "left_out": left_out}))
        return
    _print(bounds)
    if left_out:
        click.echo(f"  {left_out} jobs can never fit this cluster and are excluded")


def _dict(bounds: LowerBounds) -> dict[str, object]:
    return {
        "powers": bounds.powers.words,
        "jobs": bounds.jobs,
        "bound_s": bounds.mean_jct_s,
        "by": bounds.best.name,
        "bounds": {b.name: b.mean_jct_s for b in bounds.bounds},
        "makespan_s": bounds.makespan_s,
        "looseness": bounds.looseness,
    }


def _print(bounds: LowerBounds) -> None:
    from dovetail.report.words import duration

    click.echo(f"{bounds.jobs} jobs; powers allowed: {bounds.powers.words}")
    for b in sorted(bounds.bounds, key=lambda b: -b.mean_jct_s):
        mark = "  <- the bound" if b is bounds.best else ""
        click.echo(f"  mean JCT at least {duration(b.mean_jct_s):>10}  by {b.name}{mark}")
    click.echo(f"  makespan at least {duration(bounds.makespan_s):>10}")
    if bounds.looseness:
        click.echo(f"How loose: {bounds.looseness}.")

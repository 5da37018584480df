"""`dovetail whatif`: other nodes, limits, quotas and policies on one trace, and their cost."""

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
    say_lost_rows,
    world_options,
)
from dovetail.cli.progress import bar, busy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dovetail.core.cluster import Cluster
    from dovetail.core.trace import Trace
    from dovetail.study.cells import Premise
    from dovetail.study.changes import GridCell
    from dovetail.study.option_texts import OptionTexts
    from dovetail.study.options import Options
    from dovetail.study.prices import GpuPrices


@click.command()
@click.argument("trace", type=click.Path())
@click.option(
    "--policies",
    "-p",
    default="",
    help="The base policy, then others. [default: slurm for a log of sacct, else backfill]",
)
@click.option("--nodes", default="", help="More, fewer or other nodes: +2,-1,12, or +2:TYPE.")
@click.option("--add", default="", help="Nodes of another kind to add: 2x8:h100.")
@click.option("--other-clusters", default="", help="Clusters instead of --cluster.")
@click.option("--time-limit", default="", help="Longest time limits: 24h,2d, or none.")
@click.option("--quota", default="", help="Most GPUs: QUEUE[:TYPE]=32, =+8, =none, joined by +.")
@click.option("--guarantee", default="", help="GPUs guaranteed, like --quota. Needs tenancy.")
@click.option("--spot", default="", help="Jobs on a spot tier: queue=batch, gpus<=2&hours<=4@32.")
@click.option("--demand", default="", help="More or fewer jobs like those of the log: +20%,-10%.")
@click.option("--types-for", default="", help="Who may use another GPU type: a100=h100[@SPEED].")
@click.option("--checkpoint-every", default="", help="How often spot jobs save: 30m. [on a stop]")
@click.option("--together", multiple=True, help='One row: "--nodes +2 --time-limit 24h".')
@shown_option(
    "--longer-jobs",
    type=click.Choice(["kill", "exempt"]),
    default="kill",
    help="Jobs longer than --time-limit: killed at it, or exempt from it.",
)
@click.option("--cross", is_flag=True, help="All combinations. [default: one change at a time]")
@click.option("--price", multiple=True, help="Price per GPU and hour: TYPE=NUMBER, or NUMBER.")
@click.option("--by", default="", help="Waits by queue, account, user or size, for each row.")
@click.option("--target", default="", help='E.g. "90% of 1-GPU jobs start within 10 min".')
@click.option(
    "--type",
    "gpu_type",
    default="",
    help="GPU type whose nodes alone --target searches. [default: all]",
)
@world_options
@processes_option
@folder_option
@json_option
def whatif(
    trace: str,
    policies: str,
    nodes: str,
    add: str,
    other_clusters: str,
    time_limit: str,
    quota: str,
    guarantee: str,
    spot: str,
    demand: str,
    types_for: str,
    checkpoint_every: str,
    together: tuple[str, ...],
    longer_jobs: str,
    cross: bool,
    price: tuple[str, ...],
    by: str,
    target: str,
    gpu_type: str,
    processes: int,
    output: Path | None,
    as_json: bool,
    format_name: str | None,
    assign_models: bool,
    **option_texts: Unpack[OptionTexts],
) -> None:
    """Ask what other nodes, limits, quotas and policies would do, and what they cost.

    Each change is tried alone and compared with the base, which is --cluster, the limits of the
    trace and the first policy. Several values are separated by commas. With --target, finds for
    each row the smallest number of nodes instead of comparing.

    \b
    Example:
      dovetail whatif month.csv --cluster 8x8:a100 --nodes +2,+4,-1 --time-limit 24h --price 2.10
      dovetail whatif month.csv --cluster 8x8 -p backfill,sjf --add 4x8:h100 --demand +20% --cross
      dovetail whatif month.csv --cluster 8x8 --target "90% of 1-GPU jobs start within 10 min"
    """
    from dovetail.study.changes import Grid, Setting, cells_of
    from dovetail.study.option_texts import options_on, read_options, split_policies
    from dovetail.study.prices import read_prices
    from dovetail.study.recorded import site_policy

    models_by = read_options(option_texts).seed if assign_models else None
    jobs = load_trace(trace, format_name, models_by)
    options, assumed = options_on(jobs, option_texts)
    base, *others = split_policies(policies) or [site_policy(jobs)]
    rows = (other_clusters, nodes, add, time_limit, quota, guarantee, spot, demand, types_for)
    grid = Grid(*rows, others, together, _checkpoint_s(checkpoint_every, spot, together))
    cells = cells_of(Setting(options.cluster, base), grid, cross=cross)
    prices = read_prices(price, [cell.setting.cluster for cell in cells])
    _check_use(target, nodes, gpu_type, by, cells)
    premise = _premise(jobs, options, assumed, longer_jobs == "exempt", as_json, base)
    with output_folder(output) as folder:
        if target:
            _search(premise, cells, target, gpu_type, prices, processes, folder, as_json)
        else:
            _compare(premise, cells, prices, processes, by, folder, as_json)
    _say_written(output, as_json)


def _say_written(output: Path | None, as_json: bool) -> None:
    if output is not None and not as_json:
        click.echo(f"written to {output}", err=True)


def _premise(
    jobs: Trace, options: Options, assumed: Sequence[str], exempt: bool, as_json: bool, base: str
) -> Premise:
    """Returns what all cells share; prints first what was assumed, and which rows are missing."""
    from dovetail.study.cells import Premise
    from dovetail.study.option_texts import check_window

    check_window(jobs, options)
    for note in assumed:
        click.echo(f"note: {note}", err=as_json)
    say_lost_rows(jobs, options.left_out_max, as_json)
    return Premise(jobs, options, exempt, _defaults(base))


def _checkpoint_s(text: str, spot: str, together: Sequence[str]) -> float:
    """Returns how often spot jobs save, 0 if they save when they are told to stop."""
    from dovetail.core.errors import InputError
    from dovetail.jobspec.values import seconds

    if not text:
        return 0.0
    if not spot and not any("--spot" in row for row in together):
        raise InputError("--checkpoint-every", "only --spot uses it", "as in --spot queue=batch")
    try:
        return seconds(text)
    except ValueError as error:
        raise InputError("--checkpoint-every", str(error), "as in 30m") from None


def _defaults(base: str) -> tuple[str, ...]:
    """Returns the options of the base that were not given, as one would type them."""
    context = click.get_current_context()
    default = click.core.ParameterSource.DEFAULT
    values = {"policies": base, "forecast": context.params["forecast"]}
    return tuple(
        f"--{name} {value}"
        for name, value in values.items()
        if context.get_parameter_source(name) is default
    )


def _check_use(target: str, nodes: str, gpu_type: str, by: str, cells: Sequence[GridCell]) -> None:
    from dovetail.core.errors import InputError
    from dovetail.report.waits_by import check_split

    if target and nodes:
        raise InputError("--nodes", "--target looks for the number of nodes", "leave one out")
    check_split(by)
    if by and target:
        raise InputError("--by", "--target has no such table", "leave one out")
    if gpu_type and not target:
        raise InputError("--type", "only --target uses it", "as in --nodes +2:a100")
    limited = any(cell.setting.limit_s is not None for cell in cells)
    refuse_unused("--longer-jobs", "--time-limit", used=limited)
    if len(cells) == 1 and not target:
        raise InputError(
            "whatif", "there is nothing to compare", "ask for a change, as in --nodes +2"
        )


def _compare(
    premise: Premise,
    cells: Sequence[GridCell],
    prices: GpuPrices | None,
    processes: int,
    by: str,
    folder: Path | None,
    as_json: bool,
) -> None:
    from dovetail.cli.whatif_view import whatif_view
    from dovetail.study.whatif import whatif as run

    with bar("simulating", 1.0) as show:
        found = run(premise, cells, prices, processes=processes, progress=show, by=by)
    values: dict[str, object] = {"notes": list(found.notes), "rows": found.table.to_dicts()}
    if found.split is not None:
        values["by"] = {"label": by, "rows": found.split.to_dicts()}
    if folder is not None:
        found.table.write_csv(folder / "whatif.csv")
        if found.split is not None:
            found.split.write_csv(folder / "whatif-by.csv")
        (folder / "whatif.json").write_text(json.dumps(values, indent=1) + "\n", "utf-8")
    if as_json:
        click.echo(json.dumps(values))
        return
    from dovetail.cli.terminal import show as show_view

    show_view(whatif_view(found, by))


def _search(
    premise: Premise,
    cells: Sequence[GridCell],
    text: str,
    gpu_type: str,
    prices: GpuPrices | None,
    processes: int,
    folder: Path | None,
    as_json: bool,
) -> None:
    from polars import concat

    from dovetail.cli.whatif_view import target_view
    from dovetail.study.changes import group_called
    from dovetail.study.target import parse_target, smallest
    from dovetail.study.target_mix import smallest_mixes

    def at_group(cluster: Cluster) -> int:
        return group_called(cluster, gpu_type.lower(), "--target", "--type TYPE")

    target = parse_target(text)
    mixed = not gpu_type and any(len(cell.setting.cluster.groups) > 1 for cell in cells)
    with busy("searching"):
        if mixed:
            answers, notes = smallest_mixes(premise, cells, target, prices, processes=processes)
        else:
            answers, notes = smallest(premise, cells, target, at_group, prices, processes=processes)
    values = {
        "target": target.text,
        "notes": list(notes),
        "answers": [
            {
                "change": answer.change,
                "cluster": answer.cluster,
                "nodes": answer.nodes,
                "sentence": answer.sentence,
                "tried": answer.table.to_dicts(),
            }
            for answer in answers
        ],
    }
    if folder is not None:
        concat([answer.table for answer in answers]).write_csv(folder / "target.csv")
        (folder / "target.json").write_text(json.dumps(values, indent=1) + "\n", "utf-8")
    if as_json:
        click.echo(json.dumps(values))
        return
    from dovetail.cli.terminal import show as show_view

    show_view(target_view(answers, notes))

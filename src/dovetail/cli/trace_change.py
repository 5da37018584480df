"""`dovetail trace convert | slice | scale`: derive a trace from another."""

from __future__ import annotations

from pathlib import Path

import click

from dovetail.cli.cluster_options import shown_option
from dovetail.cli.options import json_option, refuse_unused
from dovetail.cli.trace_files import (
    FILE,
    gpus_of,
    models_of,
    most_gpus,
    open_any,
    out_option,
    write_part,
)
from dovetail.core.errors import InputError
from dovetail.core.units import DAY_S


@click.command()
@click.argument("file", type=FILE)
@click.argument("out", type=FILE)
@json_option
def convert(file: Path, out: Path, as_json: bool) -> None:
    """Convert a trace to another file type: .csv, .csv.gz or .parquet.

    \b
    Example:
      dovetail trace convert month.csv month.parquet
    """
    whole = open_any(file)
    write_part(whole, out, whole, file, as_json)


@click.command("slice")
@click.argument("file", type=FILE)
@out_option
@click.option(
    "--queue", "queues", multiple=True, help="Keep this virtual cluster; may be repeated."
)
@click.option("--from-day", type=float, help="Keep submissions from this day on.")
@click.option("--to-day", type=float, help="Keep submissions before this day.")
@click.option("--busiest-days", type=float, help="Keep the busiest window of this many days.")
@shown_option("--by", default="gpu-seconds", help="gpu-seconds or arrivals.")
@click.option("--jobs", type=int, help="Keep this many jobs from the start.")
@json_option
def slice_command(
    file: Path,
    out: Path,
    queues: tuple[str, ...],
    from_day: float | None,
    to_day: float | None,
    busiest_days: float | None,
    by: str,
    jobs: int | None,
    as_json: bool,
) -> None:
    """Keep a part of a trace: queues, then a window, then the first jobs.

    \b
    Example:
      dovetail trace slice philly.csv.gz --queue 6214e9 --busiest-days 7 -o week.csv
    """
    from dovetail.core.units import NEVER_S
    from dovetail.traces import transform

    refuse_unused("--by", "--busiest-days", used=busiest_days is not None)
    part = whole = open_any(file)
    if queues:
        part = transform.in_queues(part, queues)
    if from_day is not None or to_day is not None:
        low = (from_day or 0.0) * DAY_S
        high = NEVER_S if to_day is None else to_day * DAY_S
        part = transform.time_window(part, low, high)
    if busiest_days is not None:
        part = transform.busiest_window(part, busiest_days, by=by)
    if jobs is not None:
        part = transform.first_jobs(part, jobs)
    if not len(part):
        raise InputError(str(file), "the selection contains no jobs")
    write_part(part, out, whole, file, as_json)


@click.command()
@click.argument("file", type=FILE)
@out_option
@click.option("--cluster", help="Cluster of --load: 16x4, or a number of GPUs.")
@click.option("--load", type=float, help="Offered load to reach on --cluster.")
@shown_option("--by", default="time", help="time (stretch) or thinning.")
@click.option("--keep", type=float, help="Keep each job with this probability.")
@click.option("--stretch", type=float, help="Multiply times between submissions.")
@click.option("--compress", type=float, help="Divide all times, including run times.")
@click.option("--models", help="Models to assign: a zoo family (afs), or name:8,name:4.")
@click.option("--elastic", default=0.0, help="Share of jobs to flag as elastic.")
@click.option("--shareable", default=0.0, help="Share of jobs to flag as shareable.")
@shown_option("--seed", default=0, help="Random seed.")
@json_option
def scale(
    file: Path,
    out: Path,
    cluster: str | None,
    load: float | None,
    by: str,
    keep: float | None,
    stretch: float | None,
    compress: float | None,
    models: str | None,
    elastic: float,
    shareable: float,
    seed: int,
    as_json: bool,
) -> None:
    """Change the load, the times, the models or the flags of a trace.

    \b
    Example:
      dovetail trace scale week.csv --cluster 8x8 --load 0.9 -o busy.csv
      dovetail trace scale week.csv --elastic 0.5 --seed 1 -o half_elastic.csv
    """
    from dovetail.traces import transform

    refuse_unused("--by", "--load", used=load is not None)
    if load is not None and stretch is not None:
        raise InputError("--stretch", "it would change the load that --load sets", "leave one out")
    scaled = whole = open_any(file)
    if load is not None and cluster is None:
        raise InputError("--load", "needs --cluster", "as in --cluster 16x4")
    if cluster is not None and load is None:
        raise InputError("--cluster", "needs --load", "as in --load 0.9")
    if keep is not None:
        scaled = transform.thinned(scaled, keep, seed=seed)
    if load is not None and cluster is not None:
        scaled = transform.with_load(scaled, load, gpus_of(cluster), by=by, seed=seed)
    if stretch is not None:
        scaled = transform.stretched(scaled, stretch)
    if compress is not None:
        scaled = transform.compressed(scaled, compress)
    if models:
        scaled = transform.assign_models(scaled, models_of(models), seed=seed)
    if elastic or shareable:
        scaled = transform.adopted(
            scaled, elastic=elastic, shareable=shareable, seed=seed, max_gpus=most_gpus
        )
    if not len(scaled):
        raise InputError(str(file), "the resulting trace contains no jobs")
    write_part(scaled, out, whole, file, as_json)

"""`dovetail trace`: bring logs in, look at them, make, cut and scale traces."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from dovetail.core.errors import InputError

if TYPE_CHECKING:
    from dovetail.core.trace import Trace
    from dovetail.workload.readers.format import ReadOptions

Decorated = TypeVar("Decorated", bound=Callable[..., object])
_FILE = click.Path(path_type=Path)
_ZOO_FAMILIES = {"afs": "afs", "afs-sim": "afs", "pollux": "pollux"}


def _json_option(command: Decorated) -> Decorated:
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")(command)


def _out_option(command: Decorated) -> Decorated:
    return click.option(
        "-o", "--out", type=_FILE, required=True, help="File to write: .csv, .csv.gz or .parquet."
    )(command)


@click.group()
def trace() -> None:
    """Import logs, describe, generate, convert, slice and scale traces."""


@trace.command("import")
@click.argument("files", nargs=-1, required=True, type=_FILE)
@click.option(
    "-o", "--out", type=_FILE, required=True, help="File to write; with --apart a folder."
)
@click.option("--format", "format_name", help="Format of the files; guessed when left out.")
@click.option("--apart", is_flag=True, help="Write one trace for each virtual cluster.")
@click.option(
    "--origin",
    default="week",
    show_default=True,
    help="Where second 0 lies for logs with clock times: week (Monday 00:00 local time before the "
    "first job), first (the first job), keep (Unix seconds).",
)
@click.option(
    "--cpu-only", type=click.Choice(["reject", "as-one-gpu"]), default="reject", show_default=True
)
@click.option("--timezone", default="", help="Zone of local times, as in Europe/Berlin.")
@click.option(
    "--work", default="iterations", show_default=True, help="Muri: iterations or duration."
)
@click.option("--step-times", type=_FILE, help="CSV (model,gpus,step_time_s) or Gavel JSON.")
@click.option("--iterations", type=_FILE, help="Pollux: CSV (model,iterations).")
@_json_option
def import_command(
    files: tuple[Path, ...],
    out: Path,
    format_name: str | None,
    apart: bool,
    origin: str,
    cpu_only: str,
    timezone: str,
    work: str,
    step_times: Path | None,
    iterations: Path | None,
    as_json: bool,
) -> None:
    """Convert logs of one format into a canonical trace.

    Several files become one cluster, each virtual cluster a queue of it; --apart splits them.

    \b
    Example:
      sacct -P -a -S 2024-01-01 -o JobID,User,Partition,State,Submit,Start,End,\\
        Elapsed,Timelimit,AllocTRES > log.txt
      dovetail trace import log.txt --timezone Europe/Berlin -o month.csv
      dovetail trace import philly/afs_vcs/*.csv.gz -o philly.csv.gz
    """
    from dovetail.workload.importing import import_apart, import_trace, sniff

    name = format_name or sniff(files[0])
    options = _read_options(name, timezone, work, step_times, iterations)
    if not apart:
        with _busy(f"reading {len(files)} files"):
            made = import_trace(files, name, options=options, origin=origin, cpu_only=cpu_only)
        _write_and_tell({out: made}, name, as_json)
        return
    with _busy(f"reading {len(files)} files"):
        parts = import_apart(files, name, options=options, origin=origin, cpu_only=cpu_only)
    _make_folder(out)
    _write_and_tell({out / f"{_safe(vc)}.csv": part for vc, part in parts.items()}, name, as_json)


def _read_options(
    format_name: str, timezone: str, work: str, step_times: Path | None, iterations: Path | None
) -> ReadOptions:
    from dovetail.workload.readers.format import ReadOptions
    from dovetail.workload.step_times import read_job_iterations, read_step_times

    seconds = _from_zoo(format_name) if step_times is None else read_step_times(step_times)
    work_of = read_job_iterations(iterations) if iterations is not None else None
    return ReadOptions(seconds, work_of, work, timezone)


def _from_zoo(format_name: str) -> Callable[[str, int], float | None] | None:
    """Returns the zoo's step times for a format whose models it knows."""
    if format_name not in _ZOO_FAMILIES:
        return None
    from dovetail.physics.zoo import seconds_per_iteration

    return partial(seconds_per_iteration, family=_ZOO_FAMILIES[format_name])


@contextmanager
def _busy(what: str) -> Iterator[None]:
    """Shows on a terminal that work goes on, and for how long."""
    import sys

    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        progress.add_task(what, total=None)
        yield


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(str(folder), f"cannot be made: {error.strerror or error}") from None


def _safe(name: str) -> str:
    """Returns a virtual cluster's name as a file name."""
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name).lstrip(".") or "none"


def _write_part(part: Trace, out: Path, whole: Trace, source: Path, as_json: bool) -> None:
    """Writes what was made of another trace, and tells how many of its jobs there are."""
    from dovetail.workload.canonical import write_trace

    with _busy(f"writing {out.name}"):
        write_trace(part, out)
    if as_json:
        told = {"source": str(source), "source_jobs": len(whole), "path": str(out)}
        click.echo(json.dumps({**told, "jobs": len(part), "source_counts": whole.counts}))
        return
    click.echo(f"{out}: {len(part):,} of {len(whole):,} jobs of {source}")


def _write_and_tell(made: dict[Path, Trace], source: str, as_json: bool) -> None:
    from dovetail.workload.canonical import write_trace

    for path, one in made.items():
        with _busy(f"writing {path.name}"):
            write_trace(one, path)
    if as_json:
        told = [{"path": str(p), "jobs": len(t), "counts": t.counts} for p, t in made.items()]
        click.echo(json.dumps({"source": source, "traces": told}))
        return
    for path, one in made.items():
        click.echo(f"{path}: {len(one):,} jobs ({source})")
        for what, rows in one.counts.items():
            click.echo(f"  {what}: {rows:,}")


@trace.command()
@click.argument("file", type=_FILE)
@click.option("--cluster", help="Cluster to compare the load with: 16x4, or a number of GPUs.")
@click.option("--load", type=float, help="Tell the cluster size that gives this offered load.")
@click.option("--plots", type=_FILE, help="Folder for the figure (PNG and SVG).")
@_json_option
def describe(
    file: Path, cluster: str | None, load: float | None, plots: Path | None, as_json: bool
) -> None:
    """Say what a trace holds: sizes, run times, ends, arrivals, offered load.

    \b
    Example:
      dovetail trace describe month.csv --cluster 16x8 --plots figures
    """
    from rich.console import Console

    from dovetail.workload.describe import describe as described
    from dovetail.workload.describe_text import WIDTH, print_description
    from dovetail.workload.transform import gpus_for_load

    loaded = _open(file)
    summary = described(loaded, None if cluster is None else _gpus(cluster))
    fitting = None if load is None else gpus_for_load(loaded, load)
    written: list[Path] = []
    if plots is not None:
        from dovetail.workload.describe_plots import plot_description

        _make_folder(plots)
        with _busy("drawing"):
            written = plot_description(summary, loaded, plots)
    if as_json:
        more = {"gpus_for_load": fitting, "plots": [str(p) for p in written]}
        click.echo(json.dumps({**summary.to_dict(), **more}))
        return
    print_description(summary, Console(width=WIDTH))
    if fitting is not None:
        click.echo(f"\nLoad {load:g} is offered on {fitting:,} GPUs")
    for path in written:
        click.echo(f"wrote {path}")


def _open(file: Path) -> Trace:
    from dovetail.workload.importing import CANONICAL, import_trace, sniff
    from dovetail.workload.readers.format import ReadOptions

    name = sniff(file)
    options = ReadOptions(None if name == CANONICAL else _from_zoo(name))
    with _busy(f"reading {file.name}"):
        return import_trace([file], name, options=options)


def _gpus(cluster: str) -> int:
    from dovetail.core.cluster import Cluster

    if cluster.isdecimal() and int(cluster) > 0:
        return int(cluster)
    return Cluster.parse(cluster).gpus


def _models(text: str | None) -> list[tuple[str, int]]:
    """Returns (model, most GPUs) from `afs` (a family of the zoo) or `name:8,name:4`."""
    if not text:
        return []
    if ":" in text:
        return [_model(part) for part in text.split(",")]
    from dovetail.core.errors import nearest
    from dovetail.physics.zoo import zoo

    chosen = [(n, p.max_gpus.value) for n, p in zoo().items() if n.startswith(f"{text}/")]
    if not chosen:
        families = {name.partition("/")[0] for name in zoo()}
        raise InputError(f"models '{text}'", "is no family of the zoo", nearest(text, families))
    return chosen


def _model(part: str) -> tuple[str, int]:
    name, _, most = part.rpartition(":")
    if not name or not most.isdecimal() or int(most) < 1:
        raise InputError(f"models '{part}'", "is not NAME:GPUS", "as in pollux/bert:16")
    return name, int(most)


def _most_gpus(model: str) -> int:
    """Returns the most GPUs the zoo knows a model to use, 0 for a model it does not know."""
    from dovetail.physics.zoo import shipped

    profile = shipped().find(model)
    return 0 if profile is None else profile.max_gpus.value


@trace.command()
@click.argument("kind", default="philly-like")
@_out_option
@click.option("--jobs", default=10_000, show_default=True)
@click.option("--days", default=30.0, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--cluster", help="Cluster the load is offered to: 16x4, or a number of GPUs.")
@click.option("--load", type=float, help="Offered load on --cluster; stretches all run times.")
@click.option("--bursts", default=1.0, show_default=True, help="Batches: 0 none, 1 as in Philly.")
@click.option("--deadlines", default=0.0, show_default=True, help="Share of jobs with a deadline.")
@click.option("--time-limits", default=0.0, show_default=True, help="Share with a time limit.")
@click.option("--models", help="Give jobs models: a zoo family (afs), or name:8,name:4.")
@_json_option
def generate(
    kind: str,
    out: Path,
    jobs: int,
    days: float,
    seed: int,
    cluster: str | None,
    load: float | None,
    bursts: float,
    deadlines: float,
    time_limits: float,
    models: str | None,
    as_json: bool,
) -> None:
    """Make a seeded trace of a KIND: philly-like (default), pai-like, poisson or burst.

    \b
    Example:
      dovetail trace generate philly-like --jobs 100000 --days 30 \\
        --cluster 6500 --load 0.95 --bursts 1.5 -o month.csv
    """
    from dovetail.workload.generate import Recipe
    from dovetail.workload.generate import generate as make

    gpus = None if cluster is None else _gpus(cluster)
    recipe = Recipe(
        kind, jobs, days, seed, load, gpus, bursts, deadlines, time_limits, _models(models)
    )
    with _busy("generating"):
        made = make(recipe)
    _write_and_tell({out: made}, kind, as_json)


@trace.command()
@click.argument("file", type=_FILE)
@click.argument("out", type=_FILE)
@_json_option
def convert(file: Path, out: Path, as_json: bool) -> None:
    """Write a trace as another kind of file: .csv, .csv.gz or .parquet.

    \b
    Example:
      dovetail trace convert month.csv month.parquet
    """
    whole = _open(file)
    _write_part(whole, out, whole, file, as_json)


@trace.command("slice")
@click.argument("file", type=_FILE)
@_out_option
@click.option("--queue", "queues", multiple=True, help="Keep a virtual cluster; may be repeated.")
@click.option("--from-day", type=float, help="Keep submissions from this day on.")
@click.option("--to-day", type=float, help="Keep submissions before this day.")
@click.option("--busiest-days", type=float, help="Keep the busiest window of so many days.")
@click.option("--by", default="gpu-seconds", show_default=True, help="Busiest by: or arrivals.")
@click.option("--jobs", type=int, help="Keep the first so many jobs.")
@_json_option
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
    from dovetail.workload import transform

    part = whole = _open(file)
    if queues:
        part = transform.in_queues(part, queues)
    if from_day is not None or to_day is not None:
        low = (from_day or 0.0) * transform.DAY_S
        high = float("inf") if to_day is None else to_day * transform.DAY_S
        part = transform.time_window(part, low, high)
    if busiest_days is not None:
        part = transform.busiest_window(part, busiest_days, by=by)
    if jobs is not None:
        part = transform.first_jobs(part, jobs)
    if not len(part):
        raise InputError(str(file), "no job is in that part")
    _write_part(part, out, whole, file, as_json)


@trace.command()
@click.argument("file", type=_FILE)
@_out_option
@click.option("--cluster", help="Cluster the load is for: 16x4, or a number of GPUs.")
@click.option("--load", type=float, help="Offered load to reach on --cluster.")
@click.option("--by", default="time", show_default=True, help="How: time (stretch) or thinning.")
@click.option("--keep", type=float, help="Keep each job with this probability.")
@click.option("--stretch", type=float, help="Multiply times between submissions.")
@click.option("--compress", type=float, help="Divide all times, run times too.")
@click.option("--models", help="Give jobs models: a zoo family (afs), or name:8,name:4.")
@click.option("--elastic", default=0.0, help="Share of jobs whose owners allow elasticity.")
@click.option("--shareable", default=0.0, help="Share of jobs whose owners allow sharing.")
@click.option("--seed", default=0, show_default=True)
@_json_option
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
    """Change a trace's load, clock, models or what owners allow.

    \b
    Example:
      dovetail trace scale week.csv --cluster 8x8 --load 0.9 -o busy.csv
      dovetail trace scale week.csv --elastic 0.5 --seed 1 -o half_elastic.csv
    """
    from dovetail.workload import transform

    made = whole = _open(file)
    if load is not None and cluster is None:
        raise InputError("--load", "needs --cluster", "as in --cluster 16x4")
    if keep is not None:
        made = transform.thinned(made, keep, seed=seed)
    if load is not None and cluster is not None:
        made = transform.with_load(made, load, _gpus(cluster), by=by, seed=seed)
    if stretch is not None:
        made = transform.stretched(made, stretch)
    if compress is not None:
        made = transform.compressed(made, compress)
    if models:
        made = transform.assign_models(made, _models(models), seed=seed)
    if elastic or shareable:
        made = transform.adopted(
            made, elastic=elastic, shareable=shareable, seed=seed, max_gpus=_most_gpus
        )
    if not len(made):
        raise InputError(str(file), "no job is left")
    _write_part(made, out, whole, file, as_json)

"""`dovetail chargeback`: who held how many GPU-hours, by month, and what they pay."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dovetail.cli.cluster_options import shown_option
from dovetail.cli.options import json_option, load_trace, say_lost_rows
from dovetail.cli.progress import busy
from dovetail.core.errors import InputError

if TYPE_CHECKING:
    import polars as pl

    from dovetail.core.cluster import Cluster
    from dovetail.core.trace import Trace
    from dovetail.study.chargeback import HeldSpans
    from dovetail.study.months import Months

EVENTS = "events.jsonl"


@dataclass(frozen=True, slots=True)
class _Source:
    """What jobs held, on which cluster if it is known, and where that is from, in words."""

    trace: Trace
    held: HeldSpans
    cluster: Cluster | None
    words: str
    as_recorded: bool = False


@click.command()
@click.argument("source", type=click.Path(path_type=Path))
@click.option("--price", multiple=True, help="Price per GPU and hour: TYPE=NUMBER, or NUMBER.")
@click.option(
    "--by",
    type=click.Choice(["account", "queue", "user"]),
    default=None,
    help="Who pays. [default: the first of these that jobs name]",
)
@shown_option(
    "--idle",
    type=click.Choice(["apart", "shared"]),
    default="apart",
    help="GPUs that nobody held: a row of their own, or divided by GPU-hours held.",
)
@click.option(
    "--cluster",
    default="",
    help="Cluster of a trace: for idle GPUs, types, prices. [default: the one that fits the log]",
)
@click.option("--start", default="", help="Date of second 0 of the trace, as in 2024-03-04.")
@click.option(
    "--timezone",
    default="",
    help="Time zone of the months. [default: that of the import, else UTC]",
)
@click.option("--format", "format_name", default=None, help="Format of the trace.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="CSV file to write.")
@json_option
def chargeback(
    source: Path,
    price: tuple[str, ...],
    by: str | None,
    idle: str,
    cluster: str,
    start: str,
    timezone: str,
    format_name: str | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Say who held how many GPU-hours in which month, and what they pay.

    SOURCE is the folder of a simulated run, its events.jsonl, the folder of a live cluster, or a
    trace whose log records starts. A job pays for its GPUs while it holds them, switching
    included; jobs that share a GPU divide it evenly, or in proportion to their limits of it.

    \b
    Example:
      dovetail chargeback month.csv --price a100=2.10 --cluster 8x8:a100 --start 2024-03-04
      dovetail chargeback run --price 2.10 --by user --idle shared -o march.csv
    """
    from dovetail.study.chargeback import chargeback as charges_of
    from dovetail.study.chargeback import payers
    from dovetail.study.months import months_of
    from dovetail.study.prices import read_prices

    found = _opened(source, cluster, format_name)
    known = [] if found.cluster is None else [found.cluster]
    prices = read_prices(price, known)
    if idle == "shared" and found.cluster is None:
        raise InputError("--idle shared", "the cluster is not known", "give --cluster")
    payer = payers(found.trace, by or "")
    submit_s = found.trace.jobs.submit_s
    months = months_of(float(submit_s[0]), start, timezone, found.trace.imported)
    table = charges_of(
        found.held,
        payer,
        months,
        cluster=found.cluster,
        prices=prices,
        share_idle=idle == "shared",
        from_s=float(submit_s[0]),
        to_s=float(found.held.end_s.max(initial=float(submit_s[0]))),
    )
    if output is not None:
        from dovetail.traces.output_file import write_output

        write_output(output, lambda stream: stream.write(table.write_csv().encode()))
    words = f"{found.words}; by {payer.by}; {months.words}.{_doubt(found, months)}"
    if as_json:
        click.echo(json.dumps({"source": words, "by": payer.by, "charges": table.to_dicts()}))
        return
    _print(words, payer.by, table)
    if output is not None:
        click.echo(f"written to {output}", err=True)


def _doubt(found: _Source, months: Months) -> str:
    """Returns what the record leaves open of the months of restarted jobs."""
    from dovetail.study.chargeback import month_doubt

    jobs, hours = month_doubt(found.trace, months) if found.as_recorded else (0, 0.0)
    if not jobs:
        return ""
    ran = "job that was restarted" if jobs == 1 else "jobs that were restarted"
    return (
        f" {jobs:,} {ran} may have held up to {hours:,.1f} GPU-hours in an earlier month than the "
        "one charged: the record has only their first start, last end and time with GPUs."
    )


def _opened(source: Path, cluster: str, format_name: str | None) -> _Source:
    """Returns what jobs held in a run, a live cluster or a trace. Raises InputError."""
    from dovetail.study.chargeback import holdings_of

    source = source.expanduser()
    if source.is_dir() or source.suffix == ".jsonl":
        from dovetail.replaying.decisions import read_recording

        if cluster:
            raise InputError("--cluster", "the run has its own cluster", "leave it out")
        if format_name:
            raise InputError("--format", "a run has no other format", "leave it out")
        with _events(source) as log, busy("reading the run"):
            recording = read_recording(log)
            last_s = recording.facts[-1].t
            machines = recording.options.cluster
            held = holdings_of(recording.tally().segments_until(last_s), machines)
        words = f"GPUs held in the run of {len(recording.trace):,} jobs, switching included"
        return _Source(recording.trace, held, machines, words)
    jobs = load_trace(str(source), format_name)
    say_lost_rows(jobs, 1.0, as_json=True)
    return _from_trace(source, jobs, cluster)


def _from_trace(source: Path, trace: Trace, cluster: str) -> _Source:
    from dovetail.physics.zoo.device import device_memory_bytes
    from dovetail.study.chargeback import recorded_holdings
    from dovetail.traces.cluster_file import read_cluster
    from dovetail.traces.hardware import cluster_of_log, gpu_type_rows

    rows = gpu_type_rows(trace)
    # A job without a type, where there are several, could have held GPUs of any.
    fitting = "" if len(rows) > 1 and not rows[-1].gpu_type else cluster_of_log(trace)
    chosen = cluster or fitting
    machines = read_cluster(chosen, device_memory_bytes) if chosen else None
    held, never = recorded_holdings(trace, machines, str(source))
    words = f"GPUs held by {len(trace) - never:,} of {len(trace):,} jobs, as the log recorded"
    if never:
        words += f" ({never:,} never started)"
    ran_s = float((trace.duration_s * trace.jobs.asked_gpus)[held.jobs].sum())
    if held.gpu_s - ran_s > 0.0005 * ran_s:
        words += (
            f"; {(held.gpu_s - ran_s) / 3600:,.0f} GPU-hours more than they ran, as when suspended"
        )
    if not cluster and machines is not None:
        words += f"; idle GPUs are those of {fitting}, which fits the log (no --cluster)"
    if machines is None:
        words += "; idle GPUs are not counted (no --cluster)"
    return _Source(trace, held, machines, words, as_recorded=True)


@contextmanager
def _events(source: Path) -> Iterator[Path]:
    """Yields the event log of a run or of a live cluster. Raises InputError."""
    from dovetail.replaying.live_log import exported, is_cluster

    if source.is_dir() and not is_cluster(source):
        if not (source / EVENTS).is_file():
            mend = "give the folder of dovetail simulate -o, or a trace"
            raise InputError(str(source), f"it has no {EVENTS}", mend)
        yield source / EVENTS
        return
    with exported(source) as log:
        yield log


def _print(words: str, by: str, table: pl.DataFrame) -> None:
    from dovetail.cli.terminal import show
    from dovetail.cli.whatif_view import charges_view

    show(charges_view(words, by, table))

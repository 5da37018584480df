"""Prints the statistics of a trace as tables, 80 columns wide."""

from __future__ import annotations

import math

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from dovetail.core.units import DAY_S, HOUR_S
from dovetail.traces.describe import (
    DATED,
    LITTLE_OF_LIMIT,
    QUANTILES,
    UNDATED,
    Description,
    LoadSummary,
    Utilization,
)

WIDTH = 80
_BARS = " ▁▂▃▄▅▆▇█"
_SIZES_SHOWN = 12
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def print_description(d: Description, console: Console) -> None:
    """Prints the description as tables; fits 80 columns."""
    parts: list[RenderableType] = [_head(d), _sizes(d), _durations(d), _ends(d), _arrivals(d)]
    if d.cluster or any(row.gpu_type for row in d.gpu_types):
        parts.append(_gpu_types(d))
    if d.utilization is not None:
        parts.append(_utilization(d.utilization))
    if d.load is not None:
        parts.append(_load(d.load))
    if d.counts:
        parts.append(_counts(d))
    console.print(Group(*parts))


def span(seconds: float) -> str:
    """Returns a duration as text: 45 s, 12.5 min, 3.2 h, 5.1 d."""
    for unit, size, least in (("d", DAY_S, DAY_S), ("h", HOUR_S, HOUR_S), ("min", 60.0, 120.0)):
        if seconds >= least:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def _short(seconds: float) -> str:
    """Returns a duration in at most six characters, for tables: 45s, 12.5m, 3.2h, 5.1d."""
    return span(seconds).replace(" ", "").removesuffix("in")


def _titled(title: str, table: Table) -> Group:
    """Returns a table under a title that may be wider than it."""
    return Group(Text(f"\n{title}", style="bold"), table)


def _table(*numbers: str, text: str = "") -> Table:
    """Returns an empty table: a column of texts, if named, and columns of numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    if text:
        table.add_column(text)
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _head(d: Description) -> Text:
    lines = [
        f"{d.name}: {d.jobs:,} jobs in {d.span_days:.1f} days,\n"
        f"{d.gpu_hours:,.0f} GPU-hours, {d.gpus_mean:.2f} GPUs a job",
        f"users {_or_none(d.users)}, queues {_or_none(d.queues)}, models {_or_none(d.models)}",
    ]
    if d.recurrence_groups:
        lines.append(
            f"recurring jobs: {d.recurrence_groups:,} groups; "
            f"{d.recurrent_share:.0%} of jobs in groups of 5 or more"
        )
    if d.with_deadline or d.with_time_limit:
        lines.append(f"with deadline {d.with_deadline:,}, with time limit {d.with_time_limit:,}")
    if d.limits is not None:
        lines.append(
            f"of their limits jobs use {d.limits.used_median:.0%} at the median; "
            f"{d.limits.used_little_share:.0%} use less than {LITTLE_OF_LIMIT:.0%}"
        )
    if d.elastic or d.shareable:
        lines.append(f"elastic {d.elastic:,}, shareable {d.shareable:,}")
    return Text("\n".join(lines))


def _or_none(count: int) -> str:
    return f"{count:,}" if count else "not told"


def _sizes(d: Description) -> Group:
    table = _table("GPUs", "jobs", "jobs %", "GPU-hours", "GPU-hours %")
    largest = sorted(d.sizes, key=lambda r: -r.jobs)[:_SIZES_SHOWN]
    shown = sorted(largest, key=lambda r: r.gpus)
    for row in shown:
        table.add_row(
            "<1" if 0 < row.gpus < 1 else str(row.gpus),
            f"{row.jobs:,}",
            f"{row.jobs_share:.1%}",
            f"{row.gpu_hours:,.0f}",
            f"{row.gpu_hours_share:.1%}",
        )
    rest = [r for r in d.sizes if r not in shown]
    if rest:
        table.add_row(
            f"{len(rest)} others",
            f"{sum(r.jobs for r in rest):,}",
            f"{sum(r.jobs_share for r in rest):.1%}",
            f"{sum(r.gpu_hours for r in rest):,.0f}",
            f"{sum(r.gpu_hours_share for r in rest):.1%}",
        )
    return _titled("Sizes", table)


def _gpu_types(d: Description) -> Group:
    """Returns the types, and the cluster that fits as an option to paste."""
    heads = ("jobs", "GPU-hours", "peak GPUs", "nodes", "GPUs a node")
    table = _table(*heads, text="GPU type")
    for row in d.gpu_types:
        told = (row.peak_gpus, row.nodes, row.gpus_per_node)
        table.add_row(
            row.gpu_type or "any",
            f"{row.jobs:,}",
            f"{row.gpu_hours:,.0f}",
            *(f"{n:,}" if n else "-" for n in told),
        )
    lines = []
    if d.cluster:
        lines.append(Text(f"The cluster that fits: --cluster {d.cluster}"))
    if d.cluster and not all(row.nodes for row in d.gpu_types if row.gpu_type):
        lines.append(Text("(the size of nodes is assumed: the log names none)"))
    return Group(_titled("GPUs", table), *lines)


def _durations(d: Description) -> Group:
    quantiles = (f"p{q * 100:g}" for q in QUANTILES)
    table = _table("GPUs", "jobs", "mean", *quantiles, "longest")
    for row in d.durations:
        values = (row.mean_s, *row.quantiles_s, row.longest_s)
        table.add_row(row.sizes, f"{row.jobs:,}", *(_short(v) for v in values))
    return _titled("Run times", table)


def _ends(d: Description) -> Group:
    table = _table("jobs", "jobs %", "GPU-hours %", text="end")
    for row in d.ends:
        table.add_row(
            row.end, f"{row.jobs:,}", f"{row.jobs_share:.1%}", f"{row.gpu_hours_share:.1%}"
        )
    return _titled("How jobs ended", table)


def _arrivals(d: Description) -> Text:
    a = d.arrivals
    low, high = min(a.by_hour_of_day), max(a.by_hour_of_day)
    days = " ".join(f"{n} {_rate(v)}" for n, v in zip(WEEKDAYS, a.by_weekday, strict=True))
    return Text(
        f"\nArrivals: {a.per_hour:,.1f} jobs an hour; busiest hour {a.busiest_hour_jobs:,}; "
        f"half the gaps under {span(a.gap_median_s)}\n"
        f"by hour of day  00 {_bars(a.by_hour_of_day)} 23   ({low:.1f} to {high:.1f} an hour)\n"
        f"by weekday      {days}\n"
        f"(hours and weekdays {clock_words(a.clock)})"
    )


def clock_words(clock: str) -> str:
    """Returns the clock of hours and weekdays in words."""
    return clock if clock in (DATED, UNDATED) else f"on the clocks of {clock}"


def _utilization(u: Utilization) -> Group:
    """Returns the share of the GPUs that was held: by type, and by hour and weekday of each."""
    hours = _table("GPUs", "mean", text="GPU type")
    hours.add_column("00 by hour of day 23", no_wrap=True)
    days = _table(*WEEKDAYS, text="GPU type")
    for name in ("least", "most"):
        hours.add_column(name, justify="right", no_wrap=True)
    for row in u.rows:
        name = row.gpu_type or "all"
        known = [(share, i) for i, share in enumerate(row.by_hour_of_day) if share is not None]
        ends = (f"{share:.0%} ({hour:02})" for share, hour in (min(known), max(known)))
        bars = _bars(tuple(share or 0.0 for share in row.by_hour_of_day))
        hours.add_row(name, f"{row.installed_gpus:,}", f"{row.mean:.0%}", bars, *ends)
        days.add_row(name, *("-" if s is None else f"{s:.0%}" for s in row.by_weekday))
    left_out = f"; {u.incomplete_jobs:,} jobs without a complete record are not counted"
    window = (
        f"held GPU-seconds over those of the cluster that fits, from the first\n"
        f"submission to the last end, {span(u.until_s - u.from_s)}"
        f"{left_out if u.incomplete_jobs else ''}"
    )
    return Group(_titled("Utilization", hours), Text(), days, Text(f"({window})"))


def _rate(jobs: float) -> str:
    """Returns a rate in at most four characters, so that a week fits a line."""
    return f"{jobs:.{2 if jobs < 10 else 1 if jobs < 100 else 0}f}"


def _bars(values: tuple[float, ...]) -> str:
    top = max(values) or 1.0
    return "".join(_BARS[round(v / top * (len(_BARS) - 1))] for v in values)


def _load(load: LoadSummary) -> Text:
    days = sorted(load.by_day)
    mean = f"mean {load.mean:.2f}" if math.isfinite(load.mean) else "all jobs arrive at once"
    text = (
        f"\nOffered load on {load.gpus:,} GPUs: {mean}\n"
        f"by day of submission: median {days[len(days) // 2]:.2f}, peak {days[-1]:.2f}"
    )
    if load.too_large_jobs:
        text += f"\n{load.too_large_jobs:,} jobs ask for more GPUs than the cluster has"
    return Text(text)


def _counts(d: Description) -> Group:
    table = _table("rows", text="what")
    for what, rows in d.counts.items():
        table.add_row(what, f"{rows:,}")
    return Group(_titled("Rows of the source", table), Text(d.imported))

"""Terminal tables: the ranked policies at 80 columns, and the numbers of one run.

A table is a rich renderable; the command line prints it. Whatever does not fit its place in
80 columns goes to a second table below rather than wrapping inside the first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import polars as pl

from dovetail.record.replay_error import ReplayError
from dovetail.record.result import GPU_SECOND_KINDS, IF_KNOWN, RECORDED, Comparison, RunResult
from dovetail.report.order import Mark, advised, marks
from dovetail.report.replay_words import departure_lines, replay_sentence
from dovetail.report.why import Why, by_size, saved_words
from dovetail.report.words import (
    KNOWN,
    MISSING,
    bounds_text,
    comparison_sentence,
    count,
    duration,
    factor,
    known_words,
    percent,
    power_words,
    run_sentence,
    short_names,
    size_order,
    size_words,
    spelled_words,
)

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

SPLIT_ROWS = 10


def comparison_view(comparison: Comparison) -> Group:
    """Returns the terminal view of a comparison: sentence, ranking, knowledge and notes."""
    from rich.text import Text

    parts: list[Text | Table] = [
        *(Text(caution, style="bold") for caution in comparison.cautions),
        Text(comparison_sentence(comparison)),
        ranking(comparison),
        Text(meanings(comparison)),
        *_replay_of(comparison),
        *_waits_of(comparison),
        *_spending_of(comparison),
        knowledge(comparison),
        *(
            Text(spelled_words(short, name))
            for name, short in row_names(comparison).items()
            if short != name and not name.endswith(KNOWN)
        ),
    ]
    if comparison.bound_s is not None:
        parts.append(Text(f"Bound on the mean JCT: {bounds_text(comparison)}"))
    parts += [Text(f"Note: {note}") for note in comparison.notes]
    return _apart(parts)


def run_view(result: RunResult, notes: Sequence[str] = (), cautions: Sequence[str] = ()) -> Group:
    """Returns the terminal view of a run: what must be said first, sentence, tables, notes."""
    from rich.text import Text

    parts: list[Text | Table] = [Text(caution, style="bold") for caution in cautions]
    parts += [Text(run_sentence(result)), numbers(result)]
    if sum(result.gpu_seconds.values()) > 0:
        parts.append(gpu_seconds(result))
    sizes = result.splits.get("size_class")
    if sizes is not None and len(sizes):
        parts.append(split(sizes, "GPUs asked for"))
    return _apart([*parts, *(Text(f"Note: {note}") for note in [*_run_notes(result), *notes])])


def _run_notes(result: RunResult) -> list[str]:
    """Returns notes on excluded jobs, and on jobs that did not complete."""
    notes = []
    left_out = result.number("left_out") or 0
    if left_out:
        notes.append(f"{left_out:,.0f} jobs can never fit this cluster and were left out.")
    trace = result.manifest.get("trace")
    counts = trace.get("counts", {}) if isinstance(trace, dict) else {}
    for reason, rows in sorted(counts.items()):
        if reason.startswith("rejected"):
            notes.append(f"{rows:,} rows of the file, {reason}.")
    for key, words in (("timed_out", "ended at their time limit"), ("cancelled", "were cancelled")):
        jobs = result.number(key) or 0
        if jobs:
            notes.append(f"{jobs:,.0f} jobs {words}.")
    return notes


def _apart(parts: Sequence[Text | Table]) -> Group:
    """Returns the parts in a column, with a blank line around every table."""
    from rich.console import Group
    from rich.text import Text

    spaced: list[Text | Table] = []
    for i, part in enumerate(parts):
        if i and not (isinstance(part, Text) and isinstance(parts[i - 1], Text)):
            spaced.append(Text(""))
        spaced.append(part)
    return Group(*spaced)


def meanings(comparison: Comparison) -> str:
    """Returns what the columns of the ranking mean."""
    text = (
        "mean and 99 %: job completion time (JCT), from submission to end, and what 99 of 100 jobs "
        "stay below; wait: all time without GPUs; preempt: runs that were cut short."
    )
    if RECORDED in comparison.results:
        text = f"{text[:-1]}, of the log also by failed nodes."
    return text


UNCROWDED_WIDTH = 12
"""Names up to this width leave room for two blanks between the columns of the ranking."""


def ranking(comparison: Comparison) -> Table:
    """Returns the rows by kind and mean JCT, the shortest first, in at most 80 columns.

    A line parts the policies from those that are told true lengths beside them.
    """
    short = row_names(comparison)
    wide = max(map(len, short.values()), default=0) > UNCROWDED_WIDTH
    table = plain_table(1 - wide)
    base = short.get(comparison.baseline, "base")
    against = f"vs {base}" if len(base) <= 4 else "vs base"
    table.add_column("policy", no_wrap=True)
    for head in ("mean", "95 %", _plain(against), "x bound", "99 %", "wait", "GPUs", "preempt"):
        table.add_column(head, justify="right", no_wrap=True)
    best, kind, mark_of = advised(comparison), None, _marks(comparison)
    for row in comparison.ranked.to_dicts():
        if kind is not None and IF_KNOWN in (kind, row["kind"]) and kind != row["kind"]:
            table.add_section()
        kind = row["kind"]
        style = "bold" if row["policy"] == best else ""
        name = painted(short[row["policy"]], mark_of[row["policy"]])
        table.add_row(name, *_cells(_ranking_cells(row)), style=style)
    return table


def _replay_of(comparison: Comparison) -> list[Text | Table]:
    """Returns how far the replay of the site's scheduler is from the record, if there is one."""
    from rich.text import Text

    error = comparison.replay_error
    if error is None:
        return []
    name = row_names(comparison)[error.policy]
    return [
        Text(replay_sentence(error, name)),
        replay_errors(error),
        *(Text(line) for line in departure_lines(error)),
    ]


def replay_errors(error: ReplayError) -> Table:
    """Returns a table of recorded and replayed waits and JCTs by size and queue."""
    table = plain_table()
    table.add_column("replay by", max_width=24, no_wrap=True)
    for head in ("jobs", "wait, log", "replay", "JCT, log", "replay"):
        table.add_column(head, justify="right", no_wrap=True)
    sizes = sorted(error.by_size, key=lambda g: size_order(g.group))
    groups = [(size_words(g.group), g) for g in sizes]
    queues = error.by_queue if len(error.by_queue) > 1 else ()
    groups += [(f"queue {g.group}", g) for g in queues[:SPLIT_ROWS]]
    for title, group in groups:
        sides = (group.wait, group.jct)
        times = [duration(s) for d in sides for s in (d.recorded_s, d.replayed_s)]
        table.add_row(*_cells([title, count(group.jobs), *times]))
    return table


def row_names(comparison: Comparison) -> dict[str, str]:
    """Returns the short names, numbered as in the pictures: in the order the user named them."""
    return short_names([*comparison.results, *comparison.ranked["policy"]])


def _ranking_cells(row: dict[str, float]) -> list[str]:
    return [
        duration(row["avg_jct_s"]),
        _spread(row),
        factor(row["ratio_to_baseline"]),
        factor(row["x_bound"]),
        duration(row["p99_jct_s"]),
        duration(row["avg_wait_s"]),
        _tight(row["gpu_utilization"]),
        _compact(row["preemptions"]),
    ]


def _compact(value: float | None) -> str:
    """Returns a count in at most seven columns: `24,100`, then `1.21 M`."""
    return count(value) if value is None or value < 1e5 else f"{value / 1e6:.3g} M"


def _tight(share: float | None) -> str:
    return percent(share).replace(" ", "")


def _spread(row: dict[str, float]) -> str:
    """Returns half the width of the interval as a share of the mean: `±8%`."""
    low, high, mean = row["low"], row["high"], row["avg_jct_s"]
    if low is None or high is None or not mean:
        return MISSING
    return "±" + _tight((high - low) / 2 / mean)


def knowledge(comparison: Comparison) -> Table:
    """Returns a table of the knowledge and the powers of each policy."""
    table = plain_table()
    short, mark_of = row_names(comparison), _marks(comparison)
    for head, width in (("policy", 16), ("knows", 24), ("may", 34)):
        table.add_column(head, max_width=width, overflow="fold")
    for row in comparison.policies.to_dicts():
        name = str(row["policy"])
        words = [known_words(row), power_words(row)]
        table.add_row(painted(short[name], mark_of[name]), *_cells(words))
    return table


def numbers(result: RunResult) -> Table:
    """Returns a table of the main metrics of a run."""
    table = plain_table()
    table.add_column("number")
    table.add_column("value", justify="right")
    for words, key, spell in NUMBERS:
        value = result.number(key)
        if value is not None:
            table.add_row(words, spell(value))
    return table


NUMBERS = (
    ("jobs", "jobs", count),
    ("finished", "finished", count),
    ("mean JCT", "avg_jct_s", duration),
    ("mean JCT, 95 % from", "avg_jct_low_s", duration),
    ("mean JCT, 95 % to", "avg_jct_high_s", duration),
    ("median JCT", "median_jct_s", duration),
    ("99 % JCT", "p99_jct_s", duration),
    ("mean wait, all time without GPUs", "avg_wait_s", duration),
    ("mean time to first start", "avg_time_to_start_s", duration),
    ("makespan", "makespan_s", duration),
    ("bound on the mean JCT", "bound_s", duration),
    ("times the bound", "x_bound", factor),
    ("GPUs held", "gpu_utilization", percent),
    ("mean jobs waiting", "avg_queue_length", lambda v: f"{v:,.1f}"),
    ("mean blocking index", "avg_blocking_index", lambda v: f"{v:,.3f}"),
    ("mean cluster efficiency", "cluster_efficiency", lambda v: f"{v:,.3f}"),
    ("preemptions", "preemptions", count),
    ("node failures", "node_failures", count),
    ("requeues", "requeues", count),
    ("restarts of unknown cause", "restarts_untold", count),
    ("resizes", "resizes", count),
)


def gpu_seconds(result: RunResult) -> Table:
    """Returns a table of the use of the GPU-seconds of the capacity."""
    table = plain_table()
    table.add_column("GPU-time")
    table.add_column("share", justify="right")
    table.add_column("GPU-hours", justify="right")
    total = sum(result.gpu_seconds.values())
    for kind in GPU_SECOND_KINDS:
        seconds = result.gpu_seconds.get(kind, 0.0)
        if seconds:
            table.add_row(
                GPU_SECOND_WORDS[kind], percent(seconds / total), f"{seconds / 3600:,.1f}"
            )
    return table


GPU_SECOND_WORDS = {
    "useful": "useful work",
    "slowdown": "slowed down by sharing, distance or poor scaling",
    "switching": "switching jobs",
    "idle_waiting": "idle while jobs wait",
    "idle_empty": "idle, none wait",
    "down": "node away",
}


WAIT_GROUPS_MAX = 6
WAIT_TITLES = {"size_class": "wait by GPUs", "queue": "wait by queue", "account": "wait by account"}


def _waits_of(comparison: Comparison) -> list[Table]:
    """Returns the waits by size; by queue and account too if the log or the cluster has some."""
    frames = [r.manifest.get("cluster") for r in comparison.results.values()]
    tenants = any(isinstance(c, Mapping) and c.get("queues") for c in frames)
    splits = list(WAIT_TITLES) if tenants or RECORDED in comparison.results else ["size_class"]
    least = {"size_class": 1, "queue": 2, "account": 2}
    return [waits(comparison, s) for s in splits if len(wait_groups(comparison, s)) >= least[s]]


def wait_groups(comparison: Comparison, split: str) -> list[str]:
    """Returns the groups of jobs that ended under any policy: by size, else most jobs first."""
    frames = [r.splits.get(split) for r in comparison.results.values()]
    jobs: Counter[str] = Counter()
    for frame in frames:
        for group, number in () if frame is None else frame.select("group", "jobs").iter_rows():
            jobs[str(group or "")] = max(jobs[str(group or "")], number)
    jobs.pop("", None)
    if split == "size_class":
        return sorted(jobs, key=size_order)
    return sorted(jobs, key=lambda group: (-jobs[group], group))


def waits(comparison: Comparison, split: str = "size_class") -> Table:
    """Returns a table of the mean wait, all time without GPUs, by policy and group of jobs."""
    table = plain_table()
    short, mark_of = row_names(comparison), _marks(comparison)
    groups = wait_groups(comparison, split)
    shown = groups if split == "size_class" else groups[:WAIT_GROUPS_MAX]
    more = f" ({len(shown)} of {len(groups)})" if len(shown) < len(groups) else ""
    table.add_column(WAIT_TITLES[split] + more, no_wrap=True)
    for group in shown:
        table.add_column(_plain(group), justify="right", no_wrap=True, max_width=10)
    for name in comparison.ranked["policy"]:
        result = comparison.results.get(name)
        if result is None or split not in result.splits:
            continue
        rows = result.splits[split].select("group", "avg_wait_s").iter_rows()
        of_group = {str(group): wait_s for group, wait_s in rows}
        waited = _cells([duration(of_group.get(group)) for group in shown])
        table.add_row(painted(short[name], mark_of[name]), *waited)
    return table


WHY_HEADS = ("wait before", "after", "saved", "share", "sooner", "later")
WHY_RECORDED = ("recorded", "before", "after", "saved", "from log")


def why_view(found: Why) -> Group:
    """Returns why a policy differs from the baseline: whose waiting it saves or costs."""
    from rich.text import Text

    table = plain_table()
    table.add_column("GPUs", no_wrap=True)
    table.add_column("hold them", no_wrap=True)
    logged = "recorded_wait_s" in found.table.columns
    for head in ("jobs", *(WHY_RECORDED if logged else WHY_HEADS)):
        table.add_column(head, justify="right", no_wrap=True)
    for row in by_size(found.table):
        keys = ("recorded_wait_s", "base_wait_s", "wait_s")[not logged :]
        waits = [_wait(row[key]) for key in keys]
        saved = saved_words(_float(row["saved_s"]))
        if logged:
            numbers = [saved_words(_float(row["recorded_saved_s"]))]
        else:
            counts = (count(_float(row[key])) for key in ("gain", "lose"))
            numbers = [_tight(_float(row["share"])), *counts]
        saved += " *" * bool(row.get("replay_off"))
        first = [str(row["group"]), str(row["length"]), count(_float(row["jobs"]))]
        table.add_row(*_cells([*first, *waits, saved, *numbers]))
    meaning = (
        "saved: waiting of all jobs of the row together; share: of all that is saved; sooner and "
        "later: jobs that wait more than a minute less, or longer."
    )
    if logged:
        meaning = (
            "before, saved: against the baseline; recorded, from log: against the log; saved is "
            "the waiting of all jobs of the row together."
        )
    if found.table.get_column("replay_off", default=pl.Series([False])).any():
        meaning += " *: the replay errs by more than half of that, so it may be its error."
    return _apart([Text(found.words), table, Text(meaning)])


def _wait(seconds: object) -> str:
    return MISSING if seconds is None else duration(_float(seconds))


def _float(value: object) -> float:
    return float(str(value))


def _spending_of(comparison: Comparison) -> list[Table]:
    counted = any(sum(r.gpu_seconds.values()) > 0 for r in comparison.results.values())
    return [spending(comparison)] if counted else []


def spending(comparison: Comparison) -> Table:
    """Returns a table of the shares of the capacity by use, per policy.

    Slowed is negative if sharing or fewer GPUs than requested were more efficient.
    """
    table = plain_table()
    short, mark_of = row_names(comparison), _marks(comparison)
    table.add_column("GPU-time", no_wrap=True)
    kinds = [
        kind
        for kind in GPU_SECOND_KINDS
        if any(r.gpu_seconds.get(kind) for r in comparison.results.values())
    ]
    for kind in kinds:
        table.add_column(_SPENDING_HEADS[kind], justify="right", no_wrap=True)
    for name in comparison.ranked["policy"]:
        result = comparison.results.get(name)
        total = sum(result.gpu_seconds.values()) if result else 0.0
        if result and total > 0:
            shares = [percent(result.gpu_seconds.get(kind, 0.0) / total) for kind in kinds]
            table.add_row(painted(short[name], mark_of[name]), *_cells(shares))
    return table


_SPENDING_HEADS = {
    "useful": "useful",
    "slowdown": "slowed",
    "switching": "switching",
    "idle_waiting": "idle, jobs wait",
    "idle_empty": "idle, none wait",
    "down": "away",
}


def split(frame: pl.DataFrame, title: str) -> Table:
    """Returns the job metrics by group: sizes in order, else the groups with most jobs first."""
    table = plain_table()
    table.add_column(title, max_width=24, no_wrap=True)
    for head in ("jobs", "mean JCT", "median", "99 %", "wait", "median", "90 %"):
        table.add_column(head, justify="right", no_wrap=True)
    rows = frame.sort("jobs", "group", descending=[True, False]).head(SPLIT_ROWS).to_dicts()
    if title == "GPUs asked for":
        rows.sort(key=lambda r: size_order(str(r["group"])))
    for row in rows:
        spells = [duration(row[k]) for k in ("avg_jct_s", "median_jct_s", "p99_jct_s")]
        waits = [duration(row[k]) for k in ("avg_wait_s", "median_wait_s", "p90_wait_s")]
        table.add_row(*_cells([str(row["group"]), count(row["jobs"]), *spells, *waits]))
    if len(frame) > SPLIT_ROWS:
        table.caption = f"and {len(frame) - SPLIT_ROWS:,} more, with fewer jobs each"
    return table


def plain_table(padding: int = 1) -> Table:
    """Returns an empty table in the style of the terminal."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    around = (0, padding, 0, 0)
    return Table(
        box=SIMPLE_HEAD, padding=around, pad_edge=False, show_edge=False, header_style="bold"
    )


def _marks(comparison: Comparison) -> dict[str, Mark]:
    return marks([*comparison.results, *comparison.ranked["policy"]])


def painted(name: str, mark: Mark) -> Text:
    """Returns a name in the colour that its row has in every picture; italic if told lengths."""
    from rich.text import Text

    return Text(name, style=f"{mark.colour} italic" if mark.is_told else mark.colour)


def _cells(words: Sequence[str]) -> list[str]:
    return [_plain(w) for w in words]


def _plain(words: str) -> str:
    """Returns a text that rich shows as it is: a name may hold brackets, which are its markup."""
    from rich.markup import escape

    return escape(words)

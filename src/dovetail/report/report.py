"""`report.html`: the result in one sentence, the table and the plots.

One file that needs no network, reads at the width of a phone, and still reads without
scripts, which only sort the tables.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from html import escape
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from dovetail.record.result import IF_KNOWN, RECORDED, Comparison, RunResult
from dovetail.report import plots
from dovetail.report.page import Cell, TableRow, figure, page, table
from dovetail.report.recorded import replay_section, waits_by_group
from dovetail.report.words import (
    MISSING,
    bounds_text,
    comparison_sentence,
    count,
    duration,
    factor,
    percent,
    run_sentence,
    short_names,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TOP_GROUPS = 15
"""The largest groups of a split that are shown: a trace may name thousands of users."""
TOP_USERS = 5

Panel = tuple[str, Callable[[], "Figure"], str, str]
"""key, how to draw it, title, caption"""

QUANTILES = "Dot: median. Bar: the middle half of the jobs. Line up to the tick: 99 %."


def write_run_report(result: RunResult, path: Path | str) -> None:
    """Writes the report of one run as one HTML file."""
    Path(path).write_text(run_report(result), "utf-8")


def write_comparison_report(comparison: Comparison, path: Path | str) -> None:
    """Writes the report of several policies on one trace as one HTML file."""
    Path(path).write_text(comparison_report(comparison), "utf-8")


def run_report(result: RunResult) -> str:
    """Returns the report of one run."""
    one = {result.policy: result}
    panels: list[Panel] = [
        ("jct", lambda: plots.jct_distribution(one), *CAPTIONS["jct"]),
        ("size", lambda: plots.jct_by_size(one), *CAPTIONS["size"]),
        ("load", lambda: plots.load_over_time(result), *CAPTIONS["load"]),
        ("nodes", lambda: plots.occupancy(result), *CAPTIONS["nodes"]),
        ("where", lambda: plots.gpu_seconds(one), *CAPTIONS["where"]),
    ]
    (name,) = short_names([result.policy]).values()
    body = [
        f"<h1>One run of {escape(name)}</h1>",
        f'<p class="small">{escape(result.policy)}</p>',
        _where(result),
        f'<p class="answer">{escape(run_sentence(result))}</p>',
        "<h2>Numbers</h2>",
        _summary_table(result),
        "<h2>Pictures</h2>",
        _figures(panels),
        "<h2>By group</h2>",
        _splits(result),
        _manifest({result.policy: result}),
    ]
    return page(f"Dovetail: {result.policy}", "\n".join(body))


def comparison_report(comparison: Comparison) -> str:
    """Returns the report of a comparison."""
    first = next(iter(comparison.results.values()), None)
    bound = comparison.bound.get("kind")
    body = [
        f"<h1>{len(comparison.policies)} policies on the same trace</h1>",
        _where(first) if first else "",
        *(f'<p class="caution">{escape(caution)}</p>' for caution in comparison.cautions),
        f'<p class="answer">{escape(comparison_sentence(comparison))}</p>',
        "<h2>Policies, by mean job completion time</h2>",
        _policy_table(comparison),
        f'<p class="small">JCT: from submission to finish. {escape(_bound_words(comparison))}</p>',
        replay_section(comparison),
        _notes(comparison.notes),
        "<h2>Pictures</h2>",
        _figures(_comparison_panels(comparison)),
        "<h2>Over time, the best policy and the baseline</h2>",
        _figures(_panels_over_time(comparison)),
        _users_changed(comparison),
        waits_by_group(comparison),
        _manifest(comparison.results, bound=bound),
    ]
    return page("Dovetail: comparison of policies", "\n".join(body))


CAPTIONS = {
    "mean": (
        "Mean JCT",
        "Point: mean; whiskers: 95 % interval over traces like this one. Dashed: the bound that no "
        "schedule with the powers of the policy can beat on this very trace.",
    ),
    "jct": ("Job completion times", "Share of the jobs that took at most so long."),
    "size": ("JCT by job size", QUANTILES),
    "load": (
        "Load over time",
        "Line: mean of each instant drawn; shade: from its least to its greatest value.",
    ),
    "queue": ("Jobs waiting", "Mean over each instant drawn."),
    "nodes": ("Nodes over time", "Share of each node's GPUs that jobs hold."),
    "where": (
        "Where every GPU-second went",
        "Of all GPU-seconds from the first submission to the last finish.",
    ),
    "by-size": ("What changed, by job size", f"Below 1x: sooner than the baseline. {QUANTILES}"),
    "by-user": (
        "What changed, by user",
        "Share of the users whose mean JCT changed by at most so much. Left of 1x: they gain.",
    ),
}


def _comparison_panels(comparison: Comparison) -> list[Panel]:
    results = comparison.results
    panels: list[Panel] = [
        ("mean", lambda: plots.mean_jct(comparison), *CAPTIONS["mean"]),
        ("jct", lambda: plots.jct_distribution(results), *CAPTIONS["jct"]),
        ("queue", lambda: plots.queue_lengths(results), *CAPTIONS["queue"]),
        ("where", lambda: plots.gpu_seconds(results), *CAPTIONS["where"]),
        ("size", lambda: plots.jct_by_size(results), *CAPTIONS["size"]),
    ]
    if len(results) > 1 and comparison.baseline in results:
        panels += [
            ("by-size", lambda: plots.change_by_size(comparison), *CAPTIONS["by-size"]),
            ("by-user", lambda: plots.change_by_user(comparison), *CAPTIONS["by-user"]),
        ]
    return panels


def _panels_over_time(comparison: Comparison) -> list[Panel]:
    """Returns the plots of load and nodes of the best policy and the baseline."""
    results = comparison.results
    short = short_names(results)
    shown = [n for n in dict.fromkeys([best_of(comparison), comparison.baseline]) if n in results]
    pairs = [_over_time(results[name], short[name], i) for i, name in enumerate(shown)]
    return [panel for row in zip_longest(*pairs) for panel in row if panel]


def _over_time(result: RunResult, name: str, i: int) -> list[Panel]:
    (load, load_caption), (nodes, nodes_caption) = CAPTIONS["load"], CAPTIONS["nodes"]
    panels: list[Panel] = [
        (f"load{i}", lambda: plots.load_over_time(result), f"{load}: {name}", load_caption)
    ]
    if len(result.spans):
        panels.append(
            (f"nodes{i}", lambda: plots.occupancy(result), f"{nodes}: {name}", nodes_caption)
        )
    return panels


def best_of(comparison: Comparison) -> str:
    """Returns the policy with the shortest mean JCT."""
    return comparison.best


def _where(result: RunResult) -> str:
    trace, cluster = result.manifest.get("trace"), result.manifest.get("cluster")
    parts = []
    if isinstance(trace, dict):
        parts.append(f"Trace {trace.get('name') or 'without a name'}")
        parts.append(f"{count(result.number('jobs'))} jobs")
    if isinstance(cluster, dict):
        parts.append(f"{count(cluster.get('gpus'))} GPUs in {count(cluster.get('nodes'))} nodes")
    parts.append(f"Dovetail {result.manifest.get('version', '')}")
    return f'<p class="where">{escape(" · ".join(parts))}</p>'


def _figures(panels: list[Panel]) -> str:
    drawn = [figure(draw(), title, words, key) for key, draw, title, words in panels]
    return f'<div class="figures">\n{"".join(drawn)}\n</div>'


def _notes(notes: list[str]) -> str:
    if not notes:
        return ""
    return "<h2>Notes</h2><ul>" + "".join(f"<li>{escape(n)}</li>" for n in notes) + "</ul>"


def _bound_words(comparison: Comparison) -> str:
    if comparison.bound_s is None:
        return ""
    return f"Bound on the mean JCT: {bounds_text(comparison)}."


def _policy_table(comparison: Comparison) -> str:
    heads = ["policy", "mean JCT", "95 % interval", "vs baseline", "x bound", "median", "99 %"]
    heads += ["wait", "makespan", "GPUs held", "preemptions", "knows", "may"]
    best = best_of(comparison)
    short = short_names([*comparison.results, *comparison.ranked["policy"]])
    rows = []
    for row in comparison.ranked.to_dicts():
        name = str(row["policy"])
        marks = {
            "shortest mean": name == best,
            "baseline": name == comparison.baseline,
            "what happened": row["kind"] == RECORDED,
            "if lengths were known": row["kind"] == IF_KNOWN,
            name: short[name] != name,
        }
        note = " · ".join(word for word, holds in marks.items() if holds)
        rows.append(TableRow(short[name], _policy_cells(row), note, is_best=name == best))
    return table(heads, rows)


def _policy_cells(row: dict[str, float]) -> list[Cell]:
    low, high = row["low"], row["high"]
    interval = MISSING if low is None or high is None else f"{duration(low)} – {duration(high)}"
    return [
        Cell(duration(row["avg_jct_s"]), row["avg_jct_s"]),
        Cell(interval, low),
        Cell(factor(row["ratio_to_baseline"]), row["ratio_to_baseline"]),
        Cell(factor(row["x_bound"]), row["x_bound"]),
        Cell(duration(row["median_jct_s"]), row["median_jct_s"]),
        Cell(duration(row["p99_jct_s"]), row["p99_jct_s"]),
        Cell(duration(row["avg_wait_s"]), row["avg_wait_s"]),
        Cell(duration(row["makespan_s"]), row["makespan_s"]),
        Cell(percent(row["gpu_utilization"]), row["gpu_utilization"]),
        Cell(count(row["preemptions"]), row["preemptions"]),
        Cell(str(row["knows"] or "nothing"), is_words=True),
        Cell(str(row["powers"] or "start only"), is_words=True),
    ]


def _summary_table(result: RunResult) -> str:
    rows = [
        TableRow(key.removesuffix("_s").replace("_", " "), [Cell(_spelled(key, value), None)])
        for key, value in result.summary.items()
        if key != "policy" and value is not None
    ]
    return table(["number", "value"], rows, kind="plain")


def _spelled(key: str, value: float | int | str | None) -> str:
    if isinstance(value, str) or value is None:
        return value or MISSING
    if key.endswith("_gpu_s"):
        return f"{value:,.0f} GPU-s"
    if key.endswith("_s"):
        return duration(value)
    if key.endswith("_utilization"):
        return percent(value)
    if key == "x_bound":
        return factor(value)
    return count(value) if float(value).is_integer() else f"{value:,.4g}"


SPLIT_NAMES = {
    "size_class": "GPUs asked for",
    "user": "User",
    "account": "Account",
    "queue": "Queue",
    "model": "Model",
}


def _splits(result: RunResult) -> str:
    parts = []
    for key, title in SPLIT_NAMES.items():
        split = result.splits.get(key)
        if split is not None and len(split):
            parts.append(f"<div><h3>{title}</h3>{_split_table(split, title)}</div>")
    return f'<div class="tables">{"".join(parts)}</div>'


def _split_table(split: pl.DataFrame, title: str) -> str:
    largest = split.sort("jobs", "group", descending=[True, False]).head(TOP_GROUPS)
    rows = [
        TableRow(
            str(r["group"]),
            [
                Cell(count(r["jobs"]), r["jobs"]),
                *(Cell(duration(r[k]), r[k]) for k in SPLIT_NUMBERS),
            ],
        )
        for r in largest.to_dicts()
    ]
    rest = len(split) - len(largest)
    more = f'<p class="small">and {rest:,} more, with fewer jobs each</p>' if rest else ""
    return table([title, "jobs", "mean JCT", "median", "99 %", "wait"], rows) + more


SPLIT_NUMBERS = ("avg_jct_s", "median_jct_s", "p99_jct_s", "avg_wait_s")


def _users_changed(comparison: Comparison) -> str:
    best, base = best_of(comparison), comparison.baseline
    if best == base or not {best, base} <= set(comparison.results):
        return ""
    users = plots.user_changes(comparison, best)
    if not len(users):
        return ""
    gain, loss = users.filter(pl.col("ratio") < 0.995), users.filter(pl.col("ratio") > 1.005)
    short = short_names(comparison.results)
    heading = f"Whom {short[best]} serves better and worse than {short[base]}"
    words = (
        f"{len(gain):,} of {len(users):,} users see a shorter mean JCT, {len(loss):,} a longer one."
    )
    parts = [f"<h2>{escape(heading)}</h2><p>{escape(words)}</p>", '<div class="tables">']
    for title, rows in (("Gain most", gain.head(TOP_USERS)), ("Lose most", loss.reverse())):
        if len(rows):
            parts.append(f"<div><h3>{title}</h3>{_user_table(rows.head(TOP_USERS))}</div>")
    return "\n".join([*parts, "</div>"])


def _user_table(users: pl.DataFrame) -> str:
    rows = [
        TableRow(
            str(u["user"]),
            [
                Cell(count(u["jobs"]), u["jobs"]),
                Cell(duration(u["base_s"]), u["base_s"]),
                Cell(duration(u["jct_s"]), u["jct_s"]),
                Cell(plots.change_words(u["ratio"]), u["ratio"]),
            ],
        )
        for u in users.to_dicts()
    ]
    return table(["user", "jobs", "mean JCT before", "after", "change"], rows)


def _manifest(results: dict[str, RunResult], **more: object) -> str:
    whole = {**{n: r.manifest for n, r in results.items()}, **{k: v for k, v in more.items() if v}}
    text = json.dumps(whole, indent=1, default=str, ensure_ascii=False)
    return (
        "<details><summary>Manifest: everything needed to run this again</summary>"
        f"<pre>{escape(text)}</pre></details>"
    )

"""`report.html`: the result in one sentence, then what it rests on, in the order one asks.

One file that needs no network, reads at the width of a phone, and still reads without scripts,
which sort the tables and make the pictures answer: values under the pointer, zoom, filters.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.record.result import RECORDED, Comparison, RunResult
from dovetail.report import plots
from dovetail.report.comparison_tables import (
    OFF,
    changes_tables,
    option_table,
    ranking_table,
    shorts,
    spending_table,
    user_table,
    wait_tables,
)
from dovetail.report.order import best_of, is_told, names_in_order
from dovetail.report.page import CHART_SCRIPTS, Picture, render
from dovetail.report.page_data import page_json
from dovetail.report.recorded_tables import recorded_tables
from dovetail.report.replay_words import far_sizes
from dovetail.report.run_tables import IMPORT_UNKNOWN, group_tables, import_table, numbers_tables
from dovetail.report.words import (
    bounds_text,
    comparison_sentence,
    count,
    run_sentence,
    short_names,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matplotlib.figure import Figure

QUANTILES = "Dot: median. Bar: the middle half of the jobs. Line up to the tick: 99 %."
CAPTIONS = {
    "mean": (
        "Mean JCT",
        "Point: mean; line: its 95 % interval over traces like this one. Dashed: the bound that no "
        "schedule with the powers of the policy can beat on this very trace.",
    ),
    "jct": ("Distribution of times", "Share of the jobs that took at most so long."),
    "size": ("Times by job size", QUANTILES),
    "load": (
        "Load over time",
        "Means over each instant drawn, of the whole cluster; the pointer reads the greatest too.",
    ),
    "queue": (
        "Jobs waiting and GPUs held",
        "Means over each instant drawn; the pointer reads the greatest too.",
    ),
    "nodes": ("Nodes over time", "Share of each node's GPUs that jobs hold."),
    "where": (
        "Where every GPU-second went",
        "Of all GPU-seconds from the first submission to the last finish.",
    ),
    "by-size": (
        "What changed, by job size",
        f"Each job's JCT over the baseline's; below 1x: sooner. {QUANTILES}",
    ),
    "by-user": (
        "What changed, by user",
        "Share of the users whose mean JCT changed by at most so much. Left of 1x: they gain.",
    ),
}
SECTIONS = (
    ("recorded", "Recorded and replayed"),
    ("policies", "Policies"),
    ("who-pays", "Who pays"),
    ("waits", "Waits"),
    ("queue", "Queue"),
    ("gpu-time", "GPU-time"),
    ("jct", "Times"),
    ("users", "Users"),
    ("words", "Words"),
    ("options", "Options"),
)


def write_run_report(result: RunResult, path: Path | str, cautions: Sequence[str] = ()) -> None:
    """Writes the report of one run as one HTML file; the cautions come first."""
    Path(path).write_text(run_report(result, cautions), "utf-8")


def write_comparison_report(comparison: Comparison, path: Path | str) -> None:
    """Writes the report of several policies on one trace as one HTML file."""
    Path(path).write_text(comparison_report(comparison), "utf-8")


def run_report(result: RunResult, cautions: Sequence[str] = ()) -> str:
    """Returns the report of one run; the cautions come first."""
    from markupsafe import Markup

    one = {result.policy: result}
    drawn: dict[str, Callable[[], Figure]] = {
        "load": lambda: plots.load_over_time(result),
        "jct": lambda: plots.jct_distribution(one),
        "size": lambda: plots.jct_by_size(one),
        "where": lambda: plots.gpu_seconds(one),
        "nodes": lambda: plots.occupancy(result),
    }
    (name,) = short_names([result.policy]).values()
    values: dict[str, object] = {
        "title": f"One run of {name}",
        "policy_name": result.policy,
        "where": _where(result),
        "cautions": cautions,
        "imported": import_table(result),
        "import_unknown": IMPORT_UNKNOWN,
        "answer": run_sentence(result),
        "numbers": numbers_tables(result),
        "groups": group_tables(result),
        "pictures": {key: _picture(key, draw) for key, draw in drawn.items()},
        "manifest": _manifest(one),
        "data": Markup(page_json(one, result.policy)),
    }
    return render("run.html.jinja", CHART_SCRIPTS, values)


def comparison_report(comparison: Comparison) -> str:
    """Returns the report of a comparison."""
    from markupsafe import Markup

    results = comparison.results
    if not results:
        raise ValueError("a comparison of no runs has no report")
    bound = comparison.bound.get("kind")
    policies = sum(name != RECORDED and not is_told(name) for name in results)
    payers = changes_tables(comparison)
    values: dict[str, object] = {
        "title": f"{count(policies)} {'policy' if policies == 1 else 'policies'} on the same trace",
        "policies": len(results),
        "where": _where(next(iter(results.values()))),
        "cautions": comparison.cautions,
        "answer": comparison_sentence(comparison),
        "recorded": recorded_tables(comparison, shorts(comparison)),
        "ranking": ranking_table(comparison),
        "bound": f"Bound on the mean JCT: {bounds_text(comparison)}." if bound else "",
        "notes": comparison.notes,
        "payers": payers,
        "payers_words": _payers_words(comparison),
        "waits": wait_tables(comparison),
        "spending": spending_table(comparison),
        "users": user_table(comparison),
        "options": option_table(comparison),
        "imported": import_table(next(r for n, r in results.items() if n != RECORDED)),
        "import_unknown": IMPORT_UNKNOWN,
        "pictures": _comparison_pictures(comparison, has_changes=bool(payers)),
        "nodes": _node_pictures(comparison),
        "manifest": _manifest(results, bound=bound),
        "data": Markup(page_json(results, comparison.baseline, comparison)),
    }
    shown = {"recorded": values["recorded"], "who-pays": payers, "users": values["users"]}
    values["sections"] = [(key, name) for key, name in SECTIONS if shown.get(key, True)]
    return render("comparison.html.jinja", CHART_SCRIPTS, values)


def _comparison_pictures(comparison: Comparison, *, has_changes: bool) -> dict[str, Picture]:
    results, order = comparison.results, names_in_order(comparison)
    drawn: dict[str, Callable[[], Figure]] = {
        "mean": lambda: plots.mean_jct(comparison),
        "size": lambda: plots.jct_by_size(results, order),
        "queue": lambda: plots.queue_lengths(results, order),
        "where": lambda: plots.gpu_seconds(results, order),
        "jct": lambda: plots.jct_distribution(results, order),
    }
    if has_changes:
        drawn["by-size"] = lambda: plots.change_by_size(comparison)
        drawn["by-user"] = lambda: plots.change_by_user(comparison)
    return {key: _picture(key, draw) for key, draw in drawn.items()}


def _picture(key: str, draw: Callable[[], Figure]) -> Picture:
    title, caption = CAPTIONS[key]
    return Picture(key, title, caption, draw(), chart="" if key == "nodes" else key)


def _node_pictures(comparison: Comparison) -> list[Picture]:
    """Returns the nodes over time of the best policy and of the baseline."""
    title, caption = CAPTIONS["nodes"]
    short = short_names(comparison.results)
    shown = [n for n in names_in_order(comparison) if n in _watched(comparison)]
    until_s = max(result.lasted_s for result in comparison.results.values())
    return [
        Picture(f"nodes{i}", f"{title}: {short[name]}", caption, plots.occupancy(result, until_s))
        for i, name in enumerate(shown)
        if len((result := comparison.results[name]).spans)
    ]


def _watched(comparison: Comparison) -> set[str]:
    return {best_of(comparison), comparison.baseline}


def _payers_words(comparison: Comparison) -> str:
    base = short_names(comparison.results).get(comparison.baseline, comparison.baseline)
    text = (
        f"Compared with {base}; the groups that lose most come first. Job-hours weigh a change by "
        "the jobs that it meets: jobs x change of their mean JCT."
    )
    if comparison.replay_error is None or comparison.baseline != comparison.site:
        return text
    marked = (
        f"Groups marked “{OFF}”: there the replay of {base} differs from the log by more than half "
        "of the change."
    )
    return " ".join(part for part in (text, far_sizes(comparison), marked) if part)


def _where(result: RunResult) -> str:
    trace, cluster = result.manifest.get("trace"), result.manifest.get("cluster")
    parts = []
    if isinstance(trace, dict):
        parts.append(f"Trace {trace.get('name') or 'without a name'}")
        parts.append(f"{count(result.number('jobs'))} jobs")
    if isinstance(cluster, dict):
        parts.append(f"{count(cluster.get('gpus'))} GPUs in {count(cluster.get('nodes'))} nodes")
    parts.append(f"Dovetail {result.manifest.get('version', '')}")
    return " · ".join(parts)


def _manifest(results: dict[str, RunResult], **more: object) -> str:
    whole = {**{n: r.manifest for n, r in results.items()}, **{k: v for k, v in more.items() if v}}
    return json.dumps(whole, indent=1, default=str, ensure_ascii=False)

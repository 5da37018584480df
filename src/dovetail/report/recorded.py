"""Parts of the report on what the log recorded, and on the waits of each group of jobs."""

from __future__ import annotations

from html import escape

from dovetail.record.replay_error import GroupDeviation
from dovetail.record.result import Comparison, RunResult
from dovetail.report.page import Cell, TableRow, table
from dovetail.report.replay_words import departure_lines, replay_sentence
from dovetail.report.words import MISSING, count, duration, short_names, size_order

GROUPS_SHOWN = 15
"""The largest groups that are shown."""
GROUPINGS = {
    "size_class": "GPUs",
    "queue": "queue",
    "account": "account",
    "hour": "hour of submission",
    "weekday": "weekday of submission, 0 is Monday",
}


def replay_section(comparison: Comparison) -> str:
    """Returns how far the replay of the site's scheduler is from the log; empty without one."""
    error = comparison.replay_error
    if error is None:
        return ""
    name = short_names(comparison.results)[error.policy]
    sizes = sorted(error.by_size, key=lambda g: size_order(g.group))
    lines = departure_lines(error, len(error.departures))
    parts = [
        "<h2>The log as it was, and replayed</h2>",
        f"<p>{escape(replay_sentence(error, name))}</p>",
        '<div class="tables">',
        _deviations("GPUs", sizes),
        _deviations("queue", error.by_queue[:GROUPS_SHOWN]),
        "</div>",
        f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>" if lines else "",
    ]
    return "\n".join(parts)


def _deviations(title: str, groups: list[GroupDeviation] | tuple[GroupDeviation, ...]) -> str:
    if not groups:
        return ""
    rows = [
        TableRow(
            group.group,
            [
                Cell(count(group.jobs), group.jobs),
                *(
                    Cell(duration(side_s), side_s)
                    for deviation in (group.wait, group.jct)
                    for side_s in (deviation.recorded_s, deviation.replayed_s)
                ),
            ],
        )
        for group in groups
    ]
    heads = [title, "jobs", "wait, log", "replayed", "JCT, log", "replayed"]
    return f"<div><h3>By {escape(title)}</h3>{table(heads, rows)}</div>"


def waits_by_group(comparison: Comparison) -> str:
    """Returns tables of the mean wait by group and row; empty if there are no groups."""
    parts = [_waits(comparison, by, title) for by, title in GROUPINGS.items()]
    tables = "".join(parts)
    if not tables:
        return ""
    return f'<h2>Wait by group</h2><div class="tables">{tables}</div>'


def _waits(comparison: Comparison, by: str, title: str) -> str:
    results = comparison.results
    names = [name for name in comparison.ranked["policy"] if name in results]
    waits = {name: _by_group(results[name], by) for name in names}
    jobs: dict[str, int] = {}
    for groups in waits.values():
        for group, (number, _) in groups.items():
            jobs[group] = max(jobs.get(group, 0), number)
    if len(jobs) < 2:
        return ""
    largest = sorted(jobs, key=lambda g: (-jobs[g], g))
    shown = largest if by in ("hour", "weekday") else largest[:GROUPS_SHOWN]
    shown = sorted(shown, key=size_order) if by == "size_class" else sorted(shown)
    short = short_names(results)
    rows = [
        TableRow(
            group,
            [
                Cell(count(jobs[group]), jobs[group]),
                *(_wait_cell(waits[name].get(group)) for name in names),
            ],
        )
        for group in shown
    ]
    heads = [title, "jobs", *(short[name] for name in names)]
    return f"<div><h3>By {escape(title)}</h3>{table(heads, rows)}</div>"


def _wait_cell(found: tuple[int, float | None] | None) -> Cell:
    wait_s = None if found is None else found[1]
    return Cell(MISSING if wait_s is None else duration(wait_s), wait_s)


def _by_group(result: RunResult, by: str) -> dict[str, tuple[int, float | None]]:
    split = result.splits.get(by)
    if split is None or not len(split):
        return {}
    rows = split.select("group", "jobs", "avg_wait_s").iter_rows()
    return {str(group): (int(jobs), wait_s) for group, jobs, wait_s in rows}

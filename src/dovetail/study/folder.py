"""Writes the folder of a run or a comparison: tables, report, plots and timeline.

Call these functions inside `study.run.whole_directory`, so that the folder appears atomically.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.record.replay_error import ReplayError
from dovetail.record.result import IF_KNOWN, Comparison, RunResult
from dovetail.report.words import comparison_sentence
from dovetail.study.run import write_tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TIMELINE = "timeline.perfetto-trace.gz"
Drawing = tuple[str, Callable[[], "Figure"]]


def write_run(
    result: RunResult, folder: Path, *, pictures: bool = True, cautions: Sequence[str] = ()
) -> None:
    """Writes `summary.json` and `jobs.csv`, and with `pictures` report, plots and timeline."""
    write_tables(result, folder)
    if not pictures:
        return
    from dovetail.record.timeline import write_timeline
    from dovetail.report import plots
    from dovetail.report.report import write_run_report

    write_run_report(result, folder / "report.html", cautions)
    write_timeline(result, folder / TIMELINE)
    one = {result.policy: result}
    _draw(
        folder / "plots",
        (
            ("jct", lambda: plots.jct_distribution(one)),
            ("jct-by-size", lambda: plots.jct_by_size(one)),
            ("load-over-time", lambda: plots.load_over_time(result)),
            ("nodes-over-time", lambda: plots.occupancy(result)),
            ("gpu-seconds", lambda: plots.gpu_seconds(one)),
        ),
    )


def write_comparison(comparison: Comparison, folder: Path, *, pictures: bool = True) -> None:
    """Writes the ranked table, the tables of each policy, and with `pictures` report and plots."""
    text = json.dumps(comparison_dict(comparison), indent=1)
    (folder / "comparison.json").write_text(text + "\n", "utf-8")
    comparison.ranked.write_csv(folder / "comparison.csv")
    for number, (name, result) in enumerate(comparison.results.items(), start=1):
        part = folder / f"{number:02d}-{result.manifest['name']}{_told(comparison, name)}"
        part.mkdir()
        write_tables(result, part)
    if not pictures:
        return
    from dovetail.report import plots
    from dovetail.report.order import names_in_order
    from dovetail.report.report import write_comparison_report

    write_comparison_report(comparison, folder / "report.html")
    results, order = comparison.results, names_in_order(comparison)
    drawings: list[Drawing] = [
        ("mean-jct", lambda: plots.mean_jct(comparison)),
        ("jct", lambda: plots.jct_distribution(results, order)),
        ("jct-by-size", lambda: plots.jct_by_size(results, order)),
        ("queue-lengths", lambda: plots.queue_lengths(results, order)),
        ("gpu-seconds", lambda: plots.gpu_seconds(results, order)),
    ]
    if len(results) > 1:
        drawings.append(("change-by-size", lambda: plots.change_by_size(comparison)))
        drawings.append(("change-by-user", lambda: plots.change_by_user(comparison)))
    _draw(folder / "plots", drawings)


def run_dict(result: RunResult) -> dict[str, object]:
    """Returns the numbers of a run as JSON values."""
    tenants = {"tenants": result.tenants.to_dicts()} if len(result.tenants) else {}
    return {**result.summary, "gpu_seconds": result.gpu_seconds, **tenants}


def _told(comparison: Comparison, name: str) -> str:
    kinds = dict(comparison.table.select("policy", "kind").iter_rows())
    return "-known" if kinds.get(name) == IF_KNOWN else ""


SPLITS_WRITTEN = ("size_class", "account", "queue", "queue_size", "hour", "weekday")
"""The splits in JSON: those with few groups."""


def comparison_dict(comparison: Comparison) -> dict[str, object]:
    """Returns a comparison as JSON values: the record, then the best policy first."""
    return {
        "baseline": comparison.baseline,
        "site": comparison.site,
        "cautions": comparison.cautions,
        "sentence": comparison_sentence(comparison),
        "contrasts": [asdict(contrast) for contrast in comparison.contrasts],
        "bound": comparison.bound,
        "notes": comparison.notes,
        "policies": comparison.ranked.to_dicts(),
        "replay_error": replay_error_dict(comparison.replay_error),
        "runs": {
            name: {
                **run_dict(result),
                "splits": {
                    by: result.splits[by].to_dicts() for by in SPLITS_WRITTEN if by in result.splits
                },
            }
            for name, result in comparison.results.items()
        },
    }


def replay_error_dict(error: ReplayError | None) -> dict[str, object] | None:
    """Returns the error of the replay as JSON values, None without a record."""
    if error is None:
        return None
    return {
        **asdict(error),
        "numbers": [{**asdict(d), "error": d.error} for d in error.numbers],
        "departures": [{**asdict(d), "because": d.because} for d in error.departures],
        "whys": dict(error.whys),
    }


def _draw(folder: Path, drawings: Iterable[Drawing]) -> None:
    from dovetail.report import plots

    folder.mkdir()
    for stem, draw in drawings:
        plots.save(draw(), folder / stem)

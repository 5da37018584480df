"""The numbers behind the pictures of a page, as compact JSON that its scripts read.

Columns are little-endian arrays in base64. Each job is a row while all policies together have
at most `VALUES_MAX` of them; beyond that, jobs of one user, account, queue and size with
similar JCTs are joined: a joined row holds their exact means and their number, so means stay
exact and only the steps of a distribution grow. Which it is, the page says.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from dovetail.record.result import RECORDED, Comparison, RunResult
from dovetail.report.changes import LABELS
from dovetail.report.order import colour, colour_places, in_order, is_told, names_in_order
from dovetail.report.plots.canvas import Dash, dash
from dovetail.report.plots.steps import Floats, over_edges, step_ends
from dovetail.report.tables import GPU_SECOND_WORDS
from dovetail.report.words import short_names, size_order

VALUES_MAX = 120_000
"""Rows x policies that a page holds: about 2 MB in three columns."""
GROUPS_MAX = 500
"""The largest groups of a label that a filter offers; smaller ones are `others` together."""
BINS = 1000
OTHERS = "(all others)"
EVERY = "(all)"
TIMES = ("jct_s", "wait_s", "time_to_start_s")
SERIES = ("waiting", "held_gpus", "cluster_efficiency", "blocking_index")


@dataclass(frozen=True, slots=True)
class JobRows:
    """The rows of the page: `jobs` may be fewer than what they stand for, by `weight`."""

    frame: pl.DataFrame
    jobs: int
    names: Mapping[str, Sequence[str]]
    """The groups of each label; the frame has their positions."""

    @property
    def are_joined(self) -> bool:
        """Returns whether a row may stand for several jobs."""
        return len(self.frame) < self.jobs


def page_json(
    results: Mapping[str, RunResult], baseline: str, comparison: Comparison | None = None
) -> str:
    """Returns the data of a page as JSON that is safe inside a script element."""
    names = in_order(results) if comparison is None else names_in_order(comparison)
    rows = job_rows({name: results[name] for name in names}, max(1, VALUES_MAX // len(names)))
    whole = {
        "policies": _policies(names, results, baseline, comparison),
        "jobs": _jobs(rows, len(names)),
        "series": _series([results[name] for name in names]),
        "spending": [_spending(results[name]) for name in names],
    }
    text = json.dumps(whole, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _policies(
    names: Sequence[str],
    results: Mapping[str, RunResult],
    baseline: str,
    comparison: Comparison | None,
) -> list[dict[str, object]]:
    every = list(results) if comparison is None else [*results, *comparison.table["policy"]]
    short, places = short_names(every), colour_places(every)
    table = comparison.table.fill_nan(None).to_dicts() if comparison else []
    rows = {str(row["policy"]): row for row in table}
    found: list[dict[str, object]] = []
    for name in names:
        row = rows.get(name, {})
        mean_s = row.get("avg_jct_s") if row else results[name].number("avg_jct_s")
        times_bound = row.get("x_bound") or results[name].number("x_bound")
        found.append(
            {
                "name": short[name],
                "colour": colour(places[name]),
                "told": is_told(name),
                "dash": _dash(dash(places[name], told=is_told(name))),
                "baseline": name == baseline,
                "recorded": name == RECORDED,
                "mean": _finite(mean_s),
                "low": _finite(row.get("low")),
                "high": _finite(row.get("high")),
                "bound": _finite(mean_s / times_bound) if mean_s and times_bound else None,
            }
        )
    return found


def _dash(style: Dash) -> list[float] | None:
    """Returns the lengths of strokes and gaps in the pixels of a line 1.6 wide; None: solid."""
    return None if isinstance(style, str) else [1.6 * length for length in style[1]]


def _finite(value: float | None) -> float | None:
    return None if value is None or not np.isfinite(value) else float(value)


def job_rows(results: Mapping[str, RunResult], rows_max: int) -> JobRows:
    """Returns one row a job, or joined rows where there are more jobs than `rows_max`.

    Columns: a position for each label, `weight`, `submit_s` from the first submission, and the
    times of policy `i` as `jct_s:i` and so on; null where a job did not finish.
    """
    columns = ["job_id", "submit_s", *LABELS]
    jobs = pl.concat([r.jobs.select(columns) for r in results.values()])
    jobs = jobs.unique("job_id", keep="first", maintain_order=True)
    names, frame = _labelled(jobs)
    for i, result in enumerate(results.values()):
        times = result.jobs.unique("job_id", keep="first").select(
            "job_id", *(_known(time).alias(f"{time}:{i}") for time in TIMES)
        )
        frame = frame.join(times, on="job_id", how="left", maintain_order="left")
    origin_s = frame["submit_s"].min() if len(frame) else 0.0
    frame = frame.with_columns(pl.col("submit_s") - origin_s, pl.lit(1, pl.UInt32).alias("weight"))
    frame = frame.drop("job_id")
    if len(frame) > rows_max:
        frame, given_up = _joined(frame, rows_max)
        names |= {label: [EVERY] for label in given_up}
    return JobRows(frame, len(jobs), names)


def _known(column: str) -> pl.Expr:
    return pl.when(pl.col(column).is_finite()).then(pl.col(column))


def _labelled(jobs: pl.DataFrame) -> tuple[dict[str, list[str]], pl.DataFrame]:
    """Returns the groups of each label, and the jobs with positions among them."""
    names: dict[str, list[str]] = {}
    for label in LABELS:
        words = pl.col(label).fill_null("")
        counted = (
            jobs.select(words).group_by(label).len().sort("len", label, descending=[True, False])
        )
        kept = counted[label].head(GROUPS_MAX).to_list()
        kept.sort(key=size_order if label == "size_class" else None)
        if len(counted) > len(kept):
            kept.append(OTHERS)
        places = pl.DataFrame({label: kept, "place": range(len(kept))})
        places = places.cast({label: pl.String, "place": pl.UInt16})
        jobs = jobs.with_columns(words).join(places, on=label, how="left", maintain_order="left")
        jobs = jobs.with_columns(pl.col("place").fill_null(len(kept) - 1).alias(label)).drop(
            "place"
        )
        names[label] = kept
    return names, jobs


def _joined(frame: pl.DataFrame, rows_max: int) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Returns at most `rows_max` rows, and the labels that had to be given up for it.

    A row is of neighbours by JCT among the jobs of the same labels that finished under the same
    policies, so that each mean stays that of the same jobs.
    """
    times = [column for column in frame.columns if ":" in column]
    frame = frame.with_columns(pl.col(column).is_null().alias(f"no {column}") for column in times)
    finished = [f"no {column}" for column in times]
    kept = list(LABELS)
    while kept and frame.select(*kept, *finished).n_unique() > rows_max // 2:
        kept.pop()
    given_up = LABELS[len(kept) :]
    frame = frame.with_columns(pl.lit(0, pl.UInt16).alias(label) for label in given_up)
    keys = [*LABELS, *finished]
    ordered = frame.sort(*keys, times[0], "submit_s", maintain_order=True)
    rows, per_row = ordered, 1
    while len(rows) > rows_max and per_row < len(ordered):
        per_row *= 2
        place = (pl.int_range(pl.len()).over(keys) // per_row).alias("place")
        rows = (
            ordered.with_columns(place)
            .group_by(*keys, "place", maintain_order=True)
            .agg(pl.col("weight").sum(), pl.col("submit_s", *times).mean())
        )
    return rows.drop("place", *finished, strict=False), given_up


def _jobs(rows: JobRows, policies: int) -> dict[str, object]:
    frame = rows.frame
    return {
        "count": rows.jobs,
        "rows": len(frame),
        "joined": rows.are_joined,
        "labels": {
            # One group alone needs no column of zeros.
            label: {
                "names": rows.names[label],
                "of": _packed(frame[label].to_numpy(), "<u2") if len(rows.names[label]) > 1 else "",
            }
            for label in LABELS
        },
        "weight": _packed(frame["weight"].to_numpy(), "<u4"),
        "submit": _packed(frame["submit_s"].to_numpy(), "<f4"),
        **{
            time.removesuffix("_s"): [
                _packed(frame[f"{time}:{i}"].fill_null(float("nan")).to_numpy(), "<f4")
                for i in range(policies)
            ]
            for time in TIMES
        },
    }


def _packed(values: np.ndarray[tuple[int, ...], np.dtype[np.generic]], kind: str) -> str:
    return base64.b64encode(np.asarray(values).astype(kind).tobytes()).decode()


def _series(results: Sequence[RunResult]) -> dict[str, object]:
    end_s = max((r.lasted_s for r in results), default=0.0)
    capacity = [r.series["capacity_gpus"].max() for r in results if len(r.series)]
    found: dict[str, object] = {
        "end": end_s,
        "bins": BINS,
        "capacity": max((c for c in capacity if isinstance(c, int | float)), default=0),
    }
    if end_s <= 0:
        return {**found, **{column: [] for column in SERIES}}
    edges = np.linspace(0.0, end_s, BINS + 1)
    for column in SERIES:
        means = [_binned(result, column, edges) for result in results]
        found[column] = [_packed(mean, "<f4") for mean in means]
    return found


def _binned(result: RunResult, column: str, edges: Floats) -> Floats:
    """Returns the mean of each bin; NaN where the run recorded nothing."""
    values = result.series[column].cast(pl.Float64).fill_null(float("nan")).to_numpy()
    since_s = result.series["t_s"].to_numpy() - result.origin_s
    start, stop, values = step_ends(since_s, values, result.lasted_s)
    return over_edges(start, stop, values, edges).mean


def _spending(result: RunResult) -> dict[str, float]:
    return {kind: float(result.gpu_seconds.get(kind, 0.0)) for kind in GPU_SECOND_WORDS}

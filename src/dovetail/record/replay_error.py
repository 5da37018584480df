"""How far the replay of a scheduler is from what the log recorded: in numbers, and job by job.

Both sides are frames of the same jobs (`result.JOB_COLUMNS`) and of the cluster over time
(`result.SERIES_COLUMNS`). Only jobs that started and ended on both sides count. Why a start differs
is read from the free GPUs of its type on both sides at the instant where they part; once they have
parted, later differences may follow from earlier ones, so the first are the ones to look at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from dovetail.core.job import Bools, Floats
from dovetail.record.free_gpus import WANTED, Side, TypedCapacity

APART_S = 300.0
"""Starts that differ by more are departures: ten of Slurm's default backfill intervals."""
FIRST_DEPARTURES = 10

BUSY, FREE = "busy", "free in the replay"
WHY = {
    "reservation": "the log names a reservation for it",
    "free in the log": "the log had enough free GPUs of its type but did not start it: drained "
    "nodes, no node with enough, a hold, a limit or a dependency",
    "overtaken in the log": "jobs for the same GPUs, submitted later, started before it in the "
    "log: priorities",
    "overtook in the log": "it started before jobs for the same GPUs, submitted earlier, in the "
    "log: priorities, or GPUs that they could not use",
    FREE: "the replay had enough free GPUs of its type but no node with enough, or "
    "kept them for another job",
    BUSY: "its GPUs were held by other jobs, which follows from earlier differences",
}
"""The sentence for each reason why a start differs."""
KEPT = "the replay had a free GPU of its type but kept it for another job"
"""The sentence for `FREE` where a job asks for one GPU, which fits on any node with a free one."""


@dataclass(frozen=True, slots=True)
class Deviation:
    """One number of the record and of the replay."""

    number: str
    recorded_s: float
    replayed_s: float

    @property
    def error(self) -> float | None:
        """Returns the error as a share of the recorded number, None if only that is 0."""
        if self.recorded_s == self.replayed_s:
            return 0.0
        return self.replayed_s / self.recorded_s - 1 if self.recorded_s else None


@dataclass(frozen=True, slots=True)
class GroupDeviation:
    """The mean JCT and wait of the jobs of one size or queue on both sides."""

    group: str
    jobs: int
    jct: Deviation
    wait: Deviation


@dataclass(frozen=True, slots=True)
class Departure:
    """A job whose start differs by more than `APART_S`; `why` is a key of `WHY`."""

    t_s: float
    job_id: str
    gpus: float
    recorded_start_s: float
    replayed_start_s: float
    why: str

    @property
    def because(self) -> str:
        """Returns the sentence for the reason."""
        return KEPT if self.why == FREE and self.gpus == 1 else WHY[self.why]


@dataclass(frozen=True, slots=True)
class ReplayError:
    """The replay of `policy` against the record.

    `start_correlation` and `wait_correlation` are Spearman's rank correlations, None if undefined;
    `first_s` is the first submission, `near` the share of starts within `APART_S`. `departures`
    are the first ones in time, `whys` counts all by reason.
    """

    policy: str
    jobs: int
    first_s: float
    numbers: tuple[Deviation, ...]
    by_size: tuple[GroupDeviation, ...]
    by_queue: tuple[GroupDeviation, ...]
    start_correlation: float | None
    wait_correlation: float | None
    near: float
    departures: tuple[Departure, ...]
    whys: tuple[tuple[str, int], ...]

    def number(self, name: str) -> Deviation | None:
        """Returns one number by its name, such as `avg_jct_s`."""
        return next((d for d in self.numbers if d.number == name), None)


def replay_error(
    policy: str,
    recorded: Side,
    replayed: Side,
    reservations: Sequence[str],
    capacity: TypedCapacity,
) -> ReplayError | None:
    """Returns the error of a replay, None if no job started and ended on both sides.

    `reservations` names the reservation of each row of the recorded jobs, empty for none. Both
    sides know what their jobs asked for (`Side.wanting`).
    """
    columns = ("job_id", "start_s", "jct_s", "wait_s")
    ours = replayed.jobs.select("job_id", *(pl.col(c).alias(f"{c}_replayed") for c in columns[1:]))
    both = (
        recorded.jobs.with_columns(pl.Series("reserved", [bool(r) for r in reservations]))
        .join(ours, on="job_id", how="inner", maintain_order="left")
        .drop_nulls([*columns[1:], *(f"{c}_replayed" for c in columns[1:])])
    )
    if not len(both):
        return None
    start, start_replayed = (both[c].to_numpy() for c in ("start_s", "start_s_replayed"))
    apart = np.abs(start - start_replayed) > APART_S
    departures = _departures(both, apart, recorded, replayed, capacity)
    return ReplayError(
        policy=policy,
        jobs=len(both),
        first_s=float(recorded.jobs["submit_s"].to_numpy().min()),
        numbers=tuple(_numbers(both)),
        by_size=tuple(_groups(both, "size_class")),
        by_queue=tuple(_groups(both, "queue")),
        start_correlation=_rank_correlation(start, start_replayed),
        wait_correlation=_rank_correlation(
            both["wait_s"].to_numpy(), both["wait_s_replayed"].to_numpy()
        ),
        near=1.0 - float(apart.mean()),
        departures=tuple(departures[:FIRST_DEPARTURES]),
        whys=tuple(Counter(d.why for d in departures).most_common()),
    )


def _numbers(both: pl.DataFrame) -> list[Deviation]:
    """Returns mean, median and 99th percentile (nearest rank) of JCT and wait."""
    found = []
    for column in ("jct_s", "wait_s"):
        sides = (both[c].to_numpy() for c in (column, f"{column}_replayed"))
        statistics = zip(*(_statistics(values) for values in sides), strict=True)
        names = (f"{name}_{column}" for name in ("avg", "median", "p99"))
        found += [Deviation(n, a, b) for n, (a, b) in zip(names, statistics, strict=True)]
    return found


def _statistics(values: Floats) -> tuple[float, float, float]:
    last = (len(values) * 99 + 99) // 100 - 1
    return float(values.mean()), float(np.median(values)), float(np.sort(values)[last])


def _groups(both: pl.DataFrame, by: str) -> list[GroupDeviation]:
    columns = ("jct_s", "jct_s_replayed", "wait_s", "wait_s_replayed")
    means = (
        both.filter(pl.col(by).fill_null("") != "")
        .group_by(by)
        .agg(pl.len().alias("jobs"), *(pl.col(c).mean() for c in columns))
        .sort(["jobs", by], descending=[True, False])
    )
    return [
        GroupDeviation(
            str(row[by]),
            row["jobs"],
            Deviation("avg_jct_s", row["jct_s"], row["jct_s_replayed"]),
            Deviation("avg_wait_s", row["wait_s"], row["wait_s_replayed"]),
        )
        for row in means.to_dicts()
    ]


def _rank_correlation(one: Floats, other: Floats) -> float | None:
    # NOTE: scipy.stats takes 0.4 s to import, and only logs with a record need it.
    from scipy.stats import rankdata

    ranks = rankdata(one), rankdata(other)
    if any(np.ptp(r) == 0 for r in ranks):
        return None
    return float(np.corrcoef(*ranks)[0, 1])


def _departures(
    both: pl.DataFrame, apart: Bools, recorded: Side, replayed: Side, capacity: TypedCapacity
) -> list[Departure]:
    """Returns the jobs whose starts differ, by the earlier of the two."""
    start, start_replayed = (both[c].to_numpy() for c in ("start_s", "start_s_replayed"))
    soonest_later, latest_earlier = _starts_around(both, start)
    gpus, types = both["gpus"].to_numpy(), both[WANTED].to_list()
    if "gpu_part" in both.columns:
        gpus = gpus * both["gpu_part"].to_numpy()
    at_s = np.minimum(start, start_replayed)
    early = start_replayed < start
    why = np.select(
        [
            both["reserved"].to_numpy(),
            early & (recorded.free_for(at_s, types, capacity) >= gpus),
            early & (soonest_later < start),
            ~early & (replayed.free_for(at_s, types, capacity) >= gpus),
            ~early & (latest_earlier > start),
        ],
        [
            "reservation",
            "free in the log",
            "overtaken in the log",
            FREE,
            "overtook in the log",
        ],
        BUSY,
    )
    rows = np.flatnonzero(apart)
    rows = rows[np.argsort(at_s[rows], kind="stable")]
    names = both["job_id"]
    return [
        Departure(
            float(at_s[i]),
            names[i],
            gpus[i].item(),
            float(start[i]),
            float(start_replayed[i]),
            str(why[i]),
        )
        for i in rows.tolist()
    ]


def _starts_around(both: pl.DataFrame, start_s: Floats) -> tuple[Floats, Floats]:
    """Returns the first start of jobs submitted later, and the last of those submitted earlier.

    Only jobs that ask for the same GPU type count: others do not compete.
    """
    soonest_later, latest_earlier = (np.full(len(start_s), limit) for limit in (np.inf, -np.inf))
    order, types = np.argsort(both["submit_s"].to_numpy(), kind="stable"), both[WANTED].to_numpy()
    for wanted in both[WANTED].unique().sort():
        rows = order[types[order] == wanted]
        starts = start_s[rows]
        soonest_later[rows[:-1]] = np.minimum.accumulate(starts[::-1])[::-1][1:]
        latest_earlier[rows[1:]] = np.maximum.accumulate(starts)[:-1]
    return soonest_later, latest_earlier

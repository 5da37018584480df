"""Who held how many GPU-seconds, month by month, and who pays for them.

The rule: a job pays for the GPUs of its placement from the moment it gets them until it gives them
up, the seconds of a switch and of preparation included: switching is paid by the job that
switches. Jobs on one GPU divide it while they share it: each of k pays 1/k; under limits of their
share they pay in proportion to the limits (a job without one counts as a whole GPU). A GPU that
one job holds alone is paid whole, whatever its limit. So all that is paid adds up to the
GPU-seconds held, a shared GPU counted once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import polars as pl

from dovetail.core.cluster import Cluster
from dovetail.core.errors import InputError
from dovetail.core.job import Floats, Ints
from dovetail.core.trace import Trace
from dovetail.core.units import HOUR_S, RELATIVE_TOLERANCE
from dovetail.record.tally import Segment
from dovetail.study.months import Months
from dovetail.study.prices import GpuPrices

NOBODY = "(none)"
"""Who pays for jobs without an account, queue or user."""
IDLE = "(idle)"
"""The row of GPUs that nobody held."""

CHARGE_COLUMNS: Mapping[str, type[pl.DataType]] = {
    "month": pl.String,
    "who": pl.String,
    "gpu_type": pl.String,
    "gpu_hours": pl.Float64,
    "idle_gpu_hours": pl.Float64,
    "cost": pl.Float64,
}
"""The columns of a chargeback, by month, payer and GPU type. `cost` is null without prices.

`gpu_hours` were held; `idle_gpu_hours` are the payer's part of the GPUs that nobody held.
"""


@dataclass(frozen=True, slots=True)
class HeldSpans:
    """GPUs held by jobs, as columns: job `job[i]` pays for `gpus[i]` GPUs of type `gpu_type[i]`.

    `gpu_type` holds positions in `types`.
    """

    job: Ints
    gpu_type: Ints
    start_s: Floats
    end_s: Floats
    gpus: Floats
    types: tuple[str, ...]

    @property
    def jobs(self) -> Ints:
        """Returns the jobs that held GPUs, once each."""
        return np.unique(self.job)

    @property
    def gpu_s(self) -> float:
        """Returns the GPU-seconds of all holdings."""
        return float(((self.end_s - self.start_s) * self.gpus).sum())


Held = tuple[int, int, float, float, float]
"""Job, type, start_s, end_s, GPUs."""
_Stay = tuple[float, float, int, float]
"""start_s, end_s, job, weight: one worker on one named GPU."""


def _holdings(rows: Iterable[Held], types: tuple[str, ...]) -> HeldSpans:
    job, kind, start_s, end_s, gpus = zip(*rows, strict=True) if (rows := list(rows)) else [()] * 5
    return HeldSpans(
        np.array(job, np.int64),
        np.array(kind, np.int64),
        np.array(start_s, np.float64),
        np.array(end_s, np.float64),
        np.array(gpus, np.float64),
        types,
    )


def holdings_of(segments: Sequence[Segment], cluster: Cluster) -> HeldSpans:
    """Returns what each job pays for in a run, by the rule of this module."""
    types = tuple(dict.fromkeys(group.gpu_type for group in cluster.groups))
    code_of_node = [types.index(cluster.groups[g].gpu_type) for g in cluster.node_group]
    alone: list[Held] = []
    stays: dict[tuple[int, int], list[_Stay]] = {}
    for job, placement, start_s, _, end_s, _, _ in segments:
        part = placement.gpu_part
        if end_s <= start_s or not part:
            continue
        if not placement.gpu_ids or part < 1.0:
            alone += [(job, code_of_node[n], start_s, end_s, g * part) for n, g in placement.spans]
            continue
        weights = placement.fractions or (1.0,) * placement.gpus
        for gpu, weight in zip(placement.named(), weights, strict=True):
            stays.setdefault(gpu, []).append((start_s, end_s, job, weight))
    shared = (
        (job, code_of_node[node], start_s, end_s, part)
        for (node, _), on_gpu in sorted(stays.items())
        for job, start_s, end_s, part in _divided(on_gpu)
    )
    return _holdings([*alone, *shared], types)


def _divided(stays: Sequence[_Stay]) -> Iterator[tuple[int, float, float, float]]:
    """Yields job, start_s, end_s and part of one GPU, in which all parts add up to 1."""
    moments = sorted({t for start_s, end_s, _, _ in stays for t in (start_s, end_s)})
    coming = sorted(stays)
    present: list[_Stay] = []
    next_stay = 0
    for start_s, end_s in pairwise(moments):
        present = [stay for stay in present if stay[1] > start_s]
        while next_stay < len(coming) and coming[next_stay][0] <= start_s:
            present.append(coming[next_stay])
            next_stay += 1
        whole = sum(weight for _, _, _, weight in present)
        for _, _, job, weight in present:
            yield job, start_s, end_s, weight / whole


def recorded_holdings(trace: Trace, cluster: Cluster | None, where: str) -> tuple[HeldSpans, int]:
    """Returns what each job held by the log's own record, and how many jobs never started.

    A job that restarted is charged for each of its runs. Where the record does not list them it is
    charged for all its GPU time as one run up to its last end (`month_doubt` says which months that
    may get wrong). Where a job names no GPU type it is that of the cluster, if it has only one.
    `where` names the file. Raises InputError.
    """
    recorded = trace.recorded
    if recorded is None:
        raise InputError(
            where,
            "the trace does not record when its jobs started",
            f"simulate it first: dovetail simulate {where} -p backfill -o run, then dovetail "
            "chargeback run",
        )
    known = tuple(dict.fromkeys(g.gpu_type for g in cluster.groups)) if cluster else ("",)
    labels = trace.jobs.gpu_type.texts()
    if len(known) > 1 and "" in labels:
        raise InputError(
            where,
            f"{labels.count(''):,} jobs name no GPU type, and the cluster has several",
            "leave --cluster out, or import a log that names the types",
        )
    texts = [text.lower() or known[0] for text in labels]
    types = tuple(dict.fromkeys(texts))
    code_of = {gpu_type: code for code, gpu_type in enumerate(types)}
    end_s = recorded.end_s
    end_s = np.where(np.isfinite(end_s), end_s, recorded.start_s + trace.duration_s)
    arrived_s = trace.jobs.submit_s
    ran_s = end_s - arrived_s - (recorded.wait_s - recorded.held_s(arrived_s))
    ran_s = np.where(np.isfinite(ran_s), ran_s, end_s - recorded.start_s)
    started = np.isfinite(recorded.start_s) & (ran_s > 0)
    codes = np.array([code_of[text] for text in texts], np.int64)
    listed = recorded.is_listed
    rows = np.flatnonzero(started & ~listed)
    start_s, end_s = (end_s - ran_s)[rows], end_s[rows]
    if recorded.runs is not None:
        runs = recorded.runs
        begin_s = recorded.start_s[runs.job] + runs.begin_s
        start_s = np.concatenate([start_s, begin_s])
        end_s = np.concatenate([end_s, begin_s + runs.length_s])
        rows = np.concatenate([rows, runs.job])
    gpus = trace.jobs.asked_gpus[rows]
    held = HeldSpans(rows, codes[rows], start_s, end_s, gpus, types)
    return held, int((~(started | listed)).sum())


def month_doubt(trace: Trace, months: Months) -> tuple[int, float]:
    """Returns how many restarted jobs may be charged in a wrong month, and GPU-hours at most.

    Without a list of its runs, the record of a job has its first start, last end and whole time
    with GPUs. What it held before a month ended is exact only if that leaves no choice; its sum
    always is.
    """
    record = trace.recorded
    if record is None:
        return 0, 0.0
    held_s = record.end_s - trace.jobs.submit_s - record.wait_s
    again = (record.restarts > 0) & ~record.is_listed
    again &= np.isfinite(held_s) & np.isfinite(record.start_s)
    rows = np.flatnonzero(again)
    if not len(rows):
        return 0, 0.0
    start_s, end_s, held_s = record.start_s[rows], record.end_s[rows], held_s[rows]
    doubt_s = np.zeros(len(rows))
    for _, edge_s, _ in list(months.between(float(start_s.min()), float(end_s.max())))[1:]:
        most_s = np.minimum(held_s, edge_s - start_s)
        least_s = np.maximum(0.0, held_s - (end_s - edge_s))
        inside = (start_s < edge_s) & (edge_s < end_s)
        doubt_s += np.where(inside, np.maximum(0.0, most_s - least_s), 0.0)
    # Logs have whole seconds: less than one is rounding.
    doubtful = doubt_s >= 1.0
    gpu_s = doubt_s * trace.jobs.gpus[rows]
    return int(doubtful.sum()), float(gpu_s[doubtful].sum()) / HOUR_S


@dataclass(frozen=True, slots=True)
class ChargedLabel:
    """Who pays for each job: the label of the rows and its values."""

    by: str
    who: Sequence[str]


PAYER_LABELS = ("account", "queue", "user")


def payers(trace: Trace, by: str) -> ChargedLabel:
    """Returns who pays; without `by`, the first of account, queue and user that the jobs name.

    Raises InputError if no job names the one that is asked for.
    """
    for label in (by,) if by else PAYER_LABELS:
        texts = getattr(trace.jobs, label).texts()
        if any(texts):
            return ChargedLabel(label, [text or NOBODY for text in texts])
    if by:
        raise InputError("--by", f"no job names its {by}", "choose another of account, queue, user")
    return ChargedLabel("account", [NOBODY] * len(trace))


def chargeback(
    held: HeldSpans,
    payer: ChargedLabel,
    months: Months,
    *,
    cluster: Cluster | None = None,
    prices: GpuPrices | None = None,
    share_idle: bool = False,
    from_s: float = 0.0,
    to_s: float = 0.0,
) -> pl.DataFrame:
    """Returns the charges as `CHARGE_COLUMNS`, in order of month, payer and type.

    With a cluster, what nobody held between `from_s` and `to_s` is a row `IDLE`, or, with
    `share_idle`, divided among those who held GPUs of that type in that month. Raises InputError.
    """
    names = sorted(set(payer.who))
    code_of = {name: code for code, name in enumerate(names)}
    code = np.array([code_of[name] for name in payer.who], np.int64)[held.job]
    shape = (len(names), len(held.types))
    keys = code * len(held.types) + held.gpu_type
    rows: list[dict[str, object]] = []
    for label, low_s, high_s in months.between(_first(held, from_s), _last(held, to_s)):
        inside_s = np.minimum(held.end_s, high_s) - np.maximum(held.start_s, low_s)
        gpu_s = np.clip(inside_s, 0.0, None) * held.gpus
        hours = np.bincount(keys, gpu_s, shape[0] * shape[1]).reshape(shape) / HOUR_S
        idle = _idle(held, hours, cluster, max(low_s, from_s), min(high_s, to_s), label)
        rows += _rows(label, names, held.types, hours, idle, share_idle)
    frame = pl.DataFrame(rows, schema=dict(CHARGE_COLUMNS))
    return frame if prices is None else _priced(frame, prices)


def _first(held: HeldSpans, from_s: float) -> float:
    return min(from_s, float(held.start_s.min(initial=np.inf)))


def _last(held: HeldSpans, to_s: float) -> float:
    return max(to_s, float(held.end_s.max(initial=-np.inf)))


def _idle(
    held: HeldSpans, hours: Floats, cluster: Cluster | None, low_s: float, high_s: float, label: str
) -> dict[str, float]:
    """Returns the GPU-hours of each type that nobody held. Raises InputError below zero."""
    if cluster is None:
        return {}
    used = dict(zip(held.types, hours.sum(axis=0).tolist(), strict=True))
    idle: dict[str, float] = {}
    for gpu_type in dict.fromkeys([*(g.gpu_type for g in cluster.groups), *used]):
        groups = (g for g in cluster.groups if g.gpu_type == gpu_type)
        installed = sum(g.nodes * g.gpus_per_node for g in groups)
        there = installed * max(0.0, high_s - low_s) / HOUR_S
        left = there - used.get(gpu_type, 0.0)
        if left < -RELATIVE_TOLERANCE * max(there, used.get(gpu_type, 0.0)):
            raise InputError(
                "--cluster",
                f"in {label} jobs held {used[gpu_type]:,.0f} GPU-hours of type '{gpu_type}', and "
                f"the cluster has {there:,.0f}",
                "give the cluster that ran the log, with its GPU types, or leave it out",
            )
        idle[gpu_type] = max(0.0, left)
    return idle


def _rows(
    month: str,
    names: Sequence[str],
    types: Sequence[str],
    hours: Floats,
    idle: Mapping[str, float],
    share_idle: bool,
) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    whole = dict(zip(types, hours.sum(axis=0).tolist(), strict=True))
    for name, of_name in zip(names, hours.tolist(), strict=True):
        for gpu_type, held_h in zip(types, of_name, strict=True):
            if held_h:
                part = held_h / whole[gpu_type] * idle.get(gpu_type, 0.0) if share_idle else 0.0
                rows.append(_charge(month, name, gpu_type, held_h, part))
    rows.sort(key=lambda row: (str(row["who"]), str(row["gpu_type"])))
    for gpu_type, idle_h in idle.items():
        if idle_h and not (share_idle and whole.get(gpu_type)):
            rows.append(_charge(month, IDLE, gpu_type, 0.0, idle_h))
    return rows


def _charge(month: str, who: str, gpu_type: str, held_h: float, idle_h: float) -> dict[str, object]:
    return {
        "month": month,
        "who": who,
        "gpu_type": gpu_type,
        "gpu_hours": held_h,
        "idle_gpu_hours": idle_h,
    }


def _priced(frame: pl.DataFrame, prices: GpuPrices) -> pl.DataFrame:
    per_h = pl.Series([prices.per_gpu_h(t) for t in frame["gpu_type"]], dtype=pl.Float64)
    cost = (frame["gpu_hours"] + frame["idle_gpu_hours"]) * per_h
    return frame.with_columns(cost.alias("cost"))

"""How much of a log a trace leaves out: the share of its GPU jobs and of their GPU-hours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from dovetail.core.errors import InputError
from dovetail.core.trace import ImportRecord, Trace
from dovetail.core.units import HOUR_S
from dovetail.traces.assemble import Imported

LEFT_OUT_MAX = 0.01
"""The share of jobs or GPU-hours that may be left out without a word in the first line."""

NEVER_RAN = frozenset(
    ("array not started", "not started yet", "never started", "never scheduled", "zero duration")
)
"""Reasons under which a job was submitted and held no GPU."""

NO_LOSS = NEVER_RAN | frozenset(
    (
        *("job step", "damaged line of a job step", "damaged line of a job that has another"),
        *("repeated header", "line above the header", "not a line of sacct"),
        *("no GPU", "part of a checkpointed job"),
    )
)
"""Reasons under which no job that held GPUs is lost."""

_REASONS_SHOWN = 4


@dataclass(frozen=True, slots=True)
class Loss:
    """What is left out of a whole: jobs, their GPU-seconds as far as known, and why."""

    jobs: int
    gpu_s: float
    whole_jobs: int
    whole_gpu_s: float
    reasons: Mapping[str, int]

    @property
    def job_share(self) -> float:
        """Returns the share of the jobs that is left out."""
        return self.jobs / self.whole_jobs if self.whole_jobs else 0.0

    @property
    def gpu_share(self) -> float:
        """Returns the share of the GPU-seconds that is left out."""
        return self.gpu_s / self.whole_gpu_s if self.whole_gpu_s else 0.0

    def exceeds(self, share: float) -> bool:
        """True if more than this share of the jobs or of the GPU-seconds is left out."""
        return max(self.job_share, self.gpu_share) > share

    def __str__(self) -> str:
        most = Counter(dict(self.reasons)).most_common()
        why = [f"{n:,} {reason}" for reason, n in most[:_REASONS_SHOWN]]
        if rest := sum(n for _, n in most[_REASONS_SHOWN:]):
            why.append(f"{rest:,} for other reasons")
        return (
            f"{self.jobs:,} of {self.whole_jobs:,} jobs ({self.job_share:.1%}) with "
            f"{self.gpu_share:.1%} of the GPU-hours: {', '.join(why)}"
        )


def gpu_seconds(trace: Trace) -> float:
    """Returns the work of all jobs."""
    return float((trace.duration_s * trace.jobs.asked_gpus).sum())


def loss_of(imported: Imported) -> Loss:
    """Returns what an import left out. The work of a damaged row is not known, and counts as 0."""
    lost = imported.refused.filter(~pl.col("reason").is_in(list(NO_LOSS)))
    gpu_s = float(lost.filter(pl.col("gpu_s").is_finite() & (pl.col("gpu_s") > 0))["gpu_s"].sum())
    trace = imported.trace
    reasons = dict(lost["reason"].value_counts().sort("reason").iter_rows())
    whole_s = gpu_seconds(trace) + gpu_s
    return Loss(lost.height, gpu_s, len(trace) + lost.height, whole_s, reasons)


def never_ran_note(refused: pl.DataFrame) -> str:
    """Returns how many rejected GPU jobs never ran, and how long they waited, "" if none."""
    jobs = refused.filter(pl.col("reason").is_in(list(NEVER_RAN)) & (pl.col("gpus") > 0))
    if jobs.is_empty():
        return ""
    reasons = dict(jobs["reason"].value_counts().sort("reason").iter_rows())
    why = ", ".join(f"{n:,} {reason}" for reason, n in reasons.items())
    waited_h = float(jobs["stayed_s"].fill_nan(None).clip(lower_bound=0.0).sum()) / HOUR_S
    return (
        f"{jobs.height:,} GPU jobs were submitted and never ran ({why}), after {waited_h:,.1f} h "
        "of waiting in all, as far as the log dates them: no policy is given them."
    )


def total(losses: Sequence[Loss]) -> Loss:
    """Returns the loss of several traces together."""
    reasons: Counter[str] = Counter()
    for loss in losses:
        reasons.update(loss.reasons)
    return Loss(
        sum(loss.jobs for loss in losses),
        sum(loss.gpu_s for loss in losses),
        sum(loss.whole_jobs for loss in losses),
        sum(loss.whole_gpu_s for loss in losses),
        reasons,
    )


def loss_in_counts(trace: Trace) -> Loss:
    """Returns the jobs that reading the trace left out, from its counts alone."""
    record = trace.imported
    if record is not None and record.counts == trace.counts:
        return loss_in_import(record)
    return _loss_by(trace.counts, len(trace), gpu_seconds(trace), 0.0)


def loss_in_import(record: ImportRecord) -> Loss:
    """Returns what the import of a log left out, by its record."""
    kept = record.counts.get("usable", 0)
    return _loss_by(record.counts, kept, record.gpu_s, record.lost_gpu_s)


def was_imported_before(trace: Trace) -> bool:
    """True if the trace is of a canonical file that another command imported from a log."""
    return trace.imported is not None and trace.imported.counts != trace.counts


def _loss_by(counts: Mapping[str, int], jobs: int, gpu_s: float, lost_gpu_s: float) -> Loss:
    found = {k.removeprefix("rejected: "): n for k, n in counts.items() if k[:9] == "rejected:"}
    reasons = {reason: n for reason, n in found.items() if reason not in NO_LOSS}
    lost = sum(reasons.values())
    return Loss(lost, lost_gpu_s, jobs + lost, gpu_s + lost_gpu_s, reasons)


def import_sentence(trace: Trace) -> str:
    """Returns what became of the rows of the log, or that nobody knows."""
    record = trace.imported
    if record is None:
        return "What an import left out of this trace is not known: the file does not say."
    counts = record.counts
    lost = loss_in_import(record).jobs
    rows = dict.fromkeys(_KINDS, 0)
    for what, number in counts.items():
        kind = what.partition(":")[0]
        if kind in _KINDS:
            rows[kind] += number
    kept, rows["rejected"] = counts.get("usable", 0), rows["rejected"] - lost
    parts = [f"{kept:,} jobs", f"{lost:,} jobs lost"]
    parts += [f"{rows[kind]:,} {words}" for kind, words in _KINDS.items() if rows[kind]]
    here = f"; this trace has {len(trace):,} of the jobs" if len(trace) != kept else ""
    read = counts.get("read", 0)
    return f"Import of {record.source} ({record.format}): {read:,} rows; {', '.join(parts)}{here}."


_KINDS = {
    "joined": "rows joined with another of their job",
    "rejected": "rows of no job that held GPUs",
    "adjusted": "values adjusted",
}


def parse_share(option: str, text: str) -> float:
    """Returns a share such as `5%` or `0.05`. Raises InputError."""
    number, percent, rest = text.strip().partition("%")
    try:
        share = float(number) / (100.0 if percent else 1.0)
    except ValueError:
        share = -1.0
    if rest or not 0 <= share <= 1:
        raise InputError(option, f"'{text}' is not a share", "as in 5% or 0.05")
    return share

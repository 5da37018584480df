"""The questions that a comparison answers in its first sentence, each as one paired ratio.

What could be deployed today starts jobs and does nothing else to them, and knows only what the site
has: no speeds, no interference, and lengths only as limits or predictions. What preemption, known
lengths, elasticity and sharing would add is the ratio of the best row that has them to that one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.forecast.forecasts import source_of
from dovetail.record.result import IF_KNOWN, POLICY, RECORDED, Contrast, RunResult
from dovetail.study.comparison_rows import ComparedRow
from dovetail.study.options import Options
from dovetail.study.recorded import jct_of
from dovetail.study.uncertainty import Interval, blocks, intervals

SITE_KNOWS = frozenset({"length", "attained service"})
"""What a site can tell a policy; lengths only as limits or predictions."""
STOPPING = frozenset({"preempt", "migrate"})
GAINS: Mapping[str, frozenset[str]] = {
    "preemption": STOPPING,
    "elasticity": frozenset({"resize"}),
    "sharing": frozenset({"share", "interleave"}),
}
"""The powers that a question is about."""

Ratio = Callable[[str, str], tuple[Interval, int]]
"""Returns the ratio of the mean JCTs of two rows over the same jobs, and their number."""


def paired(results: Mapping[str, RunResult], options: Options) -> Ratio:
    """Returns ratios over the jobs that ended in both rows, with intervals from blocks of time."""

    def ratio(one: str, other: str) -> tuple[Interval, int]:
        submit_s, jct_s = jct_of(results[one], options)
        _, other_s = jct_of(results[other], options)
        both = np.isfinite(jct_s) & np.isfinite(other_s)
        sides = {"one": np.where(both, jct_s, np.nan), "other": np.where(both, other_s, np.nan)}
        _, ratios = intervals(blocks(submit_s, sides), "other", options.seed)
        return ratios["one"], int(both.sum())

    return ratio


@dataclass(frozen=True, slots=True)
class Field:
    """The rows of a comparison with their mean JCTs (s), and where the questions start from."""

    rows: Mapping[str, ComparedRow]
    mean_s: Mapping[str, float]
    baseline: str
    site: str
    has_record: bool

    def best(self, fits: Callable[[ComparedRow], bool]) -> str:
        """Returns the row with the shortest mean that fits, empty if none does."""
        names = [n for n, row in self.rows.items() if fits(row) and self.mean_s[n] > 0]
        return min(names, key=lambda n: (self.mean_s[n], n), default="")


def is_deployable(row: ComparedRow) -> bool:
    """True if a site could run the policy today, told what it is told here."""
    told = "length" not in row.policy.knows or source_of(row.forecast) in (
        "limit",
        "predicted",
    )
    starts_only = not row.policy.powers - {"delay"}
    return row.kind == POLICY and starts_only and told and row.policy.knows <= SITE_KNOWS


def _is_told_truth(row: ComparedRow) -> bool:
    """True if a row could be chosen as if lengths were known: then nothing says what is today."""
    return row.kind == POLICY and source_of(row.forecast) in ("known", "noisy")


def contrasts(field: Field, ratio: Ratio) -> list[Contrast]:
    """Returns the answers that the rows can give, in the order of `QUESTIONS`."""
    today = field.best(is_deployable)
    if not today or any(_is_told_truth(row) for row in field.rows.values()):
        return []
    against = RECORDED if field.has_record else field.baseline
    pairs = [("today", today, against)]
    if field.has_record:
        pairs.append(("over site", today, field.site))
    pairs += [(asks, name, today) for asks, name in _gains(field)]
    found = []
    for asks, name, other in pairs:
        if name and name != other:
            value, jobs = ratio(name, other)
            found.append(Contrast(asks, name, other, jobs, value.value, value.low, value.high))
    return found


def _gains(field: Field) -> Sequence[tuple[str, str]]:
    """Returns the best row of each gain, empty where no row has it."""

    def has(powers: frozenset[str]) -> Callable[[ComparedRow], bool]:
        # A preemptive row that also resizes shows what elasticity adds, not preemption.
        allowed = powers | STOPPING | {"delay", "restrict", "change batch"}
        return lambda row: (
            row.kind == POLICY and bool(row.policy.powers & powers) and row.policy.powers <= allowed
        )

    def knows_lengths(row: ComparedRow) -> bool:
        return row.kind == IF_KNOWN and not row.policy.powers - {"delay"}

    best = {asks: field.best(has(powers)) for asks, powers in GAINS.items()}
    best["known lengths"] = field.best(knows_lengths)
    return [(q, best[q]) for q in ("preemption", "known lengths", "elasticity", "sharing")]

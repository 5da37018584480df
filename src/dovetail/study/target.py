"""The smallest cluster that reaches a target, such as `90% of 1-GPU jobs start within 10 min`.

More nodes need not help every job (a larger cluster starts another mix), so the answer of the
bisection is checked: its neighbours and smaller numbers down to the least are tried too, all of
them or `CHECKS` spread evenly. One that reaches the target is the answer, and is checked in turn.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl

from dovetail.core.cluster import Cluster, NodeGroup
from dovetail.core.errors import InputError, nearest
from dovetail.core.job import Bools, Floats
from dovetail.core.trace import Trace
from dovetail.core.units import DAY_S, HOUR_S, MINUTE_S
from dovetail.study.cells import CellOutcome, CellRunner, Premise
from dovetail.study.changes import GridCell, with_node_count
from dovetail.study.options import Options
from dovetail.study.prices import GpuPrices
from dovetail.study.uncertainty import Interval, blocks, intervals
from dovetail.study.whatif import check_cells, cluster_words, cut_notes, premise_sentence
from dovetail.study.whatif_notes import assumptions, cautions, replay_caution, unused_gpus

TIMES_LARGER_MAX = 8
"""The search gives up at so many times the nodes of the base."""
NEIGHBOURS = 2
CHECKS = 12
"""Smaller numbers of nodes that are tried below the answer, besides its neighbours."""
GRAMMAR = (
    '"P% of [N-GPU] jobs [in queue|account|user NAME] start within T", or "finish within T", or '
    '"wait at most T", with T as in 10 min, 2 h or 1 d'
)
_VERBS = {
    "start within": "time_to_start_s",
    "finish within": "jct_s",
    "wait at most": "wait_s",
}
_SENTENCE = re.compile(
    r"(?P<share>\d+(?:\.\d+)?) ?% of (?:(?P<gpus>\d{1,6})-GPU )?jobs "
    r"(?:in (?P<by>queue|account|user) (?P<name>\S+) )?"
    rf"(?P<verb>{'|'.join(_VERBS)}) (?P<count>\d+(?:\.\d+)?) ?(?P<unit>[a-z]+)",
    re.IGNORECASE | re.ASCII,
)
_UNITS = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("min", "minute", "minutes"), MINUTE_S),
    **dict.fromkeys(("h", "hour", "hours"), HOUR_S),
    **dict.fromkeys(("d", "day", "days"), DAY_S),
}

TARGET_COLUMNS: Mapping[str, type[pl.DataType]] = {
    "change": pl.String,
    "cluster": pl.String,
    "nodes": pl.Int64,
    "gpus": pl.Int64,
    "reached": pl.Boolean,
    "left_out_jobs": pl.Int64,
    "share": pl.Float64,
    "share_low": pl.Float64,
    "share_high": pl.Float64,
    "avg_wait_s": pl.Float64,
    "avg_jct_s": pl.Float64,
    "gpu_utilization": pl.Float64,
    "cost_per_month": pl.Float64,
}
"""The columns of `TargetAnswer.table`: the answer and its neighbours, and the base.

`nodes` are those of the searched groups; `share` is that of the target's jobs, with its 95 %
interval. A cluster that leaves out more jobs than the base does not reach the target.
"""


@dataclass(frozen=True, slots=True)
class Target:
    """At least `share` of the jobs that are meant have at most `most_s` in one column."""

    text: str
    share: float
    column: str
    most_s: float
    gpus: int = 0
    by: str = ""
    name: str = ""

    def rows(self, trace: Trace, options: Options) -> Bools:
        """Returns the jobs that are meant. Raises InputError if there are none."""
        meant = options.window.rows(trace.jobs.submit_s)
        if self.gpus:
            meant = meant & (trace.jobs.asked_gpus == self.gpus)
        if self.by:
            texts = getattr(trace.jobs, self.by).texts()
            known = sorted({text for text in texts if text})
            if self.name not in known:
                mend = nearest(self.name, known) if known else f"its jobs name no {self.by}"
                raise InputError("--target", f"no job is in {self.by} '{self.name}'", mend)
            meant = meant & np.array([text == self.name for text in texts])
        if not meant.any():
            raise InputError("--target", f"no job of the trace is meant by '{self.text}'")
        return np.asarray(meant)

    def hits(self, outcome: CellOutcome) -> Floats:
        """Returns the share of the draws in which each job is within the time.

        A job that is left out or never finished is not.
        """
        return np.asarray(np.mean([self._within(draw) for draw in outcome.each], axis=0))

    def _within(self, outcome: CellOutcome) -> Floats:
        values: Floats = getattr(outcome, self.column)
        within = values <= self.most_s
        return np.asarray(within & ~outcome.cut if self.column == "jct_s" else within, np.float64)


def parse_target(text: str) -> Target:
    """Returns a target. Raises InputError."""
    match = _SENTENCE.fullmatch(" ".join(text.split()))
    unit_s = _UNITS.get(match["unit"].lower()) if match else None
    if match is None or unit_s is None or not 0 < float(match["share"]) <= 100:
        raise InputError("--target", f"'{text}' is not a target", f"write {GRAMMAR}")
    return Target(
        text=" ".join(text.split()),
        share=float(match["share"]) / 100,
        column=_VERBS[match["verb"].lower()],
        most_s=float(match["count"]) * unit_s,
        gpus=int(match["gpus"] or 0),
        by=(match["by"] or "").lower(),
        name=match["name"] or "",
    )


@dataclass(slots=True)
class NodeSearch:
    """Which numbers of nodes to try next, given the ones that reached the target or did not.

    First up from `start` until one is enough, then between the largest that is not and the
    smallest that is, then the neighbours of the smallest, then `CHECKS` numbers below it.
    """

    start: int
    least: int
    most: int
    reached: dict[int, bool] = field(default_factory=dict)

    @property
    def first(self) -> int:
        """Returns the number that is tried first."""
        return min(max(self.start, self.least), self.most)

    @property
    def answer(self) -> int | None:
        """Returns the smallest number that reached the target so far, None if none did."""
        return min((n for n, enough in self.reached.items() if enough), default=None)

    def wanted(self) -> list[int]:
        """Returns the numbers to try next; none when the search is over."""
        if not self.reached:
            return [self.first]
        high = self.answer
        if high is None:
            top = max(self.reached)
            larger = sorted({min(self.most, max(2 * top, 1)), min(self.most, max(4 * top, 2))})
            return [n for n in larger if n not in self.reached]
        low = max((n for n in self.reached if n < high), default=self.least - 1)
        if high - low > 1:
            inside = {low + (high - low) * part // 4 for part in (1, 2, 3)}
            return sorted(inside.intersection(range(low + 1, high)))
        around = range(max(self.least, high - NEIGHBOURS), high + NEIGHBOURS + 1)
        below = range(self.least, high)
        checks = below[:: max(1, -(-len(below) // CHECKS))]
        return sorted({*around, *checks}.difference(self.reached))

    @property
    def checked(self) -> str:
        """Returns which numbers below the answer were tried, in words; '' if there are none."""
        below = range(self.least, self.answer or 0)
        tried = [n for n in below if n in self.reached]
        if not below:
            return ""
        if len(tried) == len(below):
            return "no smaller number does (all tried)"
        return f"no smaller number does of {len(tried)} tried among {len(below)}"


@dataclass(frozen=True)
class TargetAnswer:
    """The smallest cluster for one setting (None: not reached), and its neighbours.

    `nodes` are those of the searched groups.
    """

    change: str
    cluster: str | None
    nodes: int | None
    table: pl.DataFrame
    sentence: str


@dataclass(frozen=True, slots=True)
class SearchStep:
    """One cluster that the search simulated."""

    cluster: Cluster
    outcome: CellOutcome
    share: Interval

    def row(
        self, change: str, nodes: int, prices: GpuPrices | None, *, reached: bool
    ) -> dict[str, object]:
        """Returns its row of `TARGET_COLUMNS`."""
        outcome, cluster = self.outcome, self.cluster
        ran = np.isfinite(outcome.jct_s)
        return {
            "change": change,
            "cluster": cluster_words(cluster),
            "nodes": nodes,
            "gpus": cluster.installed_gpus,
            "reached": reached,
            "left_out_jobs": int(outcome.left_out.sum()),
            "share": self.share.value,
            "share_low": self.share.low,
            "share_high": self.share.high,
            "avg_wait_s": float(outcome.wait_s[ran].mean()) if ran.any() else None,
            "avg_jct_s": float(outcome.jct_s[ran].mean()) if ran.any() else None,
            "gpu_utilization": outcome.gpu_utilization,
            "cost_per_month": prices.cluster_per_month(cluster) if prices else None,
        }


def smallest(
    premise: Premise,
    cells: Sequence[GridCell],
    target: Target,
    at_group: Callable[[Cluster], int],
    prices: GpuPrices | None = None,
    *,
    processes: int = 0,
) -> tuple[list[TargetAnswer], tuple[str, ...]]:
    """Returns the answer for each cell, and notes, of which the first says what decides.

    `at_group` is the position of the group whose nodes are searched. Raises InputError.
    """
    check_search(premise, cells)
    rows = target.rows(premise.trace, premise.options)
    searches = {cell.label: _search_of(cell, at_group) for cell in cells}
    tried: dict[tuple[str, int], SearchStep] = {}
    with CellRunner(premise, processes, [c.setting.policy for c in cells]) as runner:
        while batch := _batch(cells, searches, at_group):
            outcomes = runner.run([cell for _, _, cell in batch])
            for (label, nodes, cell), outcome in zip(batch, outcomes, strict=True):
                share = share_of(premise, rows, target.hits(outcome)[rows])
                tried[label, nodes] = SearchStep(cell.setting.cluster, outcome, share)
                at_start = tried[label, searches[label].first].outcome.left_out
                keeps_all = outcome.left_out.sum() <= at_start.sum()
                searches[label].reached[nodes] = bool(keeps_all and share.value >= target.share)
    long = too_long(premise.trace, rows, target)

    def why(outcome: CellOutcome, group: NodeGroup) -> str:
        return long + _of_other_types(premise.trace, rows, target.hits(outcome)[rows], group)

    answers = [
        _answer(cell, _group(cell, at_group), searches[cell.label], tried, target, prices, why)
        for cell in cells
    ]
    cuts = [(cell, _found(cell, searches[cell.label], tried).outcome) for cell in cells]
    start = tried[cells[0].label, searches[cells[0].label].first].outcome
    return answers, notes_of(premise, cells, target, rows, cuts, start)


def notes_of(
    premise: Premise,
    cells: Sequence[GridCell],
    target: Target,
    rows: Bools,
    cuts: Sequence[tuple[GridCell, CellOutcome]],
    base: CellOutcome,
) -> tuple[str, ...]:
    """Returns what all answers rest on; `cuts` are the outcomes of the answers."""
    return (
        *unused_gpus(premise, cells),
        premise_sentence(premise, cells),
        *cautions(premise, cells),
        *assumptions(premise, cells),
        *replay_caution(premise.trace, base),
        _about(target, rows),
        *cut_notes(premise, cuts),
    )


def check_search(premise: Premise, cells: Sequence[GridCell]) -> None:
    """Raises InputError for rows whose nodes cannot be searched."""
    check_cells(premise, cells)
    if premise.options.capacity:
        what = "--capacity names nodes by number, which the search varies"
        raise InputError("--target", what, "leave --capacity out")


def _group(cell: GridCell, at_group: Callable[[Cluster], int]) -> NodeGroup:
    """Returns the group whose nodes are searched."""
    cluster = cell.setting.cluster
    return cluster.groups[at_group(cluster)]


def _search_of(cell: GridCell, at_group: Callable[[Cluster], int]) -> NodeSearch:
    """Returns the search for one cell, which leaves at least one node. Raises InputError."""
    cluster, group = cell.setting.cluster, _group(cell, at_group)
    if not group.gpus_per_node:
        raise InputError("--target", f"the nodes of group {group.name} have no GPUs")
    least = 1 if group.nodes * group.gpus_per_node == cluster.installed_gpus else 0
    start = max(group.nodes, 1)
    return NodeSearch(start, least, TIMES_LARGER_MAX * start)


def _batch(
    cells: Sequence[GridCell],
    searches: Mapping[str, NodeSearch],
    at_group: Callable[[Cluster], int],
) -> list[tuple[str, int, GridCell]]:
    """Returns what all searches try next: the label, the nodes and the cell."""
    batch = []
    for cell in cells:
        cluster = cell.setting.cluster
        for nodes in searches[cell.label].wanted():
            other = with_node_count(cluster, at_group(cluster), nodes)
            setting = replace(cell.setting, cluster=other)
            batch.append((cell.label, nodes, GridCell(cell.label, setting)))
    return batch


def share_of(premise: Premise, rows: Bools, hits: Floats) -> Interval:
    """Returns the share of hits with its interval, from blocks of time."""
    submit_s = premise.trace.jobs.submit_s[rows]
    samples = blocks(submit_s, {"hits": hits})
    means, _ = intervals(samples, "hits", premise.options.seed)
    share = means["hits"]
    # The interval is on a log scale, which knows no upper end.
    return replace(share, high=None if share.high is None else min(1.0, share.high))


def _answer(
    cell: GridCell,
    group: NodeGroup,
    search: NodeSearch,
    tried: Mapping[tuple[str, int], SearchStep],
    target: Target,
    prices: GpuPrices | None,
    why: Callable[[CellOutcome, NodeGroup], str],
) -> TargetAnswer:
    nodes = search.answer
    top = max(search.reached)
    around = {n for n in search.reached if nodes is not None and abs(n - nodes) <= NEIGHBOURS}
    shown = sorted(around | {search.first, *((top,) if nodes is None else ())})
    rows = [
        tried[cell.label, n].row(cell.label, n, prices, reached=search.reached[n]) for n in shown
    ]
    shares = {n: tried[cell.label, n].share for n in shown}
    kind = f" of {group.gpu_type or group.name}" if len(cell.setting.cluster.groups) > 1 else ""
    if nodes is None:
        sentence = (
            f"not reached with {top} nodes{kind}, {TIMES_LARGER_MAX} times as many: "
            f"{percent_words(shares[top].value)}{why(tried[cell.label, top].outcome, group)}"
        )
    else:
        found = tried[cell.label, nodes]
        sentence = _reached(nodes, found, shares, target, kind, search)
        sentence += why(found.outcome, group) if found.share.value < 1 else ""
    cluster = None if nodes is None else cluster_words(tried[cell.label, nodes].cluster)
    return TargetAnswer(
        cell.label, cluster, nodes, pl.DataFrame(rows, schema=dict(TARGET_COLUMNS)), f"{sentence}."
    )


def _reached(
    nodes: int,
    found: SearchStep,
    shares: Mapping[int, Interval],
    target: Target,
    kind: str,
    search: NodeSearch,
) -> str:
    share = found.share
    unit = "node" if nodes == 1 else "nodes"
    gpus = f"{found.cluster.installed_gpus} GPUs{' in all' if kind else ''}"
    text = f"{nodes} {unit}{kind} ({gpus}) reach {percent_words(share.value)}"
    if nodes - 1 in shares:
        fewer = shares[nodes - 1].value
        text += f"; {nodes - 1} reach {percent_words(fewer)}"
        if fewer >= target.share:
            text += ", but leave jobs out that can never fit"
    text += f"; {search.checked}" if search.checked else ""
    worse = sorted(n for n, enough in search.reached.items() if n > nodes and not enough)
    if worse:
        text += f"; more nodes are not always better: {worse[0]} reach less than the target"
    if share.low is not None and share.high is not None:
        text += f". 95 % interval {percent_words(share.low)} to {percent_words(share.high)}"
        if share.low < target.share:
            text += ": another month like this one may miss the target"
    return text


def _of_other_types(trace: Trace, rows: Bools, hits: Floats, group: NodeGroup) -> str:
    """Returns words on jobs for other GPU types, which more nodes of a group do not help."""
    texts = trace.jobs.gpu_type.texts()
    types = [texts[row].split("|") for row in np.flatnonzero(rows)]
    missed = hits < 1
    others = missed & np.array([t != [""] and group.gpu_type not in t for t in types], np.bool_)
    if not group.gpu_type or not others.any():
        return ""
    return (
        f"; {int(others.sum()):,} of the {int(missed.sum()):,} jobs that miss it are for other "
        f"GPU types, so more nodes of {group.gpu_type} do not help them: ask for the jobs of one "
        "type, as in 'jobs in queue NAME', with its --type"
    )


def too_long(trace: Trace, rows: Bools, target: Target) -> str:
    """Returns what no number of nodes can mend: jobs whose run alone takes too long."""
    if target.column != "jct_s":
        return ""
    short = float((trace.duration_s[rows] <= target.most_s).mean())
    if short >= target.share:
        return ""
    return f"; only {percent_words(short)} of these jobs run so short on the GPUs that they ask for"


def percent_words(share: float) -> str:
    """Returns a share as `90.6 %`."""
    return f"{share * 100:.1f} %"


def _found(
    cell: GridCell, search: NodeSearch, tried: Mapping[tuple[str, int], SearchStep]
) -> SearchStep:
    """Returns the answer of a search, or the largest that was tried."""
    nodes = search.answer
    return tried[cell.label, max(search.reached) if nodes is None else nodes]


def _about(target: Target, rows: Bools) -> str:
    return (
        f"Target: {target.text} ({rows.sum():,} jobs), on a cluster that all jobs of the base fit. "
        "Mean wait and JCT are over the jobs that ran."
    )

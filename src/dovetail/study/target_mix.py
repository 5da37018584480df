"""The smallest cluster of several GPU types for a target, and what one node less of each does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from dovetail.core.cluster import Cluster
from dovetail.core.errors import InputError
from dovetail.core.job import Bools, Floats, Ints
from dovetail.core.trace import Trace
from dovetail.study.cells import CellRunner, Premise
from dovetail.study.changes import GridCell, with_node_count
from dovetail.study.mix_search import FACTORS, Mix, MixSearch
from dovetail.study.prices import GpuPrices
from dovetail.study.target import (
    TARGET_COLUMNS,
    SearchStep,
    Target,
    TargetAnswer,
    check_search,
    notes_of,
    percent_words,
    share_of,
    too_long,
)


def smallest_mixes(
    premise: Premise,
    cells: Sequence[GridCell],
    target: Target,
    prices: GpuPrices | None = None,
    *,
    processes: int = 0,
) -> tuple[list[TargetAnswer], tuple[str, ...]]:
    """Returns the answer for each cell, over the nodes of all groups, and notes.

    With prices the cheapest cluster is the smallest. Raises InputError.
    """
    check_search(premise, cells)
    rows = target.rows(premise.trace, premise.options)
    searches = {cell.label: _search_of(cell, prices, rows, target) for cell in cells}
    tried: dict[tuple[str, Mix], SearchStep] = {}
    with CellRunner(premise, processes, [c.setting.policy for c in cells]) as runner:
        while batch := _batch(cells, searches):
            outcomes = runner.run([cell for _, cell in batch])
            for (mix, cell), outcome in zip(batch, outcomes, strict=True):
                hits, search = target.hits(outcome)[rows], searches[cell.label]
                share = share_of(premise, rows, hits)
                tried[cell.label, mix] = SearchStep(cell.setting.cluster, outcome, share)
                groups = _groups_of(premise.trace, rows, cell.setting.cluster)
                at_start = tried[cell.label, search.start].outcome.left_out
                keeps_all = bool(outcome.left_out.sum() <= at_start.sum())
                served = np.bincount(groups, hits, minlength=len(mix))
                search.note(mix, served.tolist(), keeps_all=keeps_all)
    long = too_long(premise.trace, rows, target)
    answers = [_answer(cell, searches[cell.label], tried, prices, long) for cell in cells]
    cuts = []
    for cell in cells:
        search = searches[cell.label]
        shown = search.answer or max(search.reached, key=search.weight)
        cuts.append((cell, tried[cell.label, shown].outcome))
    first = tried[cells[0].label, searches[cells[0].label].start].outcome
    return answers, notes_of(premise, cells, target, rows, cuts, first)


def _search_of(cell: GridCell, prices: GpuPrices | None, rows: Bools, target: Target) -> MixSearch:
    """Returns the search for one cell. Raises InputError for a group without GPUs."""
    groups = cell.setting.cluster.groups
    for group in groups:
        if not group.gpus_per_node or not group.nodes:
            what = f"group {group.name} has no GPUs to search for"
            raise InputError("--target", what, "name one group by --type")
    prices_h = [prices.per_gpu_h(g.gpu_type) if prices else 1.0 for g in groups]
    weights: Floats = np.array([g.gpus_per_node for g in groups]) * np.array(prices_h)
    return MixSearch(tuple(g.nodes for g in groups), weights, target.share * float(rows.sum()))


def _batch(
    cells: Sequence[GridCell], searches: Mapping[str, MixSearch]
) -> list[tuple[Mix, GridCell]]:
    """Returns what all searches try next."""
    batch = []
    for cell in cells:
        for mix in searches[cell.label].wanted():
            setting = replace(cell.setting, cluster=_with_mix(cell.setting.cluster, mix))
            batch.append((mix, GridCell(cell.label, setting)))
    return batch


def _with_mix(cluster: Cluster, mix: Mix) -> Cluster:
    for at, nodes in enumerate(mix):
        cluster = with_node_count(cluster, at, nodes)
    return cluster


def _groups_of(trace: Trace, rows: Bools, cluster: Cluster) -> Ints:
    """Returns for each job that is meant the largest group of a type that it may use."""
    size = [group.nodes * group.gpus_per_node for group in cluster.groups]
    texts = trace.jobs.gpu_type.texts()
    group_of: dict[str, int] = {}
    for text in dict.fromkeys(texts):
        types = text.split("|")
        may = [at for at, g in enumerate(cluster.groups) if not text or g.gpu_type in types]
        group_of[text] = max(may or range(len(size)), key=lambda at: size[at])
    return np.array([group_of[texts[row]] for row in np.flatnonzero(rows)], np.int64)


def _answer(
    cell: GridCell,
    search: MixSearch,
    tried: Mapping[tuple[str, Mix], SearchStep],
    prices: GpuPrices | None,
    long: str,
) -> TargetAnswer:
    mix, label = search.answer, cell.label
    if mix is None:
        top = max(search.reached, key=search.weight)
        sentence = (
            f"not reached with {max(FACTORS):g} times the nodes of every type: "
            f"{percent_words(tried[label, top].share.value)}{long}"
        )
        shown = [search.start, top]
    else:
        fewer = _one_less(mix, search)
        sentence = _reached(mix, fewer, tried, label, search, prices)
        shown = sorted({search.start, mix, *fewer}, key=search.weight)
    rows = [
        tried[label, each].row(label, sum(each), prices, reached=search.reached[each])
        for each in shown
    ]
    table = pl.DataFrame(rows, schema=dict(TARGET_COLUMNS))
    if mix is None:
        return TargetAnswer(label, None, None, table, f"{sentence}.")
    cluster = str(
        next(row["cluster"] for row, each in zip(rows, shown, strict=True) if each == mix)
    )
    return TargetAnswer(label, cluster, sum(mix), table, f"{cluster} {sentence}.")


def _one_less(mix: Mix, search: MixSearch) -> list[Mix]:
    """Returns the tried mixes with one node less of one group."""
    fewer = [(*mix[:at], nodes - 1, *mix[at + 1 :]) for at, nodes in enumerate(mix)]
    return [each for each in fewer if each in search.reached]


def _reached(
    mix: Mix,
    fewer: Sequence[Mix],
    tried: Mapping[tuple[str, Mix], SearchStep],
    label: str,
    search: MixSearch,
    prices: GpuPrices | None,
) -> str:
    found = tried[label, mix]
    least = "the cheapest" if prices else "the fewest GPUs"
    text = (
        f"({found.cluster.installed_gpus} GPUs) reach {percent_words(found.share.value)}: "
        f"{least} of {len(search.reached)} mixes tried"
    )
    for each in fewer:
        at = next(n for n, nodes in enumerate(mix) if each[n] < nodes)
        group = found.cluster.groups[at]
        share = percent_words(tried[label, each].share.value)
        text += f"; with {each[at]} of {group.gpu_type or group.name} {share}"
    low, high = found.share.low, found.share.high
    if low is not None and high is not None:
        text += f". 95 % interval {percent_words(low)} to {percent_words(high)}"
    return text

"""Configurations of Sia: numbers of GPUs of one kind of node that can always be packed.

Nodes of one type and size are of one *kind*. A configuration is a kind and a number of GPUs: a
power of two on one node, or whole nodes. So all of a kind can be packed whenever their sum fits
(SOSP 2023, section 3.2). The number that a rigid job requests, and the least of an elastic one, are
configurations of that job too, and may find no room.

A job whose configuration stays keeps its GPUs. Only if another finds no room are the jobs of that
kind packed anew, the widest first, each where it was if that is free.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dovetail.core.beliefs import BestBatches
from dovetail.core.cluster import NodeGroup
from dovetail.core.job import Bools, Floats, Ints
from dovetail.core.placement import Placement
from dovetail.core.plan import Draft
from dovetail.core.view import View
from dovetail.mechanisms.elastic.allocation import with_best_batch
from dovetail.mechanisms.elastic.shares import widest
from dovetail.mechanisms.sharing.named_gpus import try_place


class NodeKind(NamedTuple):
    """Nodes of one type and size: as bits, how many, their GPUs, and one of them."""

    nodes: int
    node_count: int
    gpus_per_node: int
    example: int


class Configurations(NamedTuple):
    """Kinds and GPUs of all configurations; `regular` ones are for every elastic job."""

    kind: Ints
    gpus: Ints
    regular: Bools

    def of(self, kind: int, gpus: int) -> int:
        """Returns the number of a configuration, -1 if there is none."""
        at = np.flatnonzero((self.kind == kind) & (self.gpus == gpus))
        return int(at[0]) if len(at) else -1


@lru_cache(maxsize=64)
def node_kinds(groups: tuple[NodeGroup, ...]) -> tuple[NodeKind, ...]:
    """Returns the kinds of the nodes that have GPUs, in order of the groups."""
    found: dict[tuple[str, int], NodeKind] = {}
    first = 0
    for group in groups:
        if group.nodes and group.gpus_per_node:
            key = group.gpu_type.casefold(), group.gpus_per_node
            known = found.get(key, NodeKind(0, 0, group.gpus_per_node, first))
            bits = known.nodes | ((1 << group.nodes) - 1) << first
            found[key] = known._replace(nodes=bits, node_count=known.node_count + group.nodes)
        first += group.nodes
    return tuple(found.values())


def configurations(kinds: Sequence[NodeKind], others: Collection[int]) -> Configurations:
    """Returns all configurations; `others` are numbers that are some jobs' own."""
    rows: list[tuple[int, int, bool]] = []
    for number, kind in enumerate(kinds):
        size = kind.gpus_per_node
        whole = {size * nodes for nodes in range(1, kind.node_count + 1)}
        regular = whole | {1 << k for k in range(size.bit_length()) if 1 << k < size}
        known = regular | {n for n in others if n <= size * kind.node_count}
        rows += [(number, gpus, gpus in regular) for gpus in sorted(known)]
    kind_of, gpus_of, regular_of = zip(*rows, strict=True)
    return Configurations(np.array(kind_of), np.array(gpus_of), np.array(regular_of))


@dataclass(frozen=True, slots=True)
class TypeOffers:
    """What jobs may choose from: speeds [jobs, configurations], 0 where a job may not run.

    `held` is the configuration that each job has, -1 for none of these; `capacity` the GPUs of each
    kind that are free or held by these jobs.
    """

    view: View
    jobs: Sequence[int]
    kinds: Sequence[NodeKind]
    configs: Configurations
    speed: Floats
    held: Ints
    capacity: Ints

    @staticmethod
    def of(view: View, jobs: Sequence[int], most: Ints) -> TypeOffers:
        """Returns the offers to jobs that may be stopped, elastic ones up to `most` GPUs."""
        kinds = node_kinds(view.cluster.groups)
        least = view.jobs.least_gpus[list(jobs)]
        configs = configurations(kinds, set(least.tolist()))
        allowed = configs.regular & view.jobs.elastic[list(jobs)][:, None]
        allowed = (allowed & (configs.gpus >= least[:, None])) | (configs.gpus == least[:, None])
        allowed &= configs.gpus <= most[:, None]
        reach = np.array([[bool(_nodes(view, j, k)) for k in kinds] for j in jobs])
        allowed &= reach[:, configs.kind]
        speed = np.where(allowed, _speeds(view, jobs, kinds, configs), 0.0)
        held = np.array([_held(view, job, kinds, configs) for job in jobs])
        return TypeOffers(view, jobs, kinds, configs, speed, held, _capacity(view, jobs, kinds))

    def drafted(self, chosen: Ints) -> Draft:
        """Returns a draft in which each job has its chosen configuration, -1 for none."""
        view, draft = self.view, self.view.plan.draft()
        wanted = {job: int(c) for job, c in zip(self.jobs, chosen, strict=True) if c >= 0}
        for job, held in zip(self.jobs, self.held.tolist(), strict=True):
            if job in view.running and wanted.get(job, -1) != held:
                draft.remove(job)
        self._place_missing(draft, wanted)
        for job, config in wanted.items():
            if job in draft.placed and view.jobs.elastic[job]:
                self._set_batch(draft, job, int(self.configs.kind[config]))
        return draft

    def _place_missing(self, draft: Draft, wanted: Mapping[int, int]) -> None:
        """Places the jobs that have no GPUs; kinds on which one finds no room are packed anew."""
        kind_of = self.configs.kind
        missing = [j for j in self._widest_first(wanted) if j not in draft.placed]
        failed = [j for j in missing if not self._find(draft, j, wanted[j])]
        for kind in dict.fromkeys(int(kind_of[wanted[j]]) for j in failed):
            self._repack(draft, {j: c for j, c in wanted.items() if kind_of[c] == kind})

    def _widest_first(self, wanted: Mapping[int, int]) -> list[int]:
        running, gpus = self.view.running, self.configs.gpus
        return sorted(wanted, key=lambda j: (-gpus[wanted[j]], j not in running, j))

    def _find(self, draft: Draft, job: int, config: int) -> bool:
        """Places a job on one node or on whole ones; False if it finds no room."""
        view, kind = self.view, self.kinds[self.configs.kind[config]]
        rule = replace(view.placing, consolidate="strict")
        gpus = int(self.configs.gpus[config])
        spans = rule.find(draft.occupancy, view.shape(job), gpus, among=kind.nodes)
        return spans is not None and try_place(draft, job, Placement(spans))

    def _repack(self, draft: Draft, wanted: Mapping[int, int]) -> None:
        """Packs the jobs of one kind anew; one that finds no room waits."""
        for job in wanted:
            if job in draft.placed:
                draft.remove(job)
        held = dict(zip(self.jobs, self.held.tolist(), strict=True))
        for job in self._widest_first(wanted):
            stays = held[job] == wanted[job] and job in self.view.running
            if not (stays and try_place(draft, job, self.view.running[job])):
                self._find(draft, job, wanted[job])

    def _set_batch(self, draft: Draft, job: int, kind: int) -> None:
        placement = with_best_batch(
            Placement(draft.placed[job].spans), _table(self.view, job, self.kinds[kind])
        )
        if placement != draft.placed[job]:
            try_place(draft, job, placement)


def _table(view: View, job: int, kind: NodeKind) -> BestBatches:
    done_s = view.progress.done_s((job,))[0]
    return view.physics.best_batches(job, done_s, widest(view), kind.example)


def _speeds(
    view: View, jobs: Sequence[int], kinds: Sequence[NodeKind], configs: Configurations
) -> Floats:
    """Returns the speed of each job in each configuration with its best batch."""
    speed = np.zeros((len(jobs), len(configs.gpus)))
    for number, kind in enumerate(kinds):
        columns = np.flatnonzero(configs.kind == number)
        gpus = configs.gpus[columns]
        nodes = -(-gpus // kind.gpus_per_node)
        for row, job in enumerate(jobs):
            table = _table(view, job, kind).speed
            known = gpus < table.shape[1]
            at = np.minimum(nodes[known], len(table) - 1), gpus[known]
            speed[row, columns[known]] = table[at]
    return speed


def _nodes(view: View, job: int, kind: NodeKind) -> int:
    """Returns the nodes of a kind that a job may use."""
    sets = view.plan.occupancy.node_sets.near(view.shape(job))
    return next((one & kind.nodes for one in sets if one & kind.nodes), 0)


def _held(view: View, job: int, kinds: Sequence[NodeKind], configs: Configurations) -> int:
    placement = view.running.get(job)
    if placement is None:
        return -1
    bits = sum(1 << node for node, _ in placement.spans)
    whole = (n for n, kind in enumerate(kinds) if not bits & ~kind.nodes)
    kind = next(whole, -1)
    return -1 if kind < 0 else configs.of(kind, placement.gpus)


def _capacity(view: View, jobs: Sequence[int], kinds: Sequence[NodeKind]) -> Ints:
    """Returns the GPUs of each kind that are free or held by these jobs."""
    open_gpus = np.array(view.plan.occupancy.free, np.int64)
    open_gpus[[not view.cluster.is_open(node) for node in range(view.cluster.nodes)]] = 0
    for job in jobs:
        placement = view.running.get(job)
        for node, gpus in placement.by_node().items() if placement else ():
            open_gpus[node] += gpus
    nodes = range(view.cluster.nodes)
    return np.array(
        [sum(int(open_gpus[n]) for n in nodes if kind.nodes >> n & 1) for kind in kinds]
    )

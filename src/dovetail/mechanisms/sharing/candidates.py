"""GPUs with one job that others may join, for policies that know no lengths.

`shared_gpus` does the same for policies that weigh lengths.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple

from sortedcontainers import SortedList

from dovetail.core.beliefs import SizedJob
from dovetail.core.passes import refuses
from dovetail.core.placement import Placement
from dovetail.core.plan import Draft
from dovetail.core.view import View
from dovetail.mechanisms.sharing.named_gpus import (
    Gpu,
    fit_together,
    free_gpus,
    idle_gpus,
    is_too_spread,
    placement_on,
    try_place,
)


def utilisation(view: View, job: int) -> float:
    """Returns the part of a GPU's time that a job uses, estimated from interference.

    Two jobs that use a part u each need 2u of one GPU's time, so beside its like a job takes
    max(1, 2u) times as long as alone. A job that is not slowed at all uses half or less.
    """
    return view.physics.sharing.interference(SizedJob(job), SizedJob(job))[0] / 2


class SharingCandidates:
    """The GPUs of a draft with one job that allows sharing, updated as jobs start in it.

    They are grouped by the properties that decide which jobs may join: `label` and kind of the job
    there, and the group of nodes. The table is built when it is first needed.
    """

    def __init__(self, view: View, draft: Draft, label: Callable[[int], bool]) -> None:
        self._view = view
        self._draft = draft
        self._label = label
        self._alone: dict[_Hosts, SortedList] | None = None
        self._welcome: dict[tuple[_Hosts, int, bool], bool] = {}

    def has_started(self, job: int) -> bool:
        """Returns whether a waiting job has been started in the draft."""
        return job in self._draft.placed

    def start(self, job: int) -> bool:
        """Starts a job on free GPUs by the placement rule; False if it finds no room."""
        view, draft = self._view, self._draft
        spans = view.placing.find(draft.occupancy, view.shape(job))
        if spans is None:
            return False
        if not view.jobs.shareable[job]:
            draft.place(job, spans)
            return True
        gpus = idle_gpus(draft, spans)
        draft.place(job, placement_on(gpus))
        self._add(job, gpus)
        return True

    def start_beside(self, job: int, welcome: Callable[[int], bool]) -> bool:
        """Starts a gang on all free GPUs and, for the missing ones, beside other jobs.

        Shared GPUs are of its type, on open nodes, have one `welcome` job and enough memory; by
        node and number. If the gang would be too spread, or a quota or host refuses it, the GPUs
        of one job are tried. Returns False and changes nothing if it does not start.
        """
        view = self._view
        shape = view.shape(job)
        missing = shape.gpus - free_gpus(self._draft, shape)
        if missing <= 0:
            return False
        taken = self._seats(job, welcome, missing)
        if len(taken) < missing:
            return False
        if self._sit(job, taken):
            return True
        return refuses(view) and any(self._sit(job, g) for g in self._single(job, welcome))

    def _sit(self, job: int, taken: Sequence[Gpu]) -> bool:
        """Starts a gang on shared GPUs, and free ones for the rest; False if it is refused."""
        view, draft = self._view, self._draft
        shape = view.shape(job)
        idle: list[Gpu] = []
        if len(taken) < shape.gpus:
            spans = view.placing.find(draft.occupancy, shape, shape.gpus - len(taken))
            if spans is None:
                return False
            idle = idle_gpus(draft, spans)
        placement = placement_on([*taken, *idle])
        hosts = [draft.occupancy.sharers(*gpu)[0] for gpu in taken]
        if is_too_spread(view, placement) or not try_place(draft, job, placement):
            return False
        for host, gpu in zip(hosts, taken, strict=True):
            self._gpus()[self._key(host, gpu)].remove(gpu)
        self._add(job, idle)
        return True

    def _single(self, job: int, welcome: Callable[[int], bool]) -> list[list[Gpu]]:
        """Returns GPUs for the whole gang beside one job each, on few nodes."""
        occupancy, wanted = self._draft.occupancy, self._view.shape(job).gpus
        of_host: dict[int, list[Gpu]] = {}
        for gpu in self._seats(job, welcome, len(occupancy.named)):
            of_host.setdefault(occupancy.sharers(*gpu)[0], []).append(gpu)
        whole = [gpus for gpus in of_host.values() if len(gpus) >= wanted]
        return [_on_few_nodes(gpus)[:wanted] for gpus in whole]

    def _seats(self, job: int, welcome: Callable[[int], bool], count: int) -> list[Gpu]:
        """Returns the first `count` GPUs a job may share, fewer if there are no more."""
        view = self._view
        if not count or not view.jobs.shareable[job]:
            return []
        kind = int(view.physics.kind_of[job])
        allowed = frozenset().union(*self._draft.occupancy.node_sets.groups(view.shape(job)))
        lists: list[SortedList] = []
        for key, gpus in self._gpus().items():
            group = view.cluster.groups[key.group]
            if not gpus or key.group not in allowed:
                continue
            pair = (key, kind, bool(self._label(job)))
            known = self._welcome.get(pair)
            if known is None:
                host = self._draft.occupancy.sharers(*gpus[0])[0]
                known = welcome(host) and self._fit(job, host, group.gpu_memory_bytes)
                self._welcome[pair] = known
            if known:
                lists.append(gpus)
        return list(islice(heapq.merge(*lists), count))

    def _fit(self, job: int, host: int, gpu_memory_bytes: float) -> bool:
        guest = Placement(((0, int(self._view.jobs.gpus[job])),))
        there = self._draft.occupancy.placement_of[host].free()
        return fit_together(self._view, [(job, guest), (host, there)], gpu_memory_bytes)

    def _gpus(self) -> dict[_Hosts, SortedList]:
        if self._alone is None:
            occupancy, groups = self._draft.occupancy, self._view.cluster.node_group
            shareable = self._view.jobs.shareable
            lists: dict[_Hosts, list[Gpu]] = {}
            of_host: dict[tuple[int, int], list[Gpu]] = {}
            for gpu, holders in occupancy.named.items():
                if len(holders) > 1 or not shareable[holders[0]] or gpu[0] in occupancy.closed:
                    continue
                host = (holders[0], groups[gpu[0]])
                gpus = of_host.get(host)
                if gpus is None:
                    gpus = of_host[host] = lists.setdefault(self._key(host[0], gpu), [])
                gpus.append(gpu)
            self._alone = {key: SortedList(gpus) for key, gpus in lists.items()}
        return self._alone

    def _add(self, job: int, gpus: Sequence[Gpu]) -> None:
        if self._alone is not None:
            for gpu in gpus:
                self._alone.setdefault(self._key(job, gpu), SortedList()).add(gpu)

    def _key(self, host: int, gpu: Gpu) -> _Hosts:
        group = self._view.cluster.node_group[gpu[0]]
        return _Hosts(self._label(host), int(self._view.physics.kind_of[host]), group)


class _Hosts(NamedTuple):
    """Jobs that are equal for every guest, on equal nodes."""

    label: bool
    kind: int
    group: int


def join(draft: Draft, guest: int, host: int) -> bool:
    """Starts a job on exactly the GPUs of another; False where a quota or a host refuses."""
    there = draft.placed[host]
    return try_place(draft, guest, Placement(there.spans, there.gpu_ids))


def _on_few_nodes(gpus: Sequence[Gpu]) -> list[Gpu]:
    """Returns GPUs in order, nodes with most of them first."""
    held = Counter(node for node, _ in gpus)
    return sorted(gpus, key=lambda g: (-held[g[0]], g))

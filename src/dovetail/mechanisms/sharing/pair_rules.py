"""Sharing rules by classes of jobs, computed once per run.

Waiting jobs of one guest class, and running jobs of one host class, are equal in everything that
sharing depends on but the time they have left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from dovetail.core.growth import Growing
from dovetail.core.job import Bools, Ints
from dovetail.core.kinds import Kinds
from dovetail.core.placement import Placement
from dovetail.core.queue import ReadableQueue
from dovetail.core.view import View
from dovetail.mechanisms.sharing.pair_tables import Guest, HostJob, PairTables

UNSEEN = -1


class HostClass(NamedTuple):
    """Equal hosts: kind, accumulation steps, memory of their GPUs, and their node groups."""

    kind: int
    steps: int
    memory_bytes: float
    groups: frozenset[int]


class PairRules:
    """The classes of a run, and in `pairs` the physics of each pair of classes.

    Unless it `weighs`, speeds and ratios are not computed and count as 1.
    """

    def __init__(self, view: View, weighs: bool) -> None:
        self.pairs = PairTables(view.physics, weighs)
        self._classes = Kinds(_keys(view, 0))
        self._host_of: Growing[np.int64] = Growing(np.empty(0, np.int64))
        self._speed_of: Growing[np.float64] = Growing(np.empty(0))
        self._seen: list[Placement | None] = []
        self._number_of: dict[HostClass, int] = {}
        self._make_room(view, range(len(self._classes)))

    def admit(self, view: View) -> None:
        """Adds the jobs appended to the table since the last call."""
        if len(self._seen) < len(view.jobs):
            self._make_room(view, self._classes.admit(_keys(view, len(self._seen))))

    def _make_room(self, view: View, classes: range) -> None:
        """Makes room for new jobs, some of them of new classes."""
        self.shareable: Bools = view.jobs.shareable
        jobs = len(view.jobs) - len(self._seen)
        self.host_of = self._host_of.extend(np.full(jobs, UNSEEN, np.int64))
        self.speed_of = self._speed_of.extend(np.ones(jobs))
        self._seen += [None] * jobs
        for number in classes:
            job = self._classes.example[number]
            shares = bool(view.jobs.shareable[job])
            allowed = view.plan.occupancy.node_sets.groups(view.shape(job))
            self.pairs.add_guest(Guest(job, allowed, shares))
        self.guest_of: Ints = self._classes.of
        self.guest_gpus: Ints = view.jobs.gpus[self._classes.example]

    def learn_all(self, view: View, jobs: Sequence[int], placed: Mapping[int, Placement]) -> None:
        """Stores the host class of running jobs, and their speed alone, at their placement."""
        seen = self._seen
        for job in [j for j in jobs if seen[j] is not placed[j]]:
            self._learn(view, job, placed[job])

    def placement_of(self, job: int) -> Placement | None:
        """Returns the placement of a job when it was last learned."""
        return self._seen[job]

    def _learn(self, view: View, job: int, placement: Placement) -> None:
        groups = frozenset(view.cluster.node_group[node] for node, _ in placement.spans)
        host = HostClass(
            int(view.physics.kind_of[job]),
            placement.accumulation_steps,
            min(view.cluster.groups[group].gpu_memory_bytes for group in groups),
            groups,
        )
        speed = view.physics.rate(job, placement, ()) if self.pairs.weighs else 1.0
        if host not in self._number_of:
            # First, so that an error of physics leaves no half-entered host.
            held_bytes = view.physics.memory.footprint_bytes(job, host.steps)
            self.pairs.add_host(HostJob(job, *host[1:], held_bytes))
            self._number_of[host] = len(self.pairs.hosts) - 1
        self.host_of[job] = self._number_of[host]
        self.speed_of[job] = speed
        self._seen[job] = placement


def _keys(view: View, first: int) -> Ints:
    """Returns the columns that define guest classes, from one job on."""
    kinds, shapes = view.physics.kind_of[first:], np.array(view.shape_of[first:], np.int64)
    return np.stack([kinds, shapes, view.jobs.shareable[first:].astype(np.int64)])


_rules: WeakKeyDictionary[ReadableQueue, PairRules] = WeakKeyDictionary()
# NOTE: a cache of values that depend on the run alone, so decisions stay a pure function of the
# view; computing them at each decision would take a hundred times as long as the decision.


def rules_of(view: View, *, weighs: bool) -> PairRules:
    """Returns the rules of the run of a view."""
    rules = _rules.get(view.waiting)
    if rules is None or rules.pairs.physics is not view.physics or rules.pairs.weighs != weighs:
        rules = _rules[view.waiting] = PairRules(view, weighs)
    rules.admit(view)
    return rules

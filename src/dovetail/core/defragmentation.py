"""Moves jobs that are spread over more nodes than they need onto few, where that pays.

Two repairs of a draft are tried: each spread job is placed anew by itself, or all jobs of the nodes
in question are, the largest first, on whole nodes where they have most GPUs already. The repair
stays whose jobs are worth more, after what their moves cost, and by more; else nothing moves. Jobs
on the same GPUs, a *unit*, move together. Each keeps its number of GPUs, its accumulation steps and
its seat, and on nodes that it had before the names of its GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from dovetail.core.errors import IllegalPlan
from dovetail.core.placement import Placement, Spans
from dovetail.core.plan import Draft
from dovetail.core.units import RELATIVE_TOLERANCE
from dovetail.core.view import View

WORTH = 1e-3
"""A repair must gain more than this share of what the jobs are worth that it touches."""
ALL_NODES_UP_TO = 64
"""In larger clusters only nodes are packed anew that have GPUs free or a unit spread on them."""

Unit = tuple[int, ...]


class Stake(NamedTuple):
    """What a solo second of a job is worth, and how long its placement will stand, in seconds."""

    weight: float
    horizon_s: float


Stakes = Mapping[int, Stake]
Layout = tuple[float, dict[int, Placement]]
"""What a layout gains, and the placements that it changes."""


def defragment(view: View, draft: Draft, units: Sequence[Unit], stakes: Stakes) -> None:
    """Moves units of a draft if that pays; none of their jobs shares GPUs with one outside.

    Nothing moves where the placement rule lets gangs lie anywhere.
    """
    if view.placing.consolidate != "none":
        _Repair(view, draft, units, stakes).run()


def find_beside(view: View, draft: Draft, job: int, gpus: int, held: Iterable[int]) -> Spans | None:
    """Returns spans on other nodes than those held, but of a set that has these as well."""
    own = sum(1 << node for node in held)
    sets = draft.occupancy.node_sets.of(view.shape(job))
    among = next((one for one in sets if one & own == own), 0) & ~own
    return view.placing.find(draft.occupancy, view.shape(job), gpus, among=among)


def is_spread(view: View, placement: Placement) -> bool:
    """Returns whether a placement uses more nodes than so many GPUs need."""
    return placement.nodes > 1 and placement.nodes > -(-placement.gpus // view.cluster.largest_node)


@dataclass(slots=True)
class _Repair:
    view: View
    draft: Draft
    units: Sequence[Unit]
    stakes: Stakes
    _rates: dict[tuple[int, Placement], float] = field(init=False, default_factory=dict)

    def run(self) -> None:
        """Tries both repairs, and keeps the better one if it gains."""
        spread = [unit for unit in self.units if self._gains_on_few_nodes(unit)]
        if not spread:
            return
        start = self.draft.savepoint()
        best: Layout = (0.0, {})
        for groups in ([[unit] for unit in spread], [self._together(spread)]):
            tried = self._tried(groups)
            best = tried if tried[0] > best[0] else best
            self.draft.undo_to(start)
        for job in best[1]:
            self.draft.remove(job)
        for job, placement in best[1].items():
            self.draft.place(job, placement)

    def _gains_on_few_nodes(self, unit: Unit) -> bool:
        """Returns whether a unit is spread, and a member would be faster on few nodes."""
        where = self.draft.placed[unit[0]]
        if not is_spread(self.view, where):
            return False
        rates, kind_of = self.view.physics.speed.rates(where.gpus), self.view.physics.kind_of
        return any(
            rates[kind_of[job], where.gpus]
            > self._rate(job, self.draft.placed[job], ()) * (1 + RELATIVE_TOLERANCE)
            for job in unit
        )

    def _together(self, spread: Sequence[Unit]) -> list[Unit]:
        """Returns the units of the nodes that are packed anew."""
        placed = self.draft.placed
        if self.view.cluster.nodes <= ALL_NODES_UP_TO:
            return list(self.units)
        used = {node for unit in spread for node, _ in placed[unit[0]].spans}
        used |= {node for node, free in enumerate(self.draft.occupancy.free) if free}
        inside = []
        for unit in self.units:
            spans = placed[unit[0]].spans
            if spans[0][0] in used and all(node in used for node, _ in spans):
                inside.append(unit)
        return inside

    def _tried(self, groups: Sequence[Sequence[Unit]]) -> Layout:
        """Places each group anew if that gains; returns the whole gain, and what it changes."""
        draft, total = self.draft, 0.0
        changed: dict[int, Placement] = {}
        for group in groups:
            before = {job: draft.placed[job] for unit in group for job in unit}
            worth = self._worth(before)
            savepoint = draft.savepoint()
            for job in before:
                draft.remove(job)
            whole = all(self._pack(unit, before) for unit in self._in_order(group, before))
            gain = self._worth(before) - worth if whole else 0.0
            if gain <= WORTH * worth:
                draft.undo_to(savepoint)
                continue
            total += gain
            changed |= {j: draft.placed[j] for j in before if draft.placed[j] != before[j]}
        return total, changed

    def _in_order(self, group: Sequence[Unit], before: Mapping[int, Placement]) -> list[Unit]:
        """Returns the largest units first; of equal ones those worth most."""
        weight = {unit: sum(self.stakes[job].weight for job in unit) for unit in group}
        return sorted(group, key=lambda u: (-before[u[0]].gpus, -weight[u], u))

    def _pack(self, unit: Unit, before: Mapping[int, Placement]) -> bool:
        """Places a unit on few nodes, where it has GPUs already if it can."""
        return any(self._settle(unit, s, before) for s in self._choices(unit, before[unit[0]]))

    def _choices(self, unit: Unit, own: Placement) -> Iterable[Spans]:
        """Yields spans: one of its nodes, whole nodes of its own and a rest, then any."""
        shape = self.view.shape(unit[0])
        if not shape.topology:
            yield from self._own_nodes(unit, own)
        anywhere = self.view.placing.find(self.draft.occupancy, shape, own.gpus)
        if anywhere is not None:
            yield anywhere

    def _own_nodes(self, unit: Unit, own: Placement) -> Iterable[Spans]:
        """Yields spans on nodes that a unit is on, most of its GPUs first."""
        occupancy, need = self.draft.occupancy, own.gpus
        held = sorted(own.by_node().items(), key=lambda one: (-one[1], one[0]))
        nodes = [node for node, _ in held if node not in occupancy.closed]
        installed = self.view.cluster.installed
        if need <= self.view.cluster.largest_node:
            yield from (((node, need),) for node in nodes if occupancy.free[node] >= need)
            return
        spans, rest = [], need
        for node in nodes:
            if occupancy.free[node] == installed[node] <= rest:
                spans.append((node, installed[node]))
                rest -= installed[node]
        if spans and not rest:
            yield tuple(spans)
        elif spans:
            held_whole = [node for node, _ in spans]
            last = find_beside(self.view, self.draft, unit[0], rest, held_whole)
            if last is not None:
                yield (*spans, *last)

    def _settle(self, unit: Unit, spans: Spans, before: Mapping[int, Placement]) -> bool:
        """Places all members of a unit; False, and nothing changes, if that is not legal."""
        draft, own, savepoint = self.draft, before[unit[0]], self.draft.savepoint()
        if dict(spans) == own.by_node():
            spans = own.spans  # the same GPUs in another order would be a move
        ids = draft.occupancy.names_on(unit[0], spans, own) if own.gpu_ids else ()
        try:
            for job in unit:
                draft.place(job, replace(before[job], spans=spans, gpu_ids=ids))
        except IllegalPlan:
            draft.undo_to(savepoint)
            return False
        return True

    def _worth(self, jobs: Iterable[int]) -> float:
        """Returns what jobs are worth as drafted, less what it costs to place them so."""
        return sum(self._worth_of(job, self.draft.placed[job]) for job in jobs)

    def _worth_of(self, job: int, where: Placement) -> float:
        """Returns the value of the progress of a job in a second, on average over its horizon."""
        weight, horizon_s = self.stakes[job]
        company = self.draft.occupancy.company(where) - {job} if where.gpu_ids else set()
        rate = self._rate(job, where, tuple(sorted(company)))
        before = self.view.running.get(job)
        if before == where:
            return weight * rate
        cost = self.view.switch_cost(job, where)
        pause_s, effect_s = min(cost.pause_s, horizon_s), min(cost.effect_s, horizon_s)
        done = rate * (horizon_s - effect_s)
        kept = before.kept_in(where) if before is not None and effect_s > pause_s else None
        if kept is not None:
            done += self._rate(job, kept, ()) * (effect_s - pause_s)
        return weight * done / horizon_s

    def _rate(self, job: int, where: Placement, company: tuple[int, ...]) -> float:
        """Returns the speed of a job, computed once a decision where it is alone."""
        if company:
            placed = self.draft.placed
            return self.view.physics.rate(job, where, [(one, placed[one]) for one in company])
        key = job, where
        if key not in self._rates:
            self._rates[key] = self.view.physics.rate(job, where)
        return self._rates[key]

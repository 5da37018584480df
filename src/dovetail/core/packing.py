"""Where units of jobs go: those well placed stay, or whole nodes are packed anew.

A *unit* is a job, or jobs on the same GPUs. First all get their number of GPUs with the fewest
moves: a unit keeps the GPUs it has, and grows on its nodes before it takes others. Then two repairs
are tried: each unit that is spread over more nodes than it needs is placed anew, or all units of
the nodes in question are, the largest first, on whole nodes where it has most GPUs already. The
repair stays that is worth more after what the moves cost; else nothing moves.

Names of GPUs, accumulation steps and seats stay as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from dovetail.core.errors import IllegalPlan
from dovetail.core.passes import keep_settled
from dovetail.core.placement import Placement, Spans
from dovetail.core.plan import Draft
from dovetail.core.units import RELATIVE_TOLERANCE
from dovetail.core.view import View

WORTH = 1e-3
"""A repair must gain more than this share of what the jobs are worth that it touches."""
ALL_NODES_UP_TO = 64
"""In larger clusters only nodes are packed anew that have GPUs free or a unit badly placed."""


class Unit(NamedTuple):
    """Jobs that share all their GPUs, or one job alone, and the number of these GPUs.

    It runs on `least` GPUs at the fewest. `steps` are the accumulation steps of each job; empty for
    those that it has, or 1.
    """

    jobs: tuple[int, ...]
    gpus: int
    least: int
    steps: tuple[int, ...] = ()


class Stake(NamedTuple):
    """What a solo second of a job is worth, and how long its placement will stand, in seconds."""

    weight: float
    horizon_s: float


Stakes = Mapping[int, Stake]
Layout = tuple[float, dict[int, Placement]]
"""What a layout gains, and the placements that it changes."""


def arrange(
    view: View,
    units: Iterable[Unit],
    stakes: Stakes,
    *,
    named: bool = False,
    moves: bool = True,
) -> Draft:
    """Returns a draft in which the units run, and no other job that may be stopped.

    A unit that finds no room is tried smaller, down to its least GPUs, and then waits. With
    `named`, GPUs of jobs that allow sharing get names. Without `moves` no running job leaves GPUs
    for others. Jobs that may not be stopped, also because their node drains, stay as they are and
    belong to no unit.
    """
    packer = _Packer(view, stakes, named=named, moves=moves)
    packer.resize([unit for unit in units if unit.gpus])
    packer.repair()
    return packer.draft


@dataclass(slots=True)
class _Packer:
    view: View
    stakes: Stakes
    named: bool
    moves: bool
    draft: Draft = field(init=False)
    units: list[Unit] = field(init=False, default_factory=list)
    _node_gpus: int = field(init=False)
    _rates: dict[tuple[int, Placement], float] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        view = self.view
        self._node_gpus = max(view.cluster.installed)
        if view.placing.running == "repack" and self.moves:
            self.draft = view.plan.repack()
            keep_settled(view, self.draft)
        else:
            self.draft = view.plan.draft()

    def resize(self, units: Sequence[Unit]) -> None:
        """Gives all units their numbers of GPUs with the fewest moves."""
        view, draft = self.view, self.draft
        anchors = self._anchors(units)
        stays = {job for unit in units for job in self._in_place(unit, anchors[unit])}
        for job in sorted(draft.placed):
            if job not in stays and view.preemptible[job]:
                draft.remove(job)
        growing: list[Unit] = []
        starting: list[Unit] = []
        for unit, anchor in anchors.items():
            if anchor is None:
                starting.append(unit)
            elif draft.placed[anchor].gpus < unit.gpus:
                growing.append(unit)
            else:
                self._stay(unit, anchor)
        for unit in growing:
            anchor = anchors[unit]
            assert anchor is not None
            self._grow(unit, anchor)
        for unit in sorted(starting, key=lambda one: -one.gpus):
            self._start(unit)

    def _anchors(self, units: Sequence[Unit]) -> dict[Unit, int | None]:
        """Returns the member whose GPUs each unit keeps, the one that is worth most.

        GPUs that two units shared stay with the one that has more of its members there, then with
        the one worth more.
        """
        placed, stakes, crowded = self.draft.placed, self.stakes, self._crowded()
        anchors: dict[Unit, int | None] = dict.fromkeys(units)
        taken: set[tuple[int, int]] = set()
        ranked: list[tuple[int, float, Unit, list[int]]] = []
        for unit in units:
            worth = {
                job: stakes[job].weight * placed[job].gpus for job in unit.jobs if job in placed
            }
            members = sorted(worth, key=lambda j: (-worth[j], j)) if len(worth) > 1 else [*worth]
            if crowded.isdisjoint(members):
                anchors[unit] = members[0] if members else None
            else:
                ranked.append((-len(members), -sum(worth.values()), unit, members))
        for _, _, unit, members in sorted(ranked, key=lambda one: (*one[:2], one[2].jobs)):
            for job in members:
                names = set(placed[job].named())
                if not names & taken:
                    taken |= names
                    anchors[unit] = job
                    break
        return anchors

    def _crowded(self) -> set[int]:
        """Returns the jobs that share a GPU."""
        named = self.draft.occupancy.named.values()
        return {job for jobs in named if len(jobs) > 1 for job in jobs}

    def _in_place(self, unit: Unit, anchor: int | None) -> list[int]:
        """Returns the members on the GPUs of the anchor."""
        if anchor is None:
            return []
        placed = self.draft.placed
        where = placed[anchor]
        return [
            job
            for job in unit.jobs
            if job == anchor or (job in placed and not placed[job].moves_to(where))
        ]

    def _stay(self, unit: Unit, anchor: int) -> None:
        """Leaves a unit on GPUs that its anchor has, on fewer nodes if it gives some up."""
        before = self.draft.placed[anchor]
        if before.gpus == unit.gpus and self._is_settled(unit, before):
            self.units.append(unit)
            return
        after = before if before.gpus == unit.gpus else self._shrunk(anchor, before, unit.gpus)
        self._settle(unit, after)

    def _is_settled(self, unit: Unit, where: Placement) -> bool:
        """Returns whether a unit is one job that runs as it shall; in large runs most are."""
        if len(unit.jobs) > 1 or not (where.gpu_ids or not self._names(unit)):
            return False
        return not unit.steps or unit.steps[0] == where.accumulation_steps

    def _names(self, unit: Unit) -> bool:
        """Returns whether the GPUs of a unit get names."""
        shareable = self.view.jobs.shareable
        return self.named and all(shareable[job] for job in unit.jobs)

    def _grow(self, unit: Unit, anchor: int) -> None:
        """Gives a unit more GPUs on its nodes, else on few others; it stays if there are none."""
        before = self.draft.placed[anchor]
        after = self._wider(unit, before)
        if after is not None and self._settle(unit._replace(gpus=after.gpus), after):
            return
        if before.gpus < unit.least:
            unit = Unit((anchor,), before.gpus, before.gpus)
        self._settle(unit._replace(gpus=before.gpus), before)

    def _wider(self, unit: Unit, before: Placement) -> Placement | None:
        """Returns a placement on more GPUs, None if there is none that the unit may have."""
        shape = self.view.shape(unit.jobs[0])
        after = self._anew(unit, before) if shape.topology else self._extended(unit, before)
        strict = self.view.placing.consolidate == "strict"
        if after is None or after.gpus < unit.least or (strict and self._spread(after)):
            return None
        return after

    def _extended(self, unit: Unit, before: Placement) -> Placement:
        """Returns a placement with as many more GPUs as there are, on its nodes first."""
        draft, held = self.draft, before.by_node()
        more, wanted = unit.gpus - before.gpus, dict(held)
        for node in held:
            if node not in draft.occupancy.closed:
                take = min(more, draft.occupancy.free[node])
                wanted[node] += take
                more -= take
        if more:
            for node, gpus in self._find(unit, more, beside=held) or ():
                wanted[node] = gpus
        return self._larger(before, wanted)

    def _anew(self, unit: Unit, before: Placement) -> Placement | None:
        """Returns a placement as if the unit did not run, for jobs that name a level of links."""
        if not self.moves:
            return None
        savepoint = self.draft.savepoint()
        for job in unit.jobs:
            if job in self.draft.placed:
                self.draft.remove(job)
        spans = self._find(unit, unit.gpus)
        after = None if spans is None else self._keeping_names(before, spans)
        self.draft.undo_to(savepoint)
        return after

    def _start(self, unit: Unit) -> bool:
        """Starts a unit on as many of its GPUs as it finds."""
        for gpus in range(unit.gpus, unit.least - 1, -1):
            spans = self._find(unit, gpus)
            if spans is not None and self._settle(unit._replace(gpus=gpus), Placement(spans)):
                return True
        return False

    def _find(self, unit: Unit, gpus: int, beside: Collection[int] = ()) -> Spans | None:
        """Returns spans by the placement rule; on other nodes than those in `beside`, but alike."""
        shape, among = self.view.shape(unit.jobs[0]), -1
        if beside:
            own = sum(1 << node for node in beside)
            sets = self.draft.occupancy.node_sets.of(shape)
            among = next((one for one in sets if one & own == own), 0) & ~own
        return self.view.placing.find(self.draft.occupancy, shape, gpus, among=among)

    def _settle(self, unit: Unit, where: Placement) -> bool:
        """Places all members of a unit; False, and nothing changes, if that is not legal."""
        draft, savepoint = self.draft, self.draft.savepoint()
        if not where.gpu_ids and (len(unit.jobs) > 1 or self._names(unit)):
            for job in unit.jobs:
                if job in draft.placed:
                    draft.remove(job)
            where = replace(where, gpu_ids=self._idle(where.spans))
        try:
            for place, job in enumerate(unit.jobs):
                after = self._as_run(job, where, unit.steps[place] if unit.steps else 0)
                if draft.placed.get(job) != after:
                    draft.place(job, after)
        except IllegalPlan:
            draft.undo_to(savepoint)
            return False
        self.units.append(unit)
        return True

    def _as_run(self, job: int, where: Placement, steps: int) -> Placement:
        """Returns a placement with the accumulation steps and the seat of a job."""
        before = self.view.running.get(job)
        steps = steps or (before.accumulation_steps if before is not None else 1)
        seat = None if before is None else before.interleave
        if before is not None and before.spans == where.spans and before.gpu_ids == where.gpu_ids:
            return (
                before
                if before.accumulation_steps == steps
                else replace(before, accumulation_steps=steps)
            )
        return Placement(where.spans, where.gpu_ids, steps, interleave=seat)

    def _idle(self, spans: Spans) -> tuple[tuple[int, ...], ...]:
        """Returns names of idle GPUs, for spans with one entry a node."""
        return tuple(self.draft.occupancy.idle_ids(node, gpus) for node, gpus in spans)

    def _shrunk(self, job: int, before: Placement, gpus: int) -> Placement:
        """Returns a part of a placement, giving up the smallest spans first.

        GPUs that are still made ready go before all that train: a job that keeps none of those
        would start anew.
        """
        left, surplus = before.by_node(), before.gpus - gpus
        ready = left
        if (expansion := self.view.expanding.get(job)) is not None:
            ready = expansion.training.by_node()
            unready = {node: held - ready.get(node, 0) for node, held in left.items()}
            surplus -= give_up(left, unready, surplus)
        give_up(left, dict(left), surplus)
        spans = tuple((node, held) for node, held in left.items() if held)
        if not before.gpu_ids:
            return Placement(spans)
        names: dict[int, list[int]] = {}
        trains = set(expansion.training.named()) if expansion is not None else set()
        for one in sorted(before.named(), key=lambda gpu: (gpu not in trains, gpu)):
            names.setdefault(one[0], []).append(one[1])
        return Placement(spans, tuple(tuple(sorted(names[n][:held])) for n, held in spans))

    def _larger(self, before: Placement, wanted: Mapping[int, int]) -> Placement:
        """Returns a placement with more GPUs on some nodes, and on others."""
        spans = tuple(wanted.items())
        if not before.gpu_ids:
            return Placement(spans)
        names: dict[int, tuple[int, ...]] = {}
        for node, gpu in before.named():
            names[node] = (*names.get(node, ()), gpu)
        for node, gpus in spans:
            own = names.get(node, ())
            names[node] = tuple(
                sorted((*own, *self.draft.occupancy.idle_ids(node, gpus - len(own))))
            )
        return Placement(spans, tuple(names[node] for node, _ in spans))

    def _spread(self, placement: Placement) -> bool:
        """Returns whether a placement uses more nodes than so many GPUs need."""
        return placement.nodes > -(-placement.gpus // self._node_gpus)

    def repair(self) -> None:
        """Tries both repairs, and keeps the better one if it gains."""
        movable = [unit for unit in self.units if self._is_movable(unit)]
        spread = [unit for unit in movable if self._is_badly_placed(unit)]
        if not spread or self.view.placing.consolidate == "none":
            return
        start, units = self.draft.savepoint(), list(self.units)
        best: Layout = (0.0, {})
        for groups in ([[unit] for unit in spread], [self._together(spread, movable)]):
            tried = self._tried(groups)
            best = tried if tried[0] > best[0] else best
            self.draft.undo_to(start)
            self.units = list(units)
        for job in best[1]:
            self.draft.remove(job)
        for job, placement in best[1].items():
            self.draft.place(job, placement)

    def _is_movable(self, unit: Unit) -> bool:
        return self.moves or not any(job in self.view.running for job in unit.jobs)

    def _is_badly_placed(self, unit: Unit) -> bool:
        """Returns whether a unit is spread, and a member would be faster on few nodes."""
        placed = self.draft.placed
        if not self._spread(placed[unit.jobs[0]]):
            return False
        rates, kind_of = self.view.physics.speed.rates(unit.gpus), self.view.physics.kind_of
        alone = [(self._rate(j, placed[j], ()), rates[kind_of[j], unit.gpus]) for j in unit.jobs]
        return any(there > now * (1 + RELATIVE_TOLERANCE) for now, there in alone)

    def _together(self, spread: Sequence[Unit], movable: Sequence[Unit]) -> list[Unit]:
        """Returns the units of the nodes that are packed anew."""
        placed, nodes = self.draft.placed, self.view.cluster.nodes
        if nodes <= ALL_NODES_UP_TO:
            return list(movable)
        used = {node for unit in spread for node, _ in placed[unit.jobs[0]].spans}
        used |= {node for node, free in enumerate(self.draft.occupancy.free) if free}
        return [u for u in movable if all(n in used for n, _ in placed[u.jobs[0]].spans)]

    def _tried(self, groups: Sequence[Sequence[Unit]]) -> Layout:
        """Places each group anew if that gains; returns the whole gain, and what it changes."""
        draft, total = self.draft, 0.0
        changed: dict[int, Placement] = {}
        for group in groups:
            before = {job: draft.placed[job] for unit in group for job in unit.jobs}
            worth = self._worth(before)
            savepoint = draft.savepoint()
            for job in before:
                draft.remove(job)
            whole = all(self._pack(unit, before) for unit in self._in_order(group))
            gain = self._worth(before) - worth if whole else 0.0
            if gain <= WORTH * worth:
                draft.undo_to(savepoint)
                continue
            total += gain
            changed |= {
                job: draft.placed[job] for job in before if draft.placed[job] != before[job]
            }
        return total, changed

    def _in_order(self, group: Sequence[Unit]) -> list[Unit]:
        """Returns the largest units first; of equal ones those worth most."""
        weight = {u: sum(self.stakes[j].weight for j in u.jobs) for u in group}
        return sorted(group, key=lambda u: (-u.gpus, -weight[u], u.jobs))

    def _pack(self, unit: Unit, before: Mapping[int, Placement]) -> bool:
        """Places a unit on few nodes, where it has GPUs already if it can."""
        own = before[unit.jobs[0]]
        for spans in self._choices(unit, own):
            where = Placement(spans)
            if spans == own.spans or own.gpu_ids:
                where = self._keeping_names(own, spans)
            if self._settle(unit, where):
                return True
        return False

    def _choices(self, unit: Unit, own: Placement) -> Iterable[Spans]:
        """Yields spans: one of its nodes, whole nodes of its own and a rest, then any."""
        if not self.view.shape(unit.jobs[0]).topology:
            yield from self._own_nodes(unit, own)
        anywhere = self._find(unit, unit.gpus)
        if anywhere is not None:
            yield anywhere

    def _own_nodes(self, unit: Unit, own: Placement) -> Iterable[Spans]:
        """Yields spans on nodes that a unit is on, most of its GPUs first."""
        occupancy, need = self.draft.occupancy, unit.gpus
        held = sorted(own.by_node().items(), key=lambda one: (-one[1], one[0]))
        nodes = [node for node, _ in held if node not in occupancy.closed]
        installed = self.view.cluster.installed
        if need <= self._node_gpus:
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
            last = self._find(unit, rest, beside=[node for node, _ in spans])
            if last is not None:
                yield (*spans, *last)

    def _keeping_names(self, own: Placement, spans: Spans) -> Placement:
        """Returns a placement with the names of GPUs that a unit has there and that are idle."""
        if not own.gpu_ids:
            return Placement(spans)
        named = self.draft.occupancy.named
        mine: dict[int, list[int]] = {}
        for node, gpu in own.named():
            if (node, gpu) not in named:
                mine.setdefault(node, []).append(gpu)
        ids = []
        for node, gpus in spans:
            kept = mine.get(node, [])[:gpus]
            idle = self.draft.occupancy.idle_ids(node, self.view.cluster.installed[node])
            fresh = [gpu for gpu in idle if gpu not in kept][: gpus - len(kept)]
            ids.append(tuple(sorted((*kept, *fresh))))
        return Placement(spans, tuple(ids))

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
        if effect_s > pause_s and before is not None:
            kept = before.kept_in(where)
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


def give_up(left: dict[int, int], spare: Mapping[int, int], surplus: int) -> int:
    """Takes GPUs off nodes, from the smallest spare number on; returns how many."""
    gone = 0
    for node, gpus in sorted(spare.items(), key=lambda item: (item[1], -item[0])):
        taken = min(gpus, surplus - gone)
        left[node] -= taken
        gone += taken
    return gone

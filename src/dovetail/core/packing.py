"""Where units of jobs go: they keep their GPUs, and grow on their nodes before others.

A *unit* is a job, or jobs on the same GPUs. All get their number of GPUs with the fewest moves;
then those that are spread over many nodes are brought together where that pays
(`core.defragmentation`). It is `core.resizing` for units: pairs come, part and change partners.

Names of GPUs, accumulation steps and seats stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from dovetail.core.defragmentation import Stakes, defragment, find_beside, is_spread
from dovetail.core.errors import IllegalPlan
from dovetail.core.passes import keep_settled
from dovetail.core.placement import Placement
from dovetail.core.plan import Draft
from dovetail.core.resizing import extended, smaller, wider
from dovetail.core.view import View


class Unit(NamedTuple):
    """Jobs that share all their GPUs, or one job alone, and the number of these GPUs.

    It runs on `least` GPUs at the fewest. `steps` are the accumulation steps of each job; empty for
    those that it has, or 1.
    """

    jobs: tuple[int, ...]
    gpus: int
    least: int
    steps: tuple[int, ...] = ()


def arrange(
    view: View,
    units: Iterable[Unit],
    stakes: Stakes,
    *,
    named: bool = False,
    moves: bool = True,
    repairs: bool = True,
) -> Draft:
    """Returns a draft in which the units run, and no other job that may be stopped.

    A unit that finds no room is tried smaller, down to its least GPUs, and then waits. With
    `named`, GPUs of jobs that allow sharing get names. Without `moves` no running job leaves GPUs
    for others, and without `repairs` no spread job is brought together. Jobs that may not be
    stopped, also because their node drains, stay as they are and belong to no unit.
    """
    packer = _Packer(view, stakes, named=named, moves=moves)
    packer.resize([unit for unit in units if unit.gpus])
    if repairs:
        defragment(view, packer.draft, packer.movable(), stakes)
    return packer.draft


@dataclass(slots=True)
class _Packer:
    view: View
    stakes: Stakes
    named: bool
    moves: bool
    draft: Draft = field(init=False)
    units: list[Unit] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        view = self.view
        if view.placing.running == "repack" and self.moves:
            self.draft = view.plan.repack()
            keep_settled(view, self.draft)
        else:
            self.draft = view.plan.draft()

    def resize(self, units: Sequence[Unit]) -> None:
        """Gives all units their numbers of GPUs with the fewest moves."""
        view, draft = self.view, self.draft
        anchors = self._anchors(units)
        stays: set[int] = set()
        for unit, anchor in zip(units, anchors, strict=True):
            stays.update(self._in_place(unit, anchor))
        for job in sorted(draft.placed.keys() - stays):
            if view.preemptible[job]:
                draft.remove(job)
        growing: list[tuple[Unit, int]] = []
        starting: list[Unit] = []
        for unit, anchor in zip(units, anchors, strict=True):
            if anchor is None:
                starting.append(unit)
            elif draft.placed[anchor].gpus < unit.gpus:
                growing.append((unit, anchor))
            else:
                self._stay(unit, anchor)
        for unit, anchor in growing:
            self._grow(unit, anchor)
        for unit in sorted(starting, key=lambda one: -one.gpus):
            self._start(unit)

    def _anchors(self, units: Sequence[Unit]) -> list[int | None]:
        """Returns the member whose GPUs each unit keeps, the one that is worth most."""
        placed, sharing = self.draft.placed, self.draft.occupancy.sharing_jobs()
        # NOTE: in large runs most units are one job that nobody contests its GPUs; among 2,000
        # jobs this saves 15 ms.
        plain = [len(unit.jobs) == 1 and unit.jobs[0] not in sharing for unit in units]
        contested = [unit for unit, alone in zip(units, plain, strict=True) if not alone]
        chosen = self._contested_anchors(contested)
        return [
            (unit.jobs[0] if unit.jobs[0] in placed else None) if alone else chosen[unit]
            for unit, alone in zip(units, plain, strict=True)
        ]

    def _contested_anchors(self, units: Sequence[Unit]) -> dict[Unit, int | None]:
        """Returns the anchors of pairs, and of jobs that share GPUs now.

        GPUs that two units shared stay with the one that has more of its members there, then with
        the one worth more.
        """
        placed, stakes = self.draft.placed, self.stakes
        anchors: dict[Unit, int | None] = dict.fromkeys(units)
        taken: set[tuple[int, int]] = set()
        worth = {
            u: sum(stakes[j].weight * placed[j].gpus for j in u.jobs if j in placed) for u in units
        }
        running = {u: sum(j in placed for j in u.jobs) for u in units}
        for unit in sorted(units, key=lambda u: (-running[u], -worth[u], u.jobs)):
            members = [job for job in unit.jobs if job in placed]
            for job in sorted(members, key=lambda j: (-stakes[j].weight * placed[j].gpus, j)):
                names = set(placed[job].named())
                if not names & taken:
                    taken |= names
                    anchors[unit] = job
                    break
        return anchors

    def _in_place(self, unit: Unit, anchor: int | None) -> Sequence[int]:
        """Returns the members on the GPUs of the anchor."""
        if anchor is None:
            return ()
        if len(unit.jobs) == 1:
            return unit.jobs
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
        after = (
            before if before.gpus == unit.gpus else smaller(self.view, anchor, before, unit.gpus)
        )
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
        if after is None or after.gpus < unit.least or (strict and is_spread(self.view, after)):
            return None
        return after

    def _extended(self, unit: Unit, before: Placement) -> Placement:
        """Returns a placement with as many more GPUs as there are, on its nodes first."""
        after = wider(self.draft, before, unit.gpus)
        if after.gpus == unit.gpus:
            return after
        more = unit.gpus - after.gpus
        rest = find_beside(self.view, self.draft, unit.jobs[0], more, before.by_node())
        return extended(self.draft, after, rest or ())

    def _anew(self, unit: Unit, before: Placement) -> Placement | None:
        """Returns a placement as if the unit did not run, for jobs that name a level of links."""
        if not self.moves:
            return None
        savepoint = self.draft.savepoint()
        for job in unit.jobs:
            if job in self.draft.placed:
                self.draft.remove(job)
        job, occupancy = unit.jobs[0], self.draft.occupancy
        after = None
        spans = self.view.placing.find(occupancy, self.view.shape(job), unit.gpus)
        if spans is not None:
            names = occupancy.names_on(job, spans, before) if before.gpu_ids else ()
            after = Placement(spans, names)
        self.draft.undo_to(savepoint)
        return after

    def _start(self, unit: Unit) -> bool:
        """Starts a unit on as many of its GPUs as it finds."""
        shape = self.view.shape(unit.jobs[0])
        for gpus in range(unit.gpus, unit.least - 1, -1):
            spans = self.view.placing.find(self.draft.occupancy, shape, gpus)
            if spans is not None and self._settle(unit._replace(gpus=gpus), Placement(spans)):
                return True
        return False

    def _settle(self, unit: Unit, where: Placement) -> bool:
        """Places all members of a unit; False, and nothing changes, if that is not legal."""
        draft, savepoint = self.draft, self.draft.savepoint()
        if not where.gpu_ids and (len(unit.jobs) > 1 or self._names(unit)):
            for job in unit.jobs:
                if job in draft.placed:
                    draft.remove(job)
            job = next((j for j in unit.jobs if j in self.view.running), unit.jobs[0])
            own = self.view.running.get(job)
            names = draft.occupancy.names_on(job, where.spans, own)
            where = replace(where, gpu_ids=names)
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
        if before is None:
            return Placement(where.spans, where.gpu_ids, steps or 1)
        steps = steps or before.accumulation_steps
        if before.spans == where.spans and before.gpu_ids == where.gpu_ids:
            return replace(before, accumulation_steps=steps)
        return Placement(where.spans, where.gpu_ids, steps, interleave=before.interleave)

    def movable(self) -> list[tuple[int, ...]]:
        """Returns the jobs of each unit that may be brought together."""
        running = self.view.running
        return [
            unit.jobs
            for unit in self.units
            if self.moves or not any(job in running for job in unit.jobs)
        ]

"""Which GPU each worker of the plan has.

A plan counts GPUs where jobs are alone and names them where they share. Here every worker gets
a GPU of its own index. A name of the plan stands for one GPU as long as somebody is placed on
it; which one is chosen so that running workers stay where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from dovetail.core.errors import DovetailError
from dovetail.core.placement import Placement
from dovetail.live.jobs.record import GangMember

Gpu = tuple[int, int]
"""A node, and a GPU of it by index (or by the plan's name)."""
Vacant = Callable[[int, int], bool]


@dataclass(slots=True)
class _Seat:
    """One rank of a placement: its node, the plan's name of its GPU (-1 if none), its GPU."""

    node: int
    name: int
    gpu: int = -1


@dataclass(slots=True)
class _Claim:
    """A job that is seated anew: where it sat, by GPU and by the plan's names."""

    job: int
    seats: list[_Seat]
    own: list[Gpu] = field(default_factory=list)
    named: Mapping[Gpu, int] = field(default_factory=dict)


class GpuAssignment:
    """Who is meant to be on each GPU: (node, GPU) -> job -> worker."""

    def __init__(self, installed: Sequence[int]) -> None:
        self._installed = installed
        self.on: dict[Gpu, dict[int, int]] = {}
        self.members: dict[int, tuple[GangMember, ...]] = {}
        self._names: dict[int, dict[Gpu, int]] = {}
        self._gpu_of: dict[Gpu, int] = {}

    def adopt(self, job: int, placement: Placement, members: Sequence[GangMember]) -> None:
        """Takes up where a job sits already."""
        self.members[job] = tuple(members)
        for member in members:
            self.on.setdefault((member.node, member.gpu), {})[job] = member.worker
        if placement.gpu_ids and placement.gpus == len(members):
            gpus = [m.gpu for m in members]
            self._names[job] = dict(zip(placement.named(), gpus, strict=True))
            self._gpu_of.update(self._names[job])

    def leave(self, job: int) -> None:
        """Lets a job have no GPU any more."""
        for member in self.members.pop(job, ()):
            there = self.on[member.node, member.gpu]
            del there[job]
            if not there:
                del self.on[member.node, member.gpu]
        for name in self._names.pop(job, {}):
            if not any(name in names for names in self._names.values()):
                del self._gpu_of[name]

    def replace(self, job: int, members: Sequence[GangMember]) -> None:
        """Gives workers of a job other numbers, on the GPUs they had."""
        self.members[job] = tuple(members)
        for member in members:
            self.on[member.node, member.gpu][job] = member.worker

    def seat(
        self, placed: Sequence[tuple[int, Placement]], vacant: Vacant
    ) -> dict[int, tuple[Gpu, ...]]:
        """Returns the GPUs of jobs placed anew, in rank order; `sit` makes them theirs.

        All of them have left when the first is seated, so that movers may trade GPUs.
        """
        claims = []
        for job, placement in placed:
            own = [(m.node, m.gpu) for m in self.members.get(job, ())]
            claims.append(_Claim(job, _seats_of(placement), own, self._names.get(job, {})))
        for job, _ in placed:
            self.leave(job)
        taken: set[Gpu] = set()
        for claim in claims:
            self._keep(claim, taken)
        for claim in claims:
            for seat in claim.seats:
                if seat.gpu < 0:
                    seat.gpu = self._find(seat, taken, vacant)
                    self._claim(claim.job, seat, taken)
        return {c.job: tuple((s.node, s.gpu) for s in c.seats) for c in claims}

    def sit(self, job: int, members: Sequence[GangMember]) -> None:
        """Lets the workers of a job have the GPUs that `seat` found."""
        self.members[job] = tuple(members)
        for member in members:
            self.on.setdefault((member.node, member.gpu), {})[job] = member.worker

    def _keep(self, claim: _Claim, taken: set[Gpu]) -> None:
        """Leaves a job on the GPUs that it had, where it may."""
        left = list(claim.own)
        for again in (False, True):
            for seat in claim.seats:
                if seat.gpu >= 0:
                    continue
                if again and (seat.node, seat.name) not in self._gpu_of:
                    found = [g for g in left if g[0] == seat.node and self._is_open(g, taken)]
                else:
                    found = self._same_name(claim, seat, taken)
                if found:
                    seat.gpu = found[0][1]
                    if found[0] in left:
                        left.remove(found[0])
                    self._claim(claim.job, seat, taken)

    def _same_name(self, claim: _Claim, seat: _Seat, taken: set[Gpu]) -> list[Gpu]:
        name = (seat.node, seat.name)
        if name in self._gpu_of:
            return [(seat.node, self._gpu_of[name])]
        gpu = claim.named.get(name, -1)
        held = (seat.node, gpu)
        return [held] if gpu >= 0 and held in claim.own and self._is_open(held, taken) else []

    def _is_open(self, gpu: Gpu, taken: set[Gpu]) -> bool:
        return gpu not in taken and gpu not in self.on

    def _claim(self, job: int, seat: _Seat, taken: set[Gpu]) -> None:
        taken.add((seat.node, seat.gpu))
        if seat.name >= 0:
            self._gpu_of[seat.node, seat.name] = seat.gpu
            self._names.setdefault(job, {})[seat.node, seat.name] = seat.gpu

    def _find(self, seat: _Seat, taken: set[Gpu], vacant: Vacant) -> int:
        known = self._gpu_of.get((seat.node, seat.name))
        if known is not None:
            return known
        free = [
            gpu
            for gpu in range(self._installed[seat.node])
            if self._is_open((seat.node, gpu), taken)
        ]
        if not free:
            raise DovetailError(f"the plan wants more GPUs of node {seat.node} than it has")
        return min(free, key=lambda gpu: (not vacant(seat.node, gpu), gpu != seat.name, gpu))


def _seats_of(placement: Placement) -> list[_Seat]:
    if placement.gpu_ids:
        return [_Seat(node, gpu) for node, gpu in placement.named()]
    return [_Seat(node, -1) for node, gpus in placement.spans for _ in range(gpus)]

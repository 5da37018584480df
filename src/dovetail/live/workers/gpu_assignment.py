"""Which GPU each worker of the plan is assigned to.

A plan counts GPUs where jobs are alone and names them where they share. Here every worker gets the
index of a GPU. A name of the plan stands for one GPU as long as a job is placed on it; it is chosen
so that running workers stay where they are.
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
class _Slot:
    """One rank of a placement: its node, the plan's name of its GPU (-1 if none), its GPU."""

    node: int
    name: int
    gpu: int = -1


@dataclass(slots=True)
class _Claim:
    """A job to be assigned anew: the GPUs that it had, by index and by the plan's names."""

    job: int
    slots: list[_Slot]
    own: list[Gpu] = field(default_factory=list)
    named: Mapping[Gpu, int] = field(default_factory=dict)


class GpuAssignment:
    """The workers that the plan puts on each GPU: (node, GPU) -> job -> worker.

    Nothing new is put on the `closed` GPUs.
    """

    def __init__(self, installed: Sequence[int], island_sizes: Sequence[int] = ()) -> None:
        """Takes the GPUs of each node, and the size of its islands where the cluster has some."""
        self._installed = installed
        self._island_sizes = island_sizes
        self.closed: set[Gpu] = set()
        self.on: dict[Gpu, dict[int, int]] = {}
        self.members: dict[int, tuple[GangMember, ...]] = {}
        self._names: dict[int, dict[Gpu, int]] = {}
        self._gpu_of: dict[Gpu, int] = {}

    def restore(self, job: int, placement: Placement, members: Sequence[GangMember]) -> None:
        """Takes up the GPUs that a job has already."""
        self.occupy(job, members)
        if placement.gpu_ids and placement.gpus == len(members):
            gpus = [m.gpu for m in members]
            self._names[job] = dict(zip(placement.named(), gpus, strict=True))
            self._gpu_of.update(self._names[job])

    def release(self, job: int) -> None:
        """Releases all GPUs of a job."""
        for member in self.members.pop(job, ()):
            there = self.on[member.node, member.gpu]
            del there[job]
            if not there:
                del self.on[member.node, member.gpu]
        for name in self._names.pop(job, {}):
            # The name may stand for another GPU once no job is placed on it.
            if not any(name in names for names in self._names.values()):
                del self._gpu_of[name]

    def assign(
        self, placed: Sequence[tuple[int, Placement]], vacant: Vacant
    ) -> dict[int, tuple[Gpu, ...]]:
        """Returns the GPUs for jobs placed anew, in rank order; `occupy` records their workers.

        All GPUs of these jobs are released first, so that jobs that move may trade them.
        """
        claims = []
        for job, placement in placed:
            own = [(m.node, m.gpu) for m in self.members.get(job, ())]
            claims.append(_Claim(job, _slots_of(placement), own, self._names.get(job, {})))
        for job, _ in placed:
            self.release(job)
        taken: set[Gpu] = set()
        for claim in claims:
            self._keep(claim, taken)
        for claim in claims:
            for slot in claim.slots:
                if slot.gpu < 0:
                    slot.gpu = self._find(slot, taken, vacant)
                    self._claim(claim.job, slot, taken)
        return {c.job: tuple((s.node, s.gpu) for s in c.slots) for c in claims}

    def names_of(self, gpu: Gpu) -> list[int]:
        """Returns the name of the plan that stands for a GPU; none where jobs hold counts."""
        return [name for (node, name), at in self._gpu_of.items() if (node, at) == gpu]

    def occupy(self, job: int, members: Sequence[GangMember]) -> None:
        """Records the workers of a job on its GPUs, in place of those that it had there."""
        self.members[job] = tuple(members)
        for member in members:
            self.on.setdefault((member.node, member.gpu), {})[job] = member.worker

    def _keep(self, claim: _Claim, taken: set[Gpu]) -> None:
        """Keeps a job on the GPUs that it had, where possible: its workers there train on."""
        unused = list(claim.own)
        # First by the names of the plan, which other jobs may share; then what is left.
        for again in (False, True):
            for slot in claim.slots:
                if slot.gpu >= 0:
                    continue
                if again and (slot.node, slot.name) not in self._gpu_of:
                    gpus = [g for g in unused if self._suits(slot, g) and self._is_open(g, taken)]
                else:
                    gpus = self._same_name(claim, slot, taken)
                if gpus:
                    slot.gpu = gpus[0][1]
                    if gpus[0] in unused:
                        unused.remove(gpus[0])
                    self._claim(claim.job, slot, taken)

    def _same_name(self, claim: _Claim, slot: _Slot, taken: set[Gpu]) -> list[Gpu]:
        name = (slot.node, slot.name)
        if name in self._gpu_of:
            return [(slot.node, self._gpu_of[name])]
        gpu = claim.named.get(name, -1)
        before = (slot.node, gpu)
        return [before] if gpu >= 0 and before in claim.own and self._is_open(before, taken) else []

    def _is_open(self, gpu: Gpu, taken: set[Gpu]) -> bool:
        return gpu not in taken and gpu not in self.on

    def _suits(self, slot: _Slot, gpu: Gpu) -> bool:
        """True if a GPU is of the slot's node, and of the island of the GPU that the plan names."""
        if gpu[0] != slot.node or slot.name < 0 or not self._island_sizes:
            return gpu[0] == slot.node
        size = self._island_sizes[slot.node]
        return gpu[1] // size == slot.name // size

    def _claim(self, job: int, slot: _Slot, taken: set[Gpu]) -> None:
        taken.add((slot.node, slot.gpu))
        if slot.name >= 0:
            self._gpu_of[slot.node, slot.name] = slot.gpu
            self._names.setdefault(job, {})[slot.node, slot.name] = slot.gpu

    def _find(self, slot: _Slot, taken: set[Gpu], vacant: Vacant) -> int:
        known = self._gpu_of.get((slot.node, slot.name))
        if known is not None:
            return known
        free = [
            gpu
            for gpu in range(self._installed[slot.node])
            if self._is_open((slot.node, gpu), taken) and (slot.node, gpu) not in self.closed
        ]
        if not free:
            raise DovetailError(f"the plan wants more GPUs of node {slot.node} than it has")
        # The plan's island is the node's.
        free = [gpu for gpu in free if self._suits(slot, (slot.node, gpu))] or free
        # A GPU that no worker is on saves the wait for one that leaves.
        return min(free, key=lambda gpu: (not vacant(slot.node, gpu), gpu != slot.name, gpu))


def _slots_of(placement: Placement) -> list[_Slot]:
    if placement.gpu_ids:
        return [_Slot(node, gpu) for node, gpu in placement.named()]
    return [_Slot(node, -1) for node, gpus in placement.spans for _ in range(gpus)]

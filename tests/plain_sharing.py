"""SJF-BSBF and SJF-FFS written once more, plainly: no classes, no bounds, one job at a time.

Follows ALGORITHMS sections 1.3 and 1.4 line by line, with the scalar pair decision; only the
placing of whole gangs on free GPUs is the project's own. Nodes have four GPUs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from dovetail.algorithms.pair_sharing import overlapped_s, pays, sequential_s
from dovetail.core.beliefs import SizedJob
from dovetail.core.errors import IllegalPlan
from dovetail.core.order import Order
from dovetail.core.placement import Placement
from dovetail.core.plan import Draft
from dovetail.core.policy import POWERS, Decision
from dovetail.core.units import NEVER_S, RELATIVE_TOLERANCE
from dovetail.core.view import View

Gpu = tuple[int, int]


@dataclass(frozen=True, slots=True)
class SubBatch:
    """One way to cut the newcomer's batch that fits the memory beside the host.

    `guest_s` is what the newcomer needs alone when so cut.
    """

    steps: int
    guest_s: float
    host_ratio: float
    guest_ratio: float


@dataclass(frozen=True, slots=True)
class PairChoice:
    """What is best for a pair: `pair_s` is their mean completion time from now.

    `benefit_s` is what sharing saves of the sum of completions against waiting.
    """

    shares: bool
    steps: int
    pair_s: float
    benefit_s: float


def best_sub_batch(host_s: float, alone_s: float, options: Sequence[SubBatch]) -> PairChoice:
    """Returns the best sub-batch of the newcomer and whether to share (Algorithm 2 corrected).

    `options` in order of steps, so that the larger sub-batch wins ties; `alone_s` is what the
    newcomer needs alone, uncut, which is how it runs when it waits (section 1.3).
    """
    best, steps = NEVER_S, 1
    for option in options:
        both = overlapped_s(host_s, option.guest_s, option.host_ratio, option.guest_ratio)
        if both < best:
            best, steps = both, option.steps
    waits = sequential_s(host_s, alone_s)
    if pays(best, waits):
        return PairChoice(True, steps, best / 2.0, waits - best)
    return PairChoice(False, 1, waits / 2.0, 0.0)


@dataclass(frozen=True)
class Plain:
    """Both policies: `first_fit` is SJF-FFS."""

    first_fit: bool = False
    by_service: bool = False
    by_benefit: bool = False
    knows: ClassVar[frozenset[str]] = frozenset({"length"})
    powers: ClassVar[frozenset[str]] = frozenset(POWERS)
    initial: ClassVar[None] = None

    @property
    def order(self) -> Order:
        return Order(self._keys)

    def _keys(self, view: View, jobs: Sequence[int]) -> list[float]:
        gpus = view.jobs.gpus
        times = [int(gpus[j]) if self.by_service else 1 for j in jobs]
        return [s * n for s, n in zip(view.progress.left_s(jobs), times, strict=True)]

    def decide(self, view: View, memory: object) -> Decision:
        draft = view.plan.draft()
        waiting = sorted(view.waiting, key=lambda j: (self._keys(view, [j])[0], j))
        while True:
            before = len(draft.placed)
            for job in waiting:
                if job not in draft.placed:
                    self._try(view, draft, job)
            if len(draft.placed) == before:
                return Decision(draft)

    def _try(self, view: View, draft: Draft, job: int) -> None:
        wanted = view.shape(job).gpus
        if draft.free_gpus >= wanted:
            spans = view.placing.find(draft.occupancy, view.shape(job))
            if spans is None:
                assert refuses(view)
                return
            if view.jobs.shareable[job]:
                ids = tuple(draft.occupancy.idle_ids(n, g) for n, g in spans)
                draft.place(job, Placement(spans, ids, alone_steps(view, job)))
            else:
                draft.place(job, spans)
        elif view.jobs.shareable[job]:
            chosen = (
                self._first(view, draft, job) if self.first_fit else self._best(view, draft, job)
            )
            if chosen is None:
                return
            if not self._seated(view, draft, job, *chosen):
                assert refuses(view)
                for gpus, steps in self._single_hosts(view, draft, job):
                    if self._seated(view, draft, job, gpus, steps):
                        return

    def _seated(self, view: View, draft: Draft, job: int, gpus: list[Gpu], steps: int) -> bool:
        wanted = view.shape(job).gpus
        rest = wanted - len(gpus)
        if rest:
            spans = view.placing.find(draft.occupancy, view.shape(job), rest)
            if spans is None:
                return False
            gpus = gpus + [(n, i) for n, g in spans for i in draft.occupancy.idle_ids(n, g)]
        nodes = list(dict.fromkeys(n for n, _ in gpus))
        if view.placing.consolidate == "strict" and len(nodes) > -(-wanted // 4):
            return False
        ids = tuple(tuple(sorted(i for n, i in gpus if n == node)) for node in nodes)
        spans = tuple((n, len(i)) for n, i in zip(nodes, ids, strict=True))
        try:
            draft.place(job, Placement(spans, ids, steps))
        except IllegalPlan:
            return False
        return True

    def _single_hosts(self, view: View, draft: Draft, job: int) -> list[tuple[list[Gpu], int]]:
        wanted = view.shape(job).gpus
        found: list[tuple[float, Gpu | int, list[Gpu], int]] = []
        for host in {h for _, h in alone_on(view, draft)}:
            free = {g for g, _ in alone_on(view, draft)}
            its = [g for g in draft.placed[host].named() if g in free]
            fitting = fitting_steps(view, draft, job, host)
            choice = pair(view, draft, job, host)
            if len(its) < wanted or not (fitting if self.first_fit else choice.shares):
                continue
            on = [n for n, _ in its]
            few = sorted(its, key=lambda g: (-on.count(g[0]), g)) if wanted < len(its) else its
            if self.first_fit:
                found.append((0.0, min(its), few[:wanted], fitting[0]))
            else:
                key = -choice.benefit_s if self.by_benefit else choice.pair_s
                found.append((key, host, few[:wanted], choice.steps))
        return [(gpus, steps) for _, _, gpus, steps in sorted(found, key=lambda f: f[:2])]

    def _first(self, view: View, draft: Draft, job: int) -> tuple[list[Gpu], int] | None:
        need = view.shape(job).gpus - draft.free_gpus
        gpus: list[Gpu] = []
        steps = 1
        for gpu, host in sorted(alone_on(view, draft)):
            fitting = fitting_steps(view, draft, job, host)
            if fitting and len(gpus) < need:
                gpus.append(gpu)
                steps = max(steps, fitting[0])
        return (gpus, steps) if len(gpus) == need else None

    def _best(self, view: View, draft: Draft, job: int) -> tuple[list[Gpu], int] | None:
        wanted = view.shape(job).gpus
        choices: list[tuple[float, int, PairChoice]] = []
        for host in {h for _, h in alone_on(view, draft)}:
            choice = pair(view, draft, job, host)
            if choice.shares:
                key = -choice.benefit_s if self.by_benefit else choice.pair_s
                choices.append((key, host, choice))
        gpus: list[Gpu] = []
        steps = 1
        for _, host, choice in sorted(choices, key=lambda c: c[:2]):
            missing = wanted - len(gpus)
            if not missing:
                break
            free = {g for g, _ in alone_on(view, draft)}
            its = [g for g in draft.placed[host].named() if g in free]
            if missing < len(its):
                used = {n for n, _ in gpus}
                on = [n for n, _ in its]
                its.sort(key=lambda g: (g[0] not in used, -on.count(g[0]), g))
            gpus += its[:missing]
            steps = max(steps, choice.steps)
        enough = gpus and len(gpus) + draft.free_gpus >= wanted
        return (gpus, steps) if enough else None


def refuses(view: View) -> bool:
    return view.placing.consolidate == "strict" or view.plan.occupancy.books_more


def alone_on(view: View, draft: Draft) -> Iterator[tuple[Gpu, int]]:
    """Yields the GPUs with exactly one job, one that allows sharing, and the job."""
    for (node, gpu), jobs in draft.occupancy.named.items():
        if len(jobs) == 1 and view.cluster.is_open(node) and view.jobs.shareable[jobs[0]]:
            yield (node, gpu), jobs[0]


def memory_of(view: View, placement: Placement) -> float:
    return min(view.cluster.group_of(n).gpu_memory_bytes for n, _ in placement.spans)


def ladder(view: View, job: int) -> list[int]:
    steps, most = [1], view.physics.batches.most_steps(job)
    while 2 * steps[-1] <= most:
        steps.append(2 * steps[-1])
    return steps


def alone_steps(view: View, job: int, memory: float = 0.0) -> int:
    memory = memory or min(g.gpu_memory_bytes for g in view.cluster.groups)
    fits = [s for s in ladder(view, job) if view.physics.memory.footprint_bytes(job, s) <= memory]
    return fits[0] if fits else 1


def fitting_steps(view: View, draft: Draft, job: int, host: int) -> list[int]:
    there = draft.placed[host]
    held = view.physics.memory.footprint_bytes(host, there.accumulation_steps)
    memory = memory_of(view, there)
    footprint = view.physics.memory.footprint_bytes
    return [s for s in ladder(view, job) if held + footprint(job, s) <= memory]


def pair(view: View, draft: Draft, job: int, host: int) -> PairChoice:
    """Algorithm 2, corrected."""
    physics, there = view.physics, draft.placed[host]
    left, length = (view.progress.left_s((j,))[0] for j in (host, job))
    options = []
    for steps in fitting_steps(view, draft, job, host):
        mine, its = physics.sharing.interference(
            SizedJob(job, steps), SizedJob(host, there.accumulation_steps)
        )
        options.append(
            SubBatch(steps, length * (1.0 / physics.batches.accumulated(job, steps)), its, mine)
        )
    alone = physics.batches.accumulated(job, alone_steps(view, job, memory_of(view, there)))
    host_s = left / physics.rate(host, there, ())
    return best_sub_batch(host_s, length * (1.0 / alone), options)


def threshold(host_ratio: float, guest_ratio: float, cut: float = 1.0, uncut: float = 1.0) -> float:
    """Returns the ratio of newcomer's to host's solo seconds below which sharing pays."""
    waits = 1.0 - RELATIVE_TOLERANCE
    even = host_ratio / (guest_ratio * cut)
    """Where both end at once, for a host of one second."""
    at_even = overlapped_s(1.0, even * cut, host_ratio, guest_ratio)
    if at_even < waits * (2.0 + even * uncut):
        slope = cut - waits * uncut
        reach = waits * 2.0 - host_ratio * (2.0 - 1.0 / guest_ratio)
        return reach / slope if slope > 0.0 else NEVER_S
    slope = guest_ratio * cut * (2.0 - 1.0 / host_ratio) - waits * uncut
    return (2.0 * waits - 1.0) / slope if slope > 0.0 else NEVER_S

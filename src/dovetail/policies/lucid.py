"""Lucid: least GPU-time first; under load two light jobs share the same GPUs.

Waiting jobs start on free GPUs in order of forecast length times GPUs; a job that does not fit is
skipped. A job has a score of 0, 1 or 2 by its use of a GPU; while jobs request more GPUs than there
are, a job without room joins one of equal size on its GPUs, if the sum of their scores is at most
`score-limit` and both fit the memory.

GIMBAL's relaxations are `score-limit` and `unequal`: then jobs of other sizes share as well, in
co-location sets that are stars.

Source: Lucid (ASPLOS 2023); ALGORITHMS section 6; relaxed as in GIMBAL section 7.2. Knows:
length, interference, memory. Stops running jobs: no, unless `unpack` is set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import ClassVar

from dovetail.core.order import Order
from dovetail.core.plan import Draft
from dovetail.core.policy import Decision, register
from dovetail.core.view import View
from dovetail.mechanisms.calibration.search import TrialPeriod
from dovetail.mechanisms.elastic.shares import waits
from dovetail.mechanisms.sharing.candidates import SharingCandidates
from dovetail.mechanisms.sharing.gpu_groups import Kinds, kinds_of
from dovetail.mechanisms.sharing.named_gpus import neighbours
from dovetail.mechanisms.sharing.stars import StarSeats

TRIAL_S = 200.0
"""How long Lucid's profiler measures a job."""
TINY, MEDIUM, JUMBO = 0, 1, 2
"""Sharing scores, by the utilisation of a GPU or its memory, whichever is more (section 3.3)."""


@dataclass(frozen=True, slots=True)
class ScoreRule:
    """A job is tiny up to `tiny` of a GPU and jumbo above `jumbo`, both in 0..1."""

    tiny: float
    jumbo: float

    def __post_init__(self) -> None:
        if not 0 <= self.tiny <= self.jumbo <= 1:
            raise ValueError("0 <= tiny <= jumbo <= 1 must hold: they are parts of a GPU")

    def scores(self, view: View) -> Callable[[int], int]:
        """Returns a function that scores jobs on the smallest GPUs, each kind once."""
        memory = min(group.gpu_memory_bytes for group in view.cluster.groups)
        kind_of, known = view.physics.kind_of, dict[int, int]()

        def score(job: int) -> int:
            kind = int(kind_of[job])
            if kind not in known:
                held = view.physics.memory.footprint_bytes(job, 1) / memory if memory else 0.0
                use = max(view.physics.sharing.utilization(job), held)
                known[kind] = TINY if use <= self.tiny else MEDIUM if use <= self.jumbo else JUMBO
            return known[kind]

        return score


def _left_service(view: View, jobs: Sequence[int]) -> list[float]:
    gpus = view.jobs.gpus
    return [s * int(gpus[j]) for j, s in zip(jobs, view.progress.left_s(jobs), strict=True)]


@dataclass(frozen=True, slots=True)
class WatchedPairs:
    """The pairs under measurement, and the pairs of kinds that were too slow together."""

    trials: tuple[TrialPeriod, ...] = ()
    bad: frozenset[Kinds] = frozenset()


@register("lucid")
@dataclass(frozen=True, slots=True)
class Lucid:
    """Least GPU-time first, packing by sharing score; non-preemptive.

    `tiny` and `jumbo` are the limits between scores, as parts of a GPU; `most_gpus` is the largest
    job that shares; `load` the ratio of requested to available GPUs above which jobs share;
    `unpack` the speed below which a guest is stopped (0: never).
    """

    score_limit: int = 2
    unequal: bool = False
    tiny: float = 0.2
    jumbo: float = 0.6
    most_gpus: int = 8
    load: float = 1.0
    unpack: float = 0.0

    knows: ClassVar[frozenset[str]] = frozenset({"length", "interference", "memory"})
    order: ClassVar[Order] = Order(_left_service)
    initial: ClassVar[WatchedPairs] = WatchedPairs()

    def __post_init__(self) -> None:
        ScoreRule(self.tiny, self.jumbo)
        if self.score_limit < 0:
            raise ValueError("score-limit is 0 or more")
        if self.most_gpus < 0 or self.load < 0:
            raise ValueError("most-gpus and load are 0 or more")
        if not 0 <= self.unpack < 1:
            raise ValueError("unpack is a speed between 0 and 1, 1 being alone")

    @property
    def powers(self) -> frozenset[str]:
        """Returns `share`, and with `unpack` the powers to stop a guest and move it."""
        return frozenset({"share", "preempt", "migrate"} if self.unpack else {"share"})

    def decide(self, view: View, memory: object) -> Decision:
        """Starts the jobs of least GPU-time on free GPUs, or beside light jobs."""
        assert isinstance(memory, WatchedPairs)
        draft = view.plan.draft()
        watched = self._separate(view, draft, memory) if self.unpack else memory
        guests = self._fill(view, draft, watched)
        if self.unpack:
            watched = self._watch(view, draft, watched, guests)
        wake_s = min((trial.ends_s for trial in watched.trials), default=inf)
        return Decision(draft, watched, wake_s, waits(view, draft))

    def _fill(self, view: View, draft: Draft, watched: WatchedPairs) -> list[int]:
        """Starts waiting jobs in order, alone or beside others; returns the guests."""
        company = SharingCandidates(view, draft, lambda job: False)
        score = ScoreRule(self.tiny, self.jumbo).scores(view)
        seats = StarSeats(view, draft, score, unequal=self.unequal)
        packs = self._under_load(view)
        kind_of = view.physics.kind_of
        no_room: set[int] = set()
        no_seat: set[tuple[int, int]] = set()
        guests: list[int] = []
        for job in self._line(view, draft):
            if not draft.free_gpus and not packs:
                break
            shape = view.shape_of[job]
            if shape not in no_room:
                if company.start(job):
                    no_seat.clear()
                    continue
                no_room.add(shape)
            alike = (shape, int(kind_of[job]))
            if not packs or alike in no_seat or not view.jobs.shareable[job]:
                continue
            if seats.start(job, self._welcome(view, job, score, watched)):
                guests.append(job)
            else:
                no_seat.add(alike)
        return guests

    def _line(self, view: View, draft: Draft) -> Iterable[int]:
        """Returns the waiting jobs in order, including those stopped by this decision."""
        stopped = [job for job in sorted(view.running) if job not in draft.placed]
        if not stopped:
            return view.waiting
        line = [*view.waiting, *stopped]
        return [job for _, job in sorted(zip(_left_service(view, line), line, strict=True))]

    def _welcome(
        self, view: View, guest: int, score: Callable[[int], int], watched: WatchedPairs
    ) -> Callable[[int], bool]:
        mine, bad = score(guest), watched.bad
        if int(view.jobs.gpus[guest]) > self.most_gpus:
            return lambda host: False

        def welcome(host: int) -> bool:
            return (
                int(view.jobs.gpus[host]) <= self.most_gpus
                and mine + score(host) <= self.score_limit
                and not (bad and kinds_of(view, guest, host) in bad)
            )

        return welcome

    def _under_load(self, view: View) -> bool:
        held = sum(placement.gpus for placement in view.running.values())
        occupancy = view.plan.occupancy
        there = sum(c for n, c in enumerate(view.cluster.capacity) if n not in occupancy.closed)
        return view.waiting.gpus + held > self.load * there

    def _watch(
        self, view: View, draft: Draft, watched: WatchedPairs, guests: Sequence[int]
    ) -> WatchedPairs:
        """Returns the memory with a measurement of each new guest and its neighbours."""
        settle_s = max(view.switch_s.values(), default=0.0)
        trials = [t for t in watched.trials if all(job in draft.placed for job in t.jobs)]
        for guest in guests:
            jobs = (guest, *sorted(neighbours(draft, guest, draft.placed[guest])))
            trials.append(TrialPeriod.of(view, jobs, TRIAL_S, (settle_s,) * len(jobs)))
        return replace(watched, trials=tuple(trials))

    def _separate(self, view: View, draft: Draft, watched: WatchedPairs) -> WatchedPairs:
        """Stops guests whose measurement is over and found a job that was too slow."""
        due = [t for t in watched.trials if t.ends_s <= view.now]
        going_on = tuple(t for t in watched.trials if t.ends_s > view.now)
        bad = set(watched.bad)
        for trial in due:
            guest, *hosts = trial.jobs
            together = guest in draft.placed and neighbours(draft, guest, draft.placed[guest])
            if together != set(hosts) or not view.preemptible[guest]:
                continue
            if min(trial.speeds(view)) < self.unpack:
                draft.remove(guest)
                bad.update(kinds_of(view, guest, host) for host in hosts)
        return replace(watched, trials=going_on, bad=frozenset(bad))

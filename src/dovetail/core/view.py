"""The view of a policy: a read-only window on the world's tables, valid during one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple, Protocol

from dovetail.core.beliefs import Physics
from dovetail.core.cluster import Cluster
from dovetail.core.job import Bools, Floats, Ints, JobTable, Shape
from dovetail.core.length_distribution import LengthQuantiles
from dovetail.core.placement import Placement
from dovetail.core.placing import Placing
from dovetail.core.plan import RunningPlan
from dovetail.core.queue import ReadableQueue
from dovetail.core.switching import Expansion, SwitchCost


class Changes(NamedTuple):
    """What happened since the last decision that stood."""

    arrived: Sequence[int] = ()
    ended: Sequence[int] = ()
    evicted: Sequence[int] = ()
    capacity: bool = False
    woke: bool = False

    def then(self, later: Changes) -> Changes:
        """Returns these changes and later ones as one."""
        return Changes(
            arrived=[*self.arrived, *later.arrived],
            ended=[*self.ended, *later.ended],
            evicted=[*self.evicted, *later.evicted],
            capacity=self.capacity or later.capacity,
            woke=self.woke or later.woke,
        )

    def net(self, waiting: ReadableQueue | Set[int]) -> Changes:
        """Returns what is left of successive changes: each job once, and only if still in effect.

        A job that arrived or was evicted and does not wait is gone again; one that left the queue
        and came back has ended and arrived anew.
        """
        arrived = [job for job in dict.fromkeys(self.arrived) if job in waiting]
        ended = dict.fromkeys(self.ended)
        evicted = dict.fromkeys(self.evicted)
        stays = [job for job in evicted if job in waiting and job not in ended]
        return Changes(arrived, list(ended), stays, self.capacity, self.woke)


class Running(Protocol):
    """The running jobs as columns, row by row, in no particular order; read only."""

    @property
    def jobs(self) -> Ints:
        """Returns the running jobs."""

    @property
    def gpus(self) -> Floats:
        """Returns the GPUs each job holds."""

    @property
    def left_s(self) -> Floats:
        """Returns the mean of what is left, given the progress so far; of one number, less it."""

    @property
    def attained_gpu_s(self) -> Floats:
        """Returns the GPU-seconds held so far, switching included."""


class Progress(Protocol):
    """The progress of jobs so far, as far as it is known; results are in the order of `jobs`.

    Lengths and what is left of them may be read only if the policy `knows_lengths`.
    """

    knows_lengths: bool

    def done_s(self, jobs: Sequence[int]) -> list[float]:
        """Returns the progress, in solo seconds on the requested GPUs."""

    def left_s(self, jobs: Sequence[int]) -> list[float]:
        """Returns the mean of what is left, given the progress so far; of one number, less it."""

    def length_s(self, jobs: Sequence[int]) -> list[float]:
        """Returns the forecast lengths, in solo seconds on the requested GPUs; means of each."""

    def length_quantiles(self, jobs: Sequence[int]) -> LengthQuantiles:
        """Returns the distributions of the lengths of jobs that have not ended."""

    def attained_gpu_s(self, jobs: Sequence[int]) -> list[float]:
        """Returns the GPU-seconds held so far, switching included."""

    def running(self) -> Running:
        """Returns the running jobs as columns."""

    def pending_since_s(self, job: int) -> float:
        """Returns when a waiting job last became pending."""

    def running_since_s(self, job: int) -> float:
        """Returns when a running job was last placed."""


NOTHING = Changes()


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class View:
    """The state of the cluster at one instant, as the policy may know it. Read only.

    `switch_s` is the cost of placing a job, by why it is placed (`core.messages`). `ends` has
    (forecast end, job) of the running jobs in order when the policy's order asks for lengths, else
    None. Nothing here may be used after `decide` returns. `staying` are jobs on GPUs that drain.

    `expanding` has the running jobs of which some GPUs are still made ready. A new order replaces
    the one under way: GPUs that it keeps go on being made ready, for others only the time is lost.
    `switch_cost(job, placement)` is what it would cost to place a job there now.
    """

    jobs: JobTable
    cluster: Cluster
    plan: RunningPlan
    waiting: ReadableQueue
    progress: Progress
    physics: Physics
    placing: Placing
    ends: Sequence[tuple[float, int]] | None
    switch_s: Mapping[str, float]
    expanding: Mapping[int, Expansion]
    switch_cost: Callable[[int, Placement], SwitchCost]
    now: float = 0.0
    changes: Changes = NOTHING
    staying: Set[int] = frozenset()
    shape_of: Sequence[int] = field(init=False)
    shapes: Sequence[Shape] = field(init=False)
    _stays: list[tuple[tuple[int, int], Bools]] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        object.__setattr__(self, "switch_s", MappingProxyType(dict(self.switch_s)))
        object.__setattr__(self, "shape_of", self.waiting.shape_of)
        object.__setattr__(self, "shapes", self.waiting.shapes)

    @property
    def running(self) -> Mapping[int, Placement]:
        """Returns the running jobs and their placements."""
        return self.plan.placed

    @property
    def preemptible(self) -> Bools:
        """Returns, by job, whether it may be stopped or moved now.

        A job on a node or GPU that drains may finish there and is not stopped; for others the owner
        decides.
        """
        draining = self.cluster.draining
        if not draining and not self.staying:
            return self.jobs.preemptible
        as_of = (self.plan.version, len(self.jobs))
        if not self._stays or self._stays[0][0] != as_of:
            self._stays[:] = [(as_of, self._without_draining(draining))]
        return self._stays[0][1]

    def _without_draining(self, draining: Set[int]) -> Bools:
        stays = [
            j
            for j, p in self.running.items()
            if j in self.staying or any(n in draining for n, _ in p.spans)
        ]
        if not stays:
            return self.jobs.preemptible
        leave = self.jobs.preemptible.copy()
        leave[stays] = False
        leave.setflags(write=False)
        return leave

    @property
    def all_preemptible(self) -> bool:
        """True if every job may be stopped or moved now."""
        if not self.cluster.draining and not self.staying:
            return self.jobs.all_preemptible
        return bool(self.preemptible.all())

    def shape(self, job: int) -> Shape:
        """Returns the shape of a job."""
        return self.shapes[self.shape_of[job]]


# NOTE: the setters of the slots, which `frozen` does not guard. A simulation calls both at every
# instant: through functions of ours they take three times as long, 2 % of a run with FIFO.
set_now: Callable[[View, float], None] = vars(View)["now"].__set__
"""Sets the time that a view shows. Only the world that owns the view calls this."""
set_changes: Callable[[View, Changes], None] = vars(View)["changes"].__set__
"""Sets the changes that a view shows. Only the world that owns the view calls this."""


def show(
    view: View,
    *,
    now: float | None = None,
    changes: Changes | None = None,
    physics: Physics | None = None,
    cluster: Cluster | None = None,
    staying: Set[int] | None = None,
) -> None:
    """Sets what a view shows. Only the world that owns the view calls this."""
    if now is not None:
        set_now(view, now)
    if changes is not None:
        set_changes(view, changes)
    if physics is not None:
        object.__setattr__(view, "physics", physics)
    if cluster is not None:
        object.__setattr__(view, "cluster", cluster)
    if staying is not None:
        object.__setattr__(view, "staying", staying)

"""What a policy may believe: how fast jobs run (`Physics`) and how long they are (`Forecast`).

The simulator has one `Physics` as the truth; policies get another, which may be the same one or
one with errors. A job does not carry its length: a `Forecast` gives it once, on arrival.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from dovetail.core.job import Floats, Ints, JobTable, PipelineStage
from dovetail.core.length_distribution import LengthDistribution
from dovetail.core.placement import Placement

Neighbour = tuple[int, Placement]
"""A job that shares a GPU, and where it runs."""


class SizedJob(NamedTuple):
    """A job that may share GPUs: its accumulation steps, its GPUs and their nodes.

    0 GPUs stand for those it requests, 0 nodes for as few as hold them.
    """

    job: int
    steps: int = 1
    gpus: int = 0
    nodes: int = 0


class BestBatches(NamedTuple):
    """The best global batch of a job, and its speed alone with it, by nodes and GPUs.

    Each array is read only and of shape [nodes, GPUs + 1]: row n is for n nodes, the last row
    for all more. `speed` is 0 where the job cannot run; `batch` is 0 for the batch as requested.
    """

    speed: Floats
    batch: Ints
    steps: Ints

    @staticmethod
    def of(speed: Floats) -> BestBatches:
        """Returns the table of a job whose batch stays as requested."""
        return BestBatches(
            speed, np.zeros(speed.shape, np.int64), np.ones(speed.shape, np.int64)
        ).sealed()

    def sealed(self) -> BestBatches:
        """Returns the same table, read only from now on."""
        for array in self:
            array.setflags(write=False)
        return self


class Interleaving(NamedTuple):
    """What decides how long the cycle of an interleave set is (Muri section 4.1).

    Per kind: `stage_s` [kinds, resources], the seconds an iteration as requested keeps each
    resource busy, in stage order (storage, CPU, GPU, network), all 0 where they are not known;
    `iteration_s` [kinds], the iteration alone, 0 where it is not known. `cycle` names the rule:
    "barrier" (equation 3) or "overlapped" (what Muri's artifact computes). `contention` are the
    factors on the cycle of 1, 2, ... members. With `floor` no cycle is shorter than a member's
    iteration alone. Both arrays are read only.
    """

    stage_s: Floats
    iteration_s: Floats
    cycle: str = "barrier"
    contention: tuple[float, ...] = (1.0, 1.0, 1.0, 1.0)
    floor: bool = True


class WorkerTime(NamedTuple):
    """Seconds of one forward pass of a worker over b samples: `fixed_s + per_sample_s * b`."""

    fixed_s: float
    per_sample_s: float


class Speed(Protocol):
    """How fast jobs run alone: in solo seconds of progress per second.

    1.0 is a job alone on its requested GPUs, well placed. Arrays are read only, and the same
    object at every call until the next `Structure.admit`.
    """

    def whole(self, job: int, placement: Placement, done_s: float = 0.0) -> float:
        """Returns the speed as placed if each worker had a GPU of the first type to itself.

        `done_s` is the progress made; it matters only where the placement changes the batch.
        """

    def rates(self, max_gpus: int) -> Floats:
        """Returns the speed of each kind alone and well placed on 0 to `max_gpus` GPUs.

        Shape [kinds, max_gpus + 1]; 0 on no GPU.
        """

    def best_batches(self, job: int, done_s: float, max_gpus: int) -> BestBatches:
        """Returns the best batches of a job at this progress, and its speeds with them."""

    def top(self, job: int, gpus: int) -> float:
        """Returns a speed that no placement on so many GPUs exceeds, alone with its own batch."""

    def spread(self, job: int) -> float:
        """Returns the speed alone, as requested, with each worker on a node of its own."""


class Sharing(Protocol):
    """What jobs lose to each other on shared GPUs."""

    def slowdown(self, job: int, placement: Placement, neighbours: Sequence[Neighbour]) -> float:
        """Returns the iteration time as placed over that of `Speed.whole`.

        It counts neighbours, interleaving, limits, uneven samples, and the GPU types of the nodes.
        """

    def interference(self, mine: SizedJob, other: SizedJob) -> tuple[float, float]:
        """Returns shared over alone iteration time (>= 1) of two jobs that share GPUs, of each.

        Each shares all its GPUs, which lie evenly on its nodes, in free competition.
        """

    def interferences(
        self, sides: Sequence[SizedJob], others: Sequence[SizedJob]
    ) -> tuple[Floats, Floats]:
        """Returns `interference` of many at once: each of `sides` beside each of `others`.

        Two arrays of shape [sides, others], to the last bit as for one pair: first the ratios of
        `sides`, then those of `others`.
        """

    def set_interference(self, members: Sequence[SizedJob]) -> tuple[float, ...]:
        """Returns the same ratios of up to four jobs that share all their GPUs, of each."""

    def stages(self, job: int, placement: Placement) -> tuple[tuple[float, ...], float]:
        """Returns the seconds of an iteration by resource, and whole, alone as placed.

        In the order of `Interleaving.stage_s`; all 0 where they are not known.
        """

    @property
    def interleaving(self) -> Interleaving:
        """Returns what decides the cycle of an interleave set; the same value at every call."""

    def utilization(self, job: int) -> float:
        """Returns the share of an iteration, alone as requested, in which the GPU works."""


class Memory(Protocol):
    """What jobs hold in the memory of a GPU; 0 where it is not known."""

    def footprint_bytes(self, job: int, steps: int) -> float:
        """Returns what a job as requested holds on each of its GPUs."""

    def held_bytes(self, job: int, placement: Placement) -> float:
        """Returns what a job holds on each GPU of a placement."""

    def fixed_bytes(self, job: int) -> float:
        """Returns the part of the footprint that no batch changes."""

    def fits(self, occupants: Sequence[Neighbour], gpu_memory_bytes: float) -> bool:
        """True if these jobs fit together into the memory of one GPU.

        Members of one interleave set use their activations in turns.
        """


class Batches(Protocol):
    """The batch of a job, and what it costs to cut or split it."""

    def samples(self, job: int) -> int:
        """Returns the samples of an iteration as requested, over all GPUs; 0 if not known."""

    def most_steps(self, job: int) -> int:
        """Returns the most accumulation steps that leave a sample in each micro-batch.

        1 where the batch of the job as requested is not known.
        """

    def accumulated(self, job: int, steps: int, gpus: int = 0) -> float:
        """Returns the speed alone with batches in `steps` micro-batches, over that in one step.

        Well placed on so many GPUs (0: as requested). In one step a batch is cut only where the
        model's own limits demand it.
        """

    def phase_end_s(self, job: int, done_s: float) -> float:
        """Returns the progress at which the speed under another batch changes next, or inf."""

    def workers(
        self, job: int, placement: Placement, neighbours: Sequence[Neighbour]
    ) -> tuple[WorkerTime, ...]:
        """Returns how long a forward pass takes each worker, in rank order, as it is placed.

        The limit and the neighbours of a worker count, `samples` do not: they are the b of
        `WorkerTime`. No time grows with the samples where the batch is not known.
        """


class Structure(Protocol):
    """Which jobs are of one kind, and the pipeline stages of each."""

    def admit(self, jobs: JobTable) -> None:
        """Adds the rows appended to the job table, for all parts; earlier answers stay."""

    @property
    def kind_of(self) -> Ints:
        """Returns the kind of each job; all results here are equal for jobs of one kind.

        A kind is a model, a number of requested GPUs and a batch, numbered from 0.
        """

    def graph(self, job: int) -> tuple[PipelineStage, ...]:
        """Returns the pipeline stages of a job, replicas in rank order; () for a plain job."""

    def scale(self, job: int) -> float:
        """Returns the job's throughput on its requested GPUs over that on one GPU."""


@dataclass(frozen=True, slots=True, eq=False)
class Physics:
    """How jobs run, in five parts. A belief is the truth with some parts replaced.

    Two beliefs are the same only if they are one object.
    """

    speed: Speed
    sharing: Sharing
    memory: Memory
    batches: Batches
    structure: Structure

    @property
    def kind_of(self) -> Ints:
        """Returns the kind of each job (`Structure.kind_of`)."""
        return self.structure.kind_of

    def rate(
        self,
        job: int,
        placement: Placement,
        neighbours: Sequence[Neighbour] = (),
        done_s: float = 0.0,
    ) -> float:
        """Returns solo seconds of progress per second of a job as placed beside its neighbours."""
        whole = self.speed.whole(job, placement, done_s)
        return whole / self.sharing.slowdown(job, placement, neighbours)

    def best_batches(self, job: int, done_s: float, max_gpus: int, node: int) -> BestBatches:
        """Returns the best batches of a job, and its speeds with them, on GPUs like a node's."""
        table = self.speed.best_batches(job, done_s, max_gpus)
        slower = self.sharing.slowdown(job, Placement(((node, 1),)), ())
        return table if slower == 1.0 else table._replace(speed=table.speed / slower).sealed()

    def pair_rates(
        self, sides: Sequence[SizedJob], others: Sequence[SizedJob]
    ) -> tuple[Floats, Floats]:
        """Returns solo seconds per second of each of `sides` beside each of `others`, of both.

        Two arrays of shape [sides, others]. Each shares all its GPUs.
        """
        mine, theirs = self.sharing.interferences(sides, others)
        return self._alone(sides)[:, None] / mine, self._alone(others) / theirs

    def set_rates(self, members: Sequence[SizedJob]) -> Floats:
        """Returns solo seconds per second of up to four jobs that share all their GPUs."""
        return np.asarray(self._alone(members) / self.sharing.set_interference(members))

    def _alone(self, sides: Sequence[SizedJob]) -> Floats:
        """Returns the speed of each side alone."""
        kind_of, accumulated = self.kind_of, self.batches.accumulated
        rates = self.speed.rates(max((side.gpus for side in sides), default=1))
        return np.array(
            [
                self.speed.whole(job, on_nodes(gpus, nodes, steps))
                if nodes
                else (rates[kind_of[job], gpus] if gpus else 1.0) * accumulated(job, steps, gpus)
                for job, steps, gpus, nodes in sides
            ]
        )


def on_nodes(gpus: int, nodes: int, steps: int = 1) -> Placement:
    """Returns GPUs spread over nodes as evenly as can be."""
    least, more = divmod(gpus, nodes)
    return Placement(
        tuple((node, least + (node < more)) for node in range(nodes)), accumulation_steps=steps
    )


DoneOf = Callable[[Sequence[int]], list[float]]
"""Returns the progress of jobs, in solo seconds."""


class Forecast(Protocol):
    """How long jobs are, as far as the scheduler can know."""

    @property
    def knows(self) -> frozenset[str]:
        """Returns the knowledge it supplies: entries of `core.policy.KNOWLEDGE`."""

    @property
    def learns(self) -> bool:
        """True if jobs that end change the forecasts of others."""

    def admit(self, jobs: JobTable) -> None:
        """Adds the rows appended to the job table."""

    def length_s(self, job: int, now: float) -> float:
        """Returns the job's length alone on its requested GPUs, as believed on arrival.

        One number: where there is a `distribution`, its median or what else was predicted.
        """

    def distribution(self, job: int, now: float, done_s: DoneOf) -> LengthDistribution | None:
        """Returns how long a job that arrives may be; None if its length is one number.

        It is asked after `length_s`. Jobs that have not ended are at least as long as they are
        `done_s`.
        """

    def ended(self, job: int, ran_s: float, how: str, now: float) -> None:
        """Learns that a job ended after `ran_s` solo seconds; `how` as in `core.trace.ENDS`."""

"""Where and how one job runs: spans of GPUs in rank order, and how it shares them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

from dovetail.core.errors import IllegalPlan
from dovetail.core.gpu_parts import exact_sum

Spans = tuple[tuple[int, int], ...]
"""(node, GPUs) pairs in rank order."""


@dataclass(frozen=True, slots=True)
class Interleave:
    """A job's seat in an interleave set: jobs of one set take turns on the stages (Muri)."""

    set_id: int
    phase: int


@dataclass(frozen=True, slots=True)
class Placement:
    """Where and how a job runs. The defaults mean alone and plain.

    `gpu_ids` names the GPUs of each span; it is needed only where GPUs are shared.
    `fractions` and `samples` are per worker in rank order; empty means whole and even.
    `batch_size` is the global batch if a policy changed it; 0 means as requested.
    `gpu_part` is the part of each GPU that the job holds: below 1 it shares the rest with others,
    with 0 it holds no GPU, and its spans are workers that use CPUs and memory only.
    """

    spans: Spans
    gpu_ids: tuple[tuple[int, ...], ...] = ()
    accumulation_steps: int = 1
    fractions: tuple[float, ...] = ()
    samples: tuple[int, ...] = ()
    interleave: Interleave | None = None
    batch_size: int = 0
    gpu_part: float = 1.0
    gpus: int = field(init=False, compare=False, repr=False)
    """The number of workers, one on each GPU."""
    held_gpus: float = field(init=False, compare=False, repr=False)
    """The GPUs that the job holds, parts counted as parts; a whole number unless it has parts."""
    nodes: int = field(init=False, compare=False, repr=False)
    """The number of nodes in use; a node may appear in several spans, for the order of ranks."""

    def __post_init__(self) -> None:
        gpus, part = sum(g for _, g in self.spans), self.gpu_part
        object.__setattr__(self, "gpus", gpus)
        object.__setattr__(self, "held_gpus", gpus if part == 1.0 else exact_sum(gpus * part))
        object.__setattr__(self, "nodes", len({n for n, _ in self.spans}))
        self._check_gpus()
        self._check_workers()
        if part != 1.0:
            self._check_part()

    def _check_part(self) -> None:
        if not 0.0 <= self.gpu_part < 1.0:
            raise IllegalPlan(f"a part of a GPU lies between 0 and 1, not {self.gpu_part}")
        if bool(self.gpu_ids) != bool(self.gpu_part):
            raise IllegalPlan("a placement on parts of GPUs names them, one without GPUs does not")

    def _check_gpus(self) -> None:
        if not self.spans or any(g < 1 for _, g in self.spans):
            raise IllegalPlan(f"a placement needs at least one GPU on each node: {self.spans}")
        if self.gpu_ids:
            sizes_match = [len(ids) for ids in self.gpu_ids] == [g for _, g in self.spans]
            if not sizes_match or len(set(self.named())) != self.gpus:
                raise IllegalPlan(f"GPU ids {self.gpu_ids} do not match the spans {self.spans}")

    def _check_workers(self) -> None:
        if self.accumulation_steps < 1:
            raise IllegalPlan("accumulation needs at least one step")
        if self.fractions and not (
            len(self.fractions) == self.gpus and all(0 < f <= 1 for f in self.fractions)
        ):
            raise IllegalPlan("fractions must hold one share of a GPU in (0, 1] for each worker")
        if self.samples and not (
            len(self.samples) == self.gpus and all(s >= 1 for s in self.samples)
        ):
            raise IllegalPlan("samples must hold one positive count for each worker")

    def by_node(self) -> dict[int, int]:
        """Returns the GPUs on each node, over all its spans."""
        held: dict[int, int] = {}
        for node, gpus in self.spans:
            held[node] = held.get(node, 0) + gpus
        return held

    def moves_to(self, other: Placement) -> bool:
        """True if a change to `other` changes GPUs; naming the GPUs that are held is no move."""
        if self.spans != other.spans:
            return True
        return bool(self.gpu_ids and other.gpu_ids) and self.gpu_ids != other.gpu_ids

    def free(self) -> Placement:
        """Returns the placement without limits and with even samples."""
        if not (self.fractions or self.samples):
            return self
        return replace(self, fractions=(), samples=())

    def kept_in(self, other: Placement) -> Placement | None:
        """Returns the part of this placement whose GPUs `other` holds too; None if there is none.

        Where one of the two does not name its GPUs, counts on each node decide. A part trains in
        the manner of the whole, with its batch and accumulation steps; see `_part`.
        """
        if self.gpu_ids and other.gpu_ids:
            theirs = set(other.named())
            kept = [
                (node, tuple(gpu for gpu in ids if (node, gpu) in theirs))
                for (node, _), ids in zip(self.spans, self.gpu_ids, strict=True)
            ]
            spans = tuple((node, len(ids)) for node, ids in kept if ids)
            names = tuple(ids for _, ids in kept if ids)
        else:
            held = other.by_node()
            shared = [(node, min(gpus, held.get(node, 0))) for node, gpus in self.by_node().items()]
            spans, names = tuple((node, gpus) for node, gpus in shared if gpus), ()
        if not spans:
            return None
        if spans == self.spans:
            return self
        return self._part(spans, names)

    def without(self, nodes: Collection[int]) -> Placement | None:
        """Returns the part on other nodes, trained in the same manner; None if there is none."""
        rows = [i for i, (node, _) in enumerate(self.spans) if node not in nodes]
        if len(rows) == len(self.spans):
            return self
        if not rows:
            return None
        names = tuple(self.gpu_ids[i] for i in rows) if self.gpu_ids else ()
        return self._part(tuple(self.spans[i] for i in rows), names)

    def _part(self, spans: Spans, gpu_ids: tuple[tuple[int, ...], ...]) -> Placement:
        """Returns this placement on fewer GPUs.

        Samples and fractions are per worker and cannot be cut: they become whole and even.
        """
        return replace(self, spans=spans, gpu_ids=gpu_ids, fractions=(), samples=())

    def named(self) -> Iterator[tuple[int, int]]:
        """Yields the (node, GPU id) pairs of a placement, none if it does not name its GPUs."""
        if not self.gpu_ids:
            return
        for (node, _), ids in zip(self.spans, self.gpu_ids, strict=True):
            for gpu in ids:
                yield node, gpu


def dealt(spans: Spans, ids: Mapping[int, list[int]]) -> tuple[tuple[int, ...], ...]:
    """Returns the GPUs of each span, from those of each node."""
    left = {node: iter(there) for node, there in ids.items()}
    return tuple(tuple(islice(left[node], count)) for node, count in spans)


def merged(spans: Spans) -> Spans:
    """Returns spans with each node once."""
    need: dict[int, int] = {}
    for node, count in spans:
        need[node] = need.get(node, 0) + count
    return tuple(need.items())

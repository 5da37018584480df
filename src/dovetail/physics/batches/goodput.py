"""Goodput: how fast a job learns when its batch is changed (Pollux, OSDI 2021, section 3).

`goodput = throughput(placement, batch) * efficiency(batch)`. Everything is relative to the job
alone as requested, so progress is in solo seconds whatever the batch: a job whose placement has
another batch runs at its goodput over that of the request. How the noise scale moves as a job
learns is a property of the model, met after so many steps of learning; it does not tell how long
the job means to go on.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from math import ceil

import numpy as np

from dovetail.core.beliefs import BestBatches
from dovetail.core.job import Bools, Floats
from dovetail.core.units import NEVER_S
from dovetail.physics.batches.efficiency import Efficiency, sample_worth
from dovetail.physics.speed.compute import iteration_s as equation_7
from dovetail.physics.speed.throughput import correction, iteration_s, spread
from dovetail.physics.zoo.models import shipped
from dovetail.physics.zoo.profile import ModelProfile

NODES_DISTINGUISHED = 3
"""Rings inside a node, over two nodes, and over three or more (physics/network.py)."""
CANDIDATES = 50
"""Global batches tried between the least and the most, in geometric steps, as Pollux does."""
ROUNDING = 1e-8
LATE_S = 1e-6
"""A phase counts as over this much before its end: times are rounded, and it must be passed."""


@dataclass(frozen=True, slots=True)
class BatchKind:
    """What the goodput of a job depends on, beside its placement and progress."""

    profile: ModelProfile
    requested_gpus: int
    batch: float
    """The global batch as requested."""
    gpus_per_node: int
    by_count: bool = False
    """True if all placements count as good ones."""

    def nodes_for(self, gpus: int) -> int:
        """Returns the fewest nodes that hold so many GPUs."""
        return ceil(gpus / self.gpus_per_node)

    def spans(self, gpus: int, nodes: int) -> tuple[int, ...]:
        """Returns GPUs per node of a placement on so many nodes."""
        return spread(gpus, self.nodes_for(gpus) if self.by_count else nodes)


def phase_end_s(kind: BatchKind, done_s: float) -> float:
    """Returns the progress at which the noise scale changes next, or inf."""
    ends_s = _phase_ends_s(kind)
    k = _phase(kind, done_s)
    return ends_s[k] if k < len(ends_s) else NEVER_S


def relative_speed(
    kind: BatchKind, done_s: float, *, gpus: int, nodes: int, batch: int, steps: int
) -> float:
    """Returns the goodput with another global batch over that of the request.

    `steps` are the accumulation steps, 1 for the fewest that will do. Where the model's noise
    scale is not known a larger batch helps as little as can be and a smaller one not at all.
    """
    return _relative_speed(kind, _phase(kind, done_s), gpus, nodes, batch, steps)


def best_batches(kind: BatchKind, done_s: float, max_gpus: int) -> BestBatches:
    """Returns the best batch, and the speed with it, on 0 to `max_gpus` GPUs."""
    if kind.profile.efficiency is None:
        return _as_requested(kind, max_gpus)
    return _best(kind, _phase(kind, done_s), max_gpus)


def training(model: str, gpus: int, batch: int, family: str = "") -> tuple[float, float] | None:
    """Returns the iterations and seconds of the training in the source of a model, well placed.

    None where the zoo has no such model or does not know how it learns.
    """
    profile = shipped().find(model, family=family)
    if profile is None or profile.efficiency is None:
        return None
    iterations = profile.efficiency.value.iterations(batch)
    return iterations, iterations * iteration_s(profile, gpus=gpus, batch_per_gpu=batch / gpus)


@lru_cache(maxsize=4096)
def _phase_ends_s(kind: BatchKind) -> tuple[float, ...]:
    """Returns when each phase but the last ends, in solo seconds."""
    known = kind.profile.efficiency
    if known is None:
        return ()
    one_s = _requested_s(kind)
    spent = (n / known.value.gain(kind.batch, k) * one_s for k, n in enumerate(known.value.steps))
    return tuple(accumulate(spent))[:-1]


def _phase(kind: BatchKind, done_s: float) -> int:
    return bisect_right(_phase_ends_s(kind), done_s + LATE_S)


def _requested_s(kind: BatchKind) -> float:
    """Returns the seconds of an iteration as requested, well placed."""
    gpus = kind.requested_gpus
    return iteration_s(
        kind.profile,
        gpus=gpus,
        spans=spread(gpus, kind.nodes_for(gpus)),
        batch_per_gpu=kind.batch / gpus,
    )


@lru_cache(maxsize=65536)
def _relative_speed(
    kind: BatchKind, phase: int, gpus: int, nodes: int, batch: int, steps: int
) -> float:
    took_s = iteration_s(
        kind.profile,
        gpus=gpus,
        spans=kind.spans(gpus, nodes),
        batch_per_gpu=batch / gpus,
        accumulation_steps=steps if steps > 1 else 0,
    )
    known = kind.profile.efficiency
    if known is None:
        worth = min(1.0, kind.batch / batch)
    else:
        worth = sample_worth(known.value.noise_scale[phase], kind.batch, batch)
    return batch / took_s * _requested_s(kind) / kind.batch * worth


@lru_cache(maxsize=1024)
def _as_requested(kind: BatchKind, max_gpus: int) -> BestBatches:
    speed = np.zeros((NODES_DISTINGUISHED + 1, max_gpus + 1))
    wanted_s = _requested_s(kind)
    for nodes in range(1, NODES_DISTINGUISHED + 1):
        for gpus in range(nodes, max_gpus + 1):
            took_s = iteration_s(
                kind.profile,
                gpus=gpus,
                spans=kind.spans(gpus, nodes),
                batch_per_gpu=kind.batch / gpus,
            )
            speed[nodes, gpus] = wanted_s / took_s
    return BestBatches.of(speed)


@lru_cache(maxsize=4096)
def _best(kind: BatchKind, phase: int, max_gpus: int) -> BestBatches:
    known = kind.profile.efficiency
    assert known is not None
    gpus = np.arange(1, max_gpus + 1, dtype=float)
    micro, steps, allowed = _candidates(known.value, gpus)
    batch = gpus * steps * micro
    worth = sample_worth(known.value.noise_scale[phase], kind.batch, batch)
    reference = kind.batch / _requested_s(kind)
    shape = (NODES_DISTINGUISHED + 1, max_gpus + 1)
    best = BestBatches(np.zeros(shape), np.zeros(shape, np.int64), np.ones(shape, np.int64))
    columns = np.arange(max_gpus)
    for nodes in range(1, NODES_DISTINGUISHED + 1):
        took_s = _took_s(kind, nodes, gpus, steps * micro, steps)
        speed = np.where(allowed & (gpus >= nodes), batch / took_s / reference * worth, 0.0)
        chosen = speed.argmax(axis=0), columns
        best.speed[nodes, 1:] = speed[chosen]
        best.batch[nodes, 1:] = np.where(speed[chosen] > 0, batch[chosen], 0)
        best.steps[nodes, 1:] = np.where(speed[chosen] > 0, steps[chosen], 1)
    return best.sealed()


def _candidates(known: Efficiency, gpus: Floats) -> tuple[Floats, Floats, Bools]:
    """Returns micro-batches and accumulation steps [candidate, GPUs], and which are allowed.

    One GPU accumulates above the initial batch: of a single micro-batch the noise of the
    gradient cannot be estimated (AdaptDL, goodput.py).
    """
    least = np.maximum(known.initial_batch, known.least_per_gpu * gpus)
    each = np.geomspace(np.minimum(least, known.max_batch), known.max_batch, CANDIDATES) / gpus
    steps = np.maximum(np.ceil(each / known.most_per_gpu - ROUNDING), 1.0)
    lonely = (gpus == 1) & (each > known.initial_batch + ROUNDING)
    steps = np.where(lonely, np.maximum(steps, 2.0), steps)
    micro = np.ceil(each / steps - ROUNDING)
    micro = np.minimum(micro, np.floor(known.max_batch / (gpus * steps) + ROUNDING))
    allowed = (known.least_per_gpu <= micro) & (micro <= known.most_per_gpu)
    return np.maximum(micro, 1.0), steps, allowed


def _took_s(kind: BatchKind, nodes: int, gpus: Floats, per_gpu: Floats, steps: Floats) -> Floats:
    """Returns the seconds of an iteration, where `gpus` workers fit on `nodes` nodes at all."""
    profile = kind.profile
    network, gradient_bytes = profile.network.value, profile.gradient_bytes.value
    counts = gpus.astype(int).tolist()
    spans = [kind.spans(n, min(n, nodes)) for n in counts]
    took_s = equation_7(
        profile.compute[0][1].value,
        batch=per_gpu,
        steps=steps,
        comm_s=np.array([network.comm_s(span, gradient_bytes) for span in spans]),
        overlap=profile.overlap.value,
    )
    return took_s * np.array([correction(profile, n) for n in counts])

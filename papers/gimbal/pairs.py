"""Figure 2: two jobs on the same GPUs, one of them limited or its samples moved, by the physics.

The paper does not say which five pairs it shows; here are all ordered pairs of its twelve models,
each at its smallest batch of Table 1, of the same length alone. The world is left out: mean
completion of two jobs that begin together, of which the longer ends alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np

from dovetail.algorithms.sample_split import split
from dovetail.core.placement import Placement
from dovetail.physics.sharing.interference import MEASURED
from dovetail.physics.sharing.limits import shared_slowdown
from papers.frame.experiment import Numbers
from papers.gimbal.search import set_scene
from papers.gimbal.workloads import STAND_INS

MODELS = tuple(paper for rows in STAND_INS.values() for paper, _, _ in rows)
LIMITS = tuple(k / 10 for k in range(1, 11))
LAWS = {"straight line": 1.0, "square": 2.0, "root": 0.5}
"""How the loss grows with the contested part of a GPU: its power (the law of limits has 1)."""
SHOWN = (
    ("ResNet-18", "EfficientNet"), ("ResNet-50", "DeepSpeech2"), ("VGG-16", "BERT"),
    ("LLaMA", "VGG-11"), ("LLaMA", "ResNet-50"),
)  # fmt: skip
"""The pairs of our picture."""


@dataclass(frozen=True, slots=True)
class PairRun:
    """One ordered pair: of two jobs of 2 GPUs, by limit; and of one of 4 beside one of 2."""

    first: str
    second: str
    interference: str | float = MEASURED

    def play(self) -> Numbers:
        """Returns how many times better than serial the mean JCT is, by limit and law."""
        kept: dict[str, float] = {}
        for law, power in LAWS.items():
            line = limited(self.first, self.second, self.interference, power)
            kept |= {f"{law} {limit:.1f}": gain for limit, gain in zip(LIMITS, line, strict=True)}
        return {**kept, **unequal(self.first, self.second, self.interference)}


def gain_over_serial(speeds: Sequence[float], lengths: Sequence[float] = (1.0, 1.0)) -> float:
    """Returns the mean completion of one job after the other over that of both at once.

    Serially the shorter goes first. Together the first to end leaves the other alone and whole.
    """
    serial = (min(lengths) + sum(lengths)) / 2
    ends = [length / speed for length, speed in zip(lengths, speeds, strict=True)]
    early, late = (0, 1) if ends[0] <= ends[1] else (1, 0)
    last = ends[early] + lengths[late] - ends[early] * speeds[late]
    return serial / ((ends[early] + last) / 2)


@lru_cache(maxsize=512)
def limited(
    first: str, second: str, interference: str | float, power: float = 1.0
) -> tuple[float, ...]:
    """Returns the gain over serial by limit of the second job; `power` 1 is the law as it is."""
    truth = set_scene(((first, 2), (second, 2)), interference).truth
    placed = Placement(((0, 2),), ((0, 1),))
    free = [truth.rate(i, placed, [(1 - i, placed)]) for i in (0, 1)]
    uses = [truth.sharing.utilization(i) for i in (0, 1)]
    gains = []
    for limit in LIMITS:
        limits = (1.0, limit)
        speeds = [
            1 / bent_slowdown(uses[i], limits[i], uses[1 - i], limits[1 - i], 1 / free[i], power)
            for i in (0, 1)
        ]
        gains.append(gain_over_serial(speeds))
    return tuple(gains)


def bent_slowdown(
    utilization: float, limit: float, other: float, other_limit: float, ratio: float, power: float
) -> float:
    """Returns the law of limits with the loss going with a power of what is contested."""
    if power == 1 or (limit >= utilization and other_limit >= other):
        return shared_slowdown(utilization, limit, other, other_limit, ratio)
    cap, beside = min(utilization, limit), min(other, other_limit)
    contested, most = max(0.0, cap + beside - 1), max(0.0, utilization + other - 1)
    lost = min(1 - 1 / ratio, most / utilization)
    rest = 1 - 1 / (ratio * (1 - lost))
    kept = cap / utilization - (lost * (contested / most) ** power if most else 0.0)
    # A bent law may take more than a limited job has left.
    return 1 / max(0.01, kept * (1 - rest * beside / other))


def unequal(first: str, second: str, interference: str | float) -> Numbers:
    """Returns the gain over serial of a job of 4 GPUs beside one of 2, with stragglers, without."""
    truth = set_scene(((first, 4), (second, 2)), interference).truth
    wide = Placement(((0, 2), (1, 2)), ((0, 1), (2, 3)))
    narrow = Placement(((0, 2),), ((0, 1),))
    beside = truth.rate(1, narrow, [(0, wide)])
    workers = truth.batches.workers(0, wide, [(1, narrow)])
    even = replace(wide, samples=split(workers, truth.batches.samples(0)))
    return {
        "straggling": gain_over_serial((truth.rate(0, wide, [(1, narrow)]), beside)),
        "even": gain_over_serial((truth.rate(0, even, [(1, narrow)]), beside)),
    }


def pair_runs(interference: str | float = MEASURED) -> list[PairRun]:
    """Returns all ordered pairs."""
    return [PairRun(a, b, interference) for a in MODELS for b in MODELS]


def is_unimodal(line: Sequence[float], tie: float = 1e-3) -> bool:
    """Returns whether a line never rises again, by more than a tie, once it has fallen."""
    top = int(np.argmax(line))
    rises = all(b >= a - tie for a, b in pairwise(line[: top + 1]))
    falls = all(b <= a + tie for a, b in pairwise(line[top:]))
    return rises and falls


class PairShares:
    """Shares of pairs by how they fare under a law."""

    def __init__(self, outcomes: Sequence[Numbers]) -> None:
        self._all = outcomes

    def line(self, law: str, row: Numbers) -> list[float]:
        """Returns the gain by limit."""
        return [row[f"{law} {limit:.1f}"] for limit in LIMITS]

    def free(self, law: str) -> float:
        """Returns the share of pairs that beat serial in free competition."""
        return self._share(lambda row: self.line(law, row)[-1] > 1)

    def best(self, law: str) -> float:
        """Returns the share of pairs that beat serial under some limit."""
        return self._share(lambda row: max(self.line(law, row)) > 1)

    def within(self, law: str) -> float:
        """Returns the share of pairs whose best limit is neither the least nor none."""
        return self._share(lambda row: 0 < int(np.argmax(self.line(law, row))) < len(LIMITS) - 1)

    def unimodal(self, law: str) -> float:
        """Returns the share of pairs whose gain has one peak over the limit."""
        return self._share(lambda row: is_unimodal(self.line(law, row)))

    def unequal(self, what: str) -> float:
        """Returns the share of unequal pairs that beat serial, `straggling` or `even`."""
        return self._share(lambda row: row[what] > 1)

    def evened(self) -> float:
        """Returns the share of unequal pairs that are no worse for moved samples."""
        return self._share(lambda row: row["even"] >= row["straggling"] * (1 - 1e-9))

    def _share(self, holds: Callable[[Numbers], bool]) -> float:
        return float(np.mean([holds(row) for row in self._all]))

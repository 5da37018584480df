"""How much two jobs on one GPU slow each other: ratios of iteration times (SJF-BSBF eq. 5, 6)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Protocol

import numpy as np

from dovetail.core.errors import InputError
from dovetail.core.job import Floats
from dovetail.physics.sharing.contention import (
    NO_SWAY,
    MeasuredContention,
    Sway,
    shipped_contention,
)
from dovetail.physics.sharing.contention import load as load_of
from dovetail.physics.sharing.pairs import MeasuredPair, PairRatio
from dovetail.physics.zoo.profile import ModelProfile
from dovetail.physics.zoo.profile_file import ProfileSet

MEASURED = "measured"
LEAST = 1e-6
"""The law's least excess where a measured one is set against it, so that none is divided by 0."""
Seen = tuple[int, int, float]
"""The micro-batches of two and the ratio of the first."""


@dataclass(frozen=True, slots=True, eq=False)
class GpuLoad:
    """A model, None where it is not known, at a micro-batch.

    NOTE: each is equal to itself alone, so that tables by load are read without hashing a profile.
    """

    model: ModelProfile | None
    micro_batch: float


UNKNOWN_LOAD = GpuLoad(None, 1.0)


class Interference(Protocol):
    """Shared over alone iteration time of one job beside another on the same GPU."""

    def ratio(self, mine: GpuLoad, other: GpuLoad) -> float:
        """Returns the ratio of `mine` beside the other, at least 1."""
        ...

    def ratios(self, mine: Sequence[GpuLoad], others: Sequence[GpuLoad]) -> Floats:
        """Returns `ratio` of each of `mine` beside each of `others`: shape [mine, others]."""
        every = [self.ratio(one, other) for one in mine for other in others]
        return np.array(every, np.float64).reshape(len(mine), len(others))


@dataclass(frozen=True, slots=True)
class Injected(Interference):
    """One ratio for every pair: what the sweep of SJF-BSBF Figure 6(b) injects."""

    xi: float = 1.0

    def __post_init__(self) -> None:
        if not 1 <= self.xi < math.inf:
            raise InputError("--interference", "a ratio of iteration times is at least 1")

    def ratio(self, mine: GpuLoad, other: GpuLoad) -> float:
        """Returns the injected ratio."""
        return self.xi


class MeasuredInterference(Interference):
    """Ratios as measured where the pair was, by the law fitted to those pairs elsewhere.

    The pairs of `sets` (as `examples/measure_gpu.py` writes them) go before the shipped ones. A job
    without a model, or beside one, has the median of the shipped pairs.
    """

    def __init__(
        self, sets: Iterable[ProfileSet] = (), known: MeasuredContention | None = None
    ) -> None:
        self._known = known or shipped_contention()
        self._sides: dict[tuple[str, str], list[Seen]] = {}
        self._add("", self._known.pairs)
        for one in sets:
            self._add(f"{one.family}/", one.pairs)
        self._tables: dict[tuple[ModelProfile, ModelProfile], MeasuredPair | None] = {}
        self._ratios: dict[tuple[GpuLoad, GpuLoad], float] = {}
        self._sways: dict[GpuLoad, Sway] = {}

    def _add(self, family: str, pairs: Iterable[PairRatio]) -> None:
        for pair in pairs:
            for mine, batch, other, other_batch, ratio in pair.sides():
                key = (family + mine, family + other)
                self._sides.setdefault(key, []).append((batch, other_batch, ratio))

    def ratio(self, mine: GpuLoad, other: GpuLoad) -> float:
        """Returns the ratio of `mine` beside the other."""
        if mine.model is None or other.model is None:
            return self._known.median_ratio
        key = (mine, other)
        ratio = self._ratios.get(key)
        if ratio is None:
            batches = mine.micro_batch, other.micro_batch
            table = self._table(mine.model, other.model)
            if table is None:
                ratio = 1.0 + self._excess(mine.model, other.model, *batches)
            else:
                ratio = table.ratio(*batches)
            self._ratios[key] = ratio
        return ratio

    def ratios(self, mine: Sequence[GpuLoad], others: Sequence[GpuLoad]) -> Floats:
        """Returns `ratio` of each of `mine` beside each of `others`, to the last bit."""
        known = self._known
        sways, against = ([self._sway(load) for load in some] for some in (mine, others))
        ratios: Floats = 1.0 + known.law.value.between_all(sways, against)
        others_of = _by_model(others)
        for model, rows in _by_model(mine):
            for other, columns in others_of:
                if model is None or other is None:
                    ratios[np.ix_(rows, columns)] = known.median_ratio
                elif self._table(model, other) is not None:
                    for row, column in product(rows, columns):
                        ratios[row, column] = self.ratio(mine[row], others[column])
        return ratios

    def _sway(self, load: GpuLoad) -> Sway:
        sway = self._sways.get(load)
        if sway is None:
            sway = self._of(load.model, load.micro_batch) if load.model else NO_SWAY
            self._sways[load] = sway
        return sway

    def _of(self, profile: ModelProfile, micro_batch: float) -> Sway:
        share = self._known.gpu_share(profile)
        return self._known.law.value.sway(load_of(profile, micro_batch), share)

    def is_measured(self, mine: ModelProfile, other: ModelProfile) -> bool:
        """True if the pair was measured at some batches."""
        return self._table(mine, other) is not None

    def _excess(
        self, mine: ModelProfile, other: ModelProfile, batch: float, beside: float
    ) -> float:
        return self._known.law.value.between(self._of(mine, batch), self._of(other, beside))

    def _table(self, mine: ModelProfile, other: ModelProfile) -> MeasuredPair | None:
        key = (mine, other)
        if key not in self._tables:
            sides = self._sides.get((mine.full_name, other.full_name)) or self._sides.get(
                (self._measured_as(mine), self._measured_as(other))
            )
            self._tables[key] = (
                MeasuredPair(sides, lambda a, b: max(LEAST, self._excess(mine, other, a, b)))
                if sides
                else None
            )
        return self._tables[key]

    def _measured_as(self, profile: ModelProfile) -> str:
        name = self._known.measured_as.get(profile.full_name)
        return name.value if name else ""


def _by_model(loads: Sequence[GpuLoad]) -> list[tuple[ModelProfile | None, list[int]]]:
    """Returns the places of each model."""
    places: dict[int, tuple[ModelProfile | None, list[int]]] = {}
    for place, load in enumerate(loads):
        places.setdefault(id(load.model), (load.model, []))[1].append(place)
    return list(places.values())


def parse_interference(text: str | float, sets: Iterable[ProfileSet] = ()) -> Interference:
    """Returns the interference of `--interference measured|RATIO`. Raises InputError."""
    if text == MEASURED:
        return MeasuredInterference(sets)
    try:
        xi = float(text)
    except ValueError:
        raise InputError(
            "--interference", f"unknown '{text}'", f"'{MEASURED}', or a ratio of at least 1"
        ) from None
    return Injected(xi)

"""How much jobs on the same GPUs slow each other in free competition (SJF-BSBF eq. 5, 6).

A *ratio* is an iteration time shared over alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Protocol

import numpy as np

from dovetail.algorithms.arrays import Bools
from dovetail.algorithms.processor_sharing import slowdowns
from dovetail.core.errors import InputError
from dovetail.core.job import Floats
from dovetail.physics.sharing.contention import KnownContention, shipped_contention
from dovetail.physics.sharing.pairs import Measured, MeasuredPair, PairRatio
from dovetail.physics.sharing.service_demand import GPU, RESOURCES, ServiceDemand, on_one_gpu
from dovetail.physics.zoo.profile import ModelProfile
from dovetail.physics.zoo.profile_file import ProfileSet

MEASURED = "measured"
LEAST = 1e-6
"""The law's least excess where a measured one is set against it, so that none is divided by 0."""
ROOMY_HOST: Floats = np.array([[[math.inf, math.inf, 1.0, 1.0]]])
"""Capacities by resource where the host feeds whoever is there."""
BLOCK = 8192
"""NOTE: so many pairs at once stay in the cache of a processor; 250,000 take 0.6 of the time."""


class Interference(Protocol):
    """Shared over alone iteration times of jobs on the same GPUs, in free competition."""

    def ratio(self, mine: ServiceDemand, other: ServiceDemand) -> float:
        """Returns the ratio of `mine` beside the other, at least 1."""
        ...

    def ratios(
        self, mine: Sequence[ServiceDemand], others: Sequence[ServiceDemand]
    ) -> tuple[Floats, Floats]:
        """Returns the ratios of both sides of each of `mine` beside each of `others`.

        Two arrays of shape [mine, others], to the last bit as `ratio` of one pair.
        """
        shape = len(mine), len(others)
        first = [self.ratio(one, other) for one in mine for other in others]
        second = [self.ratio(other, one) for one in mine for other in others]
        return np.array(first).reshape(shape), np.array(second).reshape(shape)

    def of_set(self, members: Sequence[ServiceDemand]) -> Floats:
        """Returns the ratios of the members of a set: by default each pair adds its excess."""
        excess = [
            sum(self.ratio(one, other) - 1.0 for j, other in enumerate(members) if j != i)
            for i, one in enumerate(members)
        ]
        return 1.0 + np.array(excess, np.float64)


@dataclass(frozen=True, slots=True)
class Injected(Interference):
    """One ratio for every pair: what the sweep of SJF-BSBF Figure 6(b) injects."""

    xi: float = 1.0

    def __post_init__(self) -> None:
        if not 1 <= self.xi < math.inf:
            raise InputError("--interference", "a ratio of iteration times is at least 1")

    def ratio(self, mine: ServiceDemand, other: ServiceDemand) -> float:
        """Returns the injected ratio."""
        return self.xi


class MeasuredInterference(Interference):
    """Ratios as measured where the pair was, by the law fitted to those pairs elsewhere.

    The pairs of `sets` (as `examples/measure_gpu.py` writes them) go before the shipped ones. They
    were measured on one GPU; on several, the law's share of computing and exchange applies. A job
    without a model, or beside one, has the median of the shipped pairs. `host_capacity` is how
    many jobs a GPU's share of the host feeds at full speed (default: as shipped).
    """

    def __init__(
        self,
        sets: Iterable[ProfileSet] = (),
        known: KnownContention | None = None,
        host_capacity: float = 0.0,
    ) -> None:
        self._known = known or shipped_contention()
        self._law = self._known.law.value
        host = host_capacity or self._known.host_capacity.value
        self._capacity = np.array([[[host, host, 1.0, 1.0]]])
        self._sides: dict[tuple[str, str], list[Measured]] = {}
        self._add("", self._known.pairs)
        for one in sets:
            self._add(f"{one.family}/", one.pairs)
        self._tables: dict[tuple[ModelProfile, ModelProfile], MeasuredPair | None] = {}
        self._ratios: dict[tuple[ServiceDemand, ServiceDemand], float] = {}
        self._vectors: dict[ServiceDemand, Floats] = {}

    def _add(self, family: str, pairs: Iterable[PairRatio]) -> None:
        for pair in pairs:
            for mine, batch, other, other_batch, ratio in pair.sides():
                key = (family + mine, family + other)
                self._sides.setdefault(key, []).append((batch, other_batch, ratio))

    def ratio(self, mine: ServiceDemand, other: ServiceDemand) -> float:
        """Returns the ratio of `mine` beside the other."""
        ratio = self._ratios.get((mine, other))
        if ratio is None:
            first, second = self.ratios((mine,), (other,))
            ratio, self._ratios[other, mine] = float(first[0, 0]), float(second[0, 0])
            self._ratios[mine, other] = ratio
        return ratio

    def ratios(
        self, mine: Sequence[ServiceDemand], others: Sequence[ServiceDemand]
    ) -> tuple[Floats, Floats]:
        """Returns the ratios of both sides of each of `mine` beside each of `others`."""
        shape = len(mine), len(others)
        both = np.ones((*shape, 2))
        if not (mine and others):
            return both[..., 0], both[..., 1]
        first, second = self._rows(mine), self._rows(others)
        factors, unknown = self._pair_factors(mine, others)
        height = max(1, BLOCK // len(others))
        for block in (slice(at, at + height) for at in range(0, len(mine), height)):
            vectors = np.empty((*both[block].shape, 3, RESOURCES))
            vectors[:, :, 0], vectors[:, :, 1] = first[block, None], second
            solved = self._solved(
                vectors.reshape(-1, 2, 3, RESOURCES),
                factors[block].reshape(-1, 2, 2),
                unknown[block].ravel(),
            )
            both[block] = solved.reshape(both[block].shape)
        return both[..., 0], both[..., 1]

    def of_set(self, members: Sequence[ServiceDemand]) -> Floats:
        """Returns the ratios of the members of a set of any size."""
        size = len(members)
        factors = np.ones((1, size, size))
        for i, j in permutations(range(size), 2):
            factors[0, i, j] = self._factor(members[i], members[j])
        unknown = np.array([any(one.model is None for one in members)])
        ratios: Floats = self._solved(self._rows(members)[None], factors, unknown)[0]
        return ratios

    def is_measured(self, mine: ModelProfile, other: ModelProfile) -> bool:
        """True if the pair was measured at some batches."""
        return self._table(mine, other) is not None

    def _solved(self, vectors: Floats, factors: Floats, unknown: Bools) -> Floats:
        """Returns the ratios [sets, members] of vectors [sets, members, 3, resources].

        `factors` [sets, members, members] are 1 where nothing was measured.
        """
        stages, held, weight = vectors[:, :, 0], vectors[:, :, 1], vectors[:, :, 2]
        size = vectors.shape[1]
        measured = (factors != 1.0).any(axis=(1, 2))
        # Whoever measured a pair measured its host too.
        capacity = np.where(measured[:, None, None], ROOMY_HOST, self._capacity)
        corrections = np.zeros((*factors.shape, RESOURCES))
        corrections[..., GPU] = factors - 1.0
        ratios = slowdowns(stages, held, weight, capacity, corrections if measured.any() else None)
        median = 1.0 + (size - 1) * (self._known.median_ratio - 1.0)
        return np.where(unknown[:, None], median, ratios)

    def _pair_factors(
        self, mine: Sequence[ServiceDemand], others: Sequence[ServiceDemand]
    ) -> tuple[Floats, Bools]:
        """Returns the factors [mine, others, 2, 2], and in which pairs a model is not known."""
        factors = np.ones((len(mine), len(others), 2, 2))
        unknown = np.zeros((len(mine), len(others)), np.bool_)
        others_of = _by_model(others)
        for model, rows in _by_model(mine):
            for other, columns in others_of:
                if model is None or other is None:
                    unknown[np.ix_(rows, columns)] = True
                elif (first := self._table(model, other)) and (second := self._table(other, model)):
                    place = np.ix_(rows, columns)
                    batches = [mine[row].micro_batch for row in rows]
                    beside = [others[column].micro_batch for column in columns]
                    factors[..., 0, 1][place] = first.factors(batches, beside)
                    factors[..., 1, 0][place] = second.factors(beside, batches).T
        return factors, unknown

    def _factor(self, mine: ServiceDemand, other: ServiceDemand) -> float:
        """Returns measured over computed excess of `mine`; 1 where the pair was not measured."""
        if mine.model is None or other.model is None:
            return 1.0
        table = self._table(mine.model, other.model)
        return float(table.factors([mine.micro_batch], [other.micro_batch])[0, 0]) if table else 1.0

    def _rows(self, demands: Sequence[ServiceDemand]) -> Floats:
        return np.array([self._vector(one) for one in demands])

    def _vector(self, demand: ServiceDemand) -> Floats:
        """Returns stages, the parts of them that hold the resource, and weights: [3, resources]."""
        vector = self._vectors.get(demand)
        if vector is None:
            stages = np.array(demand.shares if demand.model else (0.0,) * RESOURCES)
            held, weight = stages.copy(), np.ones(RESOURCES)
            held[GPU] *= self._law.fill(demand.load)
            weight[GPU] = self._law.weight(demand.load)
            vector = self._vectors[demand] = np.array([stages, held, weight])
        return vector

    def _table(self, mine: ModelProfile, other: ModelProfile) -> MeasuredPair | None:
        key = (mine, other)
        if key not in self._tables:
            sides = self._sides.get((mine.full_name, other.full_name)) or self._sides.get(
                (self._measured_as(mine), self._measured_as(other))
            )
            self._tables[key] = (
                MeasuredPair(sides, self._excess(mine, other, sides)) if sides else None
            )
        return self._tables[key]

    def _excess(
        self, mine: ModelProfile, other: ModelProfile, measured: Iterable[Measured]
    ) -> list[float]:
        """Returns the excess over 1 by the law, on one GPU each and with a roomy host."""
        vectors = np.array(
            [
                [self._vector(on_one_gpu(*one)) for one in ((mine, batch), (other, beside))]
                for batch, beside, _ in measured
            ]
        )
        stages, held, weight = vectors.transpose(2, 0, 1, 3)
        law = slowdowns(stages, held, weight, ROOMY_HOST)[:, 0]
        excess: list[float] = np.maximum(LEAST, law - 1.0).tolist()
        return excess

    def _measured_as(self, profile: ModelProfile) -> str:
        name = self._known.measured_as.get(profile.full_name)
        return name.value if name else ""


def _by_model(demands: Sequence[ServiceDemand]) -> list[tuple[ModelProfile | None, list[int]]]:
    """Returns the places of each model."""
    places: dict[int, tuple[ModelProfile | None, list[int]]] = {}
    for place, demand in enumerate(demands):
        places.setdefault(id(demand.model), (demand.model, []))[1].append(place)
    return list(places.values())


def parse_interference(text: str | float, sets: Iterable[ProfileSet] = ()) -> Interference:
    """Returns the interference of `measured`, `measured,host:CAPACITY`, or a ratio for all.

    Raises InputError.
    """
    word, comma, rest = str(text).partition(",")
    if word == MEASURED:
        return MeasuredInterference(sets, host_capacity=_host_capacity(rest) if comma else 0.0)
    try:
        xi = float(text)
    except ValueError:
        raise InputError(
            "--interference",
            f"unknown '{text}'",
            f"'{MEASURED}', '{MEASURED},host:1', or a ratio of at least 1",
        ) from None
    return Injected(xi)


def _host_capacity(text: str) -> float:
    key, _, value = text.partition(":")
    try:
        capacity = float(value) if key == "host" else 0.0
    except ValueError:
        capacity = 0.0
    if not capacity >= 1.0:
        raise InputError(
            "--interference",
            f"unknown '{text}'",
            "host:CAPACITY, the jobs that a GPU's share of the host feeds, at least 1",
        )
    return capacity

"""What was measured of jobs while they trained, by model: smoothed, and stored as text.

A value counts from its third reading on: the median of the last fifteen. It is updated only when
that median has moved by more than 5 %, so that noise moves no job. Jobs of one model learn
from each other, as recurring jobs do in Muri (section 5) and CoDDL (AFS section 4.5). Rates are
kept apart by the number of nodes: a network between them may be slower than was believed.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from dovetail.core.errors import InputError

WINDOW = 15
LEAST = 3
NEWS = 0.05
FORMAT = 1


class MeasurementKey(NamedTuple):
    """Jobs that learn from each other: a model (or recurrence) and a global batch.

    `own` marks a job of no known model, which can learn from itself alone.
    """

    name: str
    batch: int = 0
    own: bool = False


class PairKey(NamedTuple):
    """One model beside another on the same GPUs, each with its accumulation steps."""

    mine: MeasurementKey
    steps: int
    other: MeasurementKey
    other_steps: int


class Smoothed:
    """The median of the last readings, updated when it has moved."""

    __slots__ = ("_window", "value")

    def __init__(self, value: float = 0.0) -> None:
        self.value = value
        self._window: deque[float] = deque([value] * LEAST if value else [], maxlen=WINDOW)

    def add(self, value: float) -> bool:
        """Adds a reading; returns whether the value changed."""
        self._window.append(value)
        if len(self._window) < LEAST:
            return False
        now = median(self._window)
        if abs(now - self.value) <= NEWS * self.value:
            return False
        self.value = now
        return True


class Measurements:
    """All that is known from measurement. Rates are samples a second, alone and well placed.

    A rate on more nodes than necessary is kept as if well placed, as far as the prior knows what
    that makes. What it differs from the one on the fewest nodes is what the prior did not know.
    """

    def __init__(self) -> None:
        self._rates: dict[MeasurementKey, dict[tuple[int, int], Smoothed]] = {}
        self._ratios: dict[
            tuple[MeasurementKey, MeasurementKey], dict[tuple[int, int], Smoothed]
        ] = {}
        self._bytes: dict[MeasurementKey, dict[int, float]] = {}
        self._least: dict[MeasurementKey, dict[int, float]] = {}
        self._stages: dict[tuple[MeasurementKey, int], tuple[Smoothed, ...]] = {}
        self._batch: dict[MeasurementKey, int] = {}

    def rates(self, key: MeasurementKey) -> dict[int, float]:
        """Returns the samples a second at the GPU counts that were measured, on fewest nodes."""
        known: dict[int, float] = {}
        for (gpus, _), rate in self._placed_rates(key):
            known.setdefault(gpus, rate)
        return known

    def spread(self, key: MeasurementKey, gpus: int, nodes: int) -> float:
        """Returns the speed on so many nodes over that on the fewest, beyond the prior; at most 1.

        Where so many nodes were not measured it is that of fewer: 1 if there are none.
        """
        rates = [rate for (n, on), rate in self._placed_rates(key) if n == gpus and on <= nodes]
        return min(1.0, rates[-1] / rates[0]) if rates else 1.0

    def _placed_rates(self, key: MeasurementKey) -> list[tuple[tuple[int, int], float]]:
        """Returns the rates by GPUs and nodes, in that order."""
        cells = self._rates.get(key, {})
        return [(at, cell.value) for at, cell in sorted(cells.items()) if cell.value]

    def ratios(self, mine: MeasurementKey, other: MeasurementKey) -> dict[tuple[int, int], float]:
        """Returns shared over alone iteration time of `mine` by the accumulation steps of both."""
        cells = self._ratios.get((mine, other), {})
        return {steps: cell.value for steps, cell in sorted(cells.items()) if cell.value}

    def met(self, one: MeasurementKey, other: MeasurementKey) -> bool:
        """True if the two may have been measured beside each other."""
        return (one, other) in self._ratios or (other, one) in self._ratios

    def held_bytes(self, key: MeasurementKey) -> Mapping[int, float]:
        """Returns the most a worker held, by the number of parts that a batch was cut into.

        Parts are GPUs times accumulation steps.
        """
        return self._bytes.get(key, {})

    def least_bytes(self, key: MeasurementKey, parts: int) -> float:
        """Returns the lower bound of the memory of a worker, from `lacked_bytes`.

        A bound for smaller parts of a batch also holds for larger ones.
        """
        return max((b for n, b in self._least.get(key, {}).items() if n >= parts), default=0.0)

    def stage_s(self, key: MeasurementKey, gpus: int) -> tuple[float, ...]:
        """Returns storage, CPU, GPU and network seconds and the iteration's; empty if unknown."""
        seconds = tuple(cell.value for cell in self._stages.get((key, gpus), ()))
        return seconds if any(seconds) else ()

    def batch(self, key: MeasurementKey) -> int:
        """Returns the samples of an iteration; 0 if not known."""
        return key.batch or self._batch.get(key, 0)

    def rated(self) -> list[MeasurementKey]:
        """Returns the keys whose rates are known, in order of name."""
        return sorted(key for key in self._rates if self.rates(key))

    def staged(self) -> list[MeasurementKey]:
        """Returns the keys whose stages are known."""
        return sorted({key for key, _ in self._stages})

    def pairs(self) -> list[tuple[MeasurementKey, MeasurementKey]]:
        """Returns the pairs of keys that were measured beside each other."""
        return sorted(pair for pair in self._ratios if self.ratios(*pair))

    def saw_rate(self, key: MeasurementKey, gpus: int, rate: float, nodes: int = 1) -> bool:
        """Adds a rate alone; returns whether a value changed, as the following do."""
        return self._rates.setdefault(key, {}).setdefault((gpus, nodes), Smoothed()).add(rate)

    def saw_ratio(self, pair: PairKey, ratio: float) -> bool:
        """Adds a slowdown beside a neighbour."""
        cells = self._ratios.setdefault((pair.mine, pair.other), {})
        return cells.setdefault((pair.steps, pair.other_steps), Smoothed()).add(ratio)

    def saw_bytes(self, key: MeasurementKey, parts: int, held: float) -> bool:
        """Adds the memory of a worker; the largest value counts."""
        cells = self._bytes.setdefault(key, {})
        # The maximum and not a median: too low a footprint ends in a job out of memory.
        if held <= cells.get(parts, 0.0) * (1 + NEWS):
            return False
        cells[parts] = float(held)
        return True

    def lacked_bytes(self, key: MeasurementKey, parts: int, least: float) -> bool:
        """Adds a lower bound of the memory of a worker that ran out of it; the largest counts."""
        if least <= self.least_bytes(key, parts):
            return False
        self._least.setdefault(key, {})[parts] = float(least)
        return True

    def saw_stages(
        self, key: MeasurementKey, gpus: int, stage_s: Sequence[float], iteration_s: float
    ) -> bool:
        """Adds the seconds of an iteration by resource."""
        row = (*stage_s, iteration_s)
        cells = self._stages.setdefault((key, gpus), tuple(Smoothed() for _ in row))
        changed = [cell.add(value) for cell, value in zip(cells, row, strict=True)]
        return any(changed)

    def saw_batch(self, key: MeasurementKey, samples: int) -> None:
        """Sets the samples of an iteration."""
        self._batch[key] = samples

    def forget(self, key: MeasurementKey) -> None:
        """Drops the measurements of one job."""
        self._rates.pop(key, None)
        self._bytes.pop(key, None)
        self._least.pop(key, None)
        self._batch.pop(key, None)
        for pair in [pair for pair in self._ratios if key in pair]:
            del self._ratios[pair]
        for at in [at for at in self._stages if at[0] == key]:
            del self._stages[at]

    def dump(self) -> str:
        """Returns the measurements of models, as text that `load` reads."""
        document = {"format": FORMAT, "rows": [list(row) for row in self._rows()]}
        return json.dumps(document, separators=(",", ":"))

    def _rows(self) -> Iterator[tuple[object, ...]]:
        yield from self._rate_rows()
        for kind, table in (("bytes", self._bytes), ("least", self._least)):
            for key in sorted(k for k in table if not k.own):
                yield from ((kind, *key[:2], p, b) for p, b in sorted(table[key].items()))
        for key in sorted(k for k in self._batch if not k.own):
            yield ("batch", *key[:2], 0, self._batch[key])
        yield from self._ratio_rows()
        for key, gpus in sorted(self._stages):
            if not key.own and (row := self.stage_s(key, gpus)):
                yield ("stages", *key[:2], gpus, 0.0, *row)

    def _rate_rows(self) -> Iterator[tuple[object, ...]]:
        for key in sorted(key for key in self._rates if not key.own):
            for (gpus, nodes), rate in self._placed_rates(key):
                on_nodes = (nodes,) if nodes > 1 else ()
                yield ("rate", *key[:2], gpus, rate, *on_nodes)

    def _ratio_rows(self) -> Iterator[tuple[object, ...]]:
        for mine, other in self.pairs():
            if not (mine.own or other.own):
                for (steps, others), ratio in self.ratios(mine, other).items():
                    yield ("ratio", *mine[:2], steps, ratio, *other[:2], others)

    @staticmethod
    def load(text: str) -> Measurements:
        """Returns what `dump` wrote; nothing for an empty text. Raises InputError."""
        measurements = Measurements()
        if not text:
            return measurements
        try:
            document = json.loads(text)
            if document["format"] != FORMAT:
                raise ValueError(f"format {document['format']} is not {FORMAT}")
            for row in document["rows"]:
                measurements._restore(*row)
        except (ValueError, KeyError, TypeError) as error:
            raise InputError("what was measured", f"cannot be read: {error}") from None
        return measurements

    def _restore(
        self, kind: str, name: str, batch: int, at: int, value: float, *more: object
    ) -> None:
        key = MeasurementKey(str(name), int(batch))
        match kind:
            case "rate":
                (nodes,) = more or (1,)
                self._rates.setdefault(key, {})[at, int(str(nodes))] = Smoothed(float(value))
            case "bytes":
                self._bytes.setdefault(key, {})[at] = float(value)
            case "least":
                self._least.setdefault(key, {})[at] = float(value)
            case "batch":
                self._batch[key] = int(value)
            case "ratio":
                other, other_batch, steps = more
                pair = key, MeasurementKey(str(other), int(str(other_batch)))
                cells = self._ratios.setdefault(pair, {})
                cells[at, int(str(steps))] = Smoothed(float(value))
            case "stages":
                row = tuple(Smoothed(float(str(s))) for s in more)
                self._stages[key, at] = row
            case _:
                raise ValueError(f"'{kind}' is not known")

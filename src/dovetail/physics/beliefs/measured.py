"""A belief that was mended by what was measured while jobs trained.

Where a model's throughput was measured it is as measured; elsewhere it is overestimated first and
re-adjusted later (`physics.mending`). Interference, memory and stages are as measured, or the
guess. What is believed is fixed: when something is learned another belief takes its place
(`physics.learning`), so whatever was reckoned from the older one can be known to be old.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import product

import numpy as np

from dovetail.core.beliefs import BestBatches, Interleaving, Neighbour, Physics, Side, WorkerTime
from dovetail.core.growth import Growing
from dovetail.core.job import Floats, Ints, JobTable, PipelineStage
from dovetail.core.placement import Placement
from dovetail.physics.beliefs.learning_groups import Subjects
from dovetail.physics.beliefs.measurements import Key, Lessons
from dovetail.physics.beliefs.rescaling import mended
from dovetail.physics.memory import interleaved_bytes

SAME = 0.005
"""Measured within half a percent of what was believed, nothing is decided anew."""


class MeasuredPhysics:
    """What is believed at one moment; when something new is learned another one takes its place."""

    def __init__(
        self,
        prior: Physics,
        jobs: JobTable,
        lessons: Lessons,
        subjects: Subjects,
        trusted: Collection[str] | None = (),
    ) -> None:
        self._prior, self._jobs, self._lessons, self._subjects = prior, jobs, lessons, subjects
        self._trusted = trusted
        self._tables: dict[int, Growing[np.float64]] = {}
        self._rates: dict[int, Floats] = {}
        self._rows: dict[int, Floats] = {}
        self._interleaving: Interleaving | None = None

    def admit(self, jobs: JobTable) -> None:
        """Takes note of rows appended to the table."""
        self._prior.admit(jobs)
        first = len(self._subjects.example)
        self._subjects.admit(jobs)
        self._interleaving = None
        for width, table in self._tables.items():
            self._rates[width] = _sealed(table.extend(self._table(width, first)))

    @property
    def kind_of(self) -> Ints:
        """Returns the kind of each job: that of the guess, its model and its batch."""
        return self._subjects.kind_of

    def speed(
        self,
        job: int,
        placement: Placement,
        neighbours: Sequence[Neighbour],
        done_s: float = 0.0,
    ) -> float:
        """Returns the believed solo seconds of progress per second."""
        factor = self._factor(job, placement.gpus)
        guess = self._prior.speed(job, placement, neighbours, done_s) * factor
        if not neighbours or not all(is_plain(p) for p in (placement, *(p for _, p in neighbours))):
            return guess
        ratios = [self._beside(job, placement, *neighbour) for neighbour in neighbours]
        if not any(ratios):
            return guess
        alone = self._prior.speed(job, placement, (), done_s) * factor
        slowest = alone / max(ratios)
        return slowest if all(ratios) else min(guess, slowest)

    def phase_end_s(self, job: int, done_s: float) -> float:
        """Returns the guess: what changes with the batch is not measured."""
        return self._prior.phase_end_s(job, done_s)

    def best_batches(self, job: int, done_s: float, max_gpus: int) -> BestBatches:
        """Returns the guessed batches with mended speeds."""
        guess = self._prior.best_batches(job, done_s, max_gpus)
        factor = [self._factor(job, n) for n in range(max_gpus + 1)]
        return guess._replace(speed=guess.speed * np.array(factor)).sealed()

    def scale(self, job: int) -> float:
        """Returns the throughput on the requested GPUs over that on one."""
        return self._prior.scale(job) / self._factor(job, 1)

    def rates(self, max_gpus: int) -> Floats:
        """Returns the speeds of each kind; measured ones where they are known."""
        if max_gpus not in self._rates:
            self._tables[max_gpus] = table = Growing(self._table(max_gpus, 0))
            self._rates[max_gpus] = _sealed(table.rows)
        return self._rates[max_gpus]

    def accumulated(self, job: int, steps: int) -> float:
        """Returns the guess."""
        return self._prior.accumulated(job, steps)

    def most_steps(self, job: int) -> int:
        """Returns the guess, or by the batch that was reported where there is none."""
        guess = self._prior.most_steps(job)
        batch = self._lessons.batch(self._subjects.key_of[job])
        return guess if guess > 1 or not batch else max(1, batch // int(self._jobs.gpus[job]))

    def interference(
        self, job: int, steps: int, other: int, other_steps: int
    ) -> tuple[float, float]:
        """Returns the ratios as measured, or the guess.

        A side that was never measured is not believed to be slowed less than the other one was,
        unless the guess of both is trusted: that stands until something else is measured.
        """
        guess = self._prior.interference(job, steps, other, other_steps)
        mine = self._ratio(job, steps, other, other_steps)
        theirs = self._ratio(other, other_steps, job, steps)
        if self._trusts(job) and self._trusts(other):
            return _news(mine, guess[0]), _news(theirs, guess[1])
        return mine or max(guess[0], theirs), theirs or max(guess[1], mine)

    def interferences(self, sides: Sequence[Side], others: Sequence[Side]) -> tuple[Floats, Floats]:
        """Returns the guess for all pairs but those of which either side was measured."""
        mine, theirs = (a.copy() for a in self._prior.interferences(sides, others))
        key_of, met = self._subjects.key_of, self._lessons.met
        for key, rows in _by_key(key_of, sides).items():
            for other, columns in _by_key(key_of, others).items():
                if not met(key, other):
                    continue
                for row, column in product(rows, columns):
                    ratios = self.interference(*sides[row], *others[column])
                    mine[row, column], theirs[row, column] = ratios
        return mine, theirs

    def footprint_bytes(self, job: int, steps: int) -> float:
        """Returns what a job as requested holds on each GPU."""
        guess = self._prior.footprint_bytes(job, steps)
        return self._held(job, int(self._jobs.gpus[job]) * steps, guess)

    def held_bytes(self, job: int, placement: Placement) -> float:
        """Returns what a job holds on each GPU of a placement."""
        guess = self._prior.held_bytes(job, placement)
        return self._held(job, self.parts(job, placement), guess)

    def parts(self, job: int, placement: Placement) -> int:
        """Returns into how many parts the batch of a job is cut as placed, by the largest part."""
        if placement.samples:
            parts = self.batch(job) * placement.accumulation_steps // max(placement.samples)
            return max(1, parts)
        return placement.gpus * placement.accumulation_steps

    def fixed_bytes(self, job: int) -> float:
        """Returns the guess, or the least that was ever held: the fixed part is not more."""
        held = self._lessons.held_bytes(self._subjects.key_of[job])
        return self._prior.fixed_bytes(job) or min(held.values(), default=0.0)

    def fits_memory(self, occupants: Sequence[Neighbour], gpu_memory_bytes: float) -> bool:
        """Tells whether the believed footprints fit together."""
        held = [self.held_bytes(j, p) for j, p in occupants]
        if len(occupants) > 1 and all(p.interleave for _, p in occupants):
            fixed = (self.fixed_bytes(j) for j, _ in occupants)
            return interleaved_bytes(zip(fixed, held, strict=True)) <= gpu_memory_bytes
        return sum(held) <= gpu_memory_bytes

    @property
    def interleaving(self) -> Interleaving:
        """Returns stages and iterations as measured on the requested GPUs, else the guess."""
        if self._interleaving is None:
            guess, examples = self._prior.interleaving, self._subjects.example
            rows = self._prior.kind_of[examples]
            stage_s, iteration_s = guess.stage_s[rows].copy(), guess.iteration_s[rows].copy()
            for kind in self._learned(self._lessons.staged()):
                if measured := self._stages(examples[kind]):
                    stage_s[kind], iteration_s[kind] = measured[:-1], measured[-1]
            for array in (stage_s, iteration_s):
                array.setflags(write=False)
            self._interleaving = guess._replace(stage_s=stage_s, iteration_s=iteration_s)
        return self._interleaving

    def utilization(self, job: int) -> float:
        """Returns the measured share of the GPU in an iteration, else the guess."""
        if measured := self._stages(job):
            *_, gpu_s, _, iteration_s = measured
            if iteration_s > 0:
                return min(1.0, gpu_s / iteration_s)
        return self._prior.utilization(job)

    def workers(
        self, job: int, placement: Placement, neighbours: Sequence[Neighbour]
    ) -> tuple[WorkerTime, ...]:
        """Returns the guess."""
        return self._prior.workers(job, placement, neighbours)

    def batch(self, job: int) -> int:
        """Returns the samples of an iteration as requested, or as reported."""
        return self._prior.batch(job) or self._lessons.batch(self._subjects.key_of[job])

    def graph(self, job: int) -> tuple[PipelineStage, ...]:
        """Returns the graph of the guess."""
        return self._prior.graph(job)

    def top_speed(self, job: int, gpus: int) -> float:
        """Returns the guess, mended as measured."""
        return self._prior.top_speed(job, gpus) * self._factor(job, gpus)

    def spread_speed(self, job: int) -> float:
        """Returns the guess."""
        return self._prior.spread_speed(job)

    def throughput(self, job: int, gpus: int) -> float:
        """Returns the believed samples a second alone and well placed; 0 if none was measured."""
        measured = self._lessons.rates(self._subjects.key_of[job])
        if not measured:
            return 0.0
        return float(self._curve(job, measured, max(gpus, *measured))[gpus])

    def _table(self, width: int, first: int) -> Floats:
        """Returns the speeds of the kinds from `first` on."""
        examples = self._subjects.example[first:]
        table = self._prior.rates(width)[self._prior.kind_of[examples]]
        # New kinds are few, whoever was measured may be many; all anew it is the other way round.
        new = range(first, len(self._subjects.example))
        for kind in new if first else self._learned(self._lessons.rated()):
            table[kind - first] *= self.factors(self._subjects.example[kind], width)
        return table

    def _learned(self, keys: Iterable[Key]) -> Iterator[int]:
        """Yields the kinds that something was learned of."""
        for key in keys:
            yield from self._subjects.of_key.get(key, ())

    def _factor(self, job: int, gpus: int) -> float:
        return float(self.factors(job, gpus)[gpus])

    def factors(self, job: int, width: int) -> Floats:
        """Returns believed over guessed speed alone on 0 to `width` GPUs, of a job's kind."""
        kind = int(self._subjects.kind_of[job])
        row = self._rows.get(kind)
        if row is None or len(row) <= width:
            row = self._rows[kind] = self._reckoned(job, width)
        return row[: width + 1]

    def _reckoned(self, job: int, width: int) -> Floats:
        measured = self._lessons.rates(self._subjects.key_of[job])
        if not measured:
            return np.ones(width + 1)
        requested = int(self._jobs.gpus[job])
        whole = max(width, requested, *measured)
        curve, guess = self._curve(job, measured, whole), self._guess(job, whole)
        factors = np.ones(whole + 1)
        np.divide(curve / curve[requested], guess, out=factors, where=guess > 0)
        as_guessed = self._trusts(job) and not any(differs(f, 1.0) for f in factors.tolist())
        return np.ones(whole + 1) if as_guessed else factors

    def _curve(self, job: int, measured: Mapping[int, float], width: int) -> Floats:
        return mended(self._guess(job, width), measured, trusted=self._trusts(job))

    def _trusts(self, job: int) -> bool:
        """Tells whether the guess of a job's model was measured by somebody."""
        return self._trusted is None or self._jobs.model.text(job) in self._trusted

    def _guess(self, job: int, width: int) -> Floats:
        row: Floats = self._prior.rates(width)[int(self._prior.kind_of[job])]
        return row

    def _beside(self, job: int, placement: Placement, other: int, there: Placement) -> float:
        """Returns the ratio beside another if either side was measured, else 0."""
        steps, other_steps = placement.accumulation_steps, there.accumulation_steps
        if not any(
            self._ratio(*sides)
            for sides in ((job, steps, other, other_steps), (other, other_steps, job, steps))
        ):
            return 0.0
        return self.interference(job, steps, other, other_steps)[0]

    def _ratio(self, job: int, steps: int, other: int, other_steps: int) -> float:
        """Returns the measured ratio beside another, 0 if there is none.

        In other accumulation steps than were measured the excess changes as guessed.
        """
        key_of = self._subjects.key_of
        measured = self._lessons.ratios(key_of[job], key_of[other])
        if not measured:
            return 0.0
        wanted = (steps, other_steps)
        if wanted in measured:
            return measured[wanted]
        nearest = min(measured, key=lambda at: (_apart(at, wanted), at))
        then = self._prior.interference(job, nearest[0], other, nearest[1])[0] - 1.0
        now = self._prior.interference(job, steps, other, other_steps)[0] - 1.0
        return 1.0 + (measured[nearest] - 1.0) * (now / then if then > 0 else 1.0)

    def _held(self, job: int, parts: int, guess: float) -> float:
        """Returns what a worker holds with a batch cut into so many parts.

        As measured, or as with the next larger part, or grown in proportion to the part; more
        than was left to it where that was not enough.
        """
        key = self._subjects.key_of[job]
        measured, least = self._lessons.held_bytes(key), self._lessons.least_bytes(key, parts)
        if not measured:
            return max(guess, least)
        larger = [n for n in measured if n <= parts]
        if larger:
            return max(measured[max(larger)], least)
        most = min(measured)
        return max(guess, measured[most] * most / parts, least)

    def _stages(self, job: int) -> tuple[float, ...]:
        return self._lessons.stage_s(self._subjects.key_of[job], int(self._jobs.gpus[job]))


def is_plain(placement: Placement) -> bool:
    """Tells whether nothing but neighbours slows a job: no limits, uneven samples, or turns."""
    return not (placement.fractions or placement.samples or placement.interleave)


def differs(value: float, other: float) -> bool:
    """Tells whether a value is another one; what is told was smoothed before."""
    return abs(value - other) > SAME * max(abs(value), abs(other))


def _news(measured: float, guess: float) -> float:
    """Returns what was measured, if anything was and it is not what was guessed."""
    return measured if measured and differs(measured, guess) else guess


def _sealed(rows: Floats) -> Floats:
    rows.setflags(write=False)
    return rows


def _by_key(key_of: Sequence[Key], sides: Sequence[Side]) -> dict[Key, list[int]]:
    """Returns the places of sides that learn from each other."""
    places: dict[Key, list[int]] = {}
    for place, (job, _) in enumerate(sides):
        places.setdefault(key_of[job], []).append(place)
    return places


def _apart(one: tuple[int, int], other: tuple[int, int]) -> float:
    return float(sum(abs(np.log2(a / b)) for a, b in zip(one, other, strict=True)))

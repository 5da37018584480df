"""A belief that learns: another physics, mended by what was measured while jobs trained.

Where a model's throughput was measured it is as measured. Where it was not it is overestimated
first and re-adjusted later (CoDDL, AFS section 4.5): linear from the largest measured number of
GPUs on, and between and below measured numbers as much as a job could reach that never gains
more than in proportion and never gets slower with more GPUs. Whoever shares out GPUs by this
belief so tries what looks good and is told what it is worth. Only models whose guess was measured
on the same machines (`trusted`) keep the guess's shape.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np

from dovetail.core.beliefs import BestBatches, Interleaving, Neighbour, Physics, WorkerTime
from dovetail.core.growth import Growing
from dovetail.core.job import Floats, Ints, JobTable, PipelineStage
from dovetail.core.placement import Placement
from dovetail.core.reading import Reading
from dovetail.physics.lessons import Company, Key, Lessons
from dovetail.physics.memory import interleaved_bytes


def mended(guess: Floats, measured: Mapping[int, float], *, trusted: bool) -> Floats:
    """Returns the throughput on 0, 1, ... GPUs: as measured, overestimated where it was not.

    `guess` is a throughput in any unit, by GPUs; with `trusted` its shape is kept.
    """
    counts = np.arange(len(guess))
    known = np.array(sorted(measured), np.int64)
    told = np.array([measured[n] for n in known.tolist()])
    if trusted:
        factor = np.interp(counts, known, told / guess[known])
        found: Floats = guess * factor
    else:
        above = np.minimum(np.searchsorted(known, counts), len(known) - 1)
        below = np.maximum(np.searchsorted(known, counts, side="right") - 1, 0)
        in_proportion = np.where(counts >= known[0], told[below] * counts / known[below], told[0])
        ceiling = np.where(counts <= known[-1], np.maximum(told[above], told[below]), np.inf)
        found = np.minimum(in_proportion, ceiling)
    found[known] = told
    found[0] = 0.0
    return found


class Kinds:
    """Jobs alike in the guess and in what they can learn from; numbers are never changed."""

    def __init__(self, prior: Physics, jobs: JobTable, paced: bool = False) -> None:
        self._prior, self._paced = prior, paced
        self.key_of: list[Key] = []
        self.example: list[int] = []
        self.of_key: dict[Key, list[int]] = {}
        self._number: dict[tuple[int, Key], int] = {}
        self._kind_of: Growing[np.int64] = Growing(np.empty(0, np.int64))
        self.admit(jobs)

    @property
    def kind_of(self) -> Ints:
        """Returns the kind of each job."""
        return self._kind_of.rows

    def admit(self, jobs: JobTable) -> None:
        """Numbers the rows that were appended."""
        first, kinds = len(self.key_of), []
        for job in range(first, len(jobs)):
            key = _key(jobs, job, self._paced)
            self.key_of.append(key)
            at = (int(self._prior.kind_of[job]), key)
            if at not in self._number:
                self._number[at] = len(self.example)
                self.of_key.setdefault(key, []).append(len(self.example))
                self.example.append(job)
            kinds.append(self._number[at])
        self._kind_of.extend(np.array(kinds, np.int64))


def _key(jobs: JobTable, job: int, paced: bool) -> Key:
    """Returns what a job learns from: its model, else its recurrence, else itself."""
    batch = int(jobs.batch_size[job])
    model, recurrence = jobs.model.text(job), jobs.recurrence.text(job)
    name = model or (f"~{recurrence}" if recurrence else "")
    if not name:
        return Key(jobs.job_id[job], batch, own=True)
    return Key(f"{name}@{int(jobs.gpus[job])}" if paced else name, batch)


class MeasuredPhysics:
    """What is believed at one moment; when something new is learned another one takes its place."""

    def __init__(
        self,
        prior: Physics,
        jobs: JobTable,
        lessons: Lessons,
        kinds: Kinds,
        trusted: Collection[str] = (),
    ) -> None:
        self._prior, self._jobs, self._lessons, self._kinds = prior, jobs, lessons, kinds
        self._trusted = trusted
        self._tables: dict[int, Growing[np.float64]] = {}
        self._rates: dict[int, Floats] = {}
        self._rows: dict[int, Floats] = {}
        self._interleaving: Interleaving | None = None

    def admit(self, jobs: JobTable) -> None:
        """Takes note of rows appended to the table."""
        self._prior.admit(jobs)
        first = len(self._kinds.example)
        self._kinds.admit(jobs)
        self._interleaving = None
        for width, table in self._tables.items():
            self._rates[width] = _sealed(table.extend(self._table(width, first)))

    @property
    def kind_of(self) -> Ints:
        """Returns the kind of each job: that of the guess, its model and its batch."""
        return self._kinds.kind_of

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
        ratios = [
            self._ratio(job, placement.accumulation_steps, other, there.accumulation_steps)
            for other, there in neighbours
        ]
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
        batch = self._lessons.batch(self._kinds.key_of[job])
        return guess if guess > 1 or not batch else max(1, batch // int(self._jobs.gpus[job]))

    def interference(
        self, job: int, steps: int, other: int, other_steps: int
    ) -> tuple[float, float]:
        """Returns the ratios as measured; the guess on a side that never was."""
        mine, theirs = self._prior.interference(job, steps, other, other_steps)
        return (
            self._ratio(job, steps, other, other_steps) or mine,
            self._ratio(other, other_steps, job, steps) or theirs,
        )

    def footprint_bytes(self, job: int, steps: int) -> float:
        """Returns what a job as requested holds on each GPU."""
        guess = self._prior.footprint_bytes(job, steps)
        return self._held(job, int(self._jobs.gpus[job]) * steps, guess)

    def held_bytes(self, job: int, placement: Placement) -> float:
        """Returns what a job holds on each GPU of a placement."""
        guess = self._prior.held_bytes(job, placement)
        parts = placement.gpus * placement.accumulation_steps
        if placement.samples:
            parts = self.batch(job) * placement.accumulation_steps // max(placement.samples)
        return self._held(job, max(1, parts), guess)

    def fixed_bytes(self, job: int) -> float:
        """Returns the guess, or the least that was ever held: the fixed part is not more."""
        held = self._lessons.held_bytes(self._kinds.key_of[job])
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
            guess, examples = self._prior.interleaving, self._kinds.example
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
        return self._prior.batch(job) or self._lessons.batch(self._kinds.key_of[job])

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
        measured = self._lessons.rates(self._kinds.key_of[job])
        if not measured:
            return 0.0
        return float(self._curve(job, measured, max(gpus, *measured))[gpus])

    def _table(self, width: int, first: int) -> Floats:
        """Returns the speeds of the kinds from `first` on."""
        examples = self._kinds.example[first:]
        table = self._prior.rates(width)[self._prior.kind_of[examples]]
        for kind in self._learned(self._lessons.keys()):
            if kind >= first:
                table[kind - first] *= self._factors(self._kinds.example[kind], width)
        return table

    def _learned(self, keys: Iterable[Key]) -> Iterator[int]:
        """Yields the kinds that something was learned of."""
        for key in keys:
            yield from self._kinds.of_key.get(key, ())

    def _factor(self, job: int, gpus: int) -> float:
        return float(self._factors(job, gpus)[gpus])

    def _factors(self, job: int, width: int) -> Floats:
        """Returns believed over guessed speed on 0 to `width` GPUs, of a job's kind."""
        kind = int(self._kinds.kind_of[job])
        row = self._rows.get(kind)
        if row is None or len(row) <= width:
            row = self._rows[kind] = self._reckoned(job, width)
        return row[: width + 1]

    def _reckoned(self, job: int, width: int) -> Floats:
        measured = self._lessons.rates(self._kinds.key_of[job])
        if not measured:
            return np.ones(width + 1)
        requested = int(self._jobs.gpus[job])
        whole = max(width, requested, *measured)
        curve, guess = self._curve(job, measured, whole), self._guess(job, whole)
        factors = np.ones(whole + 1)
        np.divide(curve / curve[requested], guess, out=factors, where=guess > 0)
        return factors

    def _curve(self, job: int, measured: Mapping[int, float], width: int) -> Floats:
        trusted = self._jobs.model.text(job) in self._trusted
        return mended(self._guess(job, width), measured, trusted=trusted)

    def _guess(self, job: int, width: int) -> Floats:
        row: Floats = self._prior.rates(width)[int(self._prior.kind_of[job])]
        return row

    def _ratio(self, job: int, steps: int, other: int, other_steps: int) -> float:
        """Returns the measured ratio beside another, 0 if there is none.

        In other accumulation steps than were measured the excess changes as guessed.
        """
        key_of = self._kinds.key_of
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

        As measured, or as with the next larger part, or grown in proportion to the part.
        """
        measured = self._lessons.held_bytes(self._kinds.key_of[job])
        if not measured:
            return guess
        larger = [n for n in measured if n <= parts]
        if larger:
            return measured[max(larger)]
        most = min(measured)
        return max(guess, measured[most] * most / parts)

    def _stages(self, job: int) -> tuple[float, ...]:
        return self._lessons.stage_s(self._kinds.key_of[job], int(self._jobs.gpus[job]))


class Learning:
    """What a cluster learns from its jobs; `physics` is what it believes now.

    `said` is what an earlier one learned. Samples of `paced` jobs are not of their models but of
    their requests (a millisecond alone), so there jobs of other requests are other models.
    """

    def __init__(
        self,
        prior: Physics,
        jobs: JobTable,
        said: str = "",
        trusted: Collection[str] = (),
        *,
        paced: bool = False,
    ) -> None:
        self._prior, self._jobs, self._trusted = prior, jobs, frozenset(trusted)
        self.lessons = Lessons.load(said)
        self._kinds = Kinds(prior, jobs, paced)
        self.physics = self._believed()

    def _believed(self) -> MeasuredPhysics:
        return MeasuredPhysics(self._prior, self._jobs, self.lessons, self._kinds, self._trusted)

    def observe(
        self, job: int, placement: Placement, neighbours: Sequence[Neighbour], reading: Reading
    ) -> bool:
        """Learns from a reading. Returns whether `physics` is another one from now on."""
        key = self._kinds.key_of[job]
        if placement.batch_size or reading.rate <= 0:
            return False
        if reading.batch:
            self.lessons.saw_batch(key, reading.batch)
        news = False
        if reading.memory_bytes and not placement.samples:
            parts = placement.gpus * placement.accumulation_steps
            news = self.lessons.saw_bytes(key, parts, reading.memory_bytes)
        if all(is_plain(p) for p in (placement, *(p for _, p in neighbours))):
            if not neighbours:
                news |= self._alone(job, placement, reading)
            elif len(neighbours) == 1:
                news |= self._beside(job, placement, neighbours[0], reading)
        if news:
            self.physics = self._believed()
        return news

    def solo_rate(self, job: int) -> float:
        """Returns samples a second alone as requested, as far as is known; 0 if nothing is."""
        return self.physics.throughput(job, int(self._jobs.gpus[job]))

    def ratio(self, job: int, steps: int, other: int, other_steps: int) -> float:
        """Returns the measured interference of a job beside another so cut, 0 if there is none."""
        key_of = self._kinds.key_of
        return self.lessons.ratios(key_of[job], key_of[other]).get((steps, other_steps), 0.0)

    def forget(self, job: int) -> None:
        """Drops what only a job that is over could use."""
        key = self._kinds.key_of[job]
        if key.own:
            self.lessons.forget(key)

    def dump(self) -> str:
        """Returns what is known of models, for `said` of a later one."""
        return self.lessons.dump()

    def _alone(self, job: int, placement: Placement, reading: Reading) -> bool:
        key, gpus = self._kinds.key_of[job], placement.gpus
        news = self.lessons.saw_rate(key, gpus, reading.rate / self._placed(job, placement))
        plain = placement.accumulation_steps == 1 and gpus == int(self._jobs.gpus[job])
        if plain and reading.stage_s and reading.iteration_s > 0:
            news |= self.lessons.saw_stages(key, gpus, reading.stage_s, reading.iteration_s)
        return news

    def _beside(
        self, job: int, placement: Placement, neighbour: Neighbour, reading: Reading
    ) -> bool:
        """Learns a ratio, if the rate alone on as many GPUs is known."""
        key_of, (other, there) = self._kinds.key_of, neighbour
        alone = self.lessons.rates(key_of[job]).get(placement.gpus)
        if alone is None:
            return False
        company = Company(
            key_of[job], placement.accumulation_steps, key_of[other], there.accumulation_steps
        )
        ratio = alone * self._placed(job, placement) / reading.rate
        return self.lessons.saw_ratio(company, max(1.0, ratio))

    def _placed(self, job: int, placement: Placement) -> float:
        """Returns the guessed speed of a placement alone over that of the same GPUs well placed."""
        well = float(self._prior.rates(placement.gpus)[self._prior.kind_of[job], placement.gpus])
        return self._prior.speed(job, placement, ()) / well if well > 0 else 1.0


def is_plain(placement: Placement) -> bool:
    """Tells whether nothing but neighbours slows a job: no limits, uneven samples, or turns."""
    return not (placement.fractions or placement.samples or placement.interleave)


def _sealed(rows: Floats) -> Floats:
    rows.setflags(write=False)
    return rows


def _apart(one: tuple[int, int], other: tuple[int, int]) -> float:
    return float(sum(abs(np.log2(a / b)) for a, b in zip(one, other, strict=True)))

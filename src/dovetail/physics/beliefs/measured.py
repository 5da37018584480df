"""A belief corrected by measurements of jobs while they train.

Where a model's throughput was measured it is as measured; elsewhere it is overestimated first and
re-adjusted later (`rescale_curve`). Interference, memory and stages are as measured, or those of
the prior. A belief is fixed: when something is learned another one replaces it (`learning`), so
that results of the older one can be recognised as stale.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from dovetail.core.beliefs import BestBatches, Interleaving, Neighbour, Physics, SizedJob
from dovetail.core.growth import Growing
from dovetail.core.job import Floats, Ints, JobTable
from dovetail.core.placement import Placement
from dovetail.physics.beliefs.learning_groups import LearningGroups
from dovetail.physics.beliefs.measurements import MeasurementKey, Measurements
from dovetail.physics.memory import fit_together

SAME = 0.005
"""A measurement within half a percent of the belief needs no new decision."""


@dataclass(frozen=True, slots=True)
class BeliefBasis:
    """The prior of a belief, its measurements, and the groups of jobs that share them.

    Of `trusted` models (None: of all) the prior keeps its shape where nothing was measured.
    """

    prior: Physics
    jobs: JobTable
    measurements: Measurements
    groups: LearningGroups
    trusted: Collection[str] | None = ()

    def trusts(self, job: int) -> bool:
        """True if the profile of the job's model was measured, not assumed."""
        return self.trusted is None or self.jobs.model[job] in self.trusted

    def kinds(self, keys: Iterable[MeasurementKey]) -> Iterator[int]:
        """Yields the kinds that the keys were measured of."""
        for key in keys:
            yield from self.groups.of_key.get(key, ())

    def stages(self, job: int) -> tuple[float, ...]:
        """Returns the measured stages of a job and its iteration; () if there are none."""
        key = self.groups.key_of[job]
        return self.measurements.stage_s(key, int(self.jobs.gpus[job]))

    def samples(self, job: int) -> int:
        """Returns the samples of an iteration as requested, or as reported; 0 if not known."""
        prior = self.prior.batches.samples(job)
        return prior or self.measurements.batch(self.groups.key_of[job])

    def batch_parts(self, job: int, placement: Placement) -> int:
        """Returns into how many parts the batch of a job is cut as placed, by the largest part."""
        if placement.samples:
            parts = self.samples(job) * placement.accumulation_steps // max(placement.samples)
            return max(1, parts)
        return placement.gpus * placement.accumulation_steps


def measured_physics(basis: BeliefBasis, factors: SpeedFactors) -> Physics:
    """Returns the belief that follows from the measurements so far."""
    return Physics(
        speed=MeasuredSpeed(basis, factors),
        sharing=MeasuredSharing(basis),
        memory=MeasuredMemory(basis),
        batches=MeasuredBatches(basis),
        structure=MeasuredStructure(basis, factors),
    )


class MeasuredStructure:
    """Kinds as fine as measurements are: by the kind of the prior, model and batch."""

    def __init__(self, basis: BeliefBasis, factors: SpeedFactors) -> None:
        self._basis, self._factors = basis, factors
        self.graph = basis.prior.structure.graph

    def admit(self, jobs: JobTable) -> None:
        """Adds the rows appended to the job table."""
        self._basis.prior.structure.admit(jobs)
        self._basis.groups.admit(jobs)

    @property
    def kind_of(self) -> Ints:
        """Returns the kind of each job."""
        return self._basis.groups.kind_of

    def scale(self, job: int) -> float:
        """Returns the throughput on the requested GPUs over that on one."""
        return self._basis.prior.structure.scale(job) / self._factors.at(job, 1)


class SpeedFactors:
    """Believed over prior speed alone, by kind and number of GPUs."""

    def __init__(self, basis: BeliefBasis) -> None:
        self._basis = basis
        self._rows: dict[int, Floats] = {}

    def at(self, job: int, gpus: int) -> float:
        """Returns the factor of a job on so many GPUs."""
        return float(self.upto(job, gpus)[gpus])

    def upto(self, job: int, width: int) -> Floats:
        """Returns the factors of a job's kind on 0 to `width` GPUs."""
        kind = int(self._basis.groups.kind_of[job])
        row = self._rows.get(kind)
        if row is None or len(row) <= width:
            row = self._rows[kind] = self._computed(job, width)
        return row[: width + 1]

    def throughput(self, job: int, gpus: int) -> float:
        """Returns the believed samples a second alone and well placed; 0 if none was measured."""
        measured = self._basis.measurements.rates(self._basis.groups.key_of[job])
        if not measured:
            return 0.0
        return float(self._curve(job, measured, max(gpus, *measured))[gpus])

    def _computed(self, job: int, width: int) -> Floats:
        basis = self._basis
        measured = basis.measurements.rates(basis.groups.key_of[job])
        if not measured:
            return np.ones(width + 1)
        requested = int(basis.jobs.gpus[job])
        whole = max(width, requested, *measured)
        curve, guess = self._curve(job, measured, whole), self._guess(job, whole)
        factors = np.ones(whole + 1)
        np.divide(curve / curve[requested], guess, out=factors, where=guess > 0)
        as_guessed = basis.trusts(job) and not any(differs(f, 1.0) for f in factors.tolist())
        return np.ones(whole + 1) if as_guessed else factors

    def _curve(self, job: int, measured: Mapping[int, float], width: int) -> Floats:
        return rescale_curve(self._guess(job, width), measured, trusted=self._basis.trusts(job))

    def _guess(self, job: int, width: int) -> Floats:
        prior = self._basis.prior
        row: Floats = prior.speed.rates(width)[int(prior.kind_of[job])]
        return row


def rescale_curve(guess: Floats, measured: Mapping[int, float], *, trusted: bool) -> Floats:
    """Returns the throughput on 0, 1, ... GPUs: as measured, overestimated where it was not.

    Overestimate first and re-adjust later (CoDDL, AFS section 4.5): a policy that shares out GPUs
    by it tries what looks good and learns what it is worth. Beyond the largest measured number of
    GPUs throughput is taken to be linear; between and below measured numbers it is as much as a
    job can reach that never gains more than in proportion and never gets slower with more GPUs.

    `guess` is a throughput in any unit, by GPUs; with `trusted` its shape is kept, unless it is 0
    where the job ran.
    """
    counts = np.arange(len(guess))
    known = np.array(sorted(measured), np.int64)
    values = np.array([measured[n] for n in known.tolist()])
    if trusted and (guess[known] > 0).all():
        factor = np.interp(counts, known, values / guess[known])
        curve: Floats = guess * factor
    else:
        above = np.minimum(np.searchsorted(known, counts), len(known) - 1)
        below = np.maximum(np.searchsorted(known, counts, side="right") - 1, 0)
        in_proportion = np.where(
            counts >= known[0], values[below] * counts / known[below], values[0]
        )
        ceiling = np.where(counts <= known[-1], np.maximum(values[above], values[below]), np.inf)
        curve = np.minimum(in_proportion, ceiling)
    curve[known] = values
    curve[0] = 0.0
    return curve


class MeasuredSpeed:
    """Prior speeds, corrected where throughput was measured."""

    def __init__(self, basis: BeliefBasis, factors: SpeedFactors) -> None:
        self._basis, self._prior, self._factors = basis, basis.prior.speed, factors
        self._tables: dict[int, Growing[np.float64]] = {}
        self._rates: dict[int, Floats] = {}

    def whole(self, job: int, placement: Placement, done_s: float = 0.0) -> float:
        """Returns the believed speed as placed."""
        factor = self._factors.at(job, placement.gpus)
        factor *= self._spread(job, placement.gpus, placement.nodes)
        return self._prior.whole(job, placement, done_s) * factor

    def spread(self, job: int) -> float:
        """Returns the prior speed with each worker on a node of its own, corrected as measured."""
        gpus = int(self._basis.jobs.gpus[job])
        return self._prior.spread(job) * self._spread(job, gpus, gpus)

    def _spread(self, job: int, gpus: int, nodes: int) -> float:
        """Returns what is lost between nodes beyond what the prior knows: a factor up to 1."""
        if nodes == 1:
            return 1.0
        return self._basis.measurements.spread(self._basis.groups.key_of[job], gpus, nodes)

    def rates(self, max_gpus: int) -> Floats:
        """Returns the speeds of each kind; measured ones where they are known."""
        kinds, rates = len(self._basis.groups.example), self._rates.get(max_gpus)
        if rates is None:
            self._tables[max_gpus] = table = Growing(self._table(max_gpus, 0))
            rates = self._rates[max_gpus] = _sealed(table.rows)
        elif len(rates) < kinds:
            more = self._tables[max_gpus].extend(self._table(max_gpus, len(rates)))
            rates = self._rates[max_gpus] = _sealed(more)
        return rates

    def best_batches(self, job: int, done_s: float, max_gpus: int) -> BestBatches:
        """Returns the prior batches with corrected speeds."""
        guess = self._prior.best_batches(job, done_s, max_gpus)
        factor = [self._factors.at(job, n) for n in range(max_gpus + 1)]
        return guess._replace(speed=guess.speed * np.array(factor)).sealed()

    def top(self, job: int, gpus: int) -> float:
        """Returns the prior top speed, corrected as measured."""
        return self._prior.top(job, gpus) * self._factors.at(job, gpus)

    def _table(self, width: int, first: int) -> Floats:
        """Returns the speeds of the kinds from `first` on."""
        basis, prior = self._basis, self._basis.prior
        examples = basis.groups.example[first:]
        table = prior.speed.rates(width)[prior.kind_of[examples]]
        # New kinds are few and measured ones may be many; for a whole table it is the reverse.
        new = range(first, len(basis.groups.example))
        for kind in new if first else basis.kinds(basis.measurements.rated()):
            table[kind - first] *= self._factors.upto(basis.groups.example[kind], width)
        return table


class MeasuredSharing:
    """Interference, stages and utilisation as measured, or else those of the prior."""

    def __init__(self, basis: BeliefBasis) -> None:
        self._basis, self._prior = basis, basis.prior.sharing
        self._interleaving: Interleaving | None = None

    def slowdown(self, job: int, placement: Placement, neighbours: Sequence[Neighbour]) -> float:
        """Returns the largest measured ratio beside neighbours; the prior where none counts."""
        guess = self._prior.slowdown(job, placement, neighbours)
        if not neighbours or not all(is_plain(p) for p in (placement, *(p for _, p in neighbours))):
            return guess
        ratios = [self._beside(job, placement, *neighbour) for neighbour in neighbours]
        if not any(ratios):
            return guess
        worst = max(ratios) * self._prior.slowdown(job, placement, ())
        return worst if all(ratios) else max(guess, worst)

    def interference(self, mine: SizedJob, other: SizedJob) -> tuple[float, float]:
        """Returns the ratios as measured, or the prior.

        A side that was never measured is not believed to be slowed less than the other one was,
        unless the prior of both is trusted: that stands until something else is measured.
        """
        guess = self._prior.interference(mine, other)
        one, two = self._ratio(mine, other), self._ratio(other, mine)
        if self._basis.trusts(mine.job) and self._basis.trusts(other.job):
            return _unless_confirmed(one, guess[0]), _unless_confirmed(two, guess[1])
        return one or max(guess[0], two), two or max(guess[1], one)

    def interferences(
        self, sides: Sequence[SizedJob], others: Sequence[SizedJob]
    ) -> tuple[Floats, Floats]:
        """Returns the ratios of all pairs: the prior's where neither side was measured."""
        mine, theirs = (a.copy() for a in self._prior.interferences(sides, others))
        key_of, met = self._basis.groups.key_of, self._basis.measurements.met
        for key, rows in _by_key(key_of, sides).items():
            for other, columns in _by_key(key_of, others).items():
                if not met(key, other):
                    continue
                for row, column in product(rows, columns):
                    ratios = self.interference(sides[row], others[column])
                    mine[row, column], theirs[row, column] = ratios
        return mine, theirs

    def set_interference(self, members: Sequence[SizedJob]) -> tuple[float, ...]:
        """Returns the ratios of a pair as measured, and of more jobs those of the prior."""
        if len(members) == 2:
            return self.interference(*members)
        return self._prior.set_interference(members)

    def stages(self, job: int, placement: Placement) -> tuple[tuple[float, ...], float]:
        """Returns stages and iteration as measured where the job has its GPUs, else the prior."""
        as_requested = placement.gpus == int(self._basis.jobs.gpus[job])
        if as_requested and (measured := self._basis.stages(job)):
            return measured[:-1], measured[-1]
        return self._prior.stages(job, placement)

    @property
    def interleaving(self) -> Interleaving:
        """Returns stages and iterations as measured on the requested GPUs, else the prior."""
        basis = self._basis
        examples, known = basis.groups.example, self._interleaving
        if known is None or len(known.iteration_s) < len(examples):
            guess, rows = self._prior.interleaving, basis.prior.kind_of[examples]
            stage_s, iteration_s = guess.stage_s[rows].copy(), guess.iteration_s[rows].copy()
            for kind in basis.kinds(basis.measurements.staged()):
                if measured := basis.stages(examples[kind]):
                    stage_s[kind], iteration_s[kind] = measured[:-1], measured[-1]
            for array in (stage_s, iteration_s):
                array.setflags(write=False)
            known = guess._replace(stage_s=stage_s, iteration_s=iteration_s)
            self._interleaving = known
        return known

    def utilization(self, job: int) -> float:
        """Returns the measured share of the GPU in an iteration, else the prior."""
        if measured := self._basis.stages(job):
            *_, gpu_s, _, iteration_s = measured
            if iteration_s > 0:
                return min(1.0, gpu_s / iteration_s)
        return self._prior.utilization(job)

    def _beside(self, job: int, placement: Placement, other: int, there: Placement) -> float:
        """Returns the ratio beside another if either side was measured, else 0."""
        mine = SizedJob(job, placement.accumulation_steps, placement.gpus)
        theirs = SizedJob(other, there.accumulation_steps, there.gpus)
        if not (self._ratio(mine, theirs) or self._ratio(theirs, mine)):
            return 0.0
        return self.interference(mine, theirs)[0]

    def _ratio(self, mine: SizedJob, other: SizedJob) -> float:
        """Returns the measured ratio beside another, 0 if there is none.

        In other accumulation steps than were measured the excess changes as in the prior.
        """
        key_of = self._basis.groups.key_of
        measured = self._basis.measurements.ratios(key_of[mine.job], key_of[other.job])
        if not measured:
            return 0.0
        wanted = (mine.steps, other.steps)
        if wanted in measured:
            return measured[wanted]
        nearest = min(measured, key=lambda at: (_apart(at, wanted), at))
        sides = (mine._replace(steps=nearest[0]), other._replace(steps=nearest[1]))
        then = self._prior.interference(*sides)[0] - 1.0
        now = self._prior.interference(mine, other)[0] - 1.0
        return 1.0 + (measured[nearest] - 1.0) * (now / then if then > 0 else 1.0)


class MeasuredMemory:
    """Footprints as reported, or else those of the prior."""

    def __init__(self, basis: BeliefBasis) -> None:
        self._basis, self._prior = basis, basis.prior.memory

    def footprint_bytes(self, job: int, steps: int) -> float:
        """Returns the bytes of a job as requested on each GPU."""
        guess = self._prior.footprint_bytes(job, steps)
        return self._held(job, int(self._basis.jobs.gpus[job]) * steps, guess)

    def held_bytes(self, job: int, placement: Placement) -> float:
        """Returns the bytes of a job on each GPU of a placement."""
        guess = self._prior.held_bytes(job, placement)
        return self._held(job, self._basis.batch_parts(job, placement), guess)

    def fixed_bytes(self, job: int) -> float:
        """Returns the prior, or the least that was ever held: the fixed part is not more."""
        held = self._basis.measurements.held_bytes(self._basis.groups.key_of[job])
        return self._prior.fixed_bytes(job) or min(held.values(), default=0.0)

    def fits(self, occupants: Sequence[Neighbour], gpu_memory_bytes: float) -> bool:
        """True if the believed footprints fit together."""
        return fit_together(self, occupants, gpu_memory_bytes)

    def _held(self, job: int, parts: int, guess: float) -> float:
        """Returns the bytes of a worker with a batch cut into so many parts.

        As measured, or as with the next larger part, or grown in proportion to the part; at least
        the bound of a worker that ran out of memory.
        """
        measurements, key = self._basis.measurements, self._basis.groups.key_of[job]
        measured, least = measurements.held_bytes(key), measurements.least_bytes(key, parts)
        if not measured:
            return max(guess, least)
        larger = [n for n in measured if n <= parts]
        if larger:
            return max(measured[max(larger)], least)
        most = min(measured)
        return max(guess, measured[most] * most / parts, least)


class MeasuredBatches:
    """The prior, with the batch that a job reported where the prior knows none."""

    def __init__(self, basis: BeliefBasis) -> None:
        self._basis, self._prior = basis, basis.prior.batches
        self.accumulated, self.workers = self._prior.accumulated, self._prior.workers
        self.phase_end_s, self.samples = self._prior.phase_end_s, basis.samples

    def most_steps(self, job: int) -> int:
        """Returns the prior, or by the reported batch where the prior knows none."""
        guess = self._prior.most_steps(job)
        batch = self._basis.measurements.batch(self._basis.groups.key_of[job])
        gpus = int(self._basis.jobs.gpus[job])
        return guess if guess > 1 or not batch else max(1, batch // gpus)


def is_plain(placement: Placement) -> bool:
    """True if only neighbours slow a job: no limits, uneven samples or interleaving."""
    return not (placement.fractions or placement.samples or placement.interleave)


def differs(value: float, other: float) -> bool:
    """True if two smoothed values are not the same for a decision."""
    return abs(value - other) > SAME * max(abs(value), abs(other))


def _unless_confirmed(measured: float, guess: float) -> float:
    """Returns the measured ratio, or the guess where nothing was measured or it is confirmed."""
    return measured if measured and differs(measured, guess) else guess


def _sealed(rows: Floats) -> Floats:
    rows.setflags(write=False)
    return rows


def _by_key(
    key_of: Sequence[MeasurementKey], sides: Sequence[SizedJob]
) -> dict[MeasurementKey, list[int]]:
    """Returns the places of sides that learn from each other."""
    places: dict[MeasurementKey, list[int]] = {}
    for place, side in enumerate(sides):
        places.setdefault(key_of[side.job], []).append(place)
    return places


def _apart(one: tuple[int, int], other: tuple[int, int]) -> float:
    return float(sum(abs(np.log2(a / b)) for a, b in zip(one, other, strict=True)))

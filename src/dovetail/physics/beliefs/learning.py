"""Updates a belief from the speeds, memory and stages that are measured while jobs train."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import itemgetter

from dovetail.core.beliefs import Neighbour, Physics, SizedJob
from dovetail.core.job import JobTable
from dovetail.core.placement import Placement
from dovetail.core.reading import SpeedMeasurement
from dovetail.physics.beliefs.learning_groups import LearningGroups
from dovetail.physics.beliefs.measured import (
    BeliefBasis,
    SpeedFactors,
    differs,
    is_plain,
    measured_physics,
)
from dovetail.physics.beliefs.measurements import MeasurementKey, Measurements, PairKey


class Learning:
    """The measurements of a cluster's jobs; `physics` is the belief that follows from them now.

    `unsaved` is true if there is more to `dump` than at the last call. `stored` is the dump of an
    earlier controller. A sample of a `paced` job is a millisecond of its request, not of its model,
    so jobs with different requests are different models there. Of `trusted` models (None: of all)
    the prior keeps its shape where nothing was measured.
    """

    def __init__(
        self,
        prior: Physics,
        jobs: JobTable,
        stored: str = "",
        trusted: Collection[str] | None = (),
        *,
        paced: bool = False,
    ) -> None:
        self._prior, self._jobs = prior, jobs
        self.measurements = Measurements.load(stored)
        self._groups = LearningGroups(prior.structure, jobs, paced)
        trusted = None if trusted is None else frozenset(trusted)
        self._basis = BeliefBasis(prior, jobs, self.measurements, self._groups, trusted)
        self._believe()
        self.unsaved = False

    def _believe(self) -> None:
        """Replaces the belief by one from all that is known now."""
        self._factors = SpeedFactors(self._basis)
        self._believed: dict[MeasurementKey, tuple[int, int, list[float]]] = {}
        self.physics = measured_physics(self._basis, self._factors)

    def observe(
        self,
        job: int,
        placement: Placement,
        neighbours: Sequence[Neighbour],
        reading: SpeedMeasurement,
    ) -> bool:
        """Learns from a reading. Returns whether `physics` was replaced.

        It stays where the measurement confirms the belief.
        """
        key = self._groups.key_of[job]
        if placement.batch_size or reading.rate <= 0:
            return False
        if reading.batch:
            self.measurements.saw_batch(key, reading.batch)
        changed = self._holds(job, placement, reading)
        if all(is_plain(p) for p in (placement, *(p for _, p in neighbours))):
            if not neighbours:
                changed |= self._alone(job, placement, reading)
            elif len(neighbours) == 1:
                changed |= self._beside(job, placement, neighbours[0], reading)
        # A new belief makes every table by kind stale and triggers a decision, so there is none for
        # a confirmed value, though the measurement itself is stored.
        if not (changed and self._matters(job)):
            return False
        self._believe()
        return True

    def ran_out(
        self,
        job: int,
        placement: Placement,
        neighbours: Sequence[Neighbour],
        gpu_memory_bytes: float,
    ) -> bool:
        """Learns that a job ran out of memory beside others, with its batch cut as it was.

        From now on it is believed to hold more than the others leave of the GPU, so they no longer
        fit together, nor does the job beside others that hold as much. A neighbour of unknown
        footprint counts as holding an even part. Returns whether they are believed not to fit now.
        """
        even = gpu_memory_bytes / (len(neighbours) + 1)
        others = 0.0
        # Neighbours first: the job is then believed to hold more than all of them leave.
        for other, there in neighbours:
            held = self.physics.memory.held_bytes(other, there)
            if not held:
                self._lacks(other, there, even)
            turns = placement.interleave and there.interleave
            others += self.physics.memory.fixed_bytes(other) if turns else held or even
        self._lacks(job, placement, min(gpu_memory_bytes, gpu_memory_bytes - others + 1.0))
        self._believe()
        together = sorted([(job, placement), *neighbours], key=itemgetter(0))
        return not self.physics.memory.fits(together, gpu_memory_bytes)

    def _lacks(self, job: int, placement: Placement, least: float) -> None:
        key, parts = self._groups.key_of[job], self._basis.batch_parts(job, placement)
        self._note(job, self.measurements.lacked_bytes(key, parts, least))

    def solo_rate(self, job: int) -> float:
        """Returns samples a second alone as requested, as far as is known; 0 if nothing is."""
        return self._factors.throughput(job, int(self._jobs.gpus[job]))

    def ratio(self, job: int, steps: int, other: int, other_steps: int) -> float:
        """Returns the measured interference of a job beside another so cut, 0 if there is none."""
        key_of = self._groups.key_of
        return self.measurements.ratios(key_of[job], key_of[other]).get((steps, other_steps), 0.0)

    def forget(self, job: int) -> None:
        """Drops the measurements that only a job that has ended could use."""
        key = self._groups.key_of[job]
        if key.own:
            self.measurements.forget(key)
            self._believed.pop(key, None)

    def dump(self) -> str:
        """Returns the measurements of models, as the `stored` of a later controller."""
        self.unsaved = False
        return self.measurements.dump()

    def _matters(self, job: int) -> bool:
        """True if measurements of a job may change a plan.

        A job of no known model, with fixed GPUs of its own, changes no plan. There may be thousands
        of such jobs, and each would trigger a decision.
        """
        known = not self._groups.key_of[job].own
        return known or bool(self._jobs.elastic[job] or self._jobs.shareable[job])

    def _note(self, job: int, changed: bool) -> bool:
        """Marks a changed measurement of a model as unsaved; returns `changed`."""
        self.unsaved |= changed and not self._groups.key_of[job].own
        return changed

    def _holds(self, job: int, placement: Placement, reading: SpeedMeasurement) -> bool:
        """Learns the memory of a worker; returns whether another amount was believed."""
        if not reading.memory_bytes or placement.samples:
            return False
        believed = self.physics.memory.held_bytes(job, placement)
        parts = placement.gpus * placement.accumulation_steps
        key = self._groups.key_of[job]
        if not self._note(job, self.measurements.saw_bytes(key, parts, reading.memory_bytes)):
            return False
        return differs(reading.memory_bytes, believed)

    def _alone(self, job: int, placement: Placement, reading: SpeedMeasurement) -> bool:
        """Learns a rate alone; returns whether believed speeds changed."""
        key, gpus = self._groups.key_of[job], placement.gpus
        # Before the measurement is added: what the factors have not computed yet would contain it.
        before = [self._spread(key, placement), *self._believed_speeds(key)]
        rate = reading.rate / self._placed(job, placement)
        changed = False
        if self._note(job, self.measurements.saw_rate(key, gpus, rate, placement.nodes)):
            after = [self._spread(key, placement), *self._speeds(SpeedFactors(self._basis), key)]
            changed = any(differs(x, y) for x, y in zip(after, before, strict=True))
        plain = placement.accumulation_steps == 1 and gpus == int(self._jobs.gpus[job])
        if plain and reading.stage_s and reading.iteration_s > 0:
            stages = reading.stage_s, reading.iteration_s
            changed |= self._note(job, self.measurements.saw_stages(key, gpus, *stages))
        return changed

    def _spread(self, key: MeasurementKey, placement: Placement) -> float:
        """Returns the believed speed over so many nodes, over that on one."""
        return self.measurements.spread(key, placement.gpus, placement.nodes)

    def _believed_speeds(self, key: MeasurementKey) -> list[float]:
        """Returns the believed speeds of a key, computed once for each belief."""
        kinds, width = len(self._groups.of_key[key]), self._jobs.widest_gpus
        known = self._believed.get(key)
        if known is None or known[:2] != (kinds, width):
            self._believed[key] = known = kinds, width, self._speeds(self._factors, key)
        return known[2]

    def _speeds(self, factors: SpeedFactors, key: MeasurementKey) -> list[float]:
        """Returns believed over prior speeds of a key's kinds, by number of GPUs."""
        width, example = self._jobs.widest_gpus, self._groups.example
        rows = (factors.upto(example[kind], width) for kind in self._groups.of_key[key])
        return [factor for row in rows for factor in row.tolist()]

    def _beside(
        self, job: int, placement: Placement, neighbour: Neighbour, reading: SpeedMeasurement
    ) -> bool:
        """Learns a ratio if the rate alone on as many GPUs is known; returns whether it is new."""
        key_of, (other, there) = self._groups.key_of, neighbour
        alone = self.measurements.rates(key_of[job]).get(placement.gpus)
        if alone is None:
            return False
        steps, other_steps = placement.accumulation_steps, there.accumulation_steps
        sides = SizedJob(job, steps, placement.gpus), SizedJob(other, other_steps, there.gpus)
        believed, _ = self.physics.sharing.interference(*sides)
        pair = PairKey(key_of[job], steps, key_of[other], other_steps)
        placed = self._placed(job, placement)
        placed *= self.measurements.spread(key_of[job], placement.gpus, placement.nodes)
        ratio = max(1.0, alone * placed / reading.rate)
        if not self._note(job, self.measurements.saw_ratio(pair, ratio)):
            return False
        return differs(self.ratio(job, steps, other, other_steps), believed)

    def _placed(self, job: int, placement: Placement) -> float:
        """Returns the guessed speed of a placement alone over that of the same GPUs well placed."""
        rates = self._prior.speed.rates(placement.gpus)
        well = float(rates[self._prior.kind_of[job], placement.gpus])
        return self._prior.rate(job, placement) / well if well > 0 else 1.0

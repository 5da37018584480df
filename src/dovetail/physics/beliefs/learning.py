"""What a cluster learns while its jobs train, and what it therefore believes."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dovetail.core.beliefs import Neighbour, Physics
from dovetail.core.job import JobTable
from dovetail.core.placement import Placement
from dovetail.core.reading import SpeedMeasurement
from dovetail.physics.beliefs.learning_groups import Subjects
from dovetail.physics.beliefs.measured import MeasuredPhysics, differs, is_plain
from dovetail.physics.beliefs.measurements import Company, Key, Lessons


class Learning:
    """What a cluster learns from its jobs; `physics` is what it believes now.

    With `unsaved` there is more to `dump` than was dumped last.

    `said` is what an earlier one learned. Samples of `paced` jobs are not of their models but of
    their requests (a millisecond alone), so there jobs of other requests are other models.
    Of `trusted` models (None: of all) the guess keeps its shape where nothing was measured.
    """

    def __init__(
        self,
        prior: Physics,
        jobs: JobTable,
        said: str = "",
        trusted: Collection[str] | None = (),
        *,
        paced: bool = False,
    ) -> None:
        self._prior, self._jobs = prior, jobs
        self._trusted = None if trusted is None else frozenset(trusted)
        self.lessons = Lessons.load(said)
        self._subjects = Subjects(prior, jobs, paced)
        self.physics = self._believed()
        self.unsaved = False

    def _believed(self) -> MeasuredPhysics:
        return MeasuredPhysics(self._prior, self._jobs, self.lessons, self._subjects, self._trusted)

    def observe(
        self,
        job: int,
        placement: Placement,
        neighbours: Sequence[Neighbour],
        reading: SpeedMeasurement,
    ) -> bool:
        """Learns from a reading. Returns whether `physics` is another one from now on.

        It is not where what was measured is what was believed.
        """
        key = self._subjects.key_of[job]
        if placement.batch_size or reading.rate <= 0:
            return False
        if reading.batch:
            self.lessons.saw_batch(key, reading.batch)
        news = self._holds(job, placement, reading)
        if all(is_plain(p) for p in (placement, *(p for _, p in neighbours))):
            if not neighbours:
                news |= self._alone(job, placement, reading)
            elif len(neighbours) == 1:
                news |= self._beside(job, placement, neighbours[0], reading)
        if not (news and self._matters(job)):
            return False
        self.physics = self._believed()
        return True

    def ran_out(
        self,
        job: int,
        placement: Placement,
        neighbours: Sequence[Neighbour],
        gpu_memory_bytes: float,
    ) -> bool:
        """Learns that a job found no room beside others, so cut as it was.

        It is believed to hold more than they leave of the GPU from now on: so they do not fit
        together any more, nor does it beside others who hold as much. Of whom nothing is known
        counts as holding an even part. Returns whether they are believed not to fit now.
        """
        even = gpu_memory_bytes / (len(neighbours) + 1)
        others = 0.0
        for other, there in neighbours:
            held = self.physics.held_bytes(other, there)
            if not held:
                self._lacks(other, there, even)
            turns = placement.interleave and there.interleave
            others += self.physics.fixed_bytes(other) if turns else held or even
        self._lacks(job, placement, min(gpu_memory_bytes, gpu_memory_bytes - others + 1.0))
        self.physics = self._believed()
        together = sorted([(job, placement), *neighbours], key=_job)
        return not self.physics.fits_memory(together, gpu_memory_bytes)

    def _lacks(self, job: int, placement: Placement, least: float) -> None:
        key, parts = self._subjects.key_of[job], self.physics.parts(job, placement)
        self._told(job, self.lessons.lacked_bytes(key, parts, least))

    def solo_rate(self, job: int) -> float:
        """Returns samples a second alone as requested, as far as is known; 0 if nothing is."""
        return self.physics.throughput(job, int(self._jobs.gpus[job]))

    def ratio(self, job: int, steps: int, other: int, other_steps: int) -> float:
        """Returns the measured interference of a job beside another so cut, 0 if there is none."""
        key_of = self._subjects.key_of
        return self.lessons.ratios(key_of[job], key_of[other]).get((steps, other_steps), 0.0)

    def forget(self, job: int) -> None:
        """Drops what only a job that is over could use."""
        key = self._subjects.key_of[job]
        if key.own:
            self.lessons.forget(key)

    def dump(self) -> str:
        """Returns what is known of models, for `said` of a later one."""
        self.unsaved = False
        return self.lessons.dump()

    def _matters(self, job: int) -> bool:
        """Tells whether a plan may change by what is learned of a job.

        Not by what it alone can use, if its GPUs are fixed and its own: of such jobs there may be
        thousands, and each would have all be decided anew.
        """
        known = not self._subjects.key_of[job].own
        return known or bool(self._jobs.elastic[job] or self._jobs.shareable[job])

    def _told(self, job: int, told: bool) -> bool:
        """Notes that something was told of a job's model, and is to be kept."""
        self.unsaved |= told and not self._subjects.key_of[job].own
        return told

    def _holds(self, job: int, placement: Placement, reading: SpeedMeasurement) -> bool:
        """Learns what a worker holds; tells whether another amount was believed."""
        if not reading.memory_bytes or placement.samples:
            return False
        believed = self.physics.held_bytes(job, placement)
        parts = placement.gpus * placement.accumulation_steps
        key = self._subjects.key_of[job]
        if not self._told(job, self.lessons.saw_bytes(key, parts, reading.memory_bytes)):
            return False
        return differs(reading.memory_bytes, believed)

    def _alone(self, job: int, placement: Placement, reading: SpeedMeasurement) -> bool:
        """Learns a rate alone; tells whether speeds are believed to be others now."""
        key, gpus = self._subjects.key_of[job], placement.gpus
        before = self._speeds(self.physics, key)
        rate = reading.rate / self._placed(job, placement)
        news = False
        if self._told(job, self.lessons.saw_rate(key, gpus, rate)):
            after = self._speeds(self._believed(), key)
            news = any(differs(x, y) for x, y in zip(after, before, strict=True))
        plain = placement.accumulation_steps == 1 and gpus == int(self._jobs.gpus[job])
        if plain and reading.stage_s and reading.iteration_s > 0:
            stages = reading.stage_s, reading.iteration_s
            news |= self._told(job, self.lessons.saw_stages(key, gpus, *stages))
        return news

    def _speeds(self, physics: MeasuredPhysics, key: Key) -> list[float]:
        """Returns what is believed of a key's kinds on each number of GPUs, over the guess."""
        width, example = self._jobs.widest_gpus, self._subjects.example
        rows = (physics.factors(example[kind], width) for kind in self._subjects.of_key[key])
        return [factor for row in rows for factor in row.tolist()]

    def _beside(
        self, job: int, placement: Placement, neighbour: Neighbour, reading: SpeedMeasurement
    ) -> bool:
        """Learns a ratio, if the rate alone on as many GPUs is known; tells whether it is news."""
        key_of, (other, there) = self._subjects.key_of, neighbour
        alone = self.lessons.rates(key_of[job]).get(placement.gpus)
        if alone is None:
            return False
        steps, other_steps = placement.accumulation_steps, there.accumulation_steps
        believed, _ = self.physics.interference(job, steps, other, other_steps)
        company = Company(key_of[job], steps, key_of[other], other_steps)
        ratio = max(1.0, alone * self._placed(job, placement) / reading.rate)
        if not self._told(job, self.lessons.saw_ratio(company, ratio)):
            return False
        return differs(self.ratio(job, steps, other, other_steps), believed)

    def _placed(self, job: int, placement: Placement) -> float:
        """Returns the guessed speed of a placement alone over that of the same GPUs well placed."""
        well = float(self._prior.rates(placement.gpus)[self._prior.kind_of[job], placement.gpus])
        return self._prior.speed(job, placement, ()) / well if well > 0 else 1.0


def _job(occupant: Neighbour) -> int:
    return occupant[0]

"""What a cluster learns while its jobs train, and what it therefore believes."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dovetail.core.beliefs import Neighbour, Physics
from dovetail.core.job import JobTable
from dovetail.core.placement import Placement
from dovetail.core.reading import Reading
from dovetail.physics.lessons import Company, Lessons
from dovetail.physics.measured import MeasuredPhysics, is_plain
from dovetail.physics.subjects import Subjects


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
        self._subjects = Subjects(prior, jobs, paced)
        self.physics = self._believed()

    def _believed(self) -> MeasuredPhysics:
        return MeasuredPhysics(self._prior, self._jobs, self.lessons, self._subjects, self._trusted)

    def observe(
        self, job: int, placement: Placement, neighbours: Sequence[Neighbour], reading: Reading
    ) -> bool:
        """Learns from a reading. Returns whether `physics` is another one from now on."""
        key = self._subjects.key_of[job]
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
        if not (news and self._matters(job)):
            return False
        self.physics = self._believed()
        return True

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
        return self.lessons.dump()

    def _matters(self, job: int) -> bool:
        """Tells whether a plan may change by what is learned of a job.

        Not by what it alone can use, if its GPUs are fixed and its own: of such jobs there may be
        thousands, and each would have all be decided anew.
        """
        known = not self._subjects.key_of[job].own
        return known or bool(self._jobs.elastic[job] or self._jobs.shareable[job])

    def _alone(self, job: int, placement: Placement, reading: Reading) -> bool:
        key, gpus = self._subjects.key_of[job], placement.gpus
        news = self.lessons.saw_rate(key, gpus, reading.rate / self._placed(job, placement))
        plain = placement.accumulation_steps == 1 and gpus == int(self._jobs.gpus[job])
        if plain and reading.stage_s and reading.iteration_s > 0:
            news |= self.lessons.saw_stages(key, gpus, reading.stage_s, reading.iteration_s)
        return news

    def _beside(
        self, job: int, placement: Placement, neighbour: Neighbour, reading: Reading
    ) -> bool:
        """Learns a ratio, if the rate alone on as many GPUs is known."""
        key_of, (other, there) = self._subjects.key_of, neighbour
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

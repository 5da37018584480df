"""The jobs that are not over: request, record, gang and row in the tables of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from dovetail.core.replacing import replace
from dovetail.core.units import NEVER_S
from dovetail.live.jobs.lifecycle import State, Transition, after
from dovetail.live.jobs.record import JobRecord
from dovetail.live.workers.gang import Gang
from dovetail.wire.spec import JobSpec
from dovetail.wire.worker import Training

PLACED = (State.CONFIGURING, State.RUNNING)


@dataclass(slots=True)
class LiveJob:
    """One job that is not over. `row` is its index in the tables.

    Its time limit counts since `running_s`; since `unchanged_s` it runs with the same GPUs,
    neighbours and options. It is `starting` until all its workers train after a start, and then
    its progress is `placed_done_s`. `trained` is its last report, which its record gets when that
    is written next. `replacements` are the numbers of workers that will replace lost ones after a
    pause. Its workers that are idle are so `idle_since`, the whole job since `idle_s`, which its
    owner was warned of (`is_warned`). `requeues` are the requests to queue it again once it is
    over.
    """

    row: int
    spec: JobSpec
    record: JobRecord
    gang: Gang | None = None
    running_s: float = NEVER_S
    unchanged_s: float = 0.0
    placed_done_s: float = 0.0
    starting: bool = False
    trained: Training | None = None
    replacements: tuple[int, ...] = ()
    requeues: tuple[int, ...] = ()
    persisted_s: float = 0.0
    idle_since: dict[int, float] = field(default_factory=dict)
    idle_s: float = NEVER_S
    is_warned: bool = False

    @property
    def number(self) -> int:
        """Returns the number by which users know the job."""
        return self.record.job

    @property
    def name(self) -> str:
        """Returns the name of the job in lists: its number, or that of its array and its index."""
        return self.spec.called(self.record.job)

    @property
    def uses_train_protocol(self) -> bool:
        """Returns whether its workers use the protocol of `dovetail.train`."""
        return self.spec.trains or self.spec.paced

    @property
    def is_placed(self) -> bool:
        """Returns whether the plan gives it GPUs."""
        return self.record.state in PLACED

    def with_training(self) -> JobRecord:
        """Returns its record with what its last report says."""
        record, report = self.record, self.trained
        if report is None:
            return record
        self.trained = None
        return replace(
            record,
            samples=report.samples,
            total_samples=report.total_samples or record.total_samples,
            iteration_s=report.iteration_s,
        )

    def ran_s(self, now: float) -> float:
        """Returns how long it has run by now, for its time limit."""
        return self.record.ran_s + (now - self.running_s if self.running_s < now else 0.0)


class LiveJobs:
    """All jobs that are not over, by number and by row of the tables.

    It owns their records: `write` and `move` mark one as changed, and `take_dirty` returns the
    changed ones for the journal. `numbers` has the number of each row, also of jobs that are over;
    `known` has the numbers of all jobs that this controller has ever seen.
    """

    def __init__(self) -> None:
        self._jobs: dict[int, LiveJob] = {}
        self._dirty: dict[int, LiveJob] = {}
        self.numbers: list[int] = []
        self.known: set[int] = set()

    def __iter__(self) -> Iterator[LiveJob]:
        return iter(self._jobs.values())

    def __len__(self) -> int:
        return len(self._jobs)

    def get(self, number: int) -> LiveJob | None:
        """Returns a job that is not over."""
        return self._jobs.get(number)

    def of_row(self, row: int) -> LiveJob:
        """Returns the job of a row of the tables."""
        return self._jobs[self.numbers[row]]

    def add(self, job: LiveJob) -> None:
        """Adds a job whose row was just made."""
        if job.row == len(self.numbers):
            self.numbers.append(job.number)
        self.known.add(job.number)
        self._jobs[job.number] = job

    def drop(self, job: LiveJob) -> None:
        """Removes a job that is over; its row stays in the tables."""
        del self._jobs[job.number]

    def write(self, job: LiveJob, record: JobRecord) -> None:
        """Replaces the record of a job; it will be in this instant's journal entry."""
        job.record = record
        self._dirty[job.number] = job

    def move(self, job: LiveJob, transition: Transition, record: JobRecord | None = None) -> None:
        """Moves a job to the state that follows, with a new record if one is given.

        Raises IllegalTransition.
        """
        before, record = job.record, record or job.record
        # A program may have begun before the job counts as running: its loss is a restart too.
        began = job.gang is not None and job.gang.roster.has_begun
        if transition is Transition.STOPPED and (before.state is State.RUNNING or began):
            record = replace(record, restarts=before.restarts + 1)
        state = after(before.state, transition, before.ending)
        self.write(job, replace(record, state=state))

    def take_dirty(self) -> list[LiveJob]:
        """Returns the jobs whose records changed since the last call, by number."""
        dirty, self._dirty = self._dirty, {}
        return [job for _, job in sorted(dirty.items())]

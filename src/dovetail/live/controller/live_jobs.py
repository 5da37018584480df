"""The jobs that are not over: what each asked for, its record, its workers, its table row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from dovetail.core.units import NEVER_S
from dovetail.live.jobs.lifecycle import State, Step, after
from dovetail.live.jobs.record import JobRecord
from dovetail.live.workers.gang import Gang
from dovetail.wire.spec import JobSpec
from dovetail.wire.worker import Training

PLACED = (State.CONFIGURING, State.RUNNING)


@dataclass(slots=True)
class Life:
    """One job; `row` is its index in the tables.

    `running_s` is since when it runs (its time limit counts), `manner_s` since when in this manner.
    `starting` until its workers train after a start; `mend` are lost workers to be replaced;
    `again` are requests to requeue it once it is over; `trained` is its last report.
    """

    row: int
    spec: JobSpec
    record: JobRecord
    gang: Gang | None = None
    running_s: float = NEVER_S
    manner_s: float = 0.0
    placed_done_s: float = 0.0
    starting: bool = False
    mend: tuple[int, ...] = ()
    again: tuple[int, ...] = ()
    trained: Training | None = None
    persisted_s: float = 0.0

    @property
    def uses_train_protocol(self) -> bool:
        """Returns whether its workers send and take the messages of `wire.worker`."""
        return self.spec.trains or self.spec.paced

    @property
    def is_placed(self) -> bool:
        """Returns whether it has GPUs in the plan."""
        return self.record.state in PLACED


class Lives:
    """All jobs that are not over, by number and by row; `dirty` are those whose record changed.

    `known` are the numbers of all that ever were here.
    """

    def __init__(self) -> None:
        self._lives: dict[int, Life] = {}
        self.numbers: list[int] = []
        self.known: set[int] = set()
        self.dirty: dict[int, Life] = {}

    def __iter__(self) -> Iterator[Life]:
        return iter(self._lives.values())

    def __len__(self) -> int:
        return len(self._lives)

    def get(self, job: int) -> Life | None:
        """Returns a job that is not over."""
        return self._lives.get(job)

    def of_row(self, row: int) -> Life:
        """Returns the job of a row of the tables."""
        return self._lives[self.numbers[row]]

    def add(self, life: Life) -> None:
        """Adds a job whose row was just made."""
        if life.row == len(self.numbers):
            self.numbers.append(life.record.job)
        self.known.add(life.record.job)
        self._lives[life.record.job] = life

    def drop(self, life: Life) -> None:
        """Takes a job out that is over; its row stays in the tables."""
        del self._lives[life.record.job]

    def write(self, life: Life, **changes: Any) -> None:
        """Changes the record of a job."""
        life.record = replace(life.record, **changes)
        self.dirty[life.record.job] = life

    def step(self, life: Life, step: Step, **changes: Any) -> None:
        """Moves a job on in its life."""
        record = life.record
        began = life.gang is not None and life.gang.roster.has_begun
        if step is Step.STOPPED and (record.state is State.RUNNING or began):
            changes["restarts"] = record.restarts + 1
        self.write(life, state=after(record.state, step, record.ending), **changes)

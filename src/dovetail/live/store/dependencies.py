"""Resolves the dependencies of a submit to numbers of jobs: all tasks of an array, or one by index.

This happens once, in the transaction that numbers the jobs: the controller knows no arrays.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import replace

from dovetail.core.errors import InputError
from dovetail.live.jobs.lifecycle import TERMINAL
from dovetail.live.store.queries import JOB_OR_TASKS
from dovetail.wire.spec import CORRESPONDING, SINGLETON, Dependency, JobSpec
from dovetail.wire.spec_faults import AFTER_MAX
from dovetail.wire.submission import Submission

NUMBER_MAX = 2**62
"""Numbers of jobs are cut to this bound: SQLite takes none above 64 bits."""


class SubmitDependencies:
    """Resolves the dependencies of one submit; `take` adds its submissions in order.

    `next` is the number of the next job.
    """

    def __init__(self, db: sqlite3.Connection, first: int) -> None:
        self._db = db
        self._tasks: list[dict[int, int]] = []
        """Of each submission the numbers of its tasks by index; a single job has index -1."""
        self._by_name: dict[tuple[str, str], list[int]] = {}
        self.next = first

    def take(self, specs: Sequence[JobSpec]) -> None:
        """Adds the jobs of one submission."""
        numbers = range(self.next, self.next + len(specs))
        self._tasks.append({s.array: n for s, n in zip(specs, numbers, strict=True)})
        for spec, number in zip(specs, numbers, strict=True):
            self._by_name.setdefault((spec.name, spec.user), []).append(number)
        self.next = numbers.stop

    def resolved(self, submission: Submission) -> list[JobSpec]:
        """Returns the tasks of a submission with resolved dependencies. Raises InputError."""
        spec, tasks = submission.spec, submission.array or (-1,)
        if not spec.after:
            return [spec] * len(tasks)
        kinds = {dependency.kind for dependency in spec.after}
        if SINGLETON in kinds and submission.array:
            # The tasks have one name, so at most one of them may run.
            spec = replace(spec, at_once=1)
        if CORRESPONDING in kinds:
            return [replace(spec, after=self._of(spec, task)) for task in tasks]
        return [replace(spec, after=self._of(spec, -1))] * len(tasks)

    def _of(self, spec: JobSpec, task: int) -> tuple[Dependency, ...]:
        resolved: dict[Dependency, None] = {}
        for one in spec.after:
            kind, numbers = one.kind, list[int]()
            if kind == SINGLETON:
                kind, numbers = "afterany", self._same_name(spec)
            elif kind == CORRESPONDING:
                kind, numbers = "afterok", [self._task(spec, one.job, task)]
            elif one.task >= 0:
                numbers = [self._task(spec, one.job, one.task)]
            else:
                numbers = self._all(spec, one.job)
            resolved |= dict.fromkeys(Dependency(kind, number) for number in numbers)
        if len(resolved) > AFTER_MAX:
            raise _fault(spec, f"{len(resolved)} dependencies are over {AFTER_MAX}")
        return tuple(resolved)

    def _all(self, spec: JobSpec, job: int) -> list[int]:
        """Returns the job of a number, or all tasks of that array."""
        if job < 0:
            return list(self._tasks[-job - 1].values())
        rows = self._db.execute(JOB_OR_TASKS, (min(job, NUMBER_MAX),))
        numbers = [number for (number,) in rows]
        if not numbers:
            raise _fault(spec, f"it depends on job {job}, which does not exist")
        return numbers

    def _task(self, spec: JobSpec, job: int, task: int) -> int:
        if job < 0:
            number = self._tasks[-job - 1].get(task)
        else:
            row = self._db.execute(
                "SELECT number FROM jobs WHERE array_of = ? AND array_index = ?",
                (min(job, NUMBER_MAX), task),
            ).fetchone()
            number = None if row is None else int(row[0])
        if number is None:
            name = f"{job}_{task}" if job > 0 else f"{task} of the array before it"
            raise _fault(spec, f"it depends on task {name}, which does not exist")
        return number

    def _same_name(self, spec: JobSpec) -> list[int]:
        """Returns the live jobs of the same name and user."""
        rows = self._db.execute(
            "SELECT number FROM jobs WHERE name = ? AND user = ?"
            f" AND state NOT IN ({','.join('?' * len(TERMINAL))}) ORDER BY number",
            (spec.name, spec.user, *sorted(TERMINAL)),
        )
        return [number for (number,) in rows] + self._by_name.get((spec.name, spec.user), [])


def _fault(spec: JobSpec, what: str) -> InputError:
    return InputError(f"job '{spec.name}'", what)

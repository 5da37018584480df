"""What the jobs of a submit wait for, as numbers of jobs: arrays in full, tasks by their index.

Resolved once, inside the transaction that numbers the jobs: the controller knows jobs alone.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import replace

from dovetail.core.errors import InputError
from dovetail.live.jobs.lifecycle import TERMINAL
from dovetail.wire.spec import CORRESPONDING, SINGLETON, Dependency, JobSpec
from dovetail.wire.spec_faults import AFTER_MAX
from dovetail.wire.submission import Submission

_JOB_MAX = 2**62


class DependencyResolver:
    """Resolves the dependencies of one submit; `take` adds its jobs, in order."""

    def __init__(self, db: sqlite3.Connection, first: int) -> None:
        self._db = db
        self._made: list[dict[int, int]] = []
        """The number of each task by its index, of each submission; a job alone has index -1."""
        self._named: dict[tuple[str, str], list[int]] = {}
        self.next = first

    def take(self, specs: Sequence[JobSpec]) -> None:
        """Adds the jobs of one submission."""
        numbers = range(self.next, self.next + len(specs))
        self._made.append({s.array: n for s, n in zip(specs, numbers, strict=True)})
        for spec, number in zip(specs, numbers, strict=True):
            self._named.setdefault((spec.name, spec.user), []).append(number)
        self.next = numbers.stop

    def resolved(self, submission: Submission) -> list[JobSpec]:
        """Returns the jobs of a submission, each with what it waits for. Raises InputError."""
        spec, tasks = submission.spec, submission.array or (-1,)
        if not spec.after:
            return [spec] * len(tasks)
        kinds = {need.kind for need in spec.after}
        if SINGLETON in kinds and submission.array:
            # Its own tasks bear the same name.
            spec = replace(spec, at_once=1)
        if CORRESPONDING in kinds:
            return [replace(spec, after=self._of(spec, task)) for task in tasks]
        return [replace(spec, after=self._of(spec, -1))] * len(tasks)

    def _of(self, spec: JobSpec, task: int) -> tuple[Dependency, ...]:
        resolved: dict[Dependency, None] = {}
        for need in spec.after:
            if need.kind == SINGLETON:
                found = [Dependency("afterany", n) for n in self._before(spec)]
            elif need.kind == CORRESPONDING:
                found = [Dependency("afterok", self._task(spec, need.job, task))]
            elif need.task >= 0:
                found = [Dependency(need.kind, self._task(spec, need.job, need.task))]
            else:
                found = [Dependency(need.kind, n) for n in self._all(spec, need.job)]
            resolved |= dict.fromkeys(found)
        if len(resolved) > AFTER_MAX:
            raise _fault(spec, f"{len(resolved)} dependencies are over {AFTER_MAX}")
        return tuple(resolved)

    def _all(self, spec: JobSpec, job: int) -> Sequence[int]:
        """Returns the job of a number, or all tasks of that array."""
        if job < 0:
            return list(self._made[-job - 1].values())
        found = self._db.execute(
            "SELECT number FROM jobs WHERE number = ?1"
            " UNION SELECT number FROM jobs WHERE array_of = ?1 ORDER BY number",
            (min(job, _JOB_MAX),),
        )
        numbers = [number for (number,) in found]
        if not numbers:
            raise _fault(spec, f"it depends on job {job}, which does not exist")
        return numbers

    def _task(self, spec: JobSpec, job: int, task: int) -> int:
        if job < 0:
            number = self._made[-job - 1].get(task)
        else:
            row = self._db.execute(
                "SELECT number FROM jobs WHERE array_of = ? AND array_index = ?",
                (min(job, _JOB_MAX), task),
            ).fetchone()
            number = None if row is None else int(row[0])
        if number is None:
            named = f"{job}_{task}" if job > 0 else f"{task} of the array before it"
            raise _fault(spec, f"it depends on task {named}, which does not exist")
        return number

    def _before(self, spec: JobSpec) -> list[int]:
        """Returns the jobs of the same name and user that are not over."""
        over = sorted(TERMINAL)
        found = self._db.execute(
            "SELECT number FROM jobs WHERE name = ? AND user = ?"
            f" AND state NOT IN ({','.join('?' * len(over))}) ORDER BY number",
            (spec.name, spec.user, *over),
        )
        return [number for (number,) in found] + self._named.get((spec.name, spec.user), [])


def _fault(spec: JobSpec, what: str) -> InputError:
    return InputError(f"job '{spec.name}'", what)

"""The requests of jobs on submission: the only features of predictions.

Used: recurrence, user, queue, model, GPU type, GPUs, CPUs, memory, batch size, the time limit,
the hour and the day of the week. Never used: run times, iterations, ends, and
deadlines, which generated traces and GIMBAL's recipe derive from run times.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dovetail.core.growth import Growing
from dovetail.core.job import Bools, Floats, Ints, JobTable, Labels
from dovetail.core.units import DAY_S, WEEK_S

ASKED = ("log gpus", "log cpus", "log memory", "log time limit", "log batch", "hour", "weekday")
"""Names of the columns of `Submissions.asked`."""


CODES = ("key", "user_size", "user", "shape")


class Submissions:
    """Requests as codes and numbers, row by row; codes count up in order of first appearance.

    So no code depends on later jobs. `key` is the recurrence, or for a job without one its user
    and all its requests; `user_size` is the user and the GPUs; `shape` is all requests without the
    user. `asked` has the columns `ASKED`; `has_user` is false where no user is named.
    """

    def __init__(self, jobs: JobTable) -> None:
        self._jobs = jobs
        user = jobs.user.codes.astype(np.int64)
        shape = _together(*(_column(jobs, name) for name in SHAPE))
        recurrence = jobs.recurrence.codes.astype(np.int64)
        like_it = _together(user, shape)
        key = np.where(recurrence >= 0, recurrence, like_it + len(jobs.recurrence.names))
        codes = _in_order(key), _together(user, jobs.gpus), _in_order(user), shape
        self._codes = {name: Growing(code) for name, code in zip(CODES, codes, strict=True)}
        self._number_of: dict[str, dict[object, int]] = {}
        self._asked = Growing(_asked(jobs, 0))
        self._refresh()

    def _refresh(self) -> None:
        """Reads the columns, which are other arrays once the table has grown."""
        columns: list[Ints] = [self._codes[name].rows for name in CODES]
        self.key, self.user_size, self.user, self.shape = columns
        self.has_user: Bools = self._jobs.user.codes >= 0
        self.asked: Floats = self._asked.rows
        self.time_limit_s: Floats = self._jobs.time_limit_s

    def admit(self) -> None:
        """Adds the rows appended to the table."""
        known, jobs = len(self), self._jobs
        if not self._number_of:
            self._number_of = {name: {} for name in CODES}
            for job in range(known):
                self._numbers(job)
        rows = [self._numbers(job) for job in range(known, len(jobs))]
        for name, codes in zip(CODES, zip(*rows, strict=True), strict=False):
            self._codes[name].extend(codes)
        self._asked.extend(_asked(jobs, known))
        self._refresh()

    def _numbers(self, job: int) -> list[int]:
        """Returns the codes of a job, new ones for new values."""
        jobs = self._jobs
        user, recurrence = int(jobs.user.codes[job]), int(jobs.recurrence.codes[job])
        shape = tuple(_column(jobs, name)[job].item() for name in SHAPE)
        like = (recurrence if recurrence >= 0 else (user, shape)), (user, shape[0]), user, shape
        numbers = self._number_of
        return [
            numbers[name].setdefault(what, len(numbers[name]))
            for name, what in zip(CODES, like, strict=True)
        ]

    def __len__(self) -> int:
        return len(self._asked.rows)


SHAPE = ("gpus", "queue", "model", "gpu_type", "cpus", "memory_bytes", "batch_size")
"""The columns that define the shape of a request."""


def _column(jobs: JobTable, name: str) -> NDArray[np.generic]:
    column = getattr(jobs, name)
    return column.codes if isinstance(column, Labels) else np.asarray(column)


def _in_order(values: Ints) -> Ints:
    """Returns codes from 0 on in order of first appearance."""
    _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return np.asarray(rank[inverse.ravel()], dtype=np.int64)


def _together(*columns: NDArray[np.generic]) -> Ints:
    """Returns one code for rows that are equal in all columns."""
    code = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        _, inverse = np.unique(column, return_inverse=True)
        wide = code * (int(inverse.max(initial=0)) + 1) + inverse.ravel()
        code = _in_order(np.asarray(wide, dtype=np.int64))
    return code


def _asked(jobs: JobTable, first: int) -> Floats:
    limit_s = jobs.time_limit_s[first:]
    submit_s = jobs.submit_s[first:]
    columns = (
        np.log(jobs.gpus[first:]),
        np.log1p(jobs.cpus[first:]),
        np.log1p(jobs.memory_bytes[first:]),
        np.log1p(np.where(np.isfinite(limit_s), limit_s, 0.0)),
        np.log1p(jobs.batch_size[first:]),
        np.floor(submit_s % DAY_S / 3600.0),
        np.floor(submit_s % WEEK_S / DAY_S),
    )
    return np.ascontiguousarray(np.stack(columns, axis=1), dtype=np.float64)

"""What is known of a job on its submission, and nothing else: the only features of predictions.

Used: recurrence, user, queue, model, GPU type, GPUs, CPUs, memory, batch size, the time limit that
the user gave, the hour and the day of the week. Never used: run times, iterations, ends, and
deadlines, which generated traces and GIMBAL's recipe derive from run times.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dovetail.core.job import Floats, Ints, JobTable

DAY_S = 86400.0
WEEK_S = 7 * DAY_S
ASKED = ("log gpus", "log cpus", "log memory", "log time limit", "log batch", "hour", "weekday")
"""Names of the columns of `Submissions.asked`."""


@dataclass(frozen=True)
class Submissions:
    """Requests as codes and numbers, row by row; codes count up in order of first appearance.

    So nothing said of a job depends on later ones. `key` is the recurrence, or where a job has
    none everything else that it asks for and the user; `user_size` is the user and the GPUs;
    `shape` is all that is asked for without the user. `asked` has the columns `ASKED`.
    """

    key: Ints
    user_size: Ints
    user: Ints
    shape: Ints
    has_user: NDArray[np.bool_]
    asked: NDArray[np.float64]
    time_limit_s: Floats

    def __len__(self) -> int:
        return len(self.key)


def read_submissions(jobs: JobTable) -> Submissions:
    """Returns what is known of each job of a table on its submission."""
    user = jobs.user.codes.astype(np.int64)
    shape = _together(
        jobs.gpus,
        jobs.queue.codes,
        jobs.model.codes,
        jobs.gpu_type.codes,
        jobs.cpus,
        jobs.memory_bytes,
        jobs.batch_size,
    )
    recurrence = jobs.recurrence.codes.astype(np.int64)
    like_it = _together(user, shape)
    key = np.where(recurrence >= 0, recurrence, like_it + len(jobs.recurrence.names))
    return Submissions(
        key=_in_order(key),
        user_size=_together(user, jobs.gpus),
        user=_in_order(user),
        shape=shape,
        has_user=user >= 0,
        asked=_asked(jobs),
        time_limit_s=jobs.time_limit_s,
    )


def _in_order(values: Ints) -> Ints:
    """Returns codes from 0 on in order of first appearance."""
    _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return np.asarray(rank[inverse.ravel()], dtype=np.int64)


def _together(*columns: NDArray[np.generic]) -> Ints:
    """Returns one code for rows that are alike in all columns."""
    code = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        _, inverse = np.unique(column, return_inverse=True)
        wide = code * (int(inverse.max(initial=0)) + 1) + inverse.ravel()
        code = _in_order(np.asarray(wide, dtype=np.int64))
    return code


def _asked(jobs: JobTable) -> NDArray[np.float64]:
    limit_s = np.where(np.isfinite(jobs.time_limit_s), jobs.time_limit_s, 0.0)
    columns = (
        np.log(jobs.gpus),
        np.log1p(jobs.cpus),
        np.log1p(jobs.memory_bytes),
        np.log1p(limit_s),
        np.log1p(jobs.batch_size),
        np.floor(jobs.submit_s % DAY_S / 3600.0),
        np.floor(jobs.submit_s % WEEK_S / DAY_S),
    )
    return np.ascontiguousarray(np.stack(columns, axis=1), dtype=np.float64)

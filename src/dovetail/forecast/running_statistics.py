"""Running statistics of ended jobs as features of new ones, in constant time; compiled.

Five levels, from near to far: jobs of the same key, of the same user and GPUs, of the same user, of
the same shape, and all. Each level has statistics of the logarithm of run times: count, mean,
spread, an exponential mean, the last eight values, and the repetitions of the last value.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dovetail.algorithms.compiled import compiled
from dovetail.core.growth import Growing
from dovetail.core.job import Floats, Ints
from dovetail.forecast.submissions import ASKED, Submissions

LEVELS = ("key", "user and GPUs", "user", "shape", "all")
NOBODY = len(LEVELS)
"""The level of evidence when no job has ended."""
RECENT = 8
"""Number of stored run times."""
FORGET = 0.3
"""Weight of the newest run time in the exponential mean."""
COUNT, MEAN, SQUARES, LAST, REPEATS, BROKEN, FADING, ENDED_S = range(8)
FIELDS = 8
SUBMITTED, OPEN, SINCE_S = range(3)
OWN = ("count", "mean", "spread", "last", "recent median", "fading", "repeats", "broken", "age")
FEATURES = (
    "guess", "level", *(f"key {w}" for w in OWN),
    *(f"{level} {w}" for level in LEVELS[1:3] for w in ("count", "median", "fading", "spread")),
    "user broken", "shape count", "shape median", "all fading",
    "key open", "user open", "user idle", *ASKED,
)  # fmt: skip
"""Columns of the features; all times but `guess` are logarithms relative to it."""

Moments = tuple[Floats, Ints, NDArray[np.bool_]]
"""Times in order, the job of each, and whether it ends then (otherwise it is submitted)."""


class RunningStatistics:
    """The statistics of all levels, and the unfinished jobs of each key and user."""

    def __init__(self, known: Submissions) -> None:
        self.known = known
        # Per level, the row of each code in the tables, assigned when a code first appears.
        self._row_of = [Growing(np.zeros(0, np.int64)) for _ in LEVELS]
        self.slot_of = Growing(np.zeros((0, len(LEVELS)), np.int64))
        self.table = Growing(np.zeros((0, FIELDS)))
        self.recent = Growing(np.zeros((0, RECENT)))
        self.traffic = Growing(np.zeros((0, 3)))
        self.admit()

    def admit(self) -> None:
        """Makes room for submissions not yet seen."""
        known, first = self.known, len(self.slot_of.rows)
        all_alike = np.zeros(len(known), np.int64)
        slots = []
        for codes, rows in zip(
            (known.key, known.user_size, known.user, known.shape, all_alike),
            self._row_of,
            strict=True,
        ):
            code = codes[first:]
            new = max(0, int(code.max(initial=-1)) + 1 - len(rows.rows))
            taken = len(self.table.rows)
            rows.extend(np.arange(taken, taken + new))
            for table in (self.table, self.recent, self.traffic):
                table.extend(np.zeros((new, table.rows.shape[1])))
            slots.append(rows.rows[code])
        slot_of = np.stack(slots, axis=1)
        nameless = ~known.has_user[first:]
        slot_of[nameless, 1:3] = slot_of[nameless, 3:4]
        self.slot_of.extend(slot_of)

    def describe(self, job: int, now: float, out: Floats) -> None:
        """Writes the features of a job that is submitted now."""
        slots, asked = self.slot_of.rows[job], self.known.asked[job]
        describe_row(slots, self.table.rows, self.recent.rows, self.traffic.rows, asked, now, out)

    def submit(self, job: int, now: float) -> None:
        """Counts a job as unfinished."""
        submit_row(self.slot_of.rows[job], self.traffic.rows, now)

    def leave(self, job: int) -> None:
        """Removes a job from the unfinished ones."""
        self.traffic.rows[self.slot_of.rows[job], OPEN] -= 1.0

    def learn(self, job: int, log_s: float, completed: bool, now: float) -> None:
        """Adds the run time of an ended job."""
        slots = self.slot_of.rows[job]
        learn_row(slots, self.table.rows, self.recent.rows, log_s, completed, now)


def _median(recent: Floats, count: float) -> float:
    held = min(int(count), RECENT)
    values = np.sort(recent[:held])
    middle = held // 2
    return float(values[middle] if held % 2 else 0.5 * (values[middle - 1] + values[middle]))


def learn_row(
    slots: Ints,
    table: Floats,
    recent: Floats,
    log_s: float,
    completed: bool,
    now: float,
) -> None:
    """Adds a run time to the statistics of all levels of a job."""
    for slot in slots:
        row = table[slot]
        held = row[COUNT]
        recent[slot, int(held) % RECENT] = log_s
        row[COUNT] = held + 1.0
        off = log_s - row[MEAN]
        row[MEAN] += off / (held + 1.0)
        row[SQUARES] += off * (log_s - row[MEAN])
        row[REPEATS] = row[REPEATS] + 1.0 if held and log_s == row[LAST] else 0.0
        row[LAST] = log_s
        row[BROKEN] += 0.0 if completed else 1.0
        row[FADING] = log_s if held == 0.0 else (1.0 - FORGET) * row[FADING] + FORGET * log_s
        row[ENDED_S] = now


def describe_row(
    slots: Ints,
    table: Floats,
    recent: Floats,
    traffic: Floats,
    asked: Floats,
    now: float,
    out: Floats,
) -> None:
    """Writes the features of a job into `out`, in order of `FEATURES`."""
    level = 0
    while level < 5 and table[slots[level], COUNT] == 0.0:
        level += 1
    guess = 0.0
    if level < 5:
        guess = _median(recent[slots[level]], table[slots[level], COUNT])
    out[:] = 0.0
    out[0] = guess
    out[1] = level
    at = 2
    row = table[slots[0]]
    if row[COUNT] > 0.0:
        out[at] = math.log1p(row[COUNT])
        out[at + 1] = row[MEAN] - guess
        out[at + 2] = math.sqrt(row[SQUARES] / row[COUNT])
        out[at + 3] = row[LAST] - guess
        out[at + 4] = _median(recent[slots[0]], row[COUNT]) - guess
        out[at + 5] = row[FADING] - guess
        out[at + 6] = row[REPEATS]
        out[at + 7] = row[BROKEN] / row[COUNT]
        out[at + 8] = math.log1p(max(now - row[ENDED_S], 0.0))
    at += 9
    for place in (1, 2):
        row = table[slots[place]]
        if row[COUNT] > 0.0:
            out[at] = math.log1p(row[COUNT])
            out[at + 1] = _median(recent[slots[place]], row[COUNT]) - guess
            out[at + 2] = row[FADING] - guess
            out[at + 3] = math.sqrt(row[SQUARES] / row[COUNT])
        at += 4
    user, shape = table[slots[2]], table[slots[3]]
    if user[COUNT] > 0.0:
        out[at] = user[BROKEN] / user[COUNT]
    if shape[COUNT] > 0.0:
        out[at + 1] = math.log1p(shape[COUNT])
        out[at + 2] = _median(recent[slots[3]], shape[COUNT]) - guess
    if level < 5:
        out[at + 3] = table[slots[4], FADING] - guess
    at += 4
    of_key, of_user = traffic[slots[0]], traffic[slots[2]]
    out[at] = math.log1p(of_key[OPEN])
    out[at + 1] = math.log1p(of_user[OPEN])
    if of_user[SUBMITTED] > 0.0:
        out[at + 2] = math.log1p(max(now - of_user[SINCE_S], 0.0))
    at += 3
    out[at:] = asked


def submit_row(slots: Ints, traffic: Floats, now: float) -> None:
    """Counts a job as submitted and unfinished on all its levels."""
    for slot in slots:
        traffic[slot, SUBMITTED] += 1.0
        traffic[slot, OPEN] += 1.0
        traffic[slot, SINCE_S] = now


_median = compiled(_median)
learn_row = compiled(learn_row)
describe_row = compiled(describe_row)
submit_row = compiled(submit_row)

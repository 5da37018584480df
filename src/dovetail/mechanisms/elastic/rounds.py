"""Policies of goodput that decide in rounds: when a round is due, and what jobs went through.

Rounds come at multiples of an interval; between them nothing is decided.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import floor
from typing import NamedTuple

from dovetail.core.plan import Draft
from dovetail.core.units import LONG_AGO_S
from dovetail.core.view import View

TINY = 1e-6
"""The least factor of a speedup after a restart, so that GPUs never idle to avoid one."""


class JobAge(NamedTuple):
    """The history of a job: its largest number of GPUs, its restarts, and when it last moved."""

    job: int
    most_gpus: int
    restarts: int
    moved_s: float = LONG_AGO_S


class Round(NamedTuple):
    """Whether a round is due now, and when the next one is."""

    due: bool
    next_s: float


def round_at(view: View, interval: float, last_s: float) -> Round:
    """Returns whether a round is due, given when the last one was."""
    at = floor(view.now / interval)
    at += (at + 1) * interval <= view.now  # a quotient may be rounded down
    # A real clock wakes a little late; a wake for other news must not repeat the round.
    woke = view.changes.woke and last_s < at * interval
    due = woke or view.now == at * interval
    return Round(due and view.now != last_s, (at + 1) * interval)


def lived(view: View, lives: Mapping[int, JobAge], draft: Draft) -> tuple[JobAge, ...]:
    """Returns the histories after a draft; every new placement but the first is a restart."""
    after_all = {j: x for j, x in lives.items() if j in view.running or j in view.waiting}
    for job, before, after in draft.changes():
        if after is not None and (before is None or before.moves_to(after)):
            known = after_all.get(job)
            restarts = 0 if known is None else known.restarts + 1
            most = after.gpus if known is None else max(after.gpus, known.most_gpus)
            after_all[job] = JobAge(job, most, restarts, view.now)
    return tuple(after_all.values())


def kept_after_restart(age_s: float, restarts: int, price_s: float) -> float:
    """Returns the part of its speed that a job keeps if it restarts as often as it has so far."""
    return max((age_s - restarts * price_s) / (age_s + price_s + TINY), TINY)

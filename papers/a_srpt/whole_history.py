"""Training of the boosted forecast on a whole history at once, as fast as compiled code allows."""

from __future__ import annotations

import numpy as np

from dovetail.algorithms.compiled import compiled
from dovetail.core.job import Bools, Floats, Ints
from dovetail.forecast.boosted import Boosted
from dovetail.forecast.running_statistics import (
    OPEN,
    Moments,
    describe_row,
    learn_row,
    submit_row,
)


def study(learner: Boosted, moments: Moments, ran_s: Floats, completed: Bools) -> None:
    """Learns all moments and trains; `ran_s` and `completed` are by job."""
    log_s = np.log(np.maximum(ran_s, 1.0))
    statistics = learner.statistics
    tables = (statistics.table.rows, statistics.recent.rows, statistics.traffic.rows)
    asked = statistics.known.asked
    _replay(
        moments, log_s, completed, learner.features.rows, statistics.slot_of.rows, *tables, asked
    )
    ended = moments[1][moments[2]]
    learner.ended += ended.tolist()
    learner.log_s += log_s[ended].tolist()
    learner.train()


@compiled
def _replay(
    moments: Moments,
    log_s: Floats,
    completed: Bools,
    features: Floats,
    slot_of: Ints,
    table: Floats,
    recent: Floats,
    traffic: Floats,
    asked: Floats,
) -> None:
    """Does for a whole history what the learner does at each of its moments."""
    time_s, job_of, over = moments
    for at in range(len(time_s)):
        job, now = job_of[at], time_s[at]
        slots = slot_of[job]
        if over[at]:
            for slot in slots:
                traffic[slot, OPEN] -= 1.0
            learn_row(slots, table, recent, log_s[job], completed[job], now)
        else:
            describe_row(slots, table, recent, traffic, asked[job], now, features[job])
            submit_row(slots, traffic, now)

"""Every job at the size of its highest speed: the `-max` forms of queue policies.

Source: AFS section 5.2 and Figure 6: SRTF, SRSF and Tiresias-L with all the GPUs a job can use.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dovetail.algorithms.admission import admitted
from dovetail.core.job import Floats, Ints
from dovetail.core.passes import Because, Keys
from dovetail.core.plan import Draft
from dovetail.core.units import RELATIVE_TOLERANCE
from dovetail.core.view import View
from dovetail.mechanisms.elastic.by_count import by_key, place_whole, pool_gpus
from dovetail.mechanisms.elastic.marginal_shares import speeds
from dovetail.mechanisms.elastic.shares import widest


def peak_gpus(view: View, jobs: Ints) -> Ints:
    """Returns the fewest GPUs on which each job is fastest, within its limits and the cluster.

    A job that is not elastic, or may not be stopped, has no choice: its request.
    """
    table = view.jobs
    kinds, row = np.unique(view.physics.kind_of[jobs], return_inverse=True)
    rates = view.physics.speed.rates(widest(view))[kinds]
    before = np.maximum.accumulate(rates, axis=1)[:, :-1]
    faster = rates[:, 1:] > before * (1 + RELATIVE_TOLERANCE)
    best = np.where(faster, np.arange(1, rates.shape[1]), 0)
    best_up_to = np.maximum.accumulate(np.pad(best, ((0, 0), (1, 0))), axis=1)
    most = np.minimum(table.most_gpus[jobs], rates.shape[1] - 1)
    return np.asarray(np.maximum(best_up_to[row, most], table.least_gpus[jobs]))


def left_at_peak_s(view: View, jobs: Ints, left_s: Floats) -> tuple[Floats, Ints]:
    """Returns the time left of jobs at their peak sizes, and these sizes."""
    sizes = peak_gpus(view, jobs)
    return left_s / speeds(view, jobs, sizes[:, None])[:, 0], sizes


def waiting_left_at_peak_s(view: View, jobs: Sequence[int]) -> tuple[Floats, Ints]:
    """Returns the same for waiting jobs, as an order of the queue wants it."""
    left_s = np.array(view.progress.left_s(jobs), dtype=np.float64)
    return left_at_peak_s(view, np.array(jobs, dtype=np.int64), left_s)


def serve_at_peak(view: View, keys: Keys, bypass: str) -> tuple[Draft, Because]:
    """Gives peak sizes to the jobs of smallest key; a job runs at its peak or waits.

    Who runs is settled by counts. While nodes are away no size is larger than what is there,
    if the job can do with less.
    """
    line, pool = by_key(view, keys), pool_gpus(view)
    sizes = np.minimum(peak_gpus(view, line), pool)
    sizes = np.maximum(sizes, view.jobs.least_gpus[line])
    runs = admitted(sizes, pool, strict=bypass == "strict")
    return place_whole(view, line[runs], sizes[runs])

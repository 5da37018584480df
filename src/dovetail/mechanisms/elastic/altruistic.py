"""The altruistic pass: a queue policy at the requested sizes, then left-over GPUs to who runs.

Source: AFS section 5.5 (SRTF-E, SRSF-E); the idea is Carbyne's.
"""

from __future__ import annotations

import numpy as np

from dovetail.algorithms.admission import admitted
from dovetail.core.job import Floats, Ints
from dovetail.core.passes import Because, Keys
from dovetail.core.plan import Draft
from dovetail.core.resizing import reshare
from dovetail.core.view import View
from dovetail.mechanisms.elastic.by_count import by_key, pool_gpus
from dovetail.mechanisms.elastic.marginal_shares import grown, speeds
from dovetail.mechanisms.elastic.shares import waits


def share_left_over(view: View, keys: Keys, bypass: str) -> tuple[Draft, Because]:
    """Gives requested sizes to the jobs of smallest key, and then one GPU after the other.

    Each goes to the elastic job that runs and gains most, `(p(c+1) - p(c)) / p(1)`, up to its
    most, equal gains to the smallest key; no job starts by it. `keys` ranks the running jobs.
    """
    line, pool = by_key(view, keys), pool_gpus(view)
    sizes = view.jobs.gpus[line]
    runs = admitted(sizes, pool, strict=bypass == "strict")
    jobs, shares = line[runs], sizes[runs]
    shares = grown(view, jobs, shares, pool - int(shares.sum()), _gains_over_one)
    draft = reshare(view, dict(zip(jobs.tolist(), shares.tolist(), strict=True)))
    return draft, waits(view, draft)


def _gains_over_one(view: View, jobs: Ints, speed: Floats) -> Floats:
    alone = speeds(view, jobs, np.ones((len(jobs), 1), np.int64))
    return np.asarray(np.diff(speed, axis=1) / alone)

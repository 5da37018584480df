"""Brings elastic jobs that lie on many nodes together on few: `packing=defragment`.

The shares stay as the policy made them; which GPUs a job has is `core.defragmentation`'s choice.
"""

from __future__ import annotations

import numpy as np

from dovetail.core.defragmentation import Stake, defragment
from dovetail.core.job import Floats, Ints
from dovetail.core.plan import Draft
from dovetail.core.view import View
from dovetail.mechanisms.elastic.shares import widest

SPREAD, DEFRAGMENT = "none", "defragment"
SHORTEST_HORIZON_S = 1.0


def check_packing(packing: str, *others: str) -> None:
    """Raises ValueError unless `packing` is `none`, `defragment` or one of the others."""
    words = (SPREAD, *others, DEFRAGMENT)
    if packing not in words:
        raise ValueError(f"packing is {', '.join(words[:-1])} or {words[-1]}, not '{packing}'")


def defragmented(view: View, draft: Draft | None) -> Draft:
    """Returns a draft, or what runs now, with jobs moved where that pays.

    Each job counts the same: a second is worth as much as the job makes of it, relative to its
    speed on as many GPUs of few nodes. For mean completion time that is exact: a job that is faster
    by a tenth gains a tenth of each second that its placement stands.
    """
    draft = view.plan.draft() if draft is None else draft
    jobs = np.array([job for job in sorted(draft.placed) if view.preemptible[job]], np.int64)
    if not jobs.size or all(draft.placed[job].nodes == 1 for job in jobs.tolist()):
        return draft
    gpus = np.array([draft.placed[job].gpus for job in jobs.tolist()], np.int64)
    rate = view.physics.speed.rates(widest(view))[view.physics.kind_of[jobs], gpus]
    rate = np.where(rate > 0, rate, 1.0)
    horizon_s = np.maximum(_left_s(view, jobs) / rate, SHORTEST_HORIZON_S)
    columns = jobs.tolist(), (1.0 / rate).tolist(), horizon_s.tolist()
    stakes = {job: Stake(weight, time_s) for job, weight, time_s in zip(*columns, strict=True)}
    defragment(view, draft, [(job,) for job in jobs.tolist()], stakes)
    return draft


def _left_s(view: View, jobs: Ints) -> Floats:
    """Returns how long jobs go on, in solo seconds: without lengths, as long again as they did."""
    progress, rows = view.progress, jobs.tolist()
    left_s = progress.left_s(rows) if progress.knows_lengths else progress.done_s(rows)
    return np.array(left_s, np.float64)

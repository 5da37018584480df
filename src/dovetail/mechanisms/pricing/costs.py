"""What changes cost jobs, in seconds: by how much an allocation must gain before it changes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dovetail.core.job import Floats
from dovetail.core.messages import MOVE, RESUME
from dovetail.core.placement import Placement
from dovetail.core.view import View
from dovetail.mechanisms.elastic.shares import Contenders


class ChangeCosts(NamedTuple):
    """Seconds that a contender loses by being stopped or moved, and until more GPUs train."""

    stop_s: Floats
    grow_s: Floats


def costs_of(view: View, who: Contenders) -> ChangeCosts:
    """Returns the costs of each contender; those of a restart where it is one."""
    restart_s = view.jobs.restart_s[who.jobs]
    stop_s = max(view.switch_s[RESUME], view.switch_s[MOVE])
    grow_s = _grow_s(view)
    return ChangeCosts(
        np.where(restart_s > 0, restart_s, stop_s), np.where(restart_s > 0, restart_s, grow_s)
    )


def _grow_s(view: View) -> float:
    """Returns how long it takes until one more GPU trains: of one job that could have it."""
    jobs = view.jobs
    for job, placement in view.running.items():
        if jobs.elastic[job] and not jobs.restart_s[job] and job not in view.expanding:
            (node, gpus), *rest = placement.spans
            return view.switch_cost(job, Placement(((node, gpus + 1), *rest))).effect_s
    return 0.0

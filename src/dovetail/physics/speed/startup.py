"""How long jobs take from a start to their first iteration, where their model was timed."""

from __future__ import annotations

import numpy as np

from dovetail.core.job import JobTable
from dovetail.physics.zoo.models import Catalogue

UNKNOWN = float("nan")


def startups_s(jobs: JobTable, catalogue: Catalogue) -> tuple[float, ...]:
    """Returns the seconds for each job on its requested GPUs; not a number where not known.

    Between two counts that were timed they lie on a line, beyond the last they stay as they are.
    """
    known = [catalogue.find(name) for name in jobs.model.names]
    timed = [None if p is None or p.startup is None else p.startup.value for p in known]
    found = []
    for code, gpus in zip(jobs.model.codes.tolist(), jobs.gpus.tolist(), strict=True):
        startup = timed[code] if code >= 0 else None
        known_s = UNKNOWN if startup is None else np.interp(gpus, startup.gpus, startup.start_s)
        found.append(float(known_s))
    return tuple(found)

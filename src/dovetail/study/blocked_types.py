"""The warning that a strict queue lets the jobs of one GPU type wait for those of another."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from dovetail.core.cluster import Cluster
from dovetail.core.policy import Policy, name_of
from dovetail.core.trace import Trace


def blocked_types(trace: Trace, cluster: Cluster, policies: Iterable[Policy]) -> list[str]:
    """Returns a sentence if a policy is strict over jobs that could never use the same nodes."""
    labels = trace.jobs.gpu_type
    present = {labels.names[code].casefold() for code in np.unique(labels.codes) if code >= 0}
    types = sorted(present & {g.gpu_type.casefold() for g in cluster.groups})
    strict = [name_of(p) for p in policies if getattr(p, "bypass", "") == "strict"]
    if len(types) < 2 or not strict:
        return []
    whom = ", ".join(dict.fromkeys(strict))
    return [
        f"One queue for {' and '.join(types)}: under {whom} the first job that finds no room stops "
        "all behind it, those of the other types too. Slurm's sched/builtin stops a partition only."
    ]

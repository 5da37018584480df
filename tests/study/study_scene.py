"""A small seeded trace and cluster on which policies differ, for tests of studies."""

from functools import cache

from dovetail.core.trace import Trace
from dovetail.traces.generate import Recipe, generate

CLUSTER = "4x4"


@cache
def busy_trace(jobs: int = 400, days: float = 4.0, seed: int = 1) -> Trace:
    """Returns a few busy days for sixteen GPUs."""
    return generate(
        Recipe("philly-like", jobs=jobs, days=days, load=0.9, cluster_gpus=16, seed=seed)
    )

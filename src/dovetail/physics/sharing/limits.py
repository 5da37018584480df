"""What limits of a GPU's share do to two workers on it (GIMBAL section 4.1; ALGORITHMS 3.5).

A worker alone keeps its GPU busy for a share `u` of the time, its utilisation. A limit `l` leaves
it `cap = min(u, l)`; two caps contest what they exceed one GPU by. With both limits whole a worker
runs at 1 over the ratio of the run's `Interference`; where the caps do not meet it runs at cap / u.
"""

from __future__ import annotations

from dovetail.physics.sharing.contention import shipped_contention
from dovetail.physics.sharing.service_demand import GPU, ServiceDemand

LEAST = 1e-3
"""The least utilisation: a job that never used the GPU could not be limited by it."""


def utilization(demand: ServiceDemand) -> float:
    """Returns the share of an iteration alone in which the GPU works; the median if not known."""
    known = shipped_contention()
    if demand.model is None:
        return known.median_utilization
    return max(LEAST, demand.shares[GPU] * known.law.value.fill(demand.load))


def alone_slowdown(utilization: float, limit: float) -> float:
    """Returns iteration time over that alone and whole: `1 / min(1, l / u)`."""
    return max(1.0, utilization / limit)


def shared_slowdown(
    utilization: float, limit: float, other: float, other_limit: float, ratio: float
) -> float:
    """Returns iteration time over that alone and whole, of a worker beside another on its GPU.

    `ratio` is that of free competition, both limits whole; `other` the neighbour's utilisation.
    The loss, 1 - 1 / ratio, goes with the part of the GPU that is contested as long as it is no
    more than that part can cost; the rest (caches, memory, launching) with what the neighbour may
    use. So a squeeze slows the squeezed and speeds up its neighbour, never beyond alone, and the
    GPU never gives more than in free competition or one whole GPU.
    """
    if limit >= utilization and other_limit >= other:
        return ratio
    cap, beside = min(utilization, limit), min(other, other_limit)
    contested, most = max(0.0, cap + beside - 1), max(0.0, utilization + other - 1)
    lost = min(1 - 1 / ratio, most / utilization)
    rest = 1 - 1 / (ratio * (1 - lost))
    speed = cap / utilization - (lost * contested / most if most else 0.0)
    return 1 / (speed * (1 - rest * beside / other))

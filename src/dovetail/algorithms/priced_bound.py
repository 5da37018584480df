"""A bound certified by prices of GPU time.

Let every GPU-second of interval i have a price `p_i >= 0`, in seconds of flow. Every schedule pays
for the capacity it uses, which is at most all of it, so

    sum of flows >= sum over jobs of min over the job's own schedules (flow + price of its area)
                    - price of all the capacity.

Each job's minimum is computed exactly, in continuous time and with its true finish. So any prices
certify a bound: those of a coarse grid, of a sample of the jobs, or of a solver stopped early.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush, heapreplace

import numpy as np

from dovetail.algorithms.arrays import Floats
from dovetail.algorithms.demand import JobDemand
from dovetail.algorithms.speed import SpeedTimeline

INF = float("inf")


@dataclass(frozen=True, slots=True)
class Prices:
    """A price per GPU-second in each interval `edge_s[i]` to `edge_s[i + 1]`; free elsewhere."""

    edge_s: Floats
    per_gpu_s: Floats

    def __post_init__(self) -> None:
        if self.edge_s.size != self.per_gpu_s.size + 1 or bool((np.diff(self.edge_s) <= 0).any()):
            raise ValueError("prices need ascending edges, one more than there are prices")
        if not np.isfinite(self.per_gpu_s).all() or bool((self.per_gpu_s < 0).any()):
            raise ValueError("prices must be finite and not negative")


def priced_flow_s(demand: JobDemand, capacity: SpeedTimeline, prices: Prices) -> float:
    """Returns the least sum of flow times that prices certify. Zero prices certify the span."""
    everything = float(prices.per_gpu_s @ np.diff(capacity.work_by(prices.edge_s)))
    return float(least_payments_s(demand, prices).sum()) - everything


def least_payments_s(demand: JobDemand, prices: Prices) -> Floats:
    """Returns, per job, the least of its flow plus the price of the area it uses."""
    edges = [-INF, *prices.edge_s.tolist(), INF]
    price = [0.0, *prices.per_gpu_s.tolist(), 0.0]
    first_interval = np.searchsorted(prices.edge_s, demand.release_s, side="right").tolist()
    release = demand.release_s.tolist()
    first = demand.segments.first.tolist()
    thrift = (1 / demand.segments.rate_per_gpu_s).tolist()
    rate = (demand.segments.rate_per_gpu_s * demand.segments.width_gpus).tolist()
    paid = demand.shortest_s.copy()
    for job in np.flatnonzero(np.diff(demand.segments.first)).tolist():
        own = list(zip(thrift[first[job] : first[job + 1]], rate[first[job] :], strict=False))
        paid[job] = _least_payment(release[job], own, edges, price, first_interval[job])
    return paid


def _least_payment(
    release_s: float,
    segments: list[tuple[float, float]],
    edges: list[float],
    price: list[float],
    interval: int,
) -> float:
    """Returns the least of (end - release + payment) over all ends, for one job.

    Time runs from the release on. The basket is always the cheapest progress offered so far, 1 in
    all, dearest on top; progress that is not yet available costs infinitely much. Newer, cheaper
    progress replaces the dearest. Between changes of the basket the payment falls linearly, so its
    least value is at a change. Segments are (GPU-seconds per progress, rate).
    """
    basket = _Basket([(-INF, 1.0)])
    now, best = release_s, INF
    while now - release_s < best and interval < len(price):
        offers = [(price[interval] * gpu_s, rate) for gpu_s, rate in segments]
        until = edges[interval + 1]
        best = min(best, basket.trade(offers, now - release_s, until - release_s))
        now, interval = until, interval + 1
    return best


@dataclass(slots=True)
class _Basket:
    """Progress bought so far: (-cost, amount), dearest on top, and the cost of its finite part."""

    bought: list[tuple[float, float]]
    owed: float = 0.0

    def trade(self, offers: list[tuple[float, float]], flow_s: float, until_s: float) -> float:
        """Replaces dear progress by offers (cost, rate; cheapest first) while time runs.

        Returns the least of time + payment on the way. The progress bought from one offer stays
        one lot until the end of the interval: a lot per step would multiply lots without bound.
        """
        lots = [0.0] * len(offers)
        best = INF
        while flow_s < until_s:
            lot = self._dearest_lot(offers, lots)
            dearest, amount = (offers[lot][0], lots[lot]) if lot >= 0 else self._top()
            buying = sum(cost < dearest for cost, _ in offers)
            if not buying:
                break
            speed = sum(rate for _, rate in offers[:buying])
            whole = amount / speed
            step = min(whole, until_s - flow_s)
            rest = amount - step * speed if step < whole else 0.0
            if lot >= 0:
                lots[lot] = rest
            else:
                self._replace_top(dearest, rest)
            for k in range(buying):
                lots[k] += offers[k][1] * step
                self.owed += offers[k][0] * offers[k][1] * step
            flow_s += step
            if dearest < INF:
                self.owed -= dearest * step * speed
            # While some progress costs infinitely much, the job is not complete.
            if not (self.bought and self.bought[0][0] == -INF):
                best = min(best, flow_s + self.owed)
        for (cost, _), amount in zip(offers, lots, strict=True):
            if amount > 0:
                heappush(self.bought, (-cost, amount))
        return best

    def _dearest_lot(self, offers: list[tuple[float, float]], lots: list[float]) -> int:
        """Returns the dearest lot of this interval; -1 if older progress costs more."""
        lot = max((k for k, amount in enumerate(lots) if amount > 0), default=-1)
        older_is_dearer = self.bought and -self.bought[0][0] > offers[lot][0]
        return -1 if lot < 0 or older_is_dearer else lot

    def _top(self) -> tuple[float, float]:
        """Returns cost and amount of the dearest older progress."""
        return -self.bought[0][0], self.bought[0][1]

    def _replace_top(self, cost: float, rest: float) -> None:
        """Leaves `rest` of the dearest older progress."""
        if rest > 0:
            heapreplace(self.bought, (-cost, rest))
        else:
            heappop(self.bought)

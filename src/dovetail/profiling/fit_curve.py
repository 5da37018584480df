"""Fits equation (7) to a scaling curve: iteration times at the default batch, well placed.

A curve holds few points, so what the testbed is known to have bounds the search: no link is
faster than its data sheet. Where the exchange was timed apart from the iteration, the links
are fitted to it alone and only the overlap to the iterations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dovetail.physics.speed.compute import Compute, overlapped_s
from dovetail.physics.speed.network import Network, RingLink
from dovetail.physics.zoo.profile import Batch, Curve, FitError
from dovetail.profiling.fit_placements import error_of
from dovetail.profiling.least_squares import solve_least_squares

Floats = NDArray[np.float64]

FIXED_SHARE = 0.1
"""Assumed part of an iteration that does not grow with the batch, where only one was measured."""

OVERLAP_MAX = 10.0
OVERLAP_STARTS = (1.0, 0.05, 5.0)
"""Where d - 1 starts; the first is also what an overlap that the points leave open stays near."""
FASTEST_LINK = 150e9
"""Bytes/s one GPU can send over NVLink of the V100's generation, in one direction."""

PULL = 1e-2
"""How strongly a parameter that the points leave open is held at its start."""


@dataclass(frozen=True, slots=True)
class Servers:
    """Where a curve was measured: GPUs per server and the fastest its links can be, bytes/s."""

    gpus_per_node: int
    within: float
    across: float


@dataclass(frozen=True, slots=True)
class CurveFit:
    """The parameters of a curve, and the errors when each of its points is left out in turn."""

    compute: Compute
    overlap: float
    network: Network
    left_out: FitError | None = None


def measured_points(curve: Curve) -> Curve:
    """Returns a curve without the points that lie on the straight line of their neighbours.

    The published tables are filled in that way, rounded to a microsecond.
    """
    gpus, times = curve.gpus, curve.iteration_s
    inner = range(1, len(gpus) - 1)
    on_line = {i for i in inner if abs(times[i] - (times[i - 1] + times[i + 1]) / 2) < 2.1e-6}
    kept = [i for i in range(len(gpus)) if i not in on_line]
    return Curve(tuple(gpus[i] for i in kept), tuple(times[i] for i in kept))


def fit_curve(curve: Curve, batch: Batch, servers: Servers, gradient_bytes: float) -> CurveFit:
    """Returns the parameters of a strong scaling curve within the testbed's bounds."""
    points = measured_points(curve)
    problem = _Problem(batch, servers, gradient_bytes, points.iteration_s[0])
    gpus, times = np.array(points.gpus, float), np.array(points.iteration_s)
    x = problem.solve(gpus, times)
    ring_s = x[3] + x[4]
    return CurveFit(
        compute=Compute(float(x[0]), float(x[1])),
        overlap=1 + float(x[5]),
        network=Network(
            RingLink(float(x[2]), gradient_bytes / float(x[3])),
            RingLink(float(x[2]), gradient_bytes / float(ring_s)),
        ),
        left_out=_left_out(problem, gpus, times),
    )


@dataclass(frozen=True, slots=True)
class _Problem:
    """The search for x: a, b, seconds a hop, seconds for all bytes inside a node and what they
    grow by across nodes, d - 1."""

    batch: Batch
    servers: Servers
    gradient_bytes: float
    alone_s: float

    def predicted_s(self, x: Floats, gpus: Floats) -> Floats:
        """Returns equation (7) with as few steps as memory allows."""
        each = self.batch.size / gpus
        steps = np.maximum(1, np.ceil(each / self.batch.max_per_gpu - 1e-9))
        micro_s = x[0] + x[1] * each / steps
        hops = 2 * (gpus - 1)
        bytes_s = x[3] + (gpus > self.servers.gpus_per_node) * x[4]
        comm_s = hops * x[2] + hops / gpus * bytes_s
        last_s = overlapped_s(micro_s, comm_s, 1 + float(x[5]))
        return np.asarray((steps - 1) * micro_s + last_s)

    def solve(self, gpus: Floats, times: Floats) -> Floats:
        """Returns x that fits the points best."""
        start, low = np.log(self._start()), np.log(self._low())
        high = np.log([1e2, 1e2, 1.0, 1e2, 1e2, OVERLAP_MAX - 1])
        # Some curves have a second valley, of little overlap or of much.
        starts = [np.append(start[:-1], np.log(excess)) for excess in OVERLAP_STARTS]

        def residuals(x: Floats) -> Floats:
            misfit = np.log(self.predicted_s(np.exp(x), gpus) / times)
            return np.concatenate([misfit, PULL * (x - start)])

        return np.exp(solve_least_squares(residuals, starts, (low, high)))

    def _start(self) -> list[float]:
        slope = 0.95 * self.alone_s / self.batch.size
        seconds = [2 * limit for limit in self._bytes_s_min()]
        return [0.02 * self.alone_s, slope, 1e-5, *seconds, OVERLAP_STARTS[0]]

    def _low(self) -> list[float]:
        return [1e-9, 1e-12, 1e-9, *self._bytes_s_min(), 1e-3]

    def _bytes_s_min(self) -> tuple[float, float]:
        inside_s = self.gradient_bytes / self.servers.within
        return inside_s, self.gradient_bytes / self.servers.across - inside_s


def _left_out(problem: _Problem, gpus: Floats, times: Floats) -> FitError | None:
    """Returns the errors at each inner point of a fit without it; None with too few points."""
    unknowns = 6
    if len(times) <= unknowns + 1:
        return None
    inner = range(1, len(times) - 1)
    predicted = [
        problem.predicted_s(problem.solve(np.delete(gpus, i), np.delete(times, i)), gpus)[i]
        for i in inner
    ]
    return error_of(np.array(predicted), times[1:-1])


def fit_timed_exchange(
    curve: Curve,
    exchange_s: Sequence[float],
    batch: Batch,
    *,
    gpus_per_node: int,
    gradient_bytes: float,
) -> CurveFit:
    """Returns the parameters of a weak scaling curve whose all-reduce was timed by itself.

    The links are a non-negative least squares on the exchange times; the overlap is what
    brings equation (7) nearest to the iteration times.
    """
    from scipy.optimize import minimize_scalar

    gpus, times = np.array(curve.gpus, float), np.array(curve.iteration_s)
    rows = _ring_rows(gpus, gpus_per_node)
    x = _timed_ring(rows, np.array(exchange_s), gradient_bytes / FASTEST_LINK)
    comm_s = rows @ x

    def misfit(overlap: float) -> float:
        return float(np.sum(np.log(overlapped_s(times[0], comm_s, overlap) / times) ** 2))

    found = minimize_scalar(misfit, bounds=(1.0, OVERLAP_MAX), method="bounded")
    alone_s = curve.iteration_s[0]
    return CurveFit(
        compute=Compute(FIXED_SHARE * alone_s, (1 - FIXED_SHARE) * alone_s / batch.size),
        overlap=float(found.x),
        network=Network(
            RingLink(float(x[0]), gradient_bytes / float(x[1])),
            RingLink(float(x[0] + x[2]), gradient_bytes / float(x[1] + x[3])),
        ),
    )


def _timed_ring(rows: Floats, timed_s: Floats, least_s: float) -> Floats:
    """Returns seconds a hop, for all bytes (at least `least_s`), and what both grow by outside."""
    from scipy.optimize import nnls

    seen = timed_s > 0
    above_s = np.maximum(timed_s - rows[:, 1] * least_s, 0)
    x = nnls(rows[seen] / timed_s[seen, None], above_s[seen] / timed_s[seen])[0]
    x[1] += least_s
    return np.asarray(x)


def _ring_rows(gpus: Floats, gpus_per_node: int) -> Floats:
    """Returns what multiplies a hop and all bytes, and what both grow by across nodes."""
    hops = 2 * (gpus - 1)
    across = gpus > gpus_per_node
    return np.column_stack([hops, hops / gpus, hops * across, hops / gpus * across])

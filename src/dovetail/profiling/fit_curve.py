"""Fits equation (7) to a scaling curve: iteration times at the default batch, well placed.

A curve holds few points, so what the testbed is known to have bounds the search: no link is
faster than its data sheet.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dovetail.physics.speed.compute import Compute, overlapped_s
from dovetail.physics.speed.network import Network, RingLink
from dovetail.physics.zoo.profile import Batch, Curve
from dovetail.profiling.least_squares import solve_least_squares

Floats = NDArray[np.float64]

FIXED_SHARE = 0.1
"""Assumed part of an iteration that does not grow with the batch, where only one was measured."""

OVERLAP_MAX = 10.0
OVERLAP_STARTS = (1.0, 0.05, 5.0)
"""Where d - 1 starts; the first is also what an overlap that the points leave open stays near."""
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
    """The parameters of a curve."""

    compute: Compute
    overlap: float
    network: Network


def fit_curve(curve: Curve, batch: Batch, servers: Servers, gradient_bytes: float) -> CurveFit:
    """Returns the parameters of a strong scaling curve within the testbed's bounds."""
    problem = CurveProblem(batch, servers, gradient_bytes, curve.iteration_s[0])
    x = problem.solve(np.array(curve.gpus, float), np.array(curve.iteration_s))
    ring_s = x[3] + x[4]
    return CurveFit(
        compute=Compute(float(x[0]), float(x[1])),
        overlap=1 + float(x[5]),
        network=Network(
            RingLink(float(x[2]), gradient_bytes / float(x[3])),
            RingLink(float(x[2]), gradient_bytes / float(ring_s)),
        ),
    )


@dataclass(frozen=True, slots=True)
class CurveProblem:
    """The search for x: a, b, seconds a hop, seconds for all bytes inside a node and what they
    grow by across nodes, d - 1.
    """

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

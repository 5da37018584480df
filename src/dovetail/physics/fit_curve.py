"""Fits equation (7) to a scaling curve: iteration times at the default batch, well placed.

A curve alone cannot tell how much communication hides behind computing, so d = 1 and what is
fitted is the communication that shows. The problem is then linear in its unknowns, none of
which may be negative: a non-negative least squares on relative errors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dovetail.physics.compute import Compute
from dovetail.physics.fit_placements import error_of
from dovetail.physics.network import Network, RingLink
from dovetail.physics.profile import Batch, Curve, FitError

Floats = NDArray[np.float64]

BANDWIDTH_MAX = 1e12
"""Bytes/s that stand for a link whose bandwidth cannot be seen in the curve."""

FIXED_SHARE = 0.1
"""Assumed part of an iteration that does not grow with the batch, where only one was measured."""


@dataclass(frozen=True, slots=True)
class CurveFit:
    """The parameters of a curve, and the errors when each of its points is left out in turn."""

    compute: Compute
    network: Network
    left_out: FitError | None


def measured_points(curve: Curve) -> Curve:
    """Returns a curve without the points that lie on the straight line of their neighbours.

    The published tables are filled in that way, rounded to a microsecond.
    """
    gpus, times = curve.gpus, curve.iteration_s
    inner = range(1, len(gpus) - 1)
    on_line = {i for i in inner if abs(times[i] - (times[i - 1] + times[i + 1]) / 2) < 2.1e-6}
    kept = [i for i in range(len(gpus)) if i not in on_line]
    return Curve(tuple(gpus[i] for i in kept), tuple(times[i] for i in kept))


def fit_curve(curve: Curve, batch: Batch, *, gpus_per_node: int, gradient_bytes: float) -> CurveFit:
    """Returns the parameters that fit the points of a curve best."""
    points = measured_points(curve)
    rows = _rows(points.gpus, batch, gpus_per_node)
    times = np.array(points.iteration_s)
    x = _solve(rows, times)
    return CurveFit(_compute(x, batch), _network(x, gradient_bytes), _left_out(rows, times))


def _rows(gpus: tuple[int, ...], batch: Batch, gpus_per_node: int) -> Floats:
    """Returns one row per point: what multiplies a, b, hop and bytes inside, and their growth."""
    return np.array([_row(n, batch, gpus_per_node) for n in gpus], dtype=np.float64)


def _row(gpus: int, batch: Batch, gpus_per_node: int) -> list[float]:
    each = batch.on_each_of(gpus)
    steps = max(1, math.ceil(each / batch.max_per_gpu - 1e-9))
    if batch.per_gpu:
        computing = [0.0, each / (1 - FIXED_SHARE)]
    else:
        computing = [float(steps), each]
    hops = 2.0 * (gpus - 1)
    inside = [hops, hops / gpus]
    across = inside if gpus > gpus_per_node else [0.0, 0.0]
    return [*computing, *inside, *across]


def _solve(rows: Floats, times: Floats) -> Floats:
    from scipy.optimize import nnls

    return np.asarray(nnls(rows / times[:, None], np.ones(len(times)))[0])


def _compute(x: Floats, batch: Batch) -> Compute:
    if batch.per_gpu:
        whole_s = float(x[1]) * batch.size / (1 - FIXED_SHARE)
        return Compute(FIXED_SHARE * whole_s, float(x[1]))
    return Compute(float(x[0]), float(x[1]))


def _network(x: Floats, gradient_bytes: float) -> Network:
    def ring(hop_s: float, bytes_s: float) -> RingLink:
        return RingLink(hop_s, min(BANDWIDTH_MAX, gradient_bytes / max(bytes_s, 1e-12)))

    within = ring(float(x[2]), float(x[3]))
    return Network(within, ring(float(x[2] + x[4]), float(x[3] + x[5])))


def _left_out(rows: Floats, times: Floats) -> FitError | None:
    """Returns the errors at each inner point of a fit without it; None with too few points."""
    unknowns = np.count_nonzero(rows.any(axis=0))
    if len(times) <= unknowns + 1:
        return None
    predicted = [
        rows[i] @ _solve(np.delete(rows, i, axis=0), np.delete(times, i))
        for i in range(1, len(times) - 1)
    ]
    return error_of(np.array(predicted), times[1:-1])

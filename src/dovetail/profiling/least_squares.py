"""Least squares whose answer follows from the data, not from where an optimizer happens to stop.

A search that ends once a step gains little ends anywhere in a flat valley: on which side depends
on the last bit of an exponential or of a dot product, and these differ between processors. So the
best of a few searches is refined until rounding ends it, and a parameter that no point can tell
from its lower bound is set to that bound. On two processors, two BLAS kernels, or with each input
changed by 1e-12 of itself, the answers then agree to better than 1e-5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dovetail.physics.zoo.profile import FitError

Floats = NDArray[np.float64]

OPEN = 1e-6
"""A parameter is open where a change by one changes all residuals by less than this (2-norm)."""
COARSE = 1e-5
"""The gain of a step, in parts of the misfit, at which a first search ends."""
REFINED = 1e-14
"""The step, gain and gradient at which a refined search ends: rounding stops it before."""
REFINED_CALLS = 5000


def solve_least_squares(
    residuals: Callable[[Floats], Floats],
    starts: Sequence[Floats | Sequence[float]],
    bounds: tuple[Floats | Sequence[float], Floats | Sequence[float]],
    *,
    loss: Literal["linear", "soft_l1"] = "linear",
    f_scale: float = 1.0,
) -> Floats:
    """Returns the parameters within bounds that fit best, of those that some start leads to."""
    from scipy.optimize import least_squares

    low, high = np.asarray(bounds[0], float), np.asarray(bounds[1], float)
    searches = [
        least_squares(
            residuals,
            np.clip(start, low, high),
            bounds=(low, high),
            loss=loss,
            f_scale=f_scale,
            ftol=COARSE,
            max_nfev=600,
        )
        for start in starts
    ]
    best = min(searches, key=lambda search: float(search.cost))
    refined = least_squares(
        residuals,
        best.x,
        bounds=(low, high),
        jac="3-point",
        loss=loss,
        f_scale=f_scale,
        ftol=REFINED,
        xtol=REFINED,
        gtol=REFINED,
        max_nfev=REFINED_CALLS,
    )
    moves = np.linalg.norm(np.asarray(refined.jac), axis=0)
    return np.where(moves < OPEN, low, refined.x)


def error_of(predicted_s: Floats, measured_s: Floats) -> FitError:
    """Returns the relative errors of predictions: mean, 90th percentile (nearest rank), worst."""
    error = np.sort(np.abs(predicted_s / measured_s - 1))
    p90 = error[max(0, int(np.ceil(0.9 * len(error))) - 1)]
    return FitError(len(error), float(error.mean()), float(p90), float(error[-1]))

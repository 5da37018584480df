"""A guessed throughput, rescaled to what was measured of it.

Overestimate first and re-adjust later (CoDDL, AFS section 4.5): beyond the largest measured number
of GPUs throughput is taken to be linear, and between and below measured numbers to be as much as a
job could reach that never gains more than in proportion and never gets slower with more GPUs.
A policy that shares out GPUs by it tries what looks good and learns what it is worth.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dovetail.core.job import Floats


def rescale_curve(guess: Floats, measured: Mapping[int, float], *, trusted: bool) -> Floats:
    """Returns the throughput on 0, 1, ... GPUs: as measured, overestimated where it was not.

    `guess` is a throughput in any unit, by GPUs; with `trusted` its shape is kept, unless it says
    that a job cannot run where it did.
    """
    counts = np.arange(len(guess))
    known = np.array(sorted(measured), np.int64)
    values = np.array([measured[n] for n in known.tolist()])
    if trusted and (guess[known] > 0).all():
        factor = np.interp(counts, known, values / guess[known])
        curve: Floats = guess * factor
    else:
        above = np.minimum(np.searchsorted(known, counts), len(known) - 1)
        below = np.maximum(np.searchsorted(known, counts, side="right") - 1, 0)
        in_proportion = np.where(
            counts >= known[0], values[below] * counts / known[below], values[0]
        )
        ceiling = np.where(counts <= known[-1], np.maximum(values[above], values[below]), np.inf)
        curve = np.minimum(in_proportion, ceiling)
    curve[known] = values
    curve[0] = 0.0
    return curve

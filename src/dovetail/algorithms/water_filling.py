"""Max-Min shares: whole GPUs until the pool or every cap is used up; ties by array order."""

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]


def water_filling(caps_gpus: npt.ArrayLike, pool_gpus: int) -> IntArray:
    """Returns each job's share, as if GPUs were handed out one at a time to the poorest job.

    The poorest job below its cap gets the next GPU; ties go to the earlier position. So when
    there are more jobs than GPUs, the first `pool_gpus` of them get one each. O(n log n).
    """
    caps = np.asarray(caps_gpus, dtype=np.int64)
    if caps.ndim != 1 or bool((caps < 0).any()) or pool_gpus < 0:
        raise ValueError("water filling needs a list of caps and a pool, none negative")
    level = _water_level(caps, pool_gpus)
    shares = np.minimum(caps, level)
    thirsty = np.flatnonzero(caps > level)
    shares[thirsty[: pool_gpus - int(shares.sum())]] += 1
    return shares


def water_filling_from(low_gpus: IntArray, caps_gpus: IntArray, pool_gpus: int) -> IntArray:
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
        if int(np.clip(middle, low, caps).sum()) <= pool_gpus:
            level = middle
        else:
            beyond = middle
    shares: IntArray = np.clip(level, low, caps)
    thirsty = np.flatnonzero((shares == level) & (caps > level))
    shares[thirsty[: pool_gpus - int(shares.sum())]] += 1
    return shares


def _water_level(caps: IntArray, pool_gpus: int) -> int:
    """Returns the largest whole level at which `sum(min(cap, level))` still fits the pool.

    With caps ascending, `poured[k]` is what a level of `ascending[k]` takes; above the last
    such level that fits, the jobs from there on rise together.
    """
    ascending = np.sort(caps)
    below = np.concatenate(([0], np.cumsum(ascending)))
    above = np.arange(caps.size, 0, -1)
    poured = below[:-1] + ascending * above
    fits = int(np.searchsorted(poured, pool_gpus, side="right"))
    if fits == caps.size:
        return int(ascending[-1]) if caps.size else 0
    return int((pool_gpus - below[fits]) // above[fits])

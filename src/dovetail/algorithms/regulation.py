"""Network packing's regulation of shares (CoDDL: section 4.4 and appendix E of the AFS paper).

Machines have 2^k GPUs. A share is allowed if it is nothing, a power of two below a machine, or
whole machines; then jobs can be placed so that each uses as few machines as it can and no machine
has two jobs that use the network (`machine_packing`). Regulation changes shares to allowed ones,
nearest in sum, and never below the largest allowed share that fits.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dovetail.algorithms.arrays import Ints

EXACT_STATES_MAX = 300_000
"""Jobs that can grow x (idle GPUs + 1) up to which the optimum is searched; above, growth moves.

A state takes about 5 ns, three times as long where the table outgrows the processor's cache. 1,868
GPUs are always searched (1 ms); 10,000 GPUs use moves from some 400 jobs on, at most 0.3 % more
difference (`python -m benchmarks.afs_kernel`).
"""


def is_allowed(share: int, gpus_per_machine: int) -> bool:
    """Returns whether a share is 0, a power of two below a machine, or whole machines."""
    if share >= gpus_per_machine:
        return share % gpus_per_machine == 0
    return share >= 0 and share & (share - 1) == 0


def guarantee(shares: npt.ArrayLike, gpus_per_machine: int) -> Ints:
    """Returns the largest allowed shares not above the given ones (x in Proposition 2)."""
    counts = np.asarray(shares, dtype=np.int64)
    whole = counts // gpus_per_machine * gpus_per_machine
    bits = np.frexp(np.maximum(counts, 1).astype(np.float64))[1]  # exact: shares are below 2^53
    below = np.where(counts > 0, 1 << (bits.astype(np.int64) - 1), 0)
    return np.where(counts >= gpus_per_machine, whole, below)


def regulate(
    shares: npt.ArrayLike, caps: npt.ArrayLike, gpus_per_machine: int, machines: int
) -> Ints:
    """Returns allowed shares with the least sum of differences to the given ones.

    No share is below its guarantee or above its cap, and 0 stays 0. The sum is that of the given
    shares or, where caps and parts of machines forbid it, as near below as possible. Of equal
    optima the job earlier in the order gets more. Beyond `EXACT_STATES_MAX` Proposition 2's growth
    moves guarantee all this but the least sum of differences.
    """
    targets = np.asarray(shares, dtype=np.int64)
    most = np.asarray(caps, dtype=np.int64)
    _check(targets, most, gpus_per_machine, machines)
    sure = guarantee(targets, gpus_per_machine)
    idle = int(targets.sum() - sure.sum())
    nearest = np.where(sure < gpus_per_machine, sure * 2, sure + gpus_per_machine)
    growing = np.flatnonzero((sure > 0) & (nearest <= most) & (nearest - sure <= idle))
    if not idle or not growing.size:
        return sure
    if growing.size * (idle + 1) > EXACT_STATES_MAX:
        return grown_by_moves(targets, most, gpus_per_machine)
    from dovetail.algorithms.regulation_compiled import nearest_shares

    regulated = sure.copy()
    regulated[growing] = nearest_shares(
        targets[growing], sure[growing], most[growing], gpus_per_machine, idle
    )
    return regulated


def grown_by_moves(targets: Ints, caps: Ints, gpus_per_machine: int) -> Ints:
    """Returns allowed shares by the growth moves in the proof of Proposition 2.

    A job of part of a machine doubles, a job of whole machines gets one more. First each job may
    grow once, in order of lost GPUs regained per GPU of the move; then all jobs grow in order as
    often as there is room. At the end no move is possible.
    """
    grown = guarantee(targets, gpus_per_machine)
    idle = int(targets.sum() - grown.sum())
    steps = np.minimum(np.maximum(grown, 1), gpus_per_machine)
    regained = (targets - grown) / steps
    for j in np.argsort(-regained, kind="stable").tolist():
        if grown[j] > 0 and targets[j] > grown[j]:
            idle -= _grow(grown, j, 1, int(caps[j]), idle, gpus_per_machine)
    for j in np.flatnonzero(grown).tolist():
        idle -= _grow(grown, j, idle, int(caps[j]), idle, gpus_per_machine)
    return grown


def _grow(grown: Ints, j: int, moves: int, cap: int, idle: int, gpus_per_machine: int) -> int:
    """Grows one job by at most `moves` moves; returns the GPUs used."""
    share = before = int(grown[j])
    for _ in range(moves):
        step = min(share, gpus_per_machine)
        if share + step > cap or share + step - before > idle:
            break
        share += step
    grown[j] = share
    return share - before


def _check(targets: Ints, caps: Ints, gpus_per_machine: int, machines: int) -> None:
    if gpus_per_machine < 1 or gpus_per_machine & (gpus_per_machine - 1):
        raise ValueError("network packing needs machines of 1, 2, 4, 8, ... GPUs")
    if targets.ndim != 1 or targets.shape != caps.shape:
        raise ValueError("every job needs a share and a cap")
    if bool((targets < 0).any() or (caps < targets).any()):
        raise ValueError("a share lies between nothing and its cap")
    if int(targets.sum()) > machines * gpus_per_machine:
        raise ValueError("the shares are more than the machines have")

"""Two jobs on the same GPUs: share now or one after the other (SJF-BSBF section V.A, Theorem 1).

A host runs and has `host_s` solo seconds left; a newcomer needs `guest_s`. While both run each
is slower by its ratio of shared to alone iteration time. The sum of both completion times is
smallest when the newcomer starts at once or when the host has ended, whatever the ratios
(ALGORITHMS section 1.2), so the two ends are compared. Times are seconds from now.
"""

from __future__ import annotations

import numpy as np

from dovetail.algorithms.arrays import Floats
from dovetail.core.units import NEVER_S, RELATIVE_TOLERANCE


def overlapped_s(host_s: float, guest_s: float, host_ratio: float, guest_ratio: float) -> float:
    """Returns the sum of both completions when the newcomer starts at once (section 1.2, S_ovl)."""
    if host_ratio * host_s <= guest_ratio * guest_s:
        return guest_s + host_ratio * host_s * (2.0 - 1.0 / guest_ratio)
    return host_s + guest_ratio * guest_s * (2.0 - 1.0 / host_ratio)


def overlapped_many_s(
    host_s: Floats, guest_s: Floats, host_ratio: Floats, guest_ratio: Floats
) -> Floats:
    """Returns `overlapped_s` of many pairs at once, to the last bit."""
    host, guest = host_ratio * host_s, guest_ratio * guest_s
    return np.where(
        host <= guest,
        guest_s + host * (2.0 - 1.0 / guest_ratio),
        host_s + guest * (2.0 - 1.0 / host_ratio),
    )


def ends_many_s(
    host_s: Floats, guest_s: Floats, host_ratio: Floats, guest_ratio: Floats
) -> tuple[Floats, Floats]:
    """Returns when the hosts and when the newcomers of pairs end; their sum is S_ovl."""
    host, guest = host_ratio * host_s, guest_ratio * guest_s
    first = host <= guest
    return (
        np.where(first, host, host_s + guest * (1.0 - 1.0 / host_ratio)),
        np.where(first, guest_s + host * (1.0 - 1.0 / guest_ratio), guest),
    )


def sequential_s(host_s: float, guest_s: float) -> float:
    """Returns the sum of both completions when the newcomer waits for the host (S_seq)."""
    return 2.0 * host_s + guest_s


def pays(overlapped: float, sequential: float) -> bool:
    """Returns whether sharing is better by more than the tolerance."""
    return overlapped < sequential * (1.0 - RELATIVE_TOLERANCE)


def threshold_many(host_ratio: Floats, guest_ratio: Floats, cut: Floats, uncut: Floats) -> Floats:
    """Returns the ratios of newcomer's to host's solo seconds below which sharing pays.

    `cut` and `uncut` are the newcomer's times shared and alone over its solo seconds; all arrays
    have one shape. The gain is linear in both lengths and grows with the host's, so one ratio
    decides. With one interference ratio it is 1 / (2 (ratio - 1)) from 1.5 on; below 1.5 sharing
    always pays, until the gain is smaller than the tolerance (section 1.2).
    """
    waits = 1.0 - RELATIVE_TOLERANCE
    # Where both end at once, for a host of one second.
    even = host_ratio / (guest_ratio * cut)
    at_even = overlapped_many_s(np.ones_like(even), even * cut, host_ratio, guest_ratio)
    before = cut - waits * uncut
    after = guest_ratio * cut * (2.0 - 1.0 / host_ratio) - waits * uncut
    pays_at_even = at_even < waits * (2.0 + even * uncut)
    slope = np.where(pays_at_even, before, after)
    early = waits * 2.0 - host_ratio * (2.0 - 1.0 / guest_ratio)
    reach = np.where(pays_at_even, early, 2.0 * waits - 1.0)
    return np.divide(reach, slope, out=np.full_like(reach, NEVER_S), where=slope > 0.0)

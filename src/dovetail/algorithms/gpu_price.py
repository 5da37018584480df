"""GPUs for the buyers that gain most from each, and the price at which all are sold.

Row i of `values` has what buyer i makes of 0, 1, 2, ... GPUs: 0 of none, -inf of a number that it
cannot use. The next GPUs go where the gain per GPU is largest, over jumps of any size: a job that
gains nothing from one GPU more, but much from four, gets the four. That is the rule of Fox (1966)
on the concave hull of each row, which is optimal up to the last jump, followed by the largest jumps
that fit what is left.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dovetail.algorithms.arrays import Floats, Ints


class Sale(NamedTuple):
    """The GPUs of each buyer, and the price: the gain per GPU of the best jump that found no room.

    It is 0 if all found room. `last` is the buyer of the last GPU sold, -1 if none was.
    """

    gpus: Ints
    price: float
    last: int = -1


class Jumps(NamedTuple):
    """All jumps along the hulls, a row for each: the first ones of all buyers, then the second.

    A stable sort by slope keeps those of one buyer in order.
    """

    buyer: Ints
    size: Ints
    slope: Floats


def sell(values: Floats, gpus: int) -> Sale:
    """Returns who gets how many of `gpus` GPUs."""
    from dovetail.algorithms.gpu_price_compiled import best_jump

    jumps = hull_jumps(values)
    order = np.argsort(-jumps.slope, kind="stable")
    sold = np.cumsum(jumps.size[order])
    fits = int(np.searchsorted(sold, gpus, side="right"))
    taken = order[:fits]
    held = np.bincount(jumps.buyer[taken], jumps.size[taken], len(values)).astype(np.int64)
    last = int(jumps.buyer[taken[-1]]) if fits else -1
    if fits == len(order):
        return Sale(held, 0.0, last)
    price = float(jumps.slope[order[fits]])
    rest = gpus - int(sold[fits - 1] if fits else 0)
    while rest:
        row, size = best_jump(values, held, rest)
        if not size:
            break
        held[row] += size
        rest -= size
        last = row
    return Sale(held, price, last)


def hull_jumps(values: Floats) -> Jumps:
    """Returns the jumps of every buyer along the concave hull of its values, from none on."""
    from dovetail.algorithms.gpu_price_compiled import hulls

    return Jumps(*hulls(np.ascontiguousarray(values)))

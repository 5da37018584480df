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
    """All jumps along the hulls, the best of each buyer before its next: a row for each."""

    buyer: Ints
    size: Ints
    slope: Floats


def sell(values: Floats, gpus: int) -> Sale:
    """Returns who gets how many of `gpus` GPUs."""
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
        slope, size = best_jumps(values, held, rest)
        best = int(np.argmax(slope))
        if slope[best] <= 0:
            break
        held[best] += size[best]
        rest -= int(size[best])
        last = best
    return Sale(held, price, last)


def hull_jumps(values: Floats) -> Jumps:
    """Returns the jumps of every buyer along the concave hull of its values, from none on."""
    rows = np.arange(len(values))
    at = np.zeros(len(values), np.int64)
    found: list[Jumps] = []
    while rows.size:
        slope, size = best_jumps(values[rows], at, values.shape[1] - 1)
        gains = slope > 0
        rows, at, size = rows[gains], at[gains] + size[gains], size[gains]
        found.append(Jumps(rows, size, slope[gains]))
    # Column by column: the first jumps of all, then the second ones, so that a stable sort keeps
    # the jumps of one buyer in order.
    return (
        Jumps(*(np.concatenate(column) for column in zip(*found, strict=True)))
        if found
        else (Jumps(rows, at, np.zeros(0)))
    )


def best_jumps(values: Floats, at: Ints, most: int) -> tuple[Floats, Ints]:
    """Returns the largest gain per GPU of a jump of at most `most` GPUs, and that jump.

    Of equal gains the larger jump. The gain is 0 where no jump gains.
    """
    width = values.shape[1]
    most = min(most, width - 1)
    if most < 1 or not len(values):
        return np.zeros(len(values)), np.zeros(len(values), np.int64)
    steps = np.arange(1, most + 1)
    target = at[:, None] + steps
    rows = np.arange(len(values))
    reached = values[rows[:, None], np.minimum(target, width - 1)]
    reached = np.where(target < width, reached, -np.inf)
    slopes = (reached - values[rows, at][:, None]) / steps
    best = most - 1 - np.argmax(slopes[:, ::-1], axis=1)
    slope = np.maximum(slopes[rows, best], 0.0)
    return slope, np.where(slope > 0, steps[best], 0)

"""How jobs that run beside each other without coordination slow each other: processor sharing.

Each job goes round a closed network of resources, with one visit to each in an iteration. A
resource serves all visitors at once, each at an equal part of its speed, or at parts by weight. A
visit takes the longer the more the others are present, and they are present the longer the more
they are slowed themselves: a fixed point, as in the mean value analysis of queueing networks.

Arrays are [sets, members, resources]. No set changes the result of another, to the last bit.
"""

from __future__ import annotations

import numpy as np

from dovetail.algorithms.arrays import Floats

ROUNDS = 16
"""Iterations of the fixed point. Their number is fixed, so that a set has one result in any
company; the slowdowns of pairs then move by less than 1e-6 of themselves, of fours by 1e-4."""


def overlaps(stages: Floats) -> Floats:
    """Returns the part x of an iteration in which all stages run at once, by rows of stages.

    Stages are shares of the iteration alone: `x * longest + (1 - x) * sum = 1`. Where they fill
    less than the iteration nothing overlaps. No stage may be longer than the iteration.
    """
    total, longest = _total(stages), stages.max(axis=-1)
    spare = np.where(total > longest, total - longest, 1.0)
    return np.asarray(np.clip((total - 1.0) / spare, 0.0, 1.0))


def slowdowns(
    stages: Floats,
    held: Floats,
    weight: Floats,
    capacity: Floats,
    corrections: Floats | None = None,
) -> Floats:
    """Returns iteration times shared over alone [sets, members].

    `stages` are shares of the iteration alone, and `held` the parts of them in which the resource
    is in use. Beside a visitor of weight b one of weight a gets a / (a + b) of a resource.
    `capacity` [sets or 1, 1, resources] is the number of visitors that it serves at full speed.
    `corrections` [sets, members, members, resources] are what a neighbour was measured to add to a
    member's visits, over what it is computed to add, less 1: 0 where nothing was measured.

    With equal weights no set gets more of a resource than there is. Let q be the share of time
    that a member is present; it gets q / (1 + sum of the others' q). The sum of these is convex
    in each q, so it is largest where each q is 0 or 1, and there it is at most 1.
    """
    overlap, total = overlaps(stages).T, _total(stages).T
    # What is left of an iteration in which no stage is known to run: nobody else slows it.
    idle = np.maximum(0.0, 1.0 - total)
    contended = _contended(held, capacity)
    free = [r for r in range(stages.shape[-1]) if r not in contended]
    longest = stages[..., free].max(axis=-1, initial=0.0).T
    stage, use, press, serves = (_turned(a, contended) for a in (stages, held, weight, capacity))
    apart = 1.0 - overlap

    def iteration(stretch: Floats) -> Floats:
        # NOTE: what does not stretch adds 0, so a set's result has the same bits in any company.
        added = use * (stretch - 1.0)
        most = np.maximum(longest, np.maximum.reduce(stage + added, axis=0, initial=0.0))
        added_to_all: Floats = np.add.reduce(added, axis=0)
        return np.asarray(idle + overlap * most + apart * (total + added_to_all))

    present = use
    for _ in range(ROUNDS):
        stretch = _stretch(press * present, press, serves)
        present = use * stretch * (1.0 / iteration(stretch))
    pressing = press * present
    stretch = _stretch(pressing, press, serves)
    if corrections is not None:
        added = _turned(corrections, contended) * pressing[:, :, None]
        stretch = np.maximum(1.0, stretch + added.sum(axis=1) / press / serves)
    return np.maximum(1.0, iteration(stretch)).T


def _turned(array: Floats, resources: list[int]) -> Floats:
    """Returns some resources of an array with its axes in the opposite order: sets come last.

    NOTE: loops over sets, not over the few members, take 0.6 to 0.8 of the time, and one array of
    all contended resources takes half as long as one of each.
    """
    return np.ascontiguousarray(array.T[resources])


def _contended(held: Floats, capacity: Floats) -> list[int]:
    """Returns the resources that some member uses and that do not serve all members at once."""
    members = held.shape[-2]
    few = (capacity < members).any(axis=(0, 1))
    return np.flatnonzero(few & held.any(axis=(0, 1))).tolist()


def _stretch(pressing: Floats, weight: Floats, capacity: Floats) -> Floats:
    """Returns how many times as long a visit takes beside the others who press."""
    if pressing.shape[1] == 2:
        others = pressing[:, ::-1]
    else:
        others = pressing.sum(axis=1, keepdims=True) - pressing
    return np.asarray(np.maximum(1.0, (1.0 + others / weight) / capacity))


def _total(stages: Floats) -> Floats:
    # One after the other: the order of a sum over an axis depends on the array's layout.
    total = stages[..., 0]
    for resource in range(1, stages.shape[-1]):
        total = total + stages[..., resource]
    return np.asarray(total)

"""What a second of a job on a GPU is charged where jobs share GPUs.

Each job j has a charge in (0, 1]: the part of a GPU-second that a second on one GPU costs it at its
speed alone, and in proportion less at a lower speed. If, whatever jobs are on a GPU, their charges
times their relative speeds have a sum of at most 1, then all jobs together are charged no more than
the GPUs supply, and charge times area is an area (docs/concepts/bounds.md). Those charges are best
that leave most area: a linear programme.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dovetail.algorithms.arrays import Floats, Ints
from dovetail.core.units import RELATIVE_TOLERANCE

LEAST_CHARGE = 1e-3
"""A job must be charged something: its curve would have no width."""
ROUNDS = 4
"""How often the programme is solved, each time with the ways to share that the last one broke."""


class Pairs(NamedTuple):
    """Ways in which two kinds may be on one GPU: who, and the speed of each over that alone."""

    first: Ints
    second: Ints
    first_speed: Floats
    second_speed: Floats

    @staticmethod
    def none() -> Pairs:
        """Returns no way at all."""
        nobody, never = np.zeros(0, np.int64), np.zeros(0)
        return Pairs(nobody, nobody, never, never)

    def take(self, rows: Ints) -> Pairs:
        """Returns some of the ways."""
        first, second, mine, theirs = self
        return Pairs(first[rows], second[rows], mine[rows], theirs[rows])

    def charged(self, charge: Floats) -> Floats:
        """Returns what each way is charged for a second on one GPU."""
        return charge[self.first] * self.first_speed + charge[self.second] * self.second_speed


def charges(area: Floats, pairs: Pairs, turns: Sequence[Floats] = ()) -> Floats:
    """Returns the charge of each kind, given the area of all its jobs.

    Each of `turns` has shape [kinds, resources] and is a family of sets on one GPU: the sum of use
    times relative speed of the members is at most 1 for each resource. So is that of any average
    of the resources, and no charge exceeds one of them. A kind whose use is infinite is in no set.
    """
    pairs = pairs.take(np.flatnonzero(pairs.first_speed + pairs.second_speed > 1))
    order = np.lexsort((-(pairs.first_speed + pairs.second_speed), pairs.second, pairs.first))
    pairs = pairs.take(order)
    starts = np.flatnonzero(np.diff(pairs.first, prepend=-1) | np.diff(pairs.second, prepend=-1))
    chosen = np.zeros(len(pairs.first), np.bool_)
    chosen[starts] = True
    for _ in range(ROUNDS):
        charge = _solved(area, pairs.take(np.flatnonzero(chosen)), turns)
        broken = _most_broken(pairs, charge, starts)
        if not broken.size:
            break
        chosen[broken] = True
    return _lowered(charge, pairs)


def _most_broken(pairs: Pairs, charge: Floats, starts: Ints) -> Ints:
    """Returns of each two kinds the way that is charged most, if that is more than a GPU."""
    if not starts.size:
        return starts
    charged = pairs.charged(charge)
    most = np.repeat(np.maximum.reduceat(charged, starts), np.diff([*starts, charged.size]))
    return np.flatnonzero((charged >= most) & (charged > 1 + RELATIVE_TOLERANCE))


def _lowered(charge: Floats, pairs: Pairs) -> Floats:
    """Returns charges that break no way: each is lowered by the most it takes part in breaking."""
    most = np.ones(charge.size)
    charged = pairs.charged(charge)
    np.maximum.at(most, pairs.first, charged)
    np.maximum.at(most, pairs.second, charged)
    return charge / most


def _solved(area: Floats, pairs: Pairs, turns: Sequence[Floats]) -> Floats:
    """Returns the charges with the most area, and their resources' averages cut to have sum 1."""
    # NOTE: scipy.optimize takes 0.5 s to import, longer than most runs that want no bound.
    from scipy.optimize import linprog
    from scipy.sparse import csr_array, hstack, vstack

    kinds, rows = area.size, pairs.first.size
    place = np.arange(rows)
    sharing = csr_array(
        (
            np.concatenate((pairs.first_speed, pairs.second_speed)),
            (np.concatenate((place, place)), np.concatenate((pairs.first, pairs.second))),
        ),
        shape=(rows, kinds),
    )
    members = [np.flatnonzero(np.isfinite(use).all(axis=1)) for use in turns]
    weights = sum(use.shape[1] for use in turns)
    blocks, averages, at = [hstack((sharing, csr_array((rows, weights))))], [], 0
    for use, some in zip(turns, members, strict=True):
        taken = np.zeros((some.size, kinds + weights))
        taken[np.arange(some.size), some] = 1.0
        columns = slice(kinds + at, kinds + at + use.shape[1])
        taken[:, columns] = -use[some]
        blocks.append(csr_array(taken))
        averages.append(np.bincount(range(kinds + weights)[columns], minlength=kinds + weights))
        at += use.shape[1]
    solution = linprog(  # type: ignore[call-overload]  # its stubs know no sparse rows
        np.concatenate((-area / max(float(area.max(initial=0.0)), 1e-300), np.zeros(weights))),
        A_ub=vstack(blocks),
        b_ub=np.concatenate((np.ones(rows), np.zeros(sum(some.size for some in members)))),
        A_eq=np.array(averages).reshape(-1, kinds + weights) if turns else None,
        b_eq=np.ones(len(turns)) if turns else None,
        bounds=[(LEAST_CHARGE, 1.0)] * kinds + [(0.0, 1.0)] * weights,
        method="highs",
    )
    # The least charges solve it, so it has a solution.
    assert solution.success, solution.message
    charge, at = np.minimum(solution.x[:kinds], 1.0), kinds
    for use, some in zip(turns, members, strict=True):
        average = np.maximum(solution.x[at : at + use.shape[1]], 0.0)
        charge[some] = np.minimum(charge[some], use[some] @ (average / average.sum()))
        at += use.shape[1]
    return np.asarray(charge)

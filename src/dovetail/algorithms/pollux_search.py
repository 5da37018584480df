"""The genetic search of Pollux for allocations of GPUs on nodes (OSDI 2021, section 4.2).

An allocation is a table of GPUs, jobs by nodes. Its cost is `sum w_j / speedup_j`: the weighted
power mean of the speedups with p = -1, turned round. The operators are those of AdaptDL's
simulator (github.com/petuum/adaptdl, branch osdi21-artifact, simulator/pollux.py): crossover at
one job, mutation that resets rows, clears cells and grows into free GPUs, and a repair that makes
every child legal, earlier rows first. Children and parents survive by cost alone.

Compiled, with its own random generator, so that a seed gives the same result everywhere.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.algorithms.arrays import Bools, Floats, Ints
from dovetail.algorithms.compiled import compiled

Words = npt.NDArray[np.uint64]

FLOOR = 1e-3
"""Added to every speedup, so that a waiting job has a large but finite cost."""
CROSSED = 0.9
"""Share of the pairs that are crossed; the others are copied (the default of pymoo)."""
RESET, CLEARED_ROW, CLEARED_CELL = 0.1, 0.1, 0.1
"""Chances that a row is reset to the running one, that it loses cells, and of each cell to go."""


class Contest(NamedTuple):
    """Jobs that compete for GPUs: rows in order of precedence, columns are nodes.

    `speedup[j, n, g]` is the speedup of job j on g GPUs of n nodes; the last n stands for all
    larger ones. `held` are its GPUs now, `limit` the most on each node. A job takes `low` to `high`
    GPUs or none; a pinned one stays. `kept` is the factor of a speedup after a restart.
    """

    speedup: Floats
    held: Ints
    limit: Ints
    capacity: Ints
    low: Ints
    high: Ints
    pinned: Bools
    kept: Floats
    weight: Floats


def search(
    contest: Contest, population: Ints, *, size: int, generations: int, seed: int
) -> tuple[Ints, Ints]:
    """Returns the best allocation found and the distinct survivors, at most `size`, best first.

    `population` are the first allocations, [any number, jobs, nodes]; the running one is added.
    """
    word = np.array([seed], dtype=np.uint64)
    states = np.empty((2 * size, *contest.held.shape), dtype=np.int64)
    states[0] = contest.held
    begin = min(len(population), size - 1)
    states[1 : begin + 1] = population[:begin]
    order = _evolve(contest, states, begin + 1, size, generations, word)
    return states[order[0]].copy(), states[order]


@compiled
def _evolve(
    contest: Contest, states: Ints, begin: int, size: int, generations: int, word: Words
) -> Ints:
    """Returns the slots of the survivors, best first. Slots 0 to `begin` hold the first parents."""
    cost = np.full(2 * size, np.inf)
    mark = np.zeros(2 * size, dtype=np.uint64)
    for slot in range(begin):
        _repair(contest, states[slot], word)
        cost[slot] = _cost(contest, states[slot])
        mark[slot] = _mark(states[slot])
    alive = np.arange(size)
    spare = np.arange(size, 2 * size)
    parents = begin
    for _ in range(generations):
        for i in range(size):
            mother = alive[_fitter(cost, alive, parents, word)]
            father = alive[_fitter(cost, alive, parents, word)]
            child = states[spare[i]]
            _cross(states[mother], states[father], child, word)
            _mutate(contest, child, word)
            _repair(contest, child, word)
            cost[spare[i]] = _cost(contest, child)
            mark[spare[i]] = _mark(child)
        parents = _survive(cost, mark, alive, spare)
    alive = alive[:parents]
    return alive[np.argsort(cost[alive], kind="mergesort")]


@compiled
def _survive(cost: Floats, mark: Words, alive: Ints, spare: Ints) -> int:
    """Moves the best distinct slots to the front of `alive`; returns their number."""
    size = len(alive)
    # By slot number first: a stable sort then breaks ties of cost the same way everywhere.
    slots = np.sort(np.concatenate((alive, spare)))
    slots = slots[np.argsort(cost[slots], kind="mergesort")]
    survivors = 0
    rest = 0
    twins = np.empty(2 * size, dtype=np.int64)
    for slot in slots:
        # Equal allocations have equal costs, so only the last survivors of this cost are compared.
        twin = False
        k = min(survivors, size) - 1
        while k >= 0 and cost[alive[k]] == cost[slot]:
            twin = twin or mark[alive[k]] == mark[slot]
            k -= 1
        if twin or survivors == size or cost[slot] == np.inf:
            twins[rest] = slot
            rest += 1
        else:
            alive[survivors] = slot
            survivors += 1
    for k in range(survivors, size):
        alive[k] = twins[k - survivors]
    for k in range(size):
        spare[k] = twins[size - survivors + k]
    return survivors


@compiled
def _draw(word: Words) -> float:
    """Returns a number in [0, 1) (SplitMix64; Steele, Lea, Flood 2014)."""
    word[0] += np.uint64(0x9E3779B97F4A7C15)
    z = word[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return float(z >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@compiled
def _below(n: int, word: Words) -> int:
    return int(_draw(word) * n)


@compiled
def _fitter(cost: Floats, alive: Ints, parents: int, word: Words) -> int:
    """Returns the better of two random parents."""
    a, b = _below(parents, word), _below(parents, word)
    return a if cost[alive[a]] <= cost[alive[b]] else b


@compiled
def _cross(mother: Ints, father: Ints, child: Ints, word: Words) -> None:
    jobs = len(child)
    point = _below(jobs, word) if _draw(word) < CROSSED else 0
    child[:point] = father[:point]
    child[point:] = mother[point:]


@compiled
def _mutate(contest: Contest, state: Ints, word: Words) -> None:
    jobs, nodes = state.shape
    for j in range(jobs):
        if _draw(word) < RESET:
            state[j] = contest.held[j]
        if _draw(word) < CLEARED_ROW:
            for n in range(nodes):
                if _draw(word) < CLEARED_CELL:
                    state[j, n] = 0
    for n in range(nodes):
        used = 0
        here = 0
        for j in range(jobs):
            used += state[j, n]
            here += state[j, n] > 0
        if used >= contest.capacity[n]:
            continue
        anybody = 1.0 / jobs
        for j in range(jobs):
            chance = anybody
            if state[j, n] > 0:
                chance += (1.0 - anybody) / here
            if _draw(word) < chance:
                more = contest.limit[j, n] + 1 - state[j, n]
                state[j, n] += _below(max(more, 1), word)


@compiled
def _repair(contest: Contest, state: Ints, word: Words) -> None:
    """Makes an allocation legal: one spread job per node, within capacity, enough GPUs or none."""
    jobs, nodes = state.shape
    spread_here = np.zeros(nodes, dtype=np.bool_)
    left = contest.capacity.copy()
    # Pinned jobs first: they keep their nodes whatever rows come before them.
    for j in range(jobs):
        if contest.pinned[j]:
            state[j] = contest.held[j]
            left -= state[j]
            if np.count_nonzero(state[j]) > 1:
                spread_here |= state[j] > 0
    for j in range(jobs):
        if contest.pinned[j]:
            continue
        if np.count_nonzero(state[j]) > 1:
            for n in range(nodes):
                if state[j, n] > 0:
                    if spread_here[n]:
                        state[j, n] = 0
                    spread_here[n] = True
        _shorten(state[j], contest.high[j], word)
        for n in range(nodes):
            state[j, n] = min(state[j, n], left[n], contest.limit[j, n])
            left[n] -= state[j, n]
    # Last, since only now the GPUs left for jobs below their least are known.
    for j in range(jobs):
        total = state[j].sum()
        if 0 < total < contest.low[j] and not contest.pinned[j]:
            _complete(contest, state, j, left, spread_here)


@compiled
def _shorten(row: Ints, most: int, word: Words) -> None:
    """Removes surplus GPUs of a job, from a random node on."""
    surplus = row.sum() - most
    nodes = len(row)
    at = _below(nodes, word) if surplus > 0 else 0
    for i in range(nodes):
        if surplus <= 0:
            return
        n = (at + i) % nodes
        gone = min(surplus, row[n])
        row[n] -= gone
        surplus -= gone


@compiled
def _complete(contest: Contest, state: Ints, j: int, left: Ints, spread_here: Bools) -> None:
    """Gives a job its least GPUs, on its own nodes first; otherwise removes all its GPUs."""
    row = state[j]
    missing = contest.low[j] - row.sum()
    took = np.zeros(len(row), dtype=np.int64)
    for own in (True, False):
        for n in range(len(row)):
            if (row[n] > 0) == own and (own or not spread_here[n]):
                more = min(missing, left[n], contest.limit[j, n] - row[n])
                took[n] += more
                missing -= more
    grown = row + took
    wide = np.count_nonzero(grown) > 1
    crowded = wide and np.count_nonzero(row) == 1 and np.any(spread_here & (grown > 0))
    if missing > 0 or crowded:
        left += row
        state[j] = 0
        return
    left -= took
    state[j] = grown
    if wide:
        spread_here |= grown > 0


@compiled
def _cost(contest: Contest, state: Ints) -> float:
    jobs, nodes = state.shape
    last = contest.speedup.shape[1] - 1
    total = 0.0
    for j in range(jobs):
        gpus = 0
        used = 0
        changed = False
        for n in range(nodes):
            gpus += state[j, n]
            used += state[j, n] > 0
            changed = changed or state[j, n] != contest.held[j, n]
        speedup = contest.speedup[j, min(used, last), gpus]
        if changed:
            speedup *= contest.kept[j]
        total += contest.weight[j] / (speedup + FLOOR)
    return total


@compiled
def _mark(state: Ints) -> np.uint64:
    """Returns a hash of an allocation (FNV-1a)."""
    mark = np.uint64(0xCBF29CE484222325)
    for cell in state.ravel():
        mark = (mark ^ np.uint64(cell)) * np.uint64(0x100000001B3)
    return mark

"""The genetic search against what can be counted out, and its rules on anything."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.algorithms.pollux_search import FLOOR, Contest, Ints, search

NOBODY = np.zeros((0, 1, 1), np.int64)


def contest_of(
    jobs: int,
    nodes: int,
    per_node: int,
    *,
    seed: int = 0,
    held: Ints | None = None,
    low: list[int] | None = None,
    high: list[int] | None = None,
    pinned: list[bool] | None = None,
    kept: float = 1.0,
    weight: list[float] | None = None,
) -> Contest:
    """Jobs that scale as powers of their GPUs, worse over nodes, over one GPU each."""
    draw = np.random.default_rng(seed)
    total = nodes * per_node
    speedup = np.zeros((jobs, 4, total + 1))
    for job in range(jobs):
        power = draw.uniform(0.3, 0.95)
        for used, loss in ((1, 1.0), (2, 0.7), (3, 0.75)):
            speedup[job, used, used:] = loss * np.arange(used, total + 1) ** power
    return Contest(
        speedup=speedup,
        held=np.zeros((jobs, nodes), np.int64) if held is None else held,
        limit=np.full((jobs, nodes), per_node),
        capacity=np.full(nodes, per_node),
        low=np.array(low or [1] * jobs),
        high=np.array(high or [total] * jobs),
        pinned=np.array(pinned or [False] * jobs),
        kept=np.full(jobs, kept),
        weight=np.array(weight or [1.0] * jobs),
    )


def cost(contest: Contest, state: Ints) -> float:
    """The cost by its definition."""
    total = 0.0
    for job, row in enumerate(state):
        speedup = contest.speedup[job, min(np.count_nonzero(row), 3), row.sum()]
        if (row != contest.held[job]).any():
            speedup *= contest.kept[job]
        total += contest.weight[job] / (speedup + FLOOR)
    return total


def faults(contest: Contest, state: Ints) -> list[str]:
    """What is illegal about an allocation."""
    found = []
    used = (state > 0).sum(axis=1)
    free = ~contest.pinned
    if (state < 0).any() or (state.sum(axis=0) > contest.capacity).any():
        found.append("more GPUs than there are")
    if (state > contest.limit)[free].any():
        found.append("more of a node than allowed")
    if ((state > 0) & (used > 1)[:, None] & free[:, None]).sum(axis=0).max(initial=0) > 1:
        found.append("two spread jobs on a node")
    total = state.sum(axis=1)
    if ((total > 0) & ((total < contest.low) | (total > contest.high)) & free).any():
        found.append("too few or too many GPUs")
    if (state != contest.held)[contest.pinned].any():
        found.append("a pinned job moved")
    return found


def everything(contest: Contest) -> list[Ints]:
    """Returns every legal allocation."""
    jobs, nodes = contest.held.shape
    ranges = [range(int(contest.limit[j, n]) + 1) for j in range(jobs) for n in range(nodes)]
    states = (np.array(cells).reshape(jobs, nodes) for cells in itertools.product(*ranges))
    return [state for state in states if not faults(contest, state)]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("restart", [1.0, 0.4])
def test_it_finds_the_best_of_all_allocations(seed: int, restart: float) -> None:
    held = np.array([[2, 0], [0, 1], [0, 0]])
    contest = contest_of(3, 2, 2, seed=seed, held=held, kept=restart)
    best = min(cost(contest, state) for state in everything(contest))

    found, _ = search(contest, NOBODY, size=40, generations=40, seed=seed)

    assert faults(contest, found) == []
    assert cost(contest, found) == pytest.approx(best)


def test_a_heavier_job_gets_more() -> None:
    plain = contest_of(2, 1, 4)
    same = plain._replace(speedup=np.stack([plain.speedup[0]] * 2))
    heavy = same._replace(weight=np.array([1.0, 0.05]))
    assert search(same, NOBODY, size=40, generations=30, seed=1)[0].sum(axis=1).tolist() == [2, 2]
    assert search(heavy, NOBODY, size=40, generations=30, seed=1)[0].sum(axis=1).tolist() == [3, 1]


def test_who_would_lose_by_a_restart_stays() -> None:
    held = np.array([[4, 0], [0, 1]])
    dear = contest_of(2, 2, 4, held=held, kept=0.01)
    found, _ = search(dear, NOBODY, size=40, generations=40, seed=0)
    assert found.tolist() == held.tolist()


def test_a_seed_gives_one_answer_and_the_population_goes_on() -> None:
    contest = contest_of(12, 4, 4, seed=3)
    one, first = search(contest, NOBODY, size=30, generations=10, seed=5)
    two, again = search(contest, NOBODY, size=30, generations=10, seed=5)
    assert (one == two).all()
    assert (first == again).all()
    other, _ = search(contest, NOBODY, size=30, generations=10, seed=6)
    assert (one != other).any()
    further, _ = search(contest, first, size=30, generations=10, seed=7)
    assert cost(contest, further) <= cost(contest, one)
    assert (first[0] == one).all(), "best first"
    costs = [cost(contest, state) for state in first]
    assert costs == pytest.approx(sorted(costs))


def test_a_large_contest_ends_better_than_it_began() -> None:
    contest = contest_of(40, 16, 4, seed=1)
    short, _ = search(contest, NOBODY, size=60, generations=2, seed=0)
    long, _ = search(contest, NOBODY, size=60, generations=60, seed=0)
    assert cost(contest, long) < 0.8 * cost(contest, short)


@settings(max_examples=60)
@given(data=st.data())
def test_whatever_it_is_given_every_survivor_is_legal(data: st.DataObject) -> None:
    jobs, nodes = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 4))
    per_node = data.draw(st.integers(1, 4))
    total = nodes * per_node
    draw = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    low = draw.integers(1, total + 1, jobs)
    high = np.minimum(low + draw.integers(0, total, jobs), total)
    empty = contest_of(jobs, nodes, per_node, low=low.tolist(), high=high.tolist())
    noise = draw.integers(0, per_node + 1, (4, jobs, nodes))
    held, _ = search(empty, noise, size=6, generations=2, seed=1)
    pinned = [
        bool(p) and bool(h)
        for p, h in zip(draw.integers(0, 2, jobs), held.any(axis=1), strict=True)
    ]
    contest = empty._replace(held=held, pinned=np.array(pinned), kept=draw.uniform(0, 1, jobs))

    _, population = search(contest, noise, size=8, generations=4, seed=2)

    distinct = {state.tobytes() for state in population}
    for state in population:
        assert faults(contest, state) == []
    assert cost(contest, population[0]) == pytest.approx(
        min(cost(contest, state) for state in population)
    )
    assert cost(contest, population[0]) <= cost(contest, held) + 1e-12, "what runs is kept"
    assert len(distinct) >= 1


def test_a_closed_node_keeps_what_it_has_and_takes_no_more() -> None:
    held = np.array([[2, 0], [0, 0]])
    contest = contest_of(2, 2, 4, held=held)._replace(
        capacity=np.array([2, 4]), limit=np.array([[2, 4], [0, 4]])
    )
    found, _ = search(contest, NOBODY, size=30, generations=30, seed=0)
    assert faults(contest, found) == []
    assert found[1, 0] == 0
    assert found[1, 1] > 0

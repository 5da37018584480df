"""Promises to tenants over random trees, demands and runs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import Row, play
from dovetail.core.cluster import Cluster, NodeGroup
from dovetail.core.tenant_tree import TenantTree, weighted_filling
from dovetail.core.tenants import QueueSpec

GPUS = 16
NODES = (NodeGroup("all", 4, 4),)


@st.composite
def trees(draw: st.DrawFn) -> tuple[QueueSpec, ...]:
    """Returns a tree of two to six queues with weights."""
    count = draw(st.integers(2, 6))
    queues: list[QueueSpec] = []
    for number in range(count):
        parent = draw(st.sampled_from(["", *(q.name for q in queues[:2])]))
        queues.append(QueueSpec(f"q{number}", weight=draw(st.integers(1, 4)), parent=parent))
    return tuple(queues)


@given(
    st.lists(st.tuples(st.floats(0, 50), st.floats(0.1, 9)), min_size=1, max_size=8),
    st.floats(0, 100),
)
def test_water_filling_uses_the_pool_and_raises_the_lowest(
    rows: list[tuple[float, float]], pool: float
) -> None:
    caps, weights = (np.array(column) for column in zip(*rows, strict=True))
    shares = weighted_filling(caps, weights, pool)
    assert (shares <= caps + 1e-9).all()
    assert shares.sum() == pytest.approx(min(pool, caps.sum()), abs=1e-6)
    thirsty = shares < caps - 1e-6
    if thirsty.any():
        level = (shares / weights)[thirsty]
        assert level.max() == pytest.approx(level.min(), rel=1e-6, abs=1e-6)
        assert (shares / weights <= level.max() + 1e-6).all()


@given(trees(), st.data())
def test_what_tenants_deserve_adds_up_and_is_never_more_than_they_ask(
    queues: tuple[QueueSpec, ...], data: st.DataObject
) -> None:
    tree = TenantTree(queues, ())
    leaves = [tree.leaf(q.name, "", "") for q in queues]
    demand = np.zeros(len(tree))
    for leaf in leaves:
        demand[leaf] = data.draw(st.integers(0, 30))
    shares = tree.deserved(demand, GPUS)
    assert shares[leaves].sum() == pytest.approx(min(GPUS, demand.sum()))
    assert (shares[leaves] <= demand[leaves] + 1e-9).all()


def random_rows(seed: int, count: int, *, names: tuple[str, ...]) -> list[Row]:
    draw = np.random.default_rng(seed)
    submit = np.sort(draw.uniform(0, 15 * count, count))
    return [
        Row(
            int(draw.choice([1, 1, 2, 4])),
            float(draw.integers(10, 400)),
            submit_s=float(t),
            queue=str(draw.choice(names)),
        )
        for t in submit
    ]


def check_guard(seed: int, inner: str, guard_s: float) -> None:
    """Nothing that came later overtakes a job that waited too long."""
    rows = random_rows(seed, 40, names=("dev", "lab"))
    queues = (QueueSpec("dev", weight=9), QueueSpec("lab"))
    policy = f"tenancy:inner={inner},guard-s={guard_s:g}"
    story = play(rows, policy, Cluster(NODES[:1], queues=queues))
    longest = max(row.duration_s for row in rows)
    due = {}
    for job, row in enumerate(rows):
        starts = story.starts(job)
        due[job] = row.submit_s + guard_s
        others = sum(
            1
            for other in range(len(rows))
            for at_s, _ in story.starts(other)[:1]
            if due[job] + 1 < at_s < starts[0][0] and rows[other].submit_s > row.submit_s
        )
        assert not others, (seed, inner, job)
        # Those before it were due too; each waits for the jobs that ran when its turn came.
        ahead = sum(1 for other in rows[:job] if other.submit_s + guard_s > due[job] - 4 * longest)
        assert starts[0][0] <= due[job] + (1 + ahead) * longest


@pytest.mark.parametrize("seed", range(20))
def test_nothing_overtakes_a_job_that_waited_too_long(seed: int) -> None:
    check_guard(seed, ("fifo:bypass=skip", "backfill", "sjf")[seed % 3], [100.0, 400.0][seed % 2])


@pytest.mark.slow
def test_a_thousand_random_runs_keep_the_guard() -> None:
    for seed in range(1000):
        check_guard(
            seed, ("fifo:bypass=skip", "backfill", "sjf")[seed % 3], [100.0, 400.0][seed % 2]
        )

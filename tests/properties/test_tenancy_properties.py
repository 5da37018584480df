"""Promises to tenants over random trees, demands and runs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.core.cluster import NodeGroup
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

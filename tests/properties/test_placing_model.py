"""`Placing.find` beside a definition of each rule that tries everything, slowly."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from builders import Row, Stage
from dovetail.core.cluster import Cluster, Link
from dovetail.core.placement import Placement, Spans
from dovetail.core.placing import Placing
from dovetail.core.tenants import QueueSpec

CONSOLIDATE = st.sampled_from(["strict", "prefer", "none"])
CHOICE = st.sampled_from(["best-fit", "first-fit", "most-free"])
CLUSTERS = st.sampled_from(["4x4", "2x2+2x4", "1x8+3x4", "3x2:t4+2x4:v100", "2x8:t4+3x4:v100"])


@st.composite
def situations(draw: st.DrawFn) -> tuple[Cluster, list[int], int, str]:
    cluster = Cluster.parse(draw(CLUSTERS))
    busy = [draw(st.integers(0, g)) for g in cluster.installed]
    nodes = draw(st.lists(st.integers(0, cluster.nodes - 1), max_size=2, unique=True))
    cluster = cluster.with_nodes([(n, "draining") for n in nodes])
    gpu_type = draw(st.sampled_from(["", "t4"])) if cluster.groups[0].gpu_type else ""
    return cluster, busy, draw(st.integers(1, 14)), gpu_type


@settings(max_examples=400)
@given(situation=situations(), consolidate=CONSOLIDATE, choice=CHOICE)
def test_a_gang_goes_where_the_definition_says(
    situation: tuple[Cluster, list[int], int, str], consolidate: str, choice: str
) -> None:
    cluster, busy, need, gpu_type = situation
    rows = [Row(b, 5) for b in busy if b]
    stage = Stage([*rows, Row(need, 5, gpu_type=gpu_type)], "fifo", cluster)
    held = [n for n, b in enumerate(busy) if b]
    stage.run_jobs(*[(j, ((n, busy[n]),)) for j, n in enumerate(held)])
    rule = Placing(consolidate, choice)
    found = rule.find(stage.view.plan.occupancy, stage.view.shape(len(rows)))
    suited = [n for n in range(cluster.nodes) if gpu_type in ("", cluster.group_of(n).gpu_type)]
    largest = max((cluster.installed[n] for n in suited), default=0)
    allowed = {n: cluster.installed[n] - busy[n] for n in suited if cluster.is_open(n)}
    expected = defined(cluster, allowed, largest, need, consolidate, choice)
    assert found == expected
    if found is not None:
        assert sum(g for _, g in found) == need
        assert all(0 < g <= allowed[n] for n, g in found)
        assert len({n for n, _ in found}) == len(found)


RACK = 2
"""Nodes that a rack of the next test joins."""


@settings(max_examples=400)
@given(
    situation=situations(),
    types=st.sampled_from([(), ("t4",), ("t4", "v100"), ("v100", "t4"), ("h100", "v100")]),
    owned=st.booleans(),
    topology=st.sampled_from(["", "node", "node?", "rack", "rack?"]),
    consolidate=CONSOLIDATE,
    choice=CHOICE,
)
def test_a_gang_goes_to_the_first_of_its_sets_of_nodes_that_has_room(
    situation: tuple[Cluster, list[int], int, str],
    types: tuple[str, ...],
    owned: bool,
    topology: str,
    consolidate: str,
    choice: str,
) -> None:
    cluster, busy, need, _ = situation
    last = cluster.groups[-1]
    if owned:
        queues = (QueueSpec("q", groups=(last.name,)),)
        cluster = replace(cluster, queues=queues)
    cluster = replace(cluster, links=(Link("rack", 1e9, nodes=RACK), Link("fabric", 1e9)))
    rows = [Row(b, 5) for b in busy if b]
    asks = Row(need, 5, gpu_type="|".join(types), topology=topology, queue="q")
    stage = Stage([*rows, asks], "fifo", cluster)
    held = [n for n, b in enumerate(busy) if b]
    stage.run_jobs(*[(j, ((n, busy[n]),)) for j, n in enumerate(held)])
    occupancy = stage.view.plan.occupancy
    found = Placing(consolidate, choice).find(occupancy, stage.view.shape(len(rows)))
    sets = [
        [
            node
            for node in range(cluster.nodes)
            if kind in ("", cluster.group_of(node).gpu_type)
            and (not owned or cluster.group_of(node) == last)
        ]
        for kind in types or ("",)
    ]
    free = {n: g - busy[n] for n, g in enumerate(cluster.installed) if cluster.is_open(n)}

    def on(nodes: Sequence[int]) -> Spans | None:
        largest = max((cluster.installed[n] for n in nodes), default=0)
        there = {n: free[n] for n in nodes if n in free}
        return defined(cluster, there, largest, need, consolidate, choice)

    tries: list[Spans | None] = []
    for nodes in sets if topology.startswith("node") else ():
        one = _one({n: free[n] for n in nodes if n in free}, need, choice)
        tries.append(None if one is None else ((one, need),))
    for nodes in sets if topology.startswith("rack") else ():
        tries += [on(rack) for rack in _racks(nodes, free, choice)]
    if topology in ("", "node?", "rack?"):
        tries += [on(nodes) for nodes in sets]
    assert found == next((spans for spans in tries if spans is not None), None)
    if found is not None:
        occupancy.hold(len(rows), Placement(found))


def _racks(nodes: Sequence[int], free: dict[int, int], choice: str) -> list[list[int]]:
    """Returns the nodes of each rack among `nodes`, the racks in order of choice."""
    racks: dict[int, list[int]] = {}
    for node in nodes:
        racks.setdefault(node // RACK, []).append(node)
    sign = {"best-fit": 1, "most-free": -1, "first-fit": 0}[choice]
    return sorted(racks.values(), key=lambda rack: sign * sum(free.get(n, 0) for n in rack))


def defined(
    cluster: Cluster, free: dict[int, int], largest: int, need: int, consolidate: str, choice: str
) -> Spans | None:
    """Returns where a gang goes, by the words of ALGORITHMS section 0.

    `largest` is the size of the largest node that suits the gang, open or not: one that would
    fit it is waited for and not spread around.
    """
    if consolidate == "none":
        return _poured(_ordered(free, choice), free, need)
    one = _one(free, need, choice)
    if one is not None:
        return ((one, need),)
    whole = _whole(cluster, free, largest, need, choice)
    if whole is not None or consolidate == "strict":
        return whole
    return _fullest(free, need, choice)


def _ordered(free: dict[int, int], choice: str) -> list[int]:
    """Returns nodes with free GPUs in order of choice, ties by id."""
    sign = {"best-fit": 1, "most-free": -1, "first-fit": 0}[choice]
    return sorted((n for n in free if free[n]), key=lambda n: (sign * free[n], n))


def _one(free: dict[int, int], need: int, choice: str) -> int | None:
    fitting = [n for n in _ordered(free, choice) if free[n] >= need]
    return fitting[0] if fitting else None


def _poured(order: list[int], free: dict[int, int], need: int) -> Spans | None:
    if sum(free[n] for n in order) < need:
        return None
    spans = []
    for node in order:
        take = min(need, free[node])
        spans.append((node, take))
        need -= take
        if not need:
            break
    return tuple(spans)


def _whole(
    cluster: Cluster, free: dict[int, int], largest: int, need: int, choice: str
) -> Spans | None:
    """Returns whole empty nodes, largest first, and one node for the rest."""
    if need <= largest:
        return None
    empty = [n for n in _ordered(free, "most-free") if free[n] == cluster.installed[n]]
    spans: list[tuple[int, int]] = []
    for node in empty:
        if free[node] > need:
            break
        spans.append((node, free[node]))
        need -= free[node]
        if not need:
            return tuple(spans)
    if not spans:
        return None
    rest = {n: f for n, f in free.items() if n not in dict(spans)}
    last = _one(rest, need, choice)
    return None if last is None else (*spans, (last, need))


def _fullest(free: dict[int, int], need: int, choice: str) -> Spans | None:
    """Returns the fewest nodes, the emptiest first, and the rest where it fits by choice."""
    order = _ordered(free, "most-free")
    if sum(free.values()) < need:
        return None
    spans: list[tuple[int, int]] = []
    for node in order:
        rest = {n: f for n, f in free.items() if n not in dict(spans)}
        last = _one(rest, need, choice) if spans else None
        if last is not None:
            return (*spans, (last, need))
        take = min(need, free[node])
        spans.append((node, take))
        need -= take
        if not need:
            break
    return tuple(spans)


@settings(max_examples=200)
@given(situation=situations())
def test_the_fullest_spread_takes_as_few_nodes_as_can_be(
    situation: tuple[Cluster, list[int], int, str],
) -> None:
    cluster, busy, need, _ = situation
    rows = [Row(b, 5) for b in busy if b]
    stage = Stage([*rows, Row(need, 5)], "fifo", cluster)
    held = [n for n, b in enumerate(busy) if b]
    stage.run_jobs(*[(j, ((n, busy[n]),)) for j, n in enumerate(held)])
    found = Placing("prefer").find(stage.view.plan.occupancy, stage.view.shape(len(rows)))
    free = [
        cluster.installed[n] - busy[n] if cluster.is_open(n) else 0 for n in range(cluster.nodes)
    ]
    enough = [
        k
        for k in range(1, cluster.nodes + 1)
        if any(sum(free[n] for n in c) >= need for c in combinations(range(cluster.nodes), k))
    ]
    assert (found is None) == (not enough)
    strict = Placing("strict").find(stage.view.plan.occupancy, stage.view.shape(len(rows)))
    if found is not None and strict is None:
        assert len(found) == min(enough)

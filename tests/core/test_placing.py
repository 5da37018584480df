"""Where a gang goes, case by case; the property tests compare with a definition by exhaustion."""

import pytest

from builders import Row, Stage
from dovetail.core.cluster import Cluster, Link, NodeGroup
from dovetail.core.errors import InputError
from dovetail.core.job import Shape
from dovetail.core.placement import Placement, Spans
from dovetail.core.placing import Placing


def find(text: str, busy: list[int], gpus: int, cluster: str = "4x4", gpu_type: str = "") -> object:
    """Returns where a gang goes on a cluster with `busy` GPUs of each node held."""
    rows = [Row(b, 5) for b in busy if b]
    stage = Stage([*rows, Row(gpus, 5, gpu_type=gpu_type)], "fifo", cluster)
    nodes = [n for n, b in enumerate(busy) if b]
    stage.run_jobs(*[(j, ((n, busy[n]),)) for j, n in enumerate(nodes)])
    return Placing.parse(text).find(stage.view.plan.occupancy, stage.view.shape(len(rows)))


TYPED = "2x4:a100+2x4:v100"


@pytest.mark.parametrize(
    ("text", "busy", "gpus", "gpu_type", "spans"),
    [
        # The first type that has room, whatever the node choice says of the other.
        ("prefer", [0, 0, 0, 2], 2, "a100|v100", ((0, 2),)),
        ("prefer", [0, 0, 0, 2], 2, "v100|a100", ((3, 2),)),
        ("prefer", [0, 0, 0, 0], 2, "V100 | A100", ((2, 2),)),
        ("none", [4, 3, 0, 0], 2, "a100|v100", ((2, 2),)),
        # A spread on the preferred type comes before one node of the other, types never mix.
        ("prefer", [2, 2, 0, 0], 4, "a100|v100", ((0, 2), (1, 2))),
        ("strict", [2, 2, 0, 0], 4, "a100|v100", ((2, 4),)),
        ("none", [2, 2, 2, 2], 5, "a100|v100", None),
        ("none", [2, 2, 2, 2], 5, "", ((0, 2), (1, 2), (2, 1))),
        # A type that the cluster lacks is passed over.
        ("prefer", [4, 0, 0, 0], 4, "h100|a100", ((1, 4),)),
        ("prefer", [0, 0, 0, 0], 4, "h100", None),
    ],
)
def test_a_gang_gets_gpus_of_the_first_type_of_its_list_that_has_room(
    text: str, busy: list[int], gpus: int, gpu_type: str, spans: Spans | None
) -> None:
    assert find(text, busy, gpus, TYPED, gpu_type) == spans


RACKS = (Link("node", 12e9, nodes=1), Link("Rack", 5e9, nodes=2), Link("fabric", 1e9))


@pytest.mark.parametrize(
    ("text", "busy", "gpus", "topology", "spans"),
    [
        # A demand waits where a wish takes what there is.
        ("prefer", [2, 2, 2, 2], 4, "node", None),
        ("prefer", [2, 2, 2, 2], 4, "node?", ((0, 2), (1, 2))),
        ("none", [2, 2, 1, 0], 3, "node", ((2, 3),)),
        ("prefer", [4, 2, 2, 4], 4, "rack", None),
        ("prefer", [4, 2, 2, 4], 4, "rack?", ((1, 2), (2, 2))),
        # Of the racks with room the fullest, the emptiest or the first, as of nodes.
        ("prefer", [0, 0, 2, 2], 4, "rack", ((2, 2), (3, 2))),
        ("prefer,most-free", [0, 0, 2, 2], 4, "rack", ((0, 4),)),
        ("prefer,first-fit", [0, 0, 2, 2], 4, "RACK?", ((0, 4),)),
        ("none", [3, 0, 2, 2], 4, "rack", ((2, 2), (3, 2))),
        ("strict", [0, 0, 0, 1], 8, "rack", ((0, 4), (1, 4))),
        ("prefer", [1, 0, 1, 0], 8, "rack", None),
        ("prefer", [0, 0, 0, 0], 16, "fabric", ((0, 4), (1, 4), (2, 4), (3, 4))),
    ],
)
def test_a_gang_meets_where_its_topology_says(
    text: str, busy: list[int], gpus: int, topology: str, spans: Spans | None
) -> None:
    cluster = Cluster((NodeGroup("all", 4, 4),), RACKS)
    rows = [*(Row(b, 5) for b in busy if b), Row(gpus, 5, topology=topology)]
    stage = Stage(rows, "fifo", cluster)
    nodes = [n for n, b in enumerate(busy) if b]
    stage.run_jobs(*[(j, ((n, busy[n]),)) for j, n in enumerate(nodes)])
    occupancy, shape = stage.view.plan.occupancy, stage.view.shape(len(rows) - 1)
    found = Placing.parse(text).find(occupancy, shape)
    assert found == spans
    if found is not None:
        occupancy.hold(len(rows) - 1, Placement(found))


def test_a_level_that_the_cluster_lacks_is_refused() -> None:
    stage = Stage([Row(2, 5, topology="rack")], "fifo", "2x4")
    with pytest.raises(InputError, match=r"topology 'rack': no \[\[link\]\] .* the name 'rack'"):
        Placing().find(stage.view.plan.occupancy, stage.view.shape(0))


@pytest.mark.parametrize(
    ("text", "busy", "gpus", "spans"),
    [
        # One node that fits: the fullest, the first, the emptiest; ties by node id.
        ("strict,best-fit", [0, 2, 3, 2], 2, ((1, 2),)),
        ("strict,first-fit", [3, 0, 3, 2], 2, ((1, 2),)),
        ("strict,most-free", [1, 2, 0, 0], 2, ((2, 2),)),
        ("none,best-fit", [1, 2, 3, 3], 1, ((2, 1),)),
        # None fits on its own: strict waits, prefer spreads from the emptiest, none as chosen.
        ("strict", [2, 2, 2, 1], 4, None),
        ("prefer", [2, 2, 2, 1], 4, ((3, 3), (0, 1))),
        ("prefer,first-fit", [2, 2, 2, 1], 4, ((3, 3), (0, 1))),
        ("none,best-fit", [2, 2, 2, 1], 4, ((0, 2), (1, 2))),
        ("none,most-free", [2, 2, 2, 1], 4, ((3, 3), (0, 1))),
        ("none,first-fit", [3, 2, 2, 1], 4, ((0, 1), (1, 2), (2, 1))),
        # Even where one node would do, none takes GPUs as they come.
        ("none,best-fit", [3, 0, 0, 0], 4, ((0, 1), (1, 3))),
        # More than a node: whole empty nodes and one node for the rest.
        ("strict", [0, 2, 0, 0], 8, ((0, 4), (2, 4))),
        ("strict", [0, 2, 0, 0], 10, ((0, 4), (2, 4), (1, 2))),
        ("strict,most-free", [0, 2, 0, 0], 10, ((0, 4), (2, 4), (3, 2))),
        ("strict", [3, 3, 0, 0], 10, None),
        ("strict", [1, 2, 0, 0], 10, ((2, 4), (3, 4), (1, 2))),
        ("prefer", [1, 1, 0, 0], 10, ((2, 4), (3, 4), (0, 2))),
        ("prefer", [1, 1, 1, 1], 10, ((0, 3), (1, 3), (2, 3), (3, 1))),
        ("prefer", [1, 1, 1, 1], 13, None),
        ("strict", [0, 0, 0, 0], 16, ((0, 4), (1, 4), (2, 4), (3, 4))),
    ],
)
def test_a_gang_goes_where_the_rule_says(
    text: str, busy: list[int], gpus: int, spans: Spans | None
) -> None:
    assert find(text, busy, gpus) == spans


def test_a_type_of_gpu_is_looked_for_among_its_own_nodes() -> None:
    cluster = "4x4:t4+2x8:v100"
    assert find("prefer", [0] * 6, 8, cluster, "t4") == ((0, 4), (1, 4))
    assert find("strict", [0] * 6, 8, cluster, "v100") == ((4, 8),)
    assert find("strict", [0] * 6, 8, cluster, "t4") == ((0, 4), (1, 4))
    assert find("strict", [0] * 6, 8, cluster, "a100") is None


def test_prefer_gives_what_strict_would_give() -> None:
    # Node 0 has 8 GPUs, 4 of them held; whole empty nodes 1 and 2 and a rest of 1.
    assert find("strict", [4, 0, 0], 9, "1x8+2x4") == ((1, 4), (2, 4), (0, 1))
    assert find("prefer", [4, 0, 0], 9, "1x8+2x4") == ((1, 4), (2, 4), (0, 1))


def test_cpus_and_memory_of_a_node_limit_where_a_gang_may_go() -> None:
    cluster = Cluster((NodeGroup("small", 1, 4, cpus=8), NodeGroup("big", 1, 4, cpus=64)))
    stage = Stage([Row(2, 5, cpus=12)], "fifo", cluster)
    rule = Placing.parse("strict,first-fit")
    assert rule.find(stage.view.plan.occupancy, stage.view.shape(0)) == ((1, 2),)


def test_closed_nodes_take_nothing() -> None:
    stage = Stage([Row(2, 5)], "fifo", Cluster.uniform(2, 4).with_nodes([(0, "draining")]))
    for text in ("strict", "prefer,first-fit", "none,first-fit", "none,most-free"):
        occupancy = stage.view.plan.occupancy
        assert Placing.parse(text).find(occupancy, Shape(2)) == ((1, 2),)
        assert Placing.parse(text).find(occupancy, Shape(5)) is None


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("", "prefer,best-fit,keep"),
        ("strict", "strict,best-fit,keep"),
        ("repack,first-fit", "prefer,first-fit,repack"),
        ("none,most-free,repack", "none,most-free,repack"),
    ],
)
def test_a_rule_is_read_and_spelled(text: str, spelled: str) -> None:
    assert str(Placing.parse(text)) == spelled
    assert Placing.parse(spelled) == Placing.parse(text)


def test_an_unknown_word_is_met_with_the_nearest() -> None:
    with pytest.raises(InputError, match=r"unknown word 'strickt' \(did you mean 'strict'"):
        Placing.parse("strickt")
    with pytest.raises(InputError, match="unknown node choice"):
        Placing(node_choice="worst-fit")

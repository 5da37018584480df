"""Clusters: short forms, node states, and what cannot be one."""

import pytest

from dovetail.core.cluster import DOWN, DRAINING, GIB, UP, Cluster, NodeGroup
from dovetail.core.errors import InputError, nearest


def test_a_short_form_names_nodes_gpus_and_types() -> None:
    cluster = Cluster.parse("2x4:t4+1x8:v100")
    assert cluster.nodes == 3
    assert cluster.gpus == 16
    assert cluster.installed == (4, 4, 8)
    assert cluster.node_group == (0, 0, 1)
    assert cluster.group_of(2).gpu_type == "v100"
    assert Cluster.parse("16X4") == Cluster.parse("16x4")


def test_a_short_form_gives_the_memory_of_a_gpu_or_its_type_does() -> None:
    def memory_of(gpu_type: str) -> float | None:
        return 40.0 * GIB if gpu_type == "a100" else None

    assert Cluster.parse("8x8/32G").groups[0].gpu_memory_bytes == 32 * GIB
    assert Cluster.parse("8x8/1.5TiB").groups[0].gpu_memory_bytes == 1536 * GIB
    groups = Cluster.parse("1x4:a100+1x4:a100/80gb+1x4:new", memory_of).groups
    assert [g.gpu_memory_bytes / GIB for g in groups] == [40, 80, 16]
    assert [g.gpu_type for g in groups] == ["a100", "a100", "new"]


@pytest.mark.parametrize(
    "text",
    ["8x8/", "8x8:", "8x8/0G", "8x8/32", "8x8/32Q", "8x8/-1G", "8x8:a100/big",
     "", "4", "x4", "4x", "0x4", "4x0", "-1x4", "4x-1", "4x4+", "axb", "4.5x2", "4x4x4x4",
     "99999999x1", "1x999999", "1x5000"],
)  # fmt: skip
def test_what_is_no_cluster_gets_one_clear_error(text: str) -> None:
    with pytest.raises(InputError, match="cluster"):
        Cluster.parse(text)


def test_node_states_make_a_new_cluster() -> None:
    cluster = Cluster.uniform(3, 2)
    changed = cluster.with_nodes([(0, DOWN), (1, DRAINING)])
    assert cluster.gpus == 6 and cluster.states == ()
    assert changed.capacity == (0, 2, 2)
    assert changed.gpus == 4
    assert [changed.is_open(n) for n in range(3)] == [False, False, True]
    assert changed.with_nodes([(0, UP), (1, UP)]) == cluster
    assert cluster.with_nodes([(1, DRAINING), (0, DOWN)]) == changed


def test_unknown_nodes_and_states_are_refused() -> None:
    cluster = Cluster.uniform(2, 2)
    with pytest.raises(InputError, match=r"node 2 does not exist \(0..1\)"):
        cluster.with_nodes([(2, DOWN)])
    with pytest.raises(InputError, match="node -1 does not exist"):
        cluster.with_nodes([(-1, DOWN)])
    with pytest.raises(InputError, match="unknown node state 'asleep'"):
        cluster.with_nodes([(0, "asleep")])


def test_a_group_of_negative_size_is_refused() -> None:
    with pytest.raises(InputError, match="negative size"):
        Cluster((NodeGroup("a", 4, 4), NodeGroup("b", -1, 4)))


def test_the_nearest_word_is_offered() -> None:
    assert nearest("fivo", ["fifo", "sjf"]) == "did you mean 'fifo'?"
    assert nearest("zzz", ["fifo", "sjf"]) == "known: fifo, sjf"


def test_an_input_error_says_where_what_and_how() -> None:
    error = InputError("file.csv, line 3", "no such column", "add it")
    assert str(error) == "file.csv, line 3: no such column (add it)"
    assert (error.where, error.what, error.mend) == ("file.csv, line 3", "no such column", "add it")

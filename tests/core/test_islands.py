"""NVLink islands: which GPUs of a node a gang gets, what a demand forbids, and what it costs."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import Row, Stage, play, trace_of
from dovetail.core.cluster import Cluster, Link, NodeGroup
from dovetail.core.errors import IllegalPlan, InputError
from dovetail.core.islands import Islands
from dovetail.core.legality import audit
from dovetail.core.messages import Started
from dovetail.core.placement import Placement
from dovetail.core.placing import Placing
from dovetail.live.jobs.record import GangMember
from dovetail.live.workers.gpu_assignment import GpuAssignment
from dovetail.physics.placed import placed_physics
from dovetail.physics.zoo.models import Catalogue, shipped_sets

LINKS = (
    Link("island", 300e9),
    Link("node", 30e9, nodes=1),
    Link("fabric", 1e9),
)


def starts(rows: list[Row], cluster: Cluster | str, policy: str = "fifo:bypass=skip") -> list[str]:
    """Returns the job, its node and its GPUs at each start."""
    story = play(rows, policy, cluster)
    return [
        f"{f.job} at {f.t:g}: node {f.placement.spans[0][0]} {f.placement.gpu_ids[0]}"
        for f in story.facts
        if isinstance(f, Started)
    ]


def test_a_short_form_states_islands() -> None:
    cluster = Cluster.parse("8x2x4:v100+2x8:a100")
    assert [(g.gpus_per_node, g.gpus_per_island) for g in cluster.groups] == [(8, 4), (8, 0)]
    assert [g.size for g in cluster.groups] == ["8x2x4", "2x8"]
    assert Islands.of(cluster) is not None
    assert Islands.of(Cluster.parse("8x8")) is None
    assert Islands.of(Cluster.parse("8x1x8")) is None


def test_islands_of_one_size_make_up_a_node() -> None:
    with pytest.raises(InputError, match="8 GPUs are no islands of 3"):
        Cluster((NodeGroup("all", 1, 8, gpus_per_island=3),))
    with pytest.raises(InputError, match="it has a link 'island' and no islands"):
        Cluster((NodeGroup("all", 1, 8),), LINKS)
    with pytest.raises(InputError, match="inside a node and stated once"):
        Cluster((NodeGroup("all", 1, 8, gpus_per_island=4),), (Link("Island", 1e9, nodes=2),))


def test_gangs_lie_in_as_few_islands_as_can_be_the_fullest_that_suffices() -> None:
    rows = [Row(3, 9), Row(2, 9, submit_s=1), Row(1, 9, submit_s=2), Row(2, 9, submit_s=3)]
    assert starts(rows, "1x2x4") == [
        "0 at 0: node 0 (0, 1, 2)",
        "1 at 1: node 0 (4, 5)",
        "2 at 2: node 0 (3,)",
        "3 at 3: node 0 (6, 7)",
    ]


def test_a_demand_waits_for_an_island_and_a_wish_takes_what_there_is() -> None:
    rows = [Row(3, 5), Row(3, 9, submit_s=1), Row(2, 9, submit_s=2, topology="island")]
    assert starts(rows, "1x2x4")[-1] == "2 at 5: node 0 (0, 1)"
    rows[2] = replace(rows[2], topology="island?")
    assert starts(rows, "1x2x4")[-1] == "2 at 2: node 0 (3, 7)"


def test_a_wish_goes_to_the_node_with_an_island_and_others_to_the_fullest() -> None:
    rows = [Row(3, 9), Row(3, 9), Row(2, 9, submit_s=1, topology="island?")]
    assert starts(rows, "2x2x4")[-1] == "2 at 1: node 1 (0, 1)"
    rows[2] = replace(rows[2], topology="")
    assert starts(rows, "2x2x4")[-1] == "2 at 1: node 0 (3, 7)"


def test_gangs_of_parts_lie_in_the_island_that_they_demand() -> None:
    rows = [
        Row(3, 9),
        Row(3, 9, submit_s=1),
        Row(2, 3, submit_s=2, gpu_part=0.5, topology="island"),
    ]
    assert starts(rows, "1x2x4")[-1] == "2 at 9: node 0 (0, 1)"


def test_a_plan_that_breaks_a_demand_is_refused() -> None:
    stage = Stage([Row(2, 5, topology="island"), Row(2, 5, topology="island?")], "fifo", "2x2x2")
    draft = stage.view.plan.draft()
    with pytest.raises(IllegalPlan, match=r"job 0 may not use nodes \[0\]"):
        draft.place(0, Placement(((0, 2),), ((1, 2),)))
    with pytest.raises(IllegalPlan, match=r"job 0 may not use nodes \[0, 1\] together"):
        draft.place(0, ((0, 1), (1, 1)))
    draft.place(0, Placement(((0, 2),), ((2, 3),)))
    draft.place(1, Placement(((0, 1), (1, 1)), ((0,), (3,))))


def test_a_policy_that_shares_no_gpus_cannot_put_two_jobs_on_one() -> None:
    stage = Stage([Row(2, 5), Row(2, 5)], "fifo", "1x2x2").run_jobs((0, ((0, 2),)))
    with pytest.raises(IllegalPlan, match="wants GPU 1 of node 0, which is held"):
        stage.view.plan.draft().place(1, Placement(((0, 2),), ((1, 2),)))


def test_jobs_for_which_no_island_is_large_enough_never_fit() -> None:
    stage = Stage([Row(5, 5, topology="island")], "fifo", "1x2x4")
    assert Placing().find(stage.view.plan.occupancy, stage.view.shape(0)) is None


def test_a_cluster_without_islands_refuses_the_level() -> None:
    stage = Stage([Row(2, 5, topology="island")], "fifo", "2x4")
    with pytest.raises(InputError, match=r"no node of the cluster has islands .*gpus_per_island"):
        Placing().find(stage.view.plan.occupancy, stage.view.shape(0))


@settings(max_examples=200)
@given(
    steps=st.lists(
        st.tuples(st.integers(1, 4), st.sampled_from(["", "island", "island?"]), st.integers(0, 5)),
        min_size=1,
        max_size=25,
    )
)
def test_a_demand_is_met_exactly_if_an_island_has_the_gpus(
    steps: list[tuple[int, str, int]],
) -> None:
    rows = [Row(gpus, 5, topology=topology) for gpus, topology, _ in steps]
    stage = Stage(rows, "fifo", "2x2x4")
    draft, find = stage.view.plan.draft(), Placing().find
    held: dict[tuple[int, int], int] = {}
    for job, (gpus, topology, leaves) in enumerate(steps):
        free = [
            [sum((n, g) not in held for g in range(at, at + 4)) for at in (0, 4)] for n in (0, 1)
        ]
        fits = any(most >= gpus for node in free for most in node)
        spans = find(draft.occupancy, stage.view.shape(job))
        if topology == "island":
            assert (spans is not None) == fits
        if spans is not None:
            draft.place(job, spans)
            assert not held.keys() & set(draft.placed[job].named())
            held.update(dict.fromkeys(draft.placed[job].named(), job))
            if topology and fits:
                assert len({(n, g // 4) for n, g in draft.placed[job].named()}) == 1
        gone = leaves if leaves in draft.placed else None
        if gone is not None:
            draft.remove(gone)
            held = {gpu: j for gpu, j in held.items() if j != gone}
        islands = draft.occupancy.islands
        assert islands is not None
        fresh = [
            [sum((n, g) not in held for g in range(at, at + 4)) for at in (0, 4)] for n in (0, 1)
        ]
        assert islands.free == fresh
        for need in range(1, 5):
            assert islands.nodes_with(need) == sum(1 << n for n in (0, 1) if max(fresh[n]) >= need)


def test_the_audit_finds_a_gang_that_crosses_the_island_it_demands() -> None:
    stage = Stage([Row(2, 5, topology="island")], "fifo", "1x2x2").run_jobs((0, ((0, 2),)))
    occupancy = stage.view.plan.occupancy
    assert audit(stage.view, occupancy) == []
    assert occupancy.islands is not None
    occupancy.islands.sizes = [1]
    assert audit(stage.view, occupancy) == ["job 0 may not use nodes [0]"]


def test_an_elastic_job_that_grows_keeps_its_gpus() -> None:
    islands = Islands(Cluster.parse("1x2x4"))
    assert islands.chosen(0, 3, [1, 2, 4, 5, 6, 7], [1, 2], near=False) == (1, 2, 4)
    assert islands.chosen(0, 3, [1, 2, 4, 5, 6, 7], [1, 2], near=True) == (4, 5, 6)
    assert islands.chosen(0, 1, [1, 4, 5], [4, 5], near=False) == (4,)


@pytest.mark.parametrize("speedup", [1.0, 10.0])
def test_a_model_is_slower_across_islands_by_the_bandwidths_of_the_cluster(speedup: float) -> None:
    group = NodeGroup("all", 2, 8, gpus_per_island=4)
    links = LINKS if speedup > 1 else LINKS[1:]
    cluster = Cluster((group,), links)
    assert cluster.island_speedup == speedup
    jobs = trace_of(Row(4, 5, model="vgg19"), Row(8, 5, model="vgg19"), Row(4, 5)).jobs
    speed = placed_physics(jobs, cluster, Catalogue(shipped_sets())).speed
    inside = speed.whole(0, Placement(((0, 4),), ((4, 5, 6, 7),)))
    across = speed.whole(0, Placement(((0, 4),), ((2, 3, 4, 5),)))
    nodes = speed.whole(0, Placement(((0, 2), (1, 2)), ((2, 4), (0, 1))))
    assert inside == 1.0
    assert (across < inside) == (speedup > 1)
    assert nodes == speed.whole(0, Placement(((0, 2), (1, 2))))
    # No island holds eight: a node is as near as they can be.
    assert speed.whole(1, Placement(((0, 8),), (tuple(range(8)),))) == 1.0
    assert speed.whole(2, Placement(((0, 4),), ((2, 3, 4, 5),))) == 1.0


def test_the_islands_of_the_plan_are_those_of_the_node_live() -> None:
    seats = GpuAssignment((8,), (4,))
    first = Placement(((0, 2),), ((4, 5),))
    # Only the second island has a GPU that no worker is on any more.
    gpus = seats.assign([(0, first)], lambda node, gpu: gpu in (0, 1, 6, 7))[0]
    assert gpus == ((0, 6), (0, 7))
    seats.occupy(0, [GangMember(n, *gpu) for n, gpu in enumerate(gpus)])
    both = seats.assign(
        [(0, Placement(((0, 2),), ((0, 1),))), (1, Placement(((0, 2),), ((4, 5),)))],
        lambda node, gpu: True,
    )
    assert {gpu // 4 for _, gpu in both[0]} == {0}
    assert {gpu // 4 for _, gpu in both[1]} == {1}

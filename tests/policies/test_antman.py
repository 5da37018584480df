"""AntMan by hand: guaranteed jobs first, opportunistic ones beside them where there is room."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import Row, Stage, Story, play, play_scene, policy_of, scene_of, trace_of
from dovetail.core.beliefs import Physics
from dovetail.core.cluster import Cluster, NodeGroup
from dovetail.core.job import JobTable
from dovetail.core.messages import Started
from dovetail.physics.linear import linear_physics
from dovetail.physics.sharing.interference import Injected, Interference
from tight_physics import tight_physics


def row(gpus: int, duration_s: float, submit_s: float = 0.0, **more: object) -> Row:
    return Row(gpus, duration_s, submit_s=submit_s, **{"shareable": True, **more})  # type: ignore[arg-type]


def run(
    rows: Sequence[Row],
    classes: str,
    cluster: str | Cluster,
    *,
    xi: float = 1.5,
    options: str = "",
    physics: Callable[[JobTable, Interference], Physics] = linear_physics,
    **more: object,
) -> Story:
    """Plays rows, of which those with an `o` in `classes` are opportunistic."""
    trace = trace_of(*rows)
    priority = np.array([float(letter == "o") for letter in classes])
    trace = replace(trace, jobs=replace(trace.jobs, priority=priority))
    truth = physics(trace.jobs, Injected(xi))
    scene = scene_of(trace, cluster, truth=truth, **more)  # type: ignore[arg-type]
    return play_scene(scene, f"antman:classes=priority{options}")


def test_an_opportunistic_job_joins_a_guaranteed_one_where_no_gpu_is_free() -> None:
    # One GPU, ratio 1.5. The guest of 2 s takes 3; the host does 2 of its 10 s meanwhile.
    assert run([row(1, 10), row(1, 2)], "go", "1x1").finishes == pytest.approx([11, 3])


def test_guaranteed_jobs_do_not_share_with_each_other() -> None:
    assert run([row(1, 10), row(1, 2)], "gg", "1x1").finishes == [10, 12]


def test_opportunistic_jobs_do_not_share_with_each_other() -> None:
    assert run([row(1, 10), row(1, 2)], "oo", "1x1").finishes == [10, 12]


def test_an_opportunistic_job_prefers_a_free_gpu() -> None:
    assert run([row(1, 10), row(1, 2)], "go", "1x2").finishes == [10, 2]


def test_a_guaranteed_job_takes_a_gpu_that_an_opportunistic_one_holds() -> None:
    # The opportunistic job is not stopped; from 4 s on it is the guest of job 1 (2 s, so 3).
    story = run([row(1, 10), row(1, 2, 4)], "og", "1x1")
    assert story.finishes == pytest.approx([11, 7])
    assert story.stops(0) == []


def test_a_gang_takes_what_is_free_and_shares_the_rest() -> None:
    # Job 0 holds GPU 0. Job 1 (2 GPUs) takes GPU 1 and shares GPU 0: 4 s at 1/1.5 are 6.
    story = run([row(1, 10), row(2, 4)], "go", "1x2")
    assert story.finishes == pytest.approx([12, 6])


def test_a_third_job_finds_no_room() -> None:
    # Job 2 waits for the end of the guest at 3 s; then it shares with the host, which has 8 s.
    story = run([row(1, 10), row(1, 2), row(1, 2)], "goo", "1x1")
    assert story.starts(2) == [(3.0, "start")]
    assert story.finishes == pytest.approx([12, 3, 6])


def test_guaranteed_jobs_come_first_though_submitted_later() -> None:
    # Job 0 fills both GPUs until 5 s. Then job 2 has one; job 1 takes the other free one.
    story = run([row(2, 5, shareable=False), row(1, 9, 1), row(1, 9, 2)], "gog", "1x2")
    assert story.starts(1) == story.starts(2) == [(5.0, "start")]
    story = run([row(1, 5, shareable=False), row(1, 9, 1), row(1, 9, 2)], "gog", "1x1")
    assert story.starts(2) == [(5.0, "start")]
    assert story.starts(1) == [(5.0, "start")]
    assert story.finishes == pytest.approx([5, 18.5, 18.5])


def test_a_host_that_uses_much_of_its_gpu_has_no_guest() -> None:
    # Two of a kind at ratio 1.7 use .85 of a GPU each; at 1.5 .75.
    assert run([row(1, 10), row(1, 2)], "go", "1x1", xi=1.7).finishes == [10, 12]
    options = ",utilisation=0.9"
    assert run([row(1, 10), row(1, 2)], "go", "1x1", xi=1.7, options=options).starts(1) == [
        (0.0, "start")
    ]


def test_owners_have_the_last_word() -> None:
    for mine, theirs in ((True, False), (False, True)):
        rows = [row(1, 10, shareable=mine), row(1, 2, shareable=theirs)]
        assert run(rows, "go", "1x1").finishes == [10, 12]


def test_memory_has_the_last_word() -> None:
    assert run([row(1, 10), row(1, 2)], "go", "1x1", physics=tight_physics).finishes == [10, 12]


def test_the_first_of_a_class_that_finds_no_room_blocks_its_class_alone() -> None:
    # 2 GPUs, one held by job 0. Job 1 (guaranteed) wants both and blocks job 2; job 3
    # (opportunistic) takes the free one.
    rows = [row(1, 10, shareable=False), row(2, 5), row(1, 4), row(1, 4)]
    story = run(rows, "gggo", "1x2")
    assert story.starts(3) == [(0.0, "start")]
    assert [story.starts(j)[0][0] for j in (1, 2)] == [10.0, 15.0]
    story = run(rows, "gggo", "1x2", options=",bypass=skip")
    assert story.starts(2) == [(0.0, "start")]


def test_a_newcomer_behind_a_blocked_head_waits_and_one_of_the_other_class_does_not() -> None:
    rows = [row(2, 10), row(4, 5, 1), row(1, 4, 2), row(1, 4, 3)]
    story = run(rows, "gggo", "1x4")
    assert story.starts(1) == [(10.0, "start")]
    assert story.starts(2) == [(15.0, "start")]
    assert story.starts(3) == [(3.0, "start")]


def test_gpus_of_another_type_are_no_room() -> None:
    rows = [row(1, 10, gpu_type="v100"), row(1, 2, gpu_type="t4"), row(1, 2, gpu_type="v100")]
    story = run(rows, "goo", "1x1:t4+1x1:v100")
    assert story.starts(2) == [(0.0, "start")]
    placed = {f.job: f.placement.spans for f in story.facts if isinstance(f, Started)}
    assert placed == {0: ((1, 1),), 1: ((0, 1),), 2: ((1, 1),)}


def test_the_lot_is_drawn_once_for_each_job() -> None:
    view = Stage([row(1, 10.0 + i) for i in range(400)], "fifo", "1x1").view
    for share in (0.0, 0.25, 1.0):
        policy = policy_of(f"antman:share={share:g}")
        order = policy.order.keys(view, list(range(400)))
        assert sum(order) / 400 == pytest.approx(share, abs=0.06)
        assert order[7] == policy.order.keys(view, [7])[0]


def test_with_one_class_only_it_is_fifo() -> None:
    rows = [row(1 + i % 3, 3.0 + i % 5, submit_s=float(i)) for i in range(25)]
    assert play(rows, "antman:share=0", "1x4").finishes == play(rows, "fifo", "1x4").finishes


def test_parameters_out_of_range_are_refused() -> None:
    for text in ("share=2", "utilisation=0", "classes=age", "bypass=maybe"):
        with pytest.raises(Exception, match="antman"):
            policy_of(f"antman:{text}")


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.integers(1, 20), st.booleans(), st.booleans()),
        min_size=1,
        max_size=14,
    ),
    st.sampled_from(["strict", "skip"]),
)
def test_two_on_a_gpu_are_of_two_classes_and_nobody_is_stopped(
    jobs: list[tuple[int, int, bool, bool]], bypass: str
) -> None:
    rows = [row(g, float(s), float(i), shareable=ok) for i, (g, s, _, ok) in enumerate(jobs)]
    classes = "".join("o" if opportunistic else "g" for _, _, opportunistic, _ in jobs)
    story = run(rows, classes, "2x2", options=f",bypass={bypass}")
    on: dict[tuple[int, int], set[int]] = {}
    ends = dict(enumerate(story.finishes))
    for fact in story.facts:
        if isinstance(fact, Started):
            for gpu in fact.placement.named():
                here = {j for j in on.get(gpu, set()) if ends[j] > fact.t} | {fact.job}
                on[gpu] = here
                assert len({classes[j] for j in here}) == len(here)
    assert all(story.stops(j) == [] for j in range(len(rows)))


def test_where_the_first_hosts_lie_apart_one_that_holds_the_whole_gang_will_do() -> None:
    # Two nodes of three. The first four GPUs with company to spare lie on both; job 2 has three
    # of node 1 to itself.
    rows = [row(1, 100), row(2, 100, shareable=False), row(3, 500, 0.5), row(3, 10, 1)]
    story = run(rows, "gggo", "2x3", xi=1.2, placing="strict")
    seat = next(f for f in story.facts if isinstance(f, Started) and f.job == 3)
    assert (seat.t, seat.placement.by_node()) == (1.0, {1: 3})


def test_a_host_without_cpus_for_the_guest_makes_way_for_the_next() -> None:
    rows = [row(2, 500, cpus=4.0), row(2, 600, cpus=1.0), row(2, 10, 1, cpus=6.0)]
    cluster = Cluster((NodeGroup("all", 2, 2, cpus=8),))
    story = run(rows, "ggo", cluster, xi=1.2)
    assert story.starts(2) == [(1.0, "start")]


def test_who_starts_may_make_a_place_for_one_before_it() -> None:
    # Two nodes of two; a gang of two may not be spread. Jobs 0 and 1 leave a GPU of each node
    # free, so by count job 2 needs no company. Once job 3 has that of node 0, job 2 joins job 1.
    rows = [row(1, 100), row(1, 100, 0.1), row(2, 10, 2), row(1, 50, 2)]
    rows.insert(1, row(1, 0.5, 0.05))
    story = run(rows, "ggogg", "2x2", xi=1.2, options=",bypass=skip", placing="strict")
    assert [story.starts(j) for j in (3, 4)] == [[(2.0, "start")]] * 2

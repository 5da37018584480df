"""AFS by hand: shares with and without lengths, turns, best counts, and what is measured."""

import pytest

from builders import Row, Stage, play, play_scene, scene_of, trace_of
from curved_physics import curved_physics
from dovetail.core.errors import InputError
from dovetail.core.messages import Started
from dovetail.core.units import HOUR_S
from dovetail.core.view import show

FLEX = {"elastic": True, "min_gpus": 1, "max_gpus": 4}
X, Y, Z = (1, 1.7, 2.2, 2.5), (1, 1.9, 2.7, 3.4), (1, 1.5, 1.8, 2.0)


def flex(length_s: float, submit_s: float = 0.0, most: int = 4, **more: object) -> Row:
    """Returns an elastic job that asks for one GPU."""
    return Row(1, length_s, submit_s, elastic=True, min_gpus=1, max_gpus=most, **more)  # type: ignore[arg-type]


def shares_of(stage: Stage) -> dict[int, int]:
    """Returns how many GPUs each job gets in a first decision."""
    decision = stage.policy.decide(stage.view, stage.policy.initial)
    assert decision.draft is not None
    return {job: placement.gpus for job, placement in sorted(decision.draft.placed.items())}


def stage(policy: str, cluster: str, *rows: Row, curves: tuple[object, ...] = ()) -> Stage:
    made = Stage(rows, policy, cluster)
    if curves:
        show(made.view, physics=curved_physics(made.trace.jobs, curves))
    return made


@pytest.mark.parametrize(
    ("gpus", "shares"),
    [
        (2, {0: 1, 1: 1}),
        (3, {0: 1, 1: 1, 2: 1}),
        (4, {0: 2, 1: 1, 2: 1}),
        (5, {0: 2, 1: 2, 2: 1}),
        (6, {0: 2, 1: 3, 2: 1}),
        (7, {0: 2, 1: 3, 2: 2}),
        (8, {0: 3, 1: 3, 2: 2}),
        (40, {0: 4, 1: 4, 2: 4}),
    ],
)
def test_shares_with_lengths_follow_the_worked_example(gpus: int, shares: dict[int, int]) -> None:
    rows = [flex(6), flex(12), flex(40)]  # ALGORITHMS section 8 case 5
    assert shares_of(stage("afs-l", f"1x{gpus}", *rows, curves=(X, Y, Z))) == shares


def test_with_more_jobs_than_gpus_the_shortest_run_on_one_each() -> None:
    rows = [flex(9), flex(3), flex(7), flex(3), flex(1)]
    assert shares_of(stage("afs-l", "1x3", *rows)) == {1: 1, 3: 1, 4: 1}


def test_a_shorter_job_takes_the_gpu_of_the_longest_that_runs() -> None:
    story = play([flex(20), flex(30), flex(5, 2.0)], "afs-l", "1x2")
    assert story.stops(1) == [(2.0, "preempted")]
    # At 7 s all fit again: 0 has 13 s left, 1 has 28; each has one GPU; at 20 job 1 has both.
    assert story.finishes == [20.0, 27.5, 7.0]


def test_a_rigid_job_takes_its_request_in_its_turn_or_waits() -> None:
    rows = [Row(2, 8), Row(4, 9), flex(20)]
    # Job 0 takes 2 of 5, job 1 finds 3 and is passed over, job 2 has the rest.
    assert shares_of(stage("afs-l", "1x5", *rows)) == {0: 2, 2: 3}


def test_an_elastic_job_never_has_less_than_it_can_run_on() -> None:
    rows = [Row(3, 10, elastic=True, min_gpus=3, max_gpus=4), flex(60)]
    assert shares_of(stage("afs-l", "1x3", *rows)) == {0: 3}
    assert shares_of(stage("afs-l", "1x4", *rows)) == {0: 3, 1: 1}


def test_what_may_not_be_stopped_starts_as_requested_and_keeps_it() -> None:
    rows = [flex(10, most=4, preemptible=False), flex(3, 1.0), flex(3, 1.0)]
    story = play(rows, "afs-l", "1x2")
    assert [f.placement.gpus for f in story.of(Started) if f.job == 0] == [1]
    assert story.finishes == [10.0, 4.0, 7.0]


def test_an_exact_tie_leaves_the_gpu_with_the_shorter_job() -> None:
    # Both gain nothing from the comparison: 1 - 1/2 = .5 is not more than .5 of the shorter.
    curves = ((1, 1.5, 1.6, 1.7), (1, 2, 2, 2))
    assert shares_of(stage("afs-l", "1x3", flex(5), flex(90), curves=curves)) == {0: 2, 1: 1}


def test_without_lengths_the_gpu_goes_to_who_would_have_it_as_the_longer() -> None:
    # (3) holds for Y as the longer of X and Y? .474 > .7: no. X stays, first in order.
    assert shares_of(stage("afs-p", "1x3", flex(9), flex(9), curves=(X, Y))) == {0: 2, 1: 1}
    # Z gains .5 from its second GPU, Y then .474: Y as the longer does not win, 1.0 of linear does.
    flat, steep = (1, 1.1, 1.2, 1.3), (1, 2, 3, 4)
    assert shares_of(stage("afs-p", "1x3", flex(9), flex(9), curves=(flat, steep))) == {0: 1, 1: 2}


def test_undecided_pairs_go_either_way_when_ties_are_random() -> None:
    seen = {
        shares_of(stage(f"afs-p:tie=random,seed={seed}", "1x3", flex(9), flex(9), curves=(X, X)))[0]
        for seed in range(20)
    }
    assert seen == {1, 2}


def test_jobs_take_turns_of_a_unit_when_not_all_fit() -> None:
    rows = [flex(25), flex(25), flex(25)]
    story = play(rows, "afs-p:unit-s=10", "1x2")
    # 0 and 1; at 10 job 2 (no unit yet) and 0; at 20 those with one unit, 1 and 2; at 30 all have
    # two and 0 has waited longest, then 1; both end at 35, and 2 has 5 s left for two GPUs.
    assert [t for t, _ in story.starts(0)] == [0.0, 30.0]
    assert story.stops(1) == [(10.0, "preempted")]
    assert story.stops(2) == [(30.0, "preempted")]
    assert story.finishes == [35.0, 35.0, 37.5]


def test_when_the_crowd_begins_nobody_is_stopped_and_units_begin() -> None:
    rows = [flex(100), flex(100), flex(30, 4.0)]
    story = play(rows, "afs-p:unit-s=10", "2x2")
    assert not [f for f in story.facts if getattr(f, "why", "") == "preempted"]
    crowded = play(rows, "afs-p:unit-s=10", "1x2")
    assert crowded.starts(2)[0] == (14.0, "start")
    assert crowded.stops(1)[0] == (14.0, "preempted")
    assert not [t for t, _ in crowded.stops(0) if t < 24.0]


def test_a_gang_is_passed_over_only_by_jobs_with_as_many_units() -> None:
    rows = [Row(2, 10, 1.0), *[flex(500) for _ in range(4)]]
    rows = sorted(rows, key=lambda r: r.submit_s)
    story = play(rows, "afs-p:unit-s=20", "1x2")
    # At 1 the gang lines up behind 2 and 3, which begin at 20; all others have a unit at 40.
    assert story.starts(4) == [(40.0, "start")]
    assert story.finishes[4] == 50.0


def test_time_to_get_going_is_no_part_of_a_unit() -> None:
    rows = [flex(25), flex(25), flex(25)]
    story = play(rows, "afs-p:unit-s=10", "1x2", switching="restart:3")
    assert story.stops(1)[0] == (13.0, "preempted")
    assert story.starts(2)[0] == (13.0, "start")


def test_best_counts_alone_give_max_min_up_to_the_peak() -> None:
    peaked, linear = (1, 1.8, 1.7, 1.6), (1, 2, 3, 4)
    made = stage("afs-s", "1x6", flex(9), flex(9), flex(9), curves=(peaked, linear, linear))
    assert shares_of(made) == {0: 2, 1: 2, 2: 2}
    made = stage("afs-s", "1x8", flex(9), flex(9), flex(9), curves=(peaked, linear, linear))
    assert shares_of(made) == {0: 2, 1: 3, 2: 3}
    made = stage("afs-s", "1x20", flex(9), flex(9), flex(9), curves=(peaked, linear, linear))
    assert shares_of(made) == {0: 2, 1: 4, 2: 4}


def sizes(story: object, job: int) -> list[tuple[float, int]]:
    """Returns when a job was given how many GPUs."""
    facts = story.of(Started)  # type: ignore[attr-defined]
    return [(f.t, f.placement.gpus) for f in facts if f.job == job]


@pytest.mark.parametrize("policy", ["afs-l", "afs-p"])
def test_a_new_job_gets_its_fair_share_and_is_adjusted_once_it_has_measured(policy: str) -> None:
    flat = (1, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5)
    linear = tuple(float(c) for c in range(1, 9))
    rows = [flex(HOUR_S, most=8), flex(2 * HOUR_S, most=8)]
    trace = trace_of(*rows)
    scene = scene_of(trace, "1x8", truth=curved_physics(trace.jobs, (flat, linear)))
    story = play_scene(scene, f"{policy}:estimates=overestimate,measure-s=60")
    # Two reconfigurations of each: its start on half the pool, and one when both have reported.
    assert sizes(story, 0) == [(0.0, 4), (60.0, 2)]
    assert sizes(story, 1)[:2] == [(0.0, 4), (60.0, 6)]
    # The linear job has ended long before the other; nobody measured anything again.
    assert story.finishes[1] < story.finishes[0]


def test_an_arrival_is_measured_on_its_own_share_while_others_keep_theirs() -> None:
    linear = tuple(float(c) for c in range(1, 9))
    flat = (1, 1.2, 1.2, 1.2, 1.2, 1.2, 1.2, 1.2)
    rows = [flex(9 * HOUR_S, most=8), flex(HOUR_S, 600.0, most=8)]
    trace = trace_of(*rows)
    scene = scene_of(trace, "1x8", truth=curved_physics(trace.jobs, (linear, flat)))
    story = play_scene(scene, "afs-l:estimates=overestimate,measure-s=60")
    assert sizes(story, 0)[:3] == [(0.0, 8), (600.0, 4), (660.0, 6)]
    assert sizes(story, 1) == [(600.0, 4), (660.0, 2)]


def test_beyond_what_is_measured_a_job_is_believed_to_go_on_linearly() -> None:
    # Alone from the start, so its fair share is all; then nothing is left to measure.
    story = play([flex(100, most=4)], "afs-p:estimates=overestimate,measure-s=10", "1x4")
    assert sizes(story, 0) == [(0.0, 4)]
    assert story.finishes == [25.0]


@pytest.mark.parametrize("cluster", ["2x3", "2x4+1x8", "2x4:t4+2x4:v100"])
def test_network_packing_wants_machines_that_are_alike(cluster: str) -> None:
    with pytest.raises(InputError, match="identical machines"):
        play([flex(5)], "afs-l:packing=network", cluster)


def test_packed_shares_are_parts_of_a_machine_or_whole_ones() -> None:
    linear = tuple(float(c) for c in range(1, 17))
    rows = [flex(50, most=16), flex(60, most=16), flex(70, most=16)]
    made = stage("afs-s:packing=network", "4x4", *rows, curves=(linear,) * 3)
    assert shares_of(made) == {0: 8, 1: 4, 2: 4}  # of 6, 5, 5


def test_a_gang_of_three_books_four_and_leaves_one_idle() -> None:
    rows = [Row(3, 10), flex(20), flex(20)]
    made = stage("afs-l:packing=network", "2x4", *rows)
    assert shares_of(made) == {0: 3, 1: 2, 2: 2}


@pytest.mark.parametrize(
    "policy",
    [
        "afs-l:packing=always",
        "afs-l:estimates=guess",
        "afs-p:measure-s=0",
        "afs-p:unit-s=1e-9",
        "afs-p:unit-s=0",
        "afs-p:tie=never",
        "afs-s:unit-s=-1",
    ],
)
def test_parameters_that_mean_nothing_are_refused(policy: str) -> None:
    with pytest.raises(InputError):
        play([flex(5)], policy)


@pytest.mark.parametrize("policy", ["afs-l", "afs-p", "afs-s"])
def test_a_queue_over_its_quota_does_not_keep_others_from_the_gpus(policy: str) -> None:
    from dovetail.core.cluster import Cluster, NodeGroup
    from dovetail.core.tenants import QueueSpec

    cluster = Cluster((NodeGroup("all", 1, 4),), queues=(QueueSpec("a", 1), QueueSpec("b")))
    rows = [flex(5, queue="a"), flex(6, queue="a"), flex(7, queue="a"), flex(90, queue="b")]
    made = Stage(rows, policy, cluster)
    assert shares_of(made) == {0: 1, 3: 3}


@pytest.mark.parametrize("policy", ["afs-l", "afs-p", "afs-s"])
def test_jobs_that_want_a_type_of_gpu_share_those(policy: str) -> None:
    rows = [flex(5, gpu_type="t4"), flex(6, gpu_type="t4"), flex(90, gpu_type="v100")]
    shares = shares_of(Stage(rows, policy, "1x2:t4+1x4:v100"))
    assert shares == {0: 1, 1: 1, 2: 4}

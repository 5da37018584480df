"""SRTF-max, SRSF-max and Tiresias-max by hand: every job at the size of its highest speed."""

import numpy as np
import pytest

from builders import Row, Stage, play, play_scene, scene_of, trace_of
from curved_physics import curved_physics
from dovetail.core.view import show
from dovetail.mechanisms.elastic.sizes import peak_gpus

FLEX = {"elastic": True, "min_gpus": 1, "max_gpus": 4}


def flex(gpus: int, duration_s: float, submit_s: float = 0.0, **more: object) -> Row:
    return Row(gpus, duration_s, submit_s=submit_s, **{**FLEX, **more})  # type: ignore[arg-type]


def test_the_peak_is_the_fewest_gpus_of_the_highest_speed_within_the_limits() -> None:
    rows = [
        flex(1, 9),
        flex(1, 9),
        flex(1, 9),
        Row(2, 9),
        flex(1, 9, max_gpus=3),
        flex(2, 9, min_gpus=2),
        flex(1, 9, max_gpus=64),
    ]
    curves = (
        (1, 2, 3, 4),
        (1, 1.5, 1.4, 1.3),  # falls again
        (1, 1.8, 1.8, 1.8 * (1 + 1e-12)),  # no more than rounding beyond two
        (1, 2, 3, 4),  # not elastic
        (1, 2, 3, 4),
        (1, 0.9, 0.8, 0.7),  # best on one, but needs two
        (1, 2, 3, 4, 5, 6, 7, 8),  # the cluster ends at 6
    )
    stage = Stage(rows, "srtf-max", "1x6")
    show(stage.view, physics=curved_physics(stage.trace.jobs, curves))
    assert peak_gpus(stage.view, np.arange(7)).tolist() == [4, 2, 2, 2, 3, 2, 6]


def test_a_job_runs_at_its_peak_or_waits() -> None:
    # 6 GPUs. Both scale to 4: job 0 (8 s of one GPU) takes 4 and ends at 2; job 1 waits for 4 of
    # them although 2 are idle, and ends at 2 + 12/4.
    assert play([flex(1, 8), flex(1, 12)], "srtf-max", "1x6").finishes == [2, 5]


def test_the_time_left_is_that_at_the_peak() -> None:
    # Job 0: 12 s on one GPU, 3 s on its four. Job 1 (not elastic): 4 s on four. At the request
    # job 1 would be first; at the peak job 0 is.
    rows = [flex(1, 12), Row(4, 4)]
    assert play(rows, "srtf-max", "1x4").finishes == [3, 7]
    assert play(rows, "srtf", "1x4").finishes == [16, 4]


def test_service_left_is_time_at_the_peak_times_the_peak() -> None:
    # Job 0 is at its best on two GPUs: 8 s, 16 GPU-s. Jobs 1 and 2 on three: 4.5 s, 13.5 GPU-s
    # and 5 s, 15 GPU-s; job 3 on four: 2 s, 8 GPU-s. One after the other on four GPUs, in the
    # order 3, 1, 2, 0 by time and by service.
    trace = trace_of(flex(1, 12), Row(3, 4.5), Row(3, 5), Row(4, 2))
    curves = ((1, 1.5), (1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4))
    truth = curved_physics(trace.jobs, curves)
    for name in ("srtf-max", "srsf-max"):
        story = play_scene(scene_of(trace, "1x4", truth=truth), name)
        assert story.finishes == pytest.approx([19.5, 6.5, 11.5, 2])
    # On five, job 0 finds two beside job 1 from 2 s on and keeps them beside job 2.
    story = play_scene(scene_of(trace, "1x5", truth=truth), "srsf-max")
    assert story.finishes == pytest.approx([10, 6.5, 11.5, 2])


def test_time_and_service_rank_a_wide_short_job_differently() -> None:
    # At 4 GPUs job 0 needs 3 s (12 GPU-s); job 1 needs 5 s on one (5 GPU-s).
    rows = [flex(1, 12), Row(1, 5)]
    assert play(rows, "srtf-max", "1x4").finishes == [3, 8]
    assert play(rows, "srsf-max", "1x4").finishes == [8, 5]


def test_a_job_with_more_left_is_stopped_and_comes_back_at_its_peak() -> None:
    rows = [flex(1, 40), flex(1, 8, submit_s=1)]
    story = play(rows, "srtf-max", "1x4")
    assert story.starts(0) == [(0.0, "start"), (3.0, "resume")]
    assert story.stops(0) == [(1.0, "preempted")]
    assert story.finishes == [12, 3]


def test_queues_fall_faster_at_the_peak() -> None:
    # Threshold 10 GPU-s: job 0 on 4 GPUs reaches it at 2.5 s and gives way to job 1, which holds
    # 4 too and ends at 2.5 + 2 = 4.5, below its threshold; job 0 has 40 - 10 left: 7.5 s more.
    rows = [flex(1, 40), flex(1, 8, submit_s=1)]
    story = play(rows, "tiresias-max:thresholds=10", "1x4")
    assert story.stops(0) == [(2.5, "preempted")]
    assert story.finishes == [12, 4.5]


@pytest.mark.parametrize("name", ["srtf", "srsf", "tiresias"])
def test_with_no_elastic_job_it_is_the_policy_it_builds_on(name: str) -> None:
    rows = [Row(1 + i * 7 % 5, 3.0 + i * 11 % 17, submit_s=i * 2.5) for i in range(40)]
    options = ":thresholds=20" if name == "tiresias" else ""
    finishes = [
        play(rows, f"{form}{options}", "1x8", placing="none,repack").finishes
        for form in (name, f"{name}-max")
    ]
    assert finishes[0] == pytest.approx(finishes[1])


def test_while_nodes_are_away_a_job_takes_what_is_there() -> None:
    # 4 nodes of one GPU; three are away from 1 s to 100 s. Job 1 (peak 4) starts on the one left.
    story = play(
        [Row(1, 2), flex(1, 10, submit_s=3)],
        "srtf-max",
        "4x1",
        capacity=[(1.0, [(1, "down"), (2, "down"), (3, "down")])],
    )
    assert story.finishes == [2, 13]


def test_a_peak_that_even_the_empty_cluster_cannot_hold_is_cut_to_what_it_can() -> None:
    # Job 0 could use six GPUs of a type of which there are four: once it is alone it gets those.
    rows = [flex(2, 6, max_gpus=6, gpu_type="t4"), Row(1, 1, gpu_type="v100")]
    assert play(rows, "srtf-max", "2x2:t4+4x1:v100").finishes == [4, 1]


MAX_FORMS = ("srtf-max", "srsf-max", "tiresias-max")


@pytest.mark.parametrize("name", [*MAX_FORMS, "srtf-e", "srsf-e"])
def test_a_job_that_is_not_elastic_waits_for_all_it_asked_for(name: str) -> None:
    # It names a least of one, which says nothing while it may not be resized. A node is away from
    # 10 s to 90 s.
    rigid = Row(8, 100, min_gpus=1, max_gpus=8)
    story = play([rigid], name, "2x4", capacity=[(10.0, [(1, "down")]), (90.0, [(1, "up")])])
    assert [t for t, _ in story.starts(0)] == [0.0, 90.0]
    # Two of eight GPUs are left beside a job that may not be stopped; it wants four.
    rows = [Row(6, 100, preemptible=False), Row(4, 50, submit_s=1, min_gpus=1, max_gpus=8)]
    assert play(rows, name, "1x8").finishes == [100, 150]


@pytest.mark.parametrize("name", MAX_FORMS)
def test_a_job_that_may_not_be_stopped_starts_on_what_it_asked_for(name: str) -> None:
    # Nobody could take back what it got for want of other takers.
    rows = [flex(2, 10, preemptible=False), Row(2, 5, submit_s=1)]
    assert play(rows, name, "1x4").finishes == [10, 6]


@pytest.mark.parametrize("name", MAX_FORMS)
def test_where_its_type_has_no_room_a_job_that_is_not_elastic_is_not_cut(name: str) -> None:
    # By count two GPUs are there, of its type only one until 20 s.
    rows = [Row(2, 10, min_gpus=1, max_gpus=2, gpu_type="t4")]
    away = [(0.0, [(0, "down")]), (20.0, [(0, "up")])]
    assert play(rows, name, "2x1:t4+1x1:v100", capacity=away).finishes == [30]

"""Policies that learn from what jobs have received: Tiresias in both forms, and Max-Min."""

import pytest

from builders import Row, play


def test_a_job_falls_to_the_second_queue_at_its_threshold_and_is_stopped_then() -> None:
    # 2 GPUs, threshold 10 GPU-s. Job 0 holds both and has 10 GPU-s at 5 s; job 1 waits since
    # 1 s in the first queue and takes over at 5 s for its 3 s; job 0 resumes at 8 s.
    rows = [Row(2, 20), Row(2, 3, submit_s=1)]
    for inside in ("submission", "list"):
        story = play(rows, f"tiresias:thresholds=10,inside={inside}")
        assert story.stops(0) == [(5.0, "preempted")]
        assert story.starts(1) == [(5.0, "start")]
        assert story.finishes == [23, 8]


def test_nobody_is_stopped_inside_a_queue() -> None:
    rows = [Row(2, 20), Row(2, 3, submit_s=1), Row(1, 1, submit_s=2)]
    for inside in ("submission", "list"):
        story = play(rows, f"tiresias:thresholds=1000,inside={inside}")
        assert story.finishes == [20, 23, 24]
        assert [story.stops(j) for j in range(3)] == [[], [], []]


def test_a_job_falls_through_three_queues() -> None:
    # 1 GPU, thresholds 2 and 4, three jobs of 6 s. First queue: 0, 1, 2 for 2 s each, to 6 s.
    # Job 2 falls while it runs and goes on inside the second queue, where running jobs come
    # first, to 8 s. Job 0 has its turn 8-10, job 1 10-12; job 1 falls while it runs and goes
    # on to its end at 14. Third queue by submission: 0 to 16, 2 to 18.
    rows = [Row(1, 6), Row(1, 6), Row(1, 6)]
    story = play(rows, "tiresias:thresholds=2/4", "1x1")
    assert story.finishes == [16, 14, 18]
    assert story.stops(0) == [(2.0, "preempted"), (10.0, "preempted")]
    # As lists, each fallen job joins the end: 0 runs 6-8, 1 8-10, 2 10-12; then 0, 1, 2.
    story = play(rows, "tiresias:thresholds=2/4,inside=list", "1x1")
    assert story.finishes == [14, 16, 18]


def test_the_list_form_keeps_a_stopped_job_before_those_that_never_ran() -> None:
    # 1 GPU, threshold 4. 0 runs to 4 and falls; 1 runs 4 to 6 and ends; 0 alone in queue 2
    # runs from 6; 2 arrives at 7 in queue 1 and stops it until 8; 0 ends at 6 + 6 + 1.
    rows = [Row(1, 10), Row(1, 2, submit_s=1), Row(1, 1, submit_s=7)]
    for inside in ("submission", "list"):
        story = play(rows, f"tiresias:thresholds=4,inside={inside}", "1x1")
        assert story.finishes == [13, 6, 8]


def test_the_two_forms_differ_by_where_a_fallen_job_joins() -> None:
    # 1 GPU, threshold 2. Both 0 (submitted first) and 1 fall; 1 first, because 0 is stopped
    # never before it... so let 0 be wide and wait: node of 2 GPUs, 0 wants both.
    # 1 (1 GPU) runs from 0 s beside 2 (1 GPU); 0 arrives at 1 s, waits for both.
    rows = [Row(1, 6), Row(1, 6), Row(2, 6, submit_s=1)]
    by_submission = play(rows, "tiresias:thresholds=2,inside=submission")
    # At 2 s jobs 0 and 1 fall (2 GPU-s each) and job 2 takes both GPUs; at 3 s it has 2 GPU-s
    # and falls too. Inside the second queue running jobs come first: job 2 goes on to 8 s.
    assert by_submission.finishes == [12, 12, 8]
    # As lists: at 3 s job 2 joins the end of the second list behind 0 and 1, which take over.
    by_list = play(rows, "tiresias:thresholds=2,inside=list")
    assert by_list.finishes == [7, 7, 12]


def test_jobs_that_fall_at_one_instant_join_the_next_list_in_order_of_job() -> None:
    # 3 GPUs, threshold 4. 0 (2 GPUs) runs to 2; 1 (2 GPUs) waits, 2 (1 GPU) runs from 0: the
    # list is 2, 1. Both have 4 GPU-s at 4 and fall, 1 first. Newcomer 3 takes one GPU: 1 keeps
    # its two, 2 is stopped until 3 ends at 5.
    rows = [Row(2, 2), Row(2, 10), Row(1, 10), Row(1, 1, submit_s=4)]
    story = play(rows, "tiresias:thresholds=4,inside=list", "1x3")
    assert story.stops(1) == []
    assert story.stops(2) == [(4.0, "preempted")]
    assert story.finishes == [2, 12, 11, 5]


@pytest.mark.parametrize("epoch_s", [0.0, 1.7e9])
@pytest.mark.parametrize("inside", ["submission", "list"])
def test_a_fall_is_an_event_also_late_in_time_and_for_wide_jobs(
    epoch_s: float, inside: str
) -> None:
    # A clock of 1.7e9 s has steps of 2.4e-7 s; 512 GPUs make that 1.2e-4 GPU-s.
    rows = [
        Row(512, 40.1, submit_s=epoch_s + 0.3),
        Row(512, 3.3, submit_s=epoch_s + 1.7),
        Row(512, 17.7, submit_s=epoch_s + 2.9),
    ]
    story = play(rows, f"tiresias:thresholds=3250/7200,inside={inside}", "1x512")
    assert max(story.finishes) - epoch_s == pytest.approx(0.3 + 40.1 + 3.3 + 17.7, abs=1e-4)


def test_gittins_serves_least_service_until_it_has_learned() -> None:
    # 1 GPU; looked at first at 4 GPU-s (delta). Job 0 has 4 at 4 s, job 1 none: job 1 runs to
    # its end at 7; job 0 goes on from 7.
    rows = [Row(1, 10), Row(1, 3, submit_s=1)]
    story = play(rows, "gittins:delta=4", "1x1")
    assert story.stops(0) == [(4.0, "preempted")]
    assert story.finishes == [13, 7]


def test_gittins_ranks_by_the_index_once_it_has_learned() -> None:
    # Three jobs of 1, 1 and 10 GPU-s end and are learned (samples-min=3). The next two jobs
    # arrive at 20 s. With delta = 2 the index of a new job is high (two of three end by 1),
    # so after its first look at 2 GPU-s job 3 (index 0: none of the samples > 2 ends within 2)
    # gives way to job 4.
    rows = [
        Row(1, 1),
        Row(1, 1, submit_s=2),
        Row(1, 10, submit_s=4),
        Row(1, 10, submit_s=20),
        Row(1, 10, submit_s=21),
    ]
    story = play(rows, "gittins:delta=2,samples-min=3", "1x1")
    assert story.stops(3)[0] == (22.0, "preempted")
    assert story.starts(4)[0] == (22.0, "start")
    assert max(story.finishes) == 40


def test_gittins_prefers_the_job_that_is_likely_to_end_soon() -> None:
    # Learned: eight jobs of 2 s and four of 20 s. With delta = 20 each index is (share that
    # ends within the next 20) / (mean service in it). A job at 0: 12/12 end, mean 8: 0.125.
    # A job that has 10: all 4 survivors end in 10 more: 1/10. A job that has 18 (looked at
    # at 20): not looked at before 20, so it keeps the index of level 0 and is not stopped.
    learned = [Row(1, 2, submit_s=30.0 * i) for i in range(8)]
    learned += [Row(1, 20, submit_s=30.0 * i) for i in range(8, 12)]
    rows = [*learned, Row(1, 20, submit_s=1000), Row(1, 2, submit_s=1001)]
    story = play(rows, "gittins:delta=20,samples-min=12", "1x1")
    assert story.finishes[12:] == [1020, 1022]
    # Looked at every 2 GPU-s: at 2 job 12 is likely to be a long one and gives way.
    story = play(rows, "gittins:delta=2,samples-min=12", "1x1")
    assert story.stops(12)[0] == (1002.0, "preempted")
    assert story.finishes[12:] == [1022, 1004]


ELASTIC = {"elastic": True, "min_gpus": 1, "max_gpus": 4}


def test_max_min_pours_gpus_evenly_and_pours_anew_at_each_event() -> None:
    # 4 GPUs. Job 0 (asked for 1, takes up to 4) alone: 4 GPUs, speed 4. At 2 s job 1 arrives:
    # 2 each. Job 0 has 16 - 8 = 8 left at speed 2: ends at 6. Job 1 did 8 of 12; alone with 4
    # GPUs the last 4 take 1 s.
    rows = [Row(1, 16, **ELASTIC), Row(1, 12, submit_s=2, **ELASTIC)]  # type: ignore[arg-type]
    story = play(rows, "max-min", "1x4")
    assert story.starts(0) == [(0.0, "start"), (2.0, "resize")]
    assert story.starts(1) == [(2.0, "start"), (6.0, "resize")]
    assert story.finishes == [6, 7]


def test_max_min_gives_the_odd_gpu_to_the_earlier_job() -> None:
    # 3 GPUs, two jobs: 2 and 1. Job 0 (8 s of one GPU) ends at 4; job 1 then has all three.
    rows = [Row(1, 8, **ELASTIC), Row(1, 10, **ELASTIC)]  # type: ignore[arg-type]
    assert play(rows, "max-min", "1x3").finishes == [4, 6]


def test_max_min_never_gives_more_than_a_job_takes() -> None:
    rows = [
        Row(1, 4, elastic=True, min_gpus=1, max_gpus=2),
        Row(1, 6, elastic=True, min_gpus=1, max_gpus=8),
    ]
    # 8 GPUs: 2 and 6. Ends: 2 s; 1 s.
    assert play(rows, "max-min", "1x8").finishes == [2, 1]


def test_max_min_serves_the_earliest_when_jobs_outnumber_gpus() -> None:
    rows = [Row(1, 4, **ELASTIC), Row(1, 4, **ELASTIC), Row(1, 4, **ELASTIC)]  # type: ignore[arg-type]
    # 2 GPUs: 0 and 1 run to 4; then job 2 has both and needs 2 s.
    assert play(rows, "max-min", "1x2").finishes == [4, 4, 6]


def test_max_min_can_serve_whoever_waited_longest() -> None:
    # 1 GPU. At 1 s job 1 arrives and has waited no longer than job 0 has run; at 2 s job 2
    # arrives: job 1 has waited since 1 s and takes over. At its end the longest wait decides.
    rows = [
        Row(1, 6, **ELASTIC),  # type: ignore[arg-type]
        Row(1, 4, submit_s=1, **ELASTIC),  # type: ignore[arg-type]
        Row(1, 1, submit_s=2, **ELASTIC),  # type: ignore[arg-type]
    ]
    story = play(rows, "max-min:overflow=least-recent", "1x1")
    assert story.starts(1)[0] == (2.0, "start")
    assert story.stops(0)[0] == (2.0, "preempted")
    assert max(story.finishes) == 11


def test_max_min_with_a_rigid_and_an_elastic_job() -> None:
    # The rigid job takes its 2 of 4 GPUs, the elastic one the rest, and all once it is alone.
    rows = [Row(2, 5), Row(1, 14, **ELASTIC)]  # type: ignore[arg-type]
    assert play(rows, "max-min", "1x4").finishes == [5, 6]


def test_max_min_runs_jobs_whose_least_share_is_above_the_level() -> None:
    # 2 GPUs, both jobs take exactly 2: the level of 1 each suits neither, yet both must run.
    rows = [
        Row(2, 3, elastic=True, min_gpus=2, max_gpus=2),
        Row(2, 3, elastic=True, min_gpus=2, max_gpus=2),
    ]
    assert play(rows, "max-min", "1x2").finishes == [3, 6]


def test_max_min_leaves_no_gpu_idle_that_an_elastic_job_could_use() -> None:
    # 3 GPUs; both want 2 to 3. Only one can run, and it should have all three.
    rows = [
        Row(2, 3, elastic=True, min_gpus=2, max_gpus=3),
        Row(2, 3, elastic=True, min_gpus=2, max_gpus=3),
    ]
    assert play(rows, "max-min", "1x3").finishes == [2, 4]


def test_a_gang_that_finds_no_node_stops_nobody_shorter() -> None:
    # Nodes hold (0, 1) and (2, 3): a short and a long job each. At 1 the short job 4 takes over
    # from a long one; the gang 5 would need a whole node, so it could only go on by stopping
    # job 0 or 2, which are shorter than it is.
    rows = [Row(1, 10), Row(1, 100), Row(1, 10), Row(1, 100)]
    rows += [Row(1, 5, submit_s=1), Row(2, 50, submit_s=1)]
    story = play(rows, "srtf", "2x2", placing="strict,most-free")
    assert [story.finishes[job] for job in (0, 2, 4)] == [10, 10, 6]

"""The numbers of a run by hand: definitions of DESIGN section 5."""

import numpy as np
import polars as pl
import pytest

from builders import INF, Row, play, trace_of
from dovetail.record.metrics import (
    Window,
    fairness,
    job_frame,
    nearest_rank,
    size_class,
    span_frame,
    split_frame,
    split_frames,
    summarize,
)

ROWS = [
    Row(1, 4, user="a"),
    Row(1, 2, submit_s=1, user="b"),
    Row(1, 4, submit_s=2, user="b", end="cancelled"),
]


def test_the_jobs_of_a_run() -> None:
    # 1 GPU, FIFO, each start costs 1 s: 0 runs 0-5, 1 5-8, 2 8-13.
    story = play(ROWS, "fifo", "1x1", switching="per-start:1")
    jobs = job_frame(story.scene.trace, story.tally)
    assert jobs["submit_s"].to_list() == [0, 1, 2]
    assert jobs["start_s"].to_list() == [0, 5, 8]
    assert jobs["finish_s"].to_list() == [5, 8, 13]
    assert jobs["jct_s"].to_list() == [5, 7, 11]
    assert jobs["time_to_start_s"].to_list() == [0, 4, 6]
    assert jobs["wait_s"].to_list() == [0, 4, 6]
    assert jobs["service_gpu_s"].to_list() == [5, 3, 5]
    assert jobs["slowdown"].to_list() == [1.25, 3.5, 2.75]
    assert jobs["end"].to_list() == ["completed", "completed", "cancelled"]
    assert jobs["user"].to_list() == ["a", "b", "b"]


def test_a_preempted_job_queues_once_and_does_not_run_twice() -> None:
    story = play([Row(1, 9), Row(1, 2, submit_s=3)], "srtf", "1x1", switching="restart:1")
    jobs = job_frame(story.scene.trace, story.tally)
    assert jobs["time_to_start_s"].to_list() == [0, 0]
    assert jobs["wait_s"].to_list() == [2, 0]
    assert jobs["preemptions"].to_list() == [1, 0]


def test_a_job_that_never_ran_queued_all_its_life() -> None:
    rows = [Row(1, 9), Row(1, 4, submit_s=1, end="cancelled")]
    story = play(rows, "fifo", "1x1", cancelled_by_clock=True)
    jobs = job_frame(story.scene.trace, story.tally)
    assert jobs["start_s"].to_list() == [0, None]
    assert jobs["time_to_start_s"].to_list() == [0, 4]
    assert jobs["wait_s"].to_list() == [0, 4]
    assert jobs["service_gpu_s"].to_list() == [9, 0]


def test_the_summary_by_hand() -> None:
    story = play(ROWS, "fifo", "1x2")
    trace, tally = story.scene.trace, story.tally
    # 0: 0-4, 1: 1-3, 2: 3-7.
    assert story.finishes == [4, 3, 7]
    said = summarize(trace, tally, job_frame(trace, tally), Window())
    assert said["jobs"] == said["finished"] == said["counted_jobs"] == 3
    assert said["avg_jct_s"] == pytest.approx((4 + 2 + 5) / 3)
    assert said["median_jct_s"] == 4
    assert said["p99_jct_s"] == 5
    assert said["total_flow_s"] == 11
    assert said["avg_time_to_start_s"] == pytest.approx(1 / 3)
    assert said["makespan_s"] == 7
    assert said["gpu_utilization"] == pytest.approx(10 / 14)
    assert said["cluster_efficiency"] == pytest.approx(10 / 14)
    assert said["avg_queue_length"] == pytest.approx(1 / 7)
    # Job 2 waits 2-3 with 4 s of work: (t-2)/4 over one second.
    assert said["avg_blocking_index"] == pytest.approx(0.5 / 4 / 7)
    assert said["preemptions"] == said["resizes"] == said["migrations"] == 0
    assert said["deadline_jobs"] == 0
    assert said["deadline_met"] is None


def test_a_window_cuts_warm_up_and_drain() -> None:
    submit = np.array([0.0, 5.0, 10.0, 20.0])
    assert Window().rows(submit).tolist() == [True] * 4
    assert Window(warm_up_s=5).rows(submit).tolist() == [False, True, True, True]
    assert Window(drain_s=10).rows(submit).tolist() == [True, True, True, False]
    assert Window(5, 15).rows(submit).tolist() == [False, True, False, False]
    assert Window().rows(np.array([])).tolist() == []


def test_a_window_narrows_the_job_metrics_and_not_the_cluster_ones() -> None:
    story = play(ROWS, "fifo", "1x2")
    trace, tally = story.scene.trace, story.tally
    jobs = job_frame(trace, tally)
    all_said = summarize(trace, tally, jobs, Window())
    said = summarize(trace, tally, jobs, Window(warm_up_s=1.5))
    assert said["counted_jobs"] == 1
    assert said["avg_jct_s"] == 5
    assert said["gpu_utilization"] == all_said["gpu_utilization"]


@pytest.mark.parametrize(
    ("values", "q", "answer"),
    [
        ([3.0], 0.99, 3.0),
        ([1.0, 2.0], 0.5, 1.0),
        ([2.0, 1.0], 0.51, 2.0),
        (list(range(1, 101)), 0.99, 99),
        (list(range(1, 102)), 0.99, 100),
        ([5.0, 1.0], 0.0, 1.0),
    ],
)
def test_a_quantile_is_a_value_that_occurred(values: list[float], q: float, answer: float) -> None:
    assert nearest_rank(np.array(values, float), q) == answer


def test_size_classes() -> None:
    gpus = np.array([1, 2, 4, 5, 8, 9, 32, 33, 4096])
    assert size_class(gpus) == ["1", "2-4", "2-4", "5-8", "5-8", "9-32", "9-32", "33+", "33+"]


def test_splits_are_largest_first_with_their_own_p99() -> None:
    story = play(ROWS, "fifo", "1x2")
    split = split_frame(job_frame(story.scene.trace, story.tally), "user")
    assert split["group"].to_list() == ["b", "a"]
    assert split["jobs"].to_list() == [2, 1]
    assert split["avg_jct_s"].to_list() == [3.5, 4]
    assert split["p99_jct_s"].to_list() == [5, 4]


def test_p99_of_a_split_is_the_nearest_rank() -> None:
    rows = [Row(1, float(i), user="a") for i in range(1, 102)]
    story = play(rows, "fifo", "1x128")
    split = split_frame(job_frame(story.scene.trace, story.tally), "user")
    assert split["p99_jct_s"].to_list() == [100]


def test_stays_are_split_by_node_and_by_switching() -> None:
    story = play([Row(3, 4)], "fifo", "2x2", switching="per-start:1")
    spans = span_frame(story.scene.trace.jobs, story.tally.segments)
    assert spans["node"].to_list() == [0, 0, 1, 1]
    assert spans["gpus"].to_list() == [2, 2, 1, 1]
    assert spans["start_s"].to_list() == [0, 1, 0, 1]
    assert spans["end_s"].to_list() == [1, 5, 1, 5]


def test_fairness_is_one_when_everybody_gets_its_share() -> None:
    # Two jobs of 1 GPU on 2 GPUs: each has its half of the cluster and all it asked for.
    story = play([Row(1, 4), Row(1, 4)], "fifo", "1x2")
    jobs = job_frame(story.scene.trace, story.tally)
    assert fairness(story.scene.trace, story.tally, jobs) == pytest.approx(1.0)


def test_fairness_of_a_job_that_waits_for_another() -> None:
    # 1 GPU; 0: 0-4, 1: 4-8. Job 1: two present for 4 s, one for 4 s: N = 1.5, share 2/3 GPU,
    # ideal 6 s, JCT 8 s. Job 0: N = 2, ideal 8 s, JCT 4 s.
    story = play([Row(1, 4), Row(1, 4)], "fifo", "1x1")
    jobs = job_frame(story.scene.trace, story.tally)
    assert fairness(story.scene.trace, story.tally, jobs) == pytest.approx(8 / 6)


def test_deadlines_are_counted_where_there_are_any() -> None:
    from dataclasses import replace

    from dovetail.core.trace import Trace

    story = play([Row(1, 4), Row(1, 4), Row(1, 4)], "fifo", "1x1")
    jobs = replace(story.scene.trace.jobs, deadline_s=np.array([4.0, 7.9, INF]))
    old = story.scene.trace
    trace = Trace(jobs, old.duration_s, old.iterations, old.end)
    said = summarize(trace, story.tally, job_frame(trace, story.tally), Window())
    assert said["deadline_met"] == 1


def test_a_run_of_one_job_has_all_its_numbers() -> None:
    story = play([Row(1, 4)], "fifo", "1x1")
    trace = trace_of(Row(1, 4))
    said = summarize(trace, story.tally, job_frame(trace, story.tally), Window())
    assert said["p99_jct_s"] == said["avg_jct_s"] == said["makespan_s"] == 4
    assert said["gpu_utilization"] == 1


def test_a_split_has_median_and_ninety_per_cent_waits_and_queues_by_size() -> None:
    waits = [float(n) for n in range(10)]
    jobs = pl.DataFrame(
        {
            "jct_s": [w + 5.0 for w in waits],
            "wait_s": waits,
            "time_to_start_s": waits,
            "size_class": ["1"] * 5 + ["2-4"] * 5,
            "queue": ["a"] * 9 + ["b"],
        }
    )
    frames = split_frames(jobs, ["size_class"])
    first = frames["size_class"].row(0, named=True)
    assert (first["group"], first["median_wait_s"], first["p90_wait_s"]) == ("1", 2.0, 4.0)
    assert frames["queue_size"].select("group", "jobs").rows() == [
        ("a: 1", 5),
        ("a: 2-4", 4),
        ("b: 2-4", 1),
    ]
    alone = jobs.with_columns(pl.lit("a").alias("queue"))
    assert "queue_size" not in split_frames(alone, ["size_class"])

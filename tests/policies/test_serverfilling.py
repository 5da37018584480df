"""ServerFilling by hand: who of the front runs, what is left over, and when all are packed anew."""

import pytest

from builders import Row, play


def test_a_small_job_waits_until_small_ones_fill_the_cluster() -> None:
    # Job 0 holds all 4 GPUs, 40 GPU-s. Job 1 is smaller, but with it alone 3 GPUs would idle: the
    # front is both, and the wider runs. At 2 s four jobs of 1 GPU ask for 4: job 0 stops.
    rows = [Row(4, 10), Row(1, 2, submit_s=1), *(Row(1, 2, submit_s=2) for _ in range(3))]
    story = play(rows, "serverfilling-srpt", "1x4")
    assert story.finishes == [12, 4, 4, 4, 4]
    assert story.stops(0) == [(2.0, "preempted")]
    # Shortest remaining service first leaves 3 GPUs idle from 1 s on.
    assert play(rows, "srsf", "1x4").stops(0) == [(1.0, "preempted")]


def test_by_arrival_the_widest_of_the_earliest_runs() -> None:
    # 2 + 1 + 1 fill the node; the wide job 2 comes third, and 4 of the first three ask for 7.
    rows = [Row(2, 5), Row(1, 5), Row(4, 3), Row(1, 1)]
    story = play(rows, "serverfilling", "1x4")
    # Job 2 runs 0 to 3, then 0, 1 and 3 together.
    assert story.finishes == [8, 8, 3, 4]


def test_sizes_that_do_not_fill_the_cluster_leave_the_rest_to_the_jobs_behind() -> None:
    # The front of 4 GPUs is job 0 (15 GPU-s) and job 1 (20). Job 0 runs, job 1 finds no room, and
    # job 2 behind it takes the fourth GPU.
    rows = [Row(3, 5), Row(2, 10), Row(1, 30)]
    assert play(rows, "serverfilling-srpt", "1x4").finishes == [5, 15, 30]


def test_powers_of_two_never_leave_a_gap_although_gangs_may_not_be_spread() -> None:
    # Jobs 0 and 1 share the first node, 2 and 3 the second. At 2 s the front is 0, 3 and 4: job 4
    # needs a whole node, so all are packed anew, and job 0 moves beside job 3.
    rows = [Row(1, 3), Row(1, 20), Row(1, 20), Row(1, 3), Row(2, 1, submit_s=2)]
    story = play(rows, "serverfilling-srpt", "2x2", placing="strict")
    assert story.finishes == [3, 21, 21, 3, 3]


def test_a_job_that_may_not_be_stopped_keeps_its_gpus() -> None:
    rows = [Row(2, 10, preemptible=False), *(Row(1, 1, submit_s=1) for _ in range(4))]
    assert play(rows, "serverfilling-srpt", "1x4").finishes == [10, 2, 2, 3, 3]


def test_without_lengths_the_index_fills_the_cluster() -> None:
    # Nothing has ended yet: least service first. Job 1 (2 GPUs) has none at 1 s and runs; job 0
    # has 1 GPU-s, and stays too, as the front of 2 GPUs is job 1 alone.
    rows = [Row(1, 4), Row(2, 2, submit_s=1)]
    assert play(rows, "serverfilling-gittins", "1x2").finishes == [6, 3]


@pytest.mark.parametrize("policy", ["serverfilling-srpt", "serverfilling", "serverfilling-gittins"])
def test_no_gpu_idles_while_powers_of_two_wait(policy: str) -> None:
    rows = [Row(2 ** (i % 4), 3 + 7 * i % 11, submit_s=i // 3) for i in range(24)]
    story = play(rows, policy, "1x8")
    busy = sum(r.gpus * r.duration_s for r in rows) / 8
    # All is submitted by 7 s; without a gap before the last few jobs the end is near the least.
    assert busy <= max(story.finishes) <= busy + 8

"""ALGORITHMS section 8, case 14: one small trace, each policy's schedule worked by hand.

Two GPUs. Job 0: 1 GPU for 8 s. Job 1: 2 GPUs for 4 s. Job 2, at 1 s: 1 GPU for 2 s.
"""

import pytest

from builders import Row, play

CASE_14 = (Row(1, 8), Row(2, 4), Row(1, 2, submit_s=1))
CHAIN_OF_PLACEMENTS = [
    f"{consolidate},{choice},{running}"
    for consolidate in ("strict", "prefer", "none")
    for choice in ("best-fit", "first-fit", "most-free")
    for running in ("keep", "repack")
]


@pytest.mark.parametrize("placing", CHAIN_OF_PLACEMENTS)
@pytest.mark.parametrize(
    ("policy", "finishes"),
    [
        ("fifo", [8, 12, 14]),
        ("sjf", [12, 4, 6]),
        ("srtf", [12, 6, 3]),
        ("srsf", [8, 12, 3]),
    ],
)
def test_case_14_ends_as_worked_by_hand(policy: str, finishes: list[float], placing: str) -> None:
    assert play(CASE_14, policy, "1x2", placing=placing).finishes == finishes


def test_case_14_under_backfill() -> None:
    # Job 1 reserves 8 s. Job 2 ends at 3 s on the free GPU, before the reservation.
    assert play(CASE_14, "backfill").finishes == [8, 12, 3]


def test_case_14_under_fifo_that_skips() -> None:
    # Job 1 never finds two GPUs before 8 s; job 2 slips past it.
    assert play(CASE_14, "fifo:bypass=skip").finishes == [8, 12, 3]


def test_case_14_under_sjf_that_is_strict() -> None:
    # Shortest first at time 0: job 1. At 1 s job 2 leads the queue; nothing is free until 4 s.
    assert play(CASE_14, "sjf:bypass=strict").finishes == [12, 4, 6]


def test_case_14_under_tiresias() -> None:
    # All stay in the first queue (3250 GPU-s), so nobody is ever stopped.
    assert play(CASE_14, "tiresias").finishes == [8, 12, 3]
    assert play(CASE_14, "tiresias:inside=list").finishes == [8, 12, 3]


def test_case_14_under_gittins_before_it_learns() -> None:
    # Fewer than 30 jobs have ended: least service first, looked at every 3250 GPU-s.
    assert play(CASE_14, "gittins").finishes == [8, 12, 3]


def test_case_14_under_max_min_with_rigid_jobs() -> None:
    # Two jobs on two GPUs: level 1. Job 0 (1 GPU) is within it, job 1 (2 GPUs) is above.
    assert play(CASE_14, "max-min").finishes == [8, 12, 3]


def test_srsf_gives_an_exact_tie_to_the_earlier_job() -> None:
    # 8 s x 1 GPU = 4 s x 2 GPUs: job 0 by index, and job 1 must not stop it either.
    story = play(CASE_14, "srsf")
    assert story.starts(0) == [(0.0, "start")]
    assert story.stops(0) == []


def test_srtf_stops_whoever_has_most_left() -> None:
    # At 1 s job 1 has 3 s left, job 2 has 2 s: job 2 takes a GPU, job 1 cannot run on one,
    # job 0 takes the other. At 3 s job 1 (3 s left) takes both from job 0 (6 s left).
    story = play(CASE_14, "srtf")
    assert story.starts(1) == [(0.0, "start"), (3.0, "resume")]
    assert story.stops(1) == [(1.0, "preempted")]
    assert story.starts(0) == [(1.0, "start"), (6.0, "resume")]
    assert story.stops(0) == [(3.0, "preempted")]

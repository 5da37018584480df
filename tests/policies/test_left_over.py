"""SRTF-E and SRSF-E by hand: requested sizes first, then the rest to whoever gains most."""

import pytest

from builders import Row, Stage, play, play_scene, scene_of, trace_of
from curved_physics import curved_physics
from dovetail.core.view import show

FLEX = {"elastic": True, "min_gpus": 1, "max_gpus": 4}


def shares_of(stage: Stage) -> dict[int, int]:
    decision = stage.policy.decide(stage.view, stage.policy.initial)
    assert decision.draft is not None
    return {job: placement.gpus for job, placement in sorted(decision.draft.placed.items())}


def test_what_is_left_goes_to_the_running_job_that_gains_most() -> None:
    # 8 GPUs, one each. Next gains over p(1): job 0 .7 .5 .3, job 1 .9 .8 .7, job 2 .5 .3 .2.
    # Five GPUs are left: .9, .8, then .7 and .7 (a tie: both are taken), then .5 of job 0, whose
    # tie with job 2 goes to the earlier.
    rows = [Row(1, 9, **FLEX)] * 3  # type: ignore[arg-type]
    curves = ((1, 1.7, 2.2, 2.5), (1, 1.9, 2.7, 3.4), (1, 1.5, 1.8, 2.0))
    for name in ("srtf-e", "srsf-e"):
        stage = Stage(rows, name, "1x8")
        show(stage.view, physics=curved_physics(stage.trace.jobs, curves))
        assert shares_of(stage) == {0: 3, 1: 4, 2: 1}


def test_equal_gains_go_to_the_smallest_key_and_not_to_the_smallest_id() -> None:
    # All scale linearly, so each GPU more gains one. Of 9 and 5 s the shorter gets all it can use.
    rows = [Row(1, 9, **FLEX), Row(1, 5, **FLEX)]  # type: ignore[arg-type]
    for name in ("srtf-e", "srsf-e"):
        assert shares_of(Stage(rows, name, "1x5")) == {0: 1, 1: 4}
    # Job 0 is shorter by time (4 s against 5), job 1 by service (12 GPU-s against 5).
    rows = [Row(3, 4, **FLEX), Row(1, 5, **FLEX)]  # type: ignore[arg-type]
    assert shares_of(Stage(rows, "srtf-e", "1x5")) == {0: 4, 1: 1}
    assert shares_of(Stage(rows, "srsf-e", "1x5")) == {0: 3, 1: 2}


def test_gains_are_measured_in_speeds_of_one_gpu_whatever_a_job_asked_for() -> None:
    # One GPU is left. To job 0 (asks for two) it is worth .7 of its speed on one GPU, to job 1
    # .5; in shares of the speed as requested it would be .35 and .5.
    rows = [Row(2, 9, **FLEX), Row(1, 9, **FLEX)]  # type: ignore[arg-type]
    curves = ((1, 2, 2.7, 3.0), (1, 1.5, 1.8, 2.0))
    for name in ("srtf-e", "srsf-e"):
        stage = Stage(rows, name, "1x4")
        show(stage.view, physics=curved_physics(stage.trace.jobs, curves))
        assert shares_of(stage) == {0: 3, 1: 1}


def test_no_job_starts_by_what_is_left() -> None:
    # Job 0 asks for 2 of 3 GPUs, job 1 for 2: one is left, and job 1 could run on one. It waits.
    rows = [Row(2, 5, **FLEX), Row(2, 9, **FLEX)]  # type: ignore[arg-type]
    assert shares_of(Stage(rows, "srtf-e", "1x3")) == {0: 3}


def test_a_job_that_is_not_elastic_takes_no_more_than_it_asked_for() -> None:
    rows = [Row(1, 5), Row(1, 9, **FLEX)]  # type: ignore[arg-type]
    assert shares_of(Stage(rows, "srtf-e", "1x8")) == {0: 1, 1: 4}


def test_the_gpus_are_taken_back_when_a_job_wants_them() -> None:
    # Job 0 asks for 1 of 4 GPUs and has 4: speed 4. At 2 s it has 12 s left; job 1, of 2 s, wants
    # two and, being longest served, leaves job 0 with 2 (one of them left over). At 4 s job 0 has
    # 8 left and all four again: 6 s.
    rows = [Row(1, 20, **FLEX), Row(2, 2, submit_s=2)]  # type: ignore[arg-type]
    story = play(rows, "srtf-e", "1x4")
    assert story.starts(0) == [(0.0, "start"), (2.0, "resize"), (4.0, "resize")]
    assert story.stops(0) == []
    assert story.finishes == pytest.approx([6, 4])


def test_service_left_counts_the_gpus_asked_for_and_not_those_held() -> None:
    # 4 GPUs. Job 0 asks for 1 and holds 4; at 1 s it has 11 s of 1 GPU left: 11 GPU-s. Job 1
    # asks for 4 for 3 s: 12 GPU-s, so it waits. (11 s x the 4 GPUs held would be 44.)
    rows = [Row(1, 15, **FLEX), Row(4, 3, submit_s=1)]  # type: ignore[arg-type]
    assert play(rows, "srsf-e", "1x4").finishes == pytest.approx([3.75, 6.75])
    # By time left (11 against 3 s) job 1 goes first.
    assert play(rows, "srtf-e", "1x4").finishes == pytest.approx([6.75, 4])


def test_a_strict_line_ends_at_the_first_that_does_not_fit() -> None:
    rows = [Row(1, 1, **FLEX), Row(4, 2), Row(1, 3)]  # type: ignore[arg-type]
    assert shares_of(Stage(rows, "srtf-e", "1x4")) == {0: 3, 2: 1}
    assert shares_of(Stage(rows, "srtf-e:bypass=strict", "1x4")) == {0: 4}


def test_an_exact_tie_stops_nobody() -> None:
    # At 2 s job 0 has 4 s left, as long as job 1 is.
    rows = [Row(2, 6), Row(2, 4, submit_s=2)]
    for name in ("srtf-e", "srsf-e"):
        assert play(rows, name, "1x2").finishes == [6, 10]


@pytest.mark.parametrize(("plain", "elastic"), [("srtf", "srtf-e"), ("srsf", "srsf-e")])
def test_with_no_elastic_job_it_is_the_policy_it_builds_on(plain: str, elastic: str) -> None:
    rows = [Row(1 + i * 7 % 5, 3.0 + i * 11 % 17, submit_s=i * 2.5) for i in range(40)]
    finishes = [
        play_scene(scene_of(trace_of(*rows), "1x8", placing="none,repack"), name).finishes
        for name in (plain, elastic)
    ]
    assert finishes[0] == pytest.approx(finishes[1])

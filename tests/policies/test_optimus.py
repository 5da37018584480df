"""Optimus by hand: the first GPU in order of submission, the next where most time is saved."""

import pytest

from builders import Row, Stage, play, policy_of
from curved_physics import curved_physics
from dovetail.core.view import show

FLEX = {"elastic": True, "min_gpus": 1, "max_gpus": 4}
X, Y, Z = (1, 1.7, 2.2, 2.5), (1, 1.9, 2.7, 3.4), (1, 1.5, 1.8, 2.0)


def shares_of(stage: Stage) -> dict[int, int]:
    """Returns how many GPUs each job gets in a first decision."""
    decision = stage.policy.decide(stage.view, stage.policy.initial)
    assert decision.draft is not None
    return {job: placement.gpus for job, placement in sorted(decision.draft.placed.items())}


def stage(cluster: str, *rows: Row, curves: tuple[tuple[float, ...], ...] = ()) -> Stage:
    made = Stage(rows, "optimus", cluster)
    if curves:
        show(made.view, physics=curved_physics(made.trace.jobs, curves))
    return made


@pytest.mark.parametrize(
    ("gpus", "shares"),
    [
        (1, {0: 1}),
        (2, {0: 1, 1: 1}),
        (3, {0: 1, 1: 1, 2: 1}),
        (4, {0: 1, 1: 1, 2: 2}),
        (5, {0: 1, 1: 2, 2: 2}),
        (6, {0: 1, 1: 2, 2: 3}),
        (7, {0: 2, 1: 2, 2: 3}),
        (8, {0: 2, 1: 2, 2: 4}),
        (9, {0: 2, 1: 3, 2: 4}),
        (12, {0: 4, 1: 4, 2: 4}),
        (14, {0: 4, 1: 4, 2: 4}),
    ],
)
def test_the_next_gpu_goes_where_the_time_left_falls_most(
    gpus: int, shares: dict[int, int]
) -> None:
    # ALGORITHMS section 8 case 5: 6, 12 and 40 s of one GPU. Drops in time left, by GPU:
    # X 6 - 3.529 = 2.471, .802, .327; Y 12 - 6.316 = 5.684, 1.871, .915;
    # Z 40 - 26.667 = 13.333, 4.444, 2.222. In order: Z, Y, Z, X, Z, Y, Y, X, X.
    rows = [Row(1, left_s, **FLEX) for left_s in (6, 12, 40)]  # type: ignore[arg-type]
    assert shares_of(stage(f"1x{gpus}", *rows, curves=(X, Y, Z))) == shares


def test_no_gpu_is_given_to_a_job_that_would_not_gain() -> None:
    rows = [Row(1, 10, **FLEX), Row(1, 10, **FLEX)]  # type: ignore[arg-type]
    curves = ((1, 1.5, 1.5, 3.0), (1, 0.9, 2.0, 3.0))
    assert shares_of(stage("1x8", *rows, curves=curves)) == {0: 2, 1: 1}


def test_a_job_that_is_not_elastic_takes_its_request_in_its_turn_or_is_passed_over() -> None:
    rows = [Row(2, 10), Row(4, 10), Row(1, 10, **FLEX)]  # type: ignore[arg-type]
    # 5 GPUs: 2 to job 0; 4 are not left for job 1; job 2 has one and gains from two more.
    assert shares_of(stage("1x5", *rows)) == {0: 2, 2: 3}


def test_an_elastic_job_starts_from_the_least_it_can_run_on() -> None:
    rows = [Row(3, 10, elastic=True, min_gpus=3, max_gpus=4), Row(1, 60, **FLEX)]  # type: ignore[arg-type]
    # Of 5 GPUs, 3 and 1; job 1 saves 60 - 30 s by the last one, job 0 10 - 7.5.
    assert shares_of(stage("1x5", *rows)) == {0: 3, 1: 2}


def test_jobs_beyond_the_gpus_wait_in_order_of_submission() -> None:
    rows = [Row(1, 100, **FLEX), Row(1, 1, **FLEX), Row(1, 1, **FLEX)]  # type: ignore[arg-type]
    story = play(rows, "optimus", "1x2")
    # 0 and 1 have one each; at 1 s job 2 follows; from 2 s on job 0 has two: 98 s in 49.
    assert story.finishes == [51, 1, 2]


def test_shares_change_at_every_event() -> None:
    # 4 GPUs at a speed of as many. Job 0, 16 s, alone on 4. At 2 s it has 8 s left and job 1
    # comes with 24: one each; then 12 and 4 s are saved by a second: job 1, and by a third 4:
    # a tie, which goes to job 0. Both have two: job 0 ends at 6 s; job 1 has 16 left for four.
    rows = [Row(1, 16, **FLEX), Row(1, 24, submit_s=2, **FLEX)]  # type: ignore[arg-type]
    assert play(rows, "optimus", "1x4").finishes == pytest.approx([6, 10])


def test_between_two_intervals_nothing_changes() -> None:
    # As above, but decided at 0, 10 and 20 s. Job 0 has ended by 4 s; job 1 waits until 10 s.
    rows = [Row(1, 16, **FLEX), Row(1, 24, submit_s=2, **FLEX)]  # type: ignore[arg-type]
    story = play(rows, "optimus:interval=10", "1x4")
    assert story.finishes == pytest.approx([4, 16])
    assert story.starts(1) == [(10.0, "start")]


def test_an_interval_does_not_keep_an_empty_cluster_awake() -> None:
    story = play([Row(1, 5), Row(1, 5, submit_s=1e9)], "optimus:interval=10", "1x1")
    assert story.finishes == [5, 1e9 + 5]
    assert len(story.batches) < 12


def test_an_endless_interval_or_one_that_never_ends_a_run_is_refused() -> None:
    for text in ("inf", "-1", "1e-12"):
        with pytest.raises(Exception, match="interval is a number of seconds from 1 on"):
            policy_of(f"optimus:interval={text}")


def test_a_job_that_outlives_its_forecast_takes_no_further_gpu() -> None:
    made = stage("1x4", Row(1, 2, **FLEX), Row(1, 3, **FLEX))  # type: ignore[arg-type]
    made.run_jobs((0, ((0, 1),))).at(5)
    assert made.view.progress.left_s([0, 1]) == [0.0, 3.0]
    assert shares_of(made) == {0: 1, 1: 3}

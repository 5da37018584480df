"""The sentence on the replay of the site's scheduler against the log."""

from dataclasses import replace

import pytest

from dovetail.record.replay_error import Departure, Deviation, GroupDeviation, ReplayError
from dovetail.report.replay_words import departure_lines, replay_sentence


def group(name: str, recorded_s: float, replayed_s: float) -> GroupDeviation:
    jct = Deviation("avg_jct_s", recorded_s + 3600.0, replayed_s + 3600.0)
    return GroupDeviation(name, 100, jct, Deviation("avg_wait_s", recorded_s, replayed_s))


def error(*sizes: GroupDeviation, queues: tuple[GroupDeviation, ...] = ()) -> ReplayError:
    names = ("avg_jct_s", "median_jct_s", "p99_jct_s", "avg_wait_s")
    return ReplayError(
        policy="slurm",
        jobs=200,
        first_s=0.0,
        numbers=tuple(Deviation(name, 3600.0, 3780.0) for name in names),
        by_size=sizes,
        by_queue=queues,
        start_correlation=None,
        wait_correlation=None,
        near=0.5,
        departures=(),
        whys=(),
    )


def test_a_small_error_of_the_mean_does_not_hide_the_sizes_that_are_far_off() -> None:
    said = replay_sentence(
        error(
            group("1", 1800.0, 5400.0),
            group("2-4", 7200.0, 7500.0),
            group("9-32", 108000.0, 54000.0),
            queues=(group("a100", 3600.0, 7200.0), group("v100", 3600.0, 3700.0)),
        ),
        "slurm",
    )
    assert (
        "mean wait +5 %, but with 1 GPU 1.5 h instead of 30 min (3.00x) and with 9-32 GPUs 15 h "
        "instead of 30 h (0.50x) and in queue a100 2 h instead of 1 h (2.00x); 50 % of starts"
    ) in said


def test_sizes_that_are_near_are_not_named() -> None:
    near = error(group("1", 3600.0, 3780.0), group("2-4", 10.0, 60.0))
    assert "mean wait +5 %; 50 % of starts" in replay_sentence(near, "slurm")


@pytest.mark.parametrize(
    ("gpus", "said", "unsaid"),
    [
        (1, "kept it for another job", "no node"),
        (8, "no node with enough, or kept them", "kept it"),
    ],
)
def test_a_job_of_one_gpu_always_fits_where_a_gpu_is_free(
    gpus: int, said: str, unsaid: str
) -> None:
    departure = Departure(60.0, "7", gpus, 60.0, 3600.0, "free in the replay")
    (line,) = departure_lines(replace(error(), departures=(departure,)))
    assert said in line and unsaid not in line

"""Lucid by hand: order, scores, load, memory and parting."""

from dataclasses import replace

import pytest

from builders import Row, Stage, Story, play_scene, scene_of, trace_of
from dovetail.core.beliefs import Physics
from dovetail.core.errors import InputError
from dovetail.core.job import JobTable
from dovetail.core.policy import parse_policy
from dovetail.physics.linear import LinearSharing, LinearStructure, linear_physics
from dovetail.physics.sharing.interference import Injected, Interference
from dovetail.policies.lucid import ScoreRule


class LightSharing(LinearSharing):
    """Jobs of one GPU use .1 of it, of two .5, of more all."""

    def __init__(self, jobs: JobTable, interference: Interference) -> None:
        super().__init__(LinearStructure(jobs), interference)
        self.jobs = jobs

    def utilization(self, job: int) -> float:
        return {1: 0.1, 2: 0.5}.get(int(self.jobs.gpus[job]), 1.0)


def light(jobs: JobTable, interference: Interference = Injected()) -> Physics:  # noqa: B008
    return replace(linear_physics(jobs, interference), sharing=LightSharing(jobs, interference))


def row(gpus: int, duration_s: float, submit_s: float = 0.0, **more: object) -> Row:
    return Row(gpus, duration_s, submit_s=submit_s, **{"shareable": True, **more})  # type: ignore[arg-type]


def run(rows: list[Row], cluster: str, policy: str = "lucid", xi: float = 1.25) -> Story:
    trace = trace_of(*rows)
    return play_scene(scene_of(trace, cluster, truth=light(trace.jobs, Injected(xi))), policy)


def test_scores_part_at_the_thresholds() -> None:
    view = Stage(
        [row(1, 1)], "lucid", physics=light(trace_of(row(1, 1), row(2, 1), row(4, 1)).jobs)
    ).view
    assert [ScoreRule(0.2, 0.6).scores(view)(job) for job in range(3)] == [0, 1, 2]
    assert ScoreRule(0.1, 0.1).scores(view)(0) == 0
    assert ScoreRule(0.0, 0.1).scores(view)(0) == 1
    assert ScoreRule(0.0, 0.0).scores(view)(0) == 2


def test_least_gpu_time_goes_first_and_nobody_is_stopped() -> None:
    # One GPU-pair, held until 10: job 2 (2 x 6 = 12) goes before job 1 (1 x 20) and with nobody.
    story = run([row(4, 10), row(1, 20, 1), row(2, 6, 2), row(4, 9, 3)], "1x4")
    assert [story.starts(j)[0][0] for j in (1, 2, 3)] == [10, 10, 30]
    assert not [s for j in range(4) for s in story.stops(j)]


def test_medium_jobs_share_and_jumbo_ones_do_not() -> None:
    story = run([row(2, 100), row(2, 50, 10)], "1x2")
    assert story.starts(1) == [(10.0, "start")]
    # Both at 1/1.25 from 10 s on: job 1 ends at 72.5; job 0 has done 60 and ends 40 s later.
    assert story.finishes == pytest.approx([112.5, 72.5])
    story = run([row(4, 100), row(4, 50, 10)], "1x4")
    assert story.starts(1) == [(100.0, "start")]
    story = run([row(4, 100), row(4, 50, 10)], "1x4", "lucid:score-limit=4")
    assert story.starts(1) == [(10.0, "start")]


def test_sizes_differ_only_if_asked() -> None:
    rows = [row(2, 100), row(1, 50, 10)]
    assert run(rows, "1x2").starts(1) == [(100.0, "start")]
    assert run(rows, "1x2", "lucid:unequal=true").starts(1) == [(10.0, "start")]


def test_nobody_shares_while_less_is_asked_for_than_the_load() -> None:
    # Asked 4, there are 2: twice as much as there is.
    rows = [row(2, 100), row(2, 50, 10)]
    assert run(rows, "1x2", "lucid:load=1.9").starts(1) == [(10.0, "start")]
    assert run(rows, "1x2", "lucid:load=2").starts(1) == [(100.0, "start")]


def test_large_jobs_do_not_share() -> None:
    rows = [row(2, 100), row(2, 50, 10)]
    assert run(rows, "1x2", "lucid:most-gpus=1").starts(1) == [(100.0, "start")]


def test_who_is_too_slow_in_company_is_parted_after_a_watch_and_not_put_together_again() -> None:
    # Ratio 2: speeds .5 < .6. Together from 10 s to 210, then job 1 waits for the end of job 0,
    # which has done 110 of 500 by then and ends at 600; job 1 has done 100 of 400.
    rows = [row(2, 500), row(2, 400, 10)]
    story = run(rows, "1x2", "lucid:unpack=0.6", xi=2.0)
    assert story.stops(1) == [(210.0, "preempted")]
    assert story.finishes == pytest.approx([600, 900])
    assert run(rows, "1x2", "lucid:unpack=0.5", xi=2.0).stops(1) == []


@pytest.mark.parametrize(
    "text",
    ["lucid:tiny=0.7", "lucid:jumbo=2", "lucid:unpack=1", "lucid:score-limit=-1", "lucid:load=-1"],
)
def test_it_refuses_parameters_that_mean_nothing(text: str) -> None:
    with pytest.raises(InputError):
        parse_policy(text)


def test_it_may_preempt_only_where_it_parts() -> None:
    assert parse_policy("lucid").powers == {"share"}
    assert parse_policy("lucid:unpack=0.5").powers == {"share", "preempt", "migrate"}

"""Policies under a belief that learns: a new job is grown first and shrunk by what is measured."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from builders import Row, Story, jobs_of, play, play_scene, scene_of, trace_of
from curved_physics import curved_physics
from dovetail.core.messages import Started
from dovetail.physics.beliefs.learning import Learning
from dovetail.physics.linear import linear_physics
from dovetail.physics.sharing.interference import Injected
from reporting_world import Reporting

REPORT_S = 2.0


def learned(rows: Sequence[Row], curves: Sequence[Sequence[float]], policy: str) -> Story:
    """Plays rows whose true speeds are `curves` on four GPUs; the belief begins as linear."""
    trace = trace_of(*rows)
    truth = curved_physics(trace.jobs, curves)
    learning = Learning(linear_physics(trace.jobs), trace.jobs)
    scene = scene_of(trace, "1x4", truth=truth, belief=learning.physics)
    return play_scene(scene, policy, lambda world: Reporting(world, learning, truth))


def shares(story: Story, job: int) -> list[tuple[float, int]]:
    """Returns from when on a job had how many GPUs."""
    placed = [f for f in story.facts if isinstance(f, Started) and f.job == job]
    return [(f.t, f.placement.gpus) for f in placed]


def elastic(model: str, duration_s: float, submit_s: float = 0.0) -> Row:
    return Row(1, duration_s, submit_s, elastic=True, max_gpus=4, model=model)


POOR, GOOD = (1.0, 1.1, 1.12, 1.13), (1.0, 1.9, 2.8, 3.6)


@pytest.mark.parametrize("policy", ["afs-l", "afs-p", "optimus"])
def test_a_job_that_gains_little_is_grown_first_and_shrunk_by_what_was_measured(
    policy: str,
) -> None:
    rows = [elastic("poor", 300.0), elastic("good", 300.0)]
    story = learned(rows, [POOR, GOOD], policy)
    blind = play(rows, policy, "1x4", truth=curved_physics(jobs_of(*rows), [POOR, GOOD]),
                 belief=linear_physics(jobs_of(*rows)))  # fmt: skip
    first, second = shares(story, 0)[:2]
    assert first[1] > 1, "a linear guess gives it more than one"
    assert second == (3 * REPORT_S, 1), "the third report is believed: it gains nothing"
    assert 3 in [gpus for t, gpus in shares(story, 1) if t <= 6 * REPORT_S]
    assert story.finishes[1] < 120 < 150 < blind.finishes[1]


def test_each_number_of_gpus_is_tried_at_most_once_and_the_best_is_kept() -> None:
    hump = (1.0, 1.7, 1.6, 1.2)
    story = learned([elastic("hump", 300.0)], [hump], "afs-l")
    assert [gpus for _, gpus in shares(story, 0)] == [4, 1, 2]


def test_the_next_job_of_a_model_is_not_measured_again() -> None:
    rows = [elastic("hump", 100.0), elastic("hump", 100.0, submit_s=200.0)]
    story = learned(rows, [(1.0, 1.7, 1.6, 1.2)] * 2, "afs-l")
    assert [gpus for _, gpus in shares(story, 1)] == [2]


def test_who_was_measured_to_disturb_each_other_is_not_paired_again() -> None:
    row = Row(1, 100.0, shareable=True, model="m")
    rows = [replace(row, submit_s=t) for t in (0.0, 50.0, 400.0, 450.0)]
    trace = trace_of(*rows)
    truth = curved_physics(trace.jobs, [[1.0]] * 4, interference_of=Injected(1.9))
    learning = Learning(linear_physics(trace.jobs, Injected(1.05)), trace.jobs)
    scene = scene_of(trace, "1x1", truth=truth, belief=learning.physics)
    story = play_scene(scene, "sjf-bsbf", lambda world: Reporting(world, learning, truth))
    starts = [story.starts(job)[0][0] for job in range(4)]
    assert starts[:2] == [0.0, 50.0], "by the guess they share"
    assert starts[2:] == [400.0, 500.0], "by what was measured they do not"

"""Gavel by hand: rounds, claims, company, and what does not change."""

import itertools
import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import Row, Story, play_scene, scene_of, trace_of
from dovetail.core.errors import InputError
from dovetail.core.policy import parse_policy
from dovetail.physics.linear import linear_physics
from dovetail.physics.sharing.interference import Injected
from dovetail.policies.gavel import Gavel


def row(gpus: int, duration_s: float, submit_s: float = 0.0, **more: object) -> Row:
    return Row(gpus, duration_s, submit_s=submit_s, **{"shareable": True, **more})  # type: ignore[arg-type]


def alone(gpus: int, duration_s: float, submit_s: float = 0.0) -> Row:
    return row(gpus, duration_s, submit_s, shareable=False)


def run(
    rows: Sequence[Row], cluster: str = "1x1", policy: str = "gavel:round=10", xi: float = 1.25
) -> Story:
    trace = trace_of(*rows)
    return play_scene(
        scene_of(trace, cluster, truth=linear_physics(trace.jobs, Injected(xi))), policy
    )


def test_who_fits_starts_at_once_and_stays() -> None:
    story = run([alone(1, 100), alone(1, 100)], "1x2")
    assert [story.starts(j) for j in (0, 1)] == [[(0.0, "start")], [(0.0, "start")]]


def test_who_arrives_in_a_round_waits_for_the_next() -> None:
    story = run([alone(1, 100), alone(1, 100, 3)], "1x2")
    assert story.starts(1) == [(10.0, "start")]


def test_two_jobs_take_turns_by_what_they_have_left() -> None:
    # 60 and 20 left on one GPU: 3 : 1. Job 0 runs first; the shares are had in turn; all is done
    # at 80, whatever the order, and the shorter did not wait for the longer to end.
    story = run([alone(1, 60), alone(1, 20)])
    assert max(story.finishes) == pytest.approx(80)
    assert story.starts(0)[0] == (0.0, "start")
    assert 0 < story.starts(1)[0][0] < 60


def test_a_pair_that_gains_runs_together() -> None:
    # Together .8 each: both end 1.25 times later, not one after the other.
    story = run([row(1, 100), row(1, 100)])
    assert story.finishes == pytest.approx([125, 125])


def test_a_pair_that_does_not_gain_takes_turns() -> None:
    story = run([row(1, 100), row(1, 100)], xi=2.0)
    assert max(story.finishes) == pytest.approx(200)
    assert min(story.finishes) > 150


def test_sizes_differ_only_if_asked() -> None:
    rows = [row(2, 100), row(1, 100), row(1, 100)]
    apart = run(rows, "1x2")
    assert max(apart.finishes) >= 200
    # Together .8: all three end at 125.
    together = run(rows, "1x2", "gavel:round=10,unequal=true")
    assert together.finishes == pytest.approx([125, 125, 125])


def test_fairness_gives_every_job_as_many_gpu_seconds() -> None:
    # A job of 2 GPUs and two of 1 on 2 GPUs; by time left the large one would run most.
    rows = [alone(2, 200), alone(1, 60), alone(1, 60)]
    fair = run(rows, "1x2", "gavel:round=10,objective=fairness")
    quick = run(rows, "1x2")
    assert fair.finishes[1] < quick.finishes[1]


@pytest.mark.parametrize("text", ["gavel:objective=x", "gavel:round=0", "gavel:alike=-1"])
def test_it_refuses_parameters_that_mean_nothing(text: str) -> None:
    with pytest.raises(InputError):
        parse_policy(text)


def ends_of(seed: int, factor: float) -> list[float]:
    """Plays ten drawn jobs and rounds, all times as many times as long; returns the ends."""
    drawn = random.Random(seed)
    submits = list(itertools.accumulate(drawn.expovariate(1 / 100) for _ in range(10)))
    trace = trace_of(
        *(
            Row(
                drawn.choice([1, 1, 2, 4]),
                drawn.lognormvariate(6.5, 1.0) * factor,
                submit_s=submit_s * factor,
                shareable=True,
            )
            for submit_s in submits
        )
    )
    truth = linear_physics(trace.jobs, Injected(1.3))
    return play_scene(scene_of(trace, "1x4", truth=truth), Gavel(round=360.0 * factor)).finishes


@settings(max_examples=5)
@given(seed=st.integers(0, 2**32), factor=st.sampled_from([2.0, 3.0, 7.0, 60.0, 1000.0, 3600.0]))
def test_the_unit_of_time_does_not_matter(seed: int, factor: float) -> None:
    told_in_seconds = ends_of(seed, 1.0)

    told_in_others = ends_of(seed, factor)

    assert told_in_others == pytest.approx([factor * end_s for end_s in told_in_seconds], rel=1e-9)

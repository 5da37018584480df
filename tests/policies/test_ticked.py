"""A policy behind a clock decides at ticks, and then sees what it missed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import Row, play
from dovetail.core.errors import InputError
from dovetail.core.messages import Started, Stopped
from dovetail.core.policy import parse_policy
from dovetail.core.view import Changes
from dovetail.policies.ticked import Seen


def test_what_comes_between_two_ticks_waits_for_the_second() -> None:
    story = play(
        [Row(2, 15.0), Row(2, 7.0, submit_s=3.0), Row(2, 5.0, submit_s=11.0)],
        "ticked:inner=fifo,period-s=10",
        "1x2",
    )
    # The first comes at a tick. Its GPUs are free from 15 s, idle until 20 s, and again from 27.
    assert [story.starts(job)[0][0] for job in (0, 1, 2)] == [0.0, 20.0, 30.0]
    assert story.finishes == [15.0, 27.0, 35.0]


def test_a_running_job_is_stopped_at_a_tick_for_what_came_before_it() -> None:
    rows = [Row(2, 50.0), Row(2, 4.0, submit_s=12.0)]
    at_once, at_ticks = play(rows, "srtf"), play(rows, "ticked:inner=srtf,period-s=10")
    assert at_once.stops(0) == [(12.0, "preempted")]
    assert at_ticks.stops(0) == [(20.0, "preempted")]
    assert at_ticks.finishes == [60.0, 24.0]


def test_what_the_inner_policy_wants_to_be_woken_for_happens_at_the_next_tick() -> None:
    # Job 0 falls to the second queue at 25 s; job 1 takes its GPU at 30 s.
    rows = [Row(1, 60.0), Row(1, 5.0, submit_s=2.0)]
    story = play(rows, "ticked:inner=tiresias:thresholds=25,period-s=10", "1x1")
    assert story.stops(0) == [(30.0, "preempted")]
    assert story.finishes[1] == 35.0


def test_who_came_and_went_unseen_is_never_shown() -> None:
    seen = Seen(None).and_then(Changes(arrived=(1, 2)))
    seen = seen.and_then(Changes(ended=(1, 0), evicted=(3,), arrived=(4,)))
    seen = seen.and_then(Changes(ended=(3,), evicted=(5, 5), capacity=True))
    assert (seen.arrived, seen.ended, seen.evicted) == ((2, 4), (0, 3), (5,))
    assert seen.capacity and seen.something


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), inner=st.sampled_from(["fifo", "srtf", "tiresias", "sjf"]))
def test_nothing_is_placed_or_stopped_but_at_ticks(seed: int, inner: str) -> None:
    import random

    draw = random.Random(seed)
    t, rows = 0.0, []
    for _ in range(25):
        t += draw.choice([0.0, 0.7, 3.1])
        rows.append(Row(draw.choice([1, 2, 4]), draw.uniform(0.5, 30.0), submit_s=t))
    story = play(rows, f"ticked:inner={inner},period-s=6", "2x4")
    moved = [f.t for f in story.facts if isinstance(f, Started | Stopped)]
    assert moved and all(abs(t / 6 - round(t / 6)) < 1e-9 for t in moved)
    assert len(story.ended()) == 25


def test_ticks_of_a_moment_change_nothing_where_events_are_at_whole_seconds() -> None:
    rows = [Row(1 + i % 3, float(4 + 5 * i % 17), submit_s=float(i // 2)) for i in range(20)]
    plain, fine = play(rows, "srtf", "1x4"), play(rows, "ticked:inner=srtf,period-s=1", "1x4")
    assert plain.finishes == fine.finishes


def test_it_knows_and_may_do_what_its_inner_policy_does() -> None:
    policy = parse_policy("ticked:inner=afs-p:unit-s=900;tie=random,period-s=60")
    inner = parse_policy("afs-p:unit-s=900,tie=random")
    assert (policy.knows, policy.powers) == (inner.knows, inner.powers)


def test_a_period_must_be_a_span_of_time() -> None:
    with pytest.raises(InputError, match="period-s is a number of seconds from 1 on"):
        parse_policy("ticked:period-s=0")

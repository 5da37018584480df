"""The life of a job: what may follow what, and that every life ends once."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.live.jobs.lifecycle import (
    ENDINGS,
    TERMINAL,
    IllegalTransition,
    State,
    Transition,
    after,
)


def test_a_job_that_is_preempted_and_resumed_completes() -> None:
    state, ending = State.PENDING, State.COMPLETED
    for step in (
        Transition.PLACED,
        Transition.STARTED,
        Transition.STOPPED,
        Transition.PLACED,
        Transition.STARTED,
        Transition.FINISHED,
    ):
        state = after(state, step)
    assert state is State.COMPLETING
    assert after(state, Transition.VACATED, ending) is State.COMPLETED


@pytest.mark.parametrize("state", sorted(TERMINAL))
@pytest.mark.parametrize("step", sorted(set(Transition) - {Transition.REQUEUED}))
def test_what_is_over_is_over(state: State, step: Transition) -> None:
    with pytest.raises(IllegalTransition, match=str(state)):
        after(state, step, State.COMPLETED)


def test_a_job_that_is_ending_cannot_end_another_way() -> None:
    for step in ENDINGS:
        with pytest.raises(IllegalTransition):
            after(State.COMPLETING, step)


@settings(max_examples=200)
@given(st.lists(st.sampled_from(sorted(set(Transition) - {Transition.REQUEUED})), max_size=30))
def test_whatever_is_tried_a_job_ends_at_most_once(steps: list[Transition]) -> None:
    state, ends, ending = State.PENDING, 0, None
    for step in steps:
        try:
            new = after(state, step, ending)
        except IllegalTransition:
            continue
        if step in ENDINGS:
            ending = ENDINGS[step]
        ends += new in TERMINAL
        state = new
    assert ends <= 1
    assert (state in TERMINAL) == (ends == 1)

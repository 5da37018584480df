"""Why a job is placed, and when it makes progress again, by hand."""

import pytest

from dovetail.core.messages import ADJUST, LIMIT, MOVE, RESIZE, RESUME, START
from dovetail.core.placement import Placement
from dovetail.core.switching import Switching, delay_s, placed_how

TWO = Placement(((0, 2),))


@pytest.mark.parametrize(
    ("before", "after", "how"),
    [
        (TWO, Placement(((0, 3),)), RESIZE),
        (TWO, Placement(((1, 2),)), MOVE),
        (TWO, Placement(((0, 2),), accumulation_steps=2), ADJUST),
        (TWO, Placement(((0, 2),), fractions=(0.5, 0.5)), LIMIT),
        (None, TWO, RESUME),
    ],
)
def test_the_change_says_why_a_job_is_placed(
    before: Placement | None, after: Placement, how: str
) -> None:
    assert placed_how(before, after) == how


def test_a_job_starts_once_and_resumes_afterwards() -> None:
    assert placed_how(None, TWO, started_before=False) == START


@pytest.mark.parametrize("how", [RESIZE, ADJUST, LIMIT])
def test_a_job_that_keeps_training_completes_the_switch_under_way(how: str) -> None:
    assert delay_s(how, 2.0, busy_s=7.0) == 7.0
    assert delay_s(how, 2.0, wait_s=6.0, busy_s=7.0) == 8.0


@pytest.mark.parametrize("how", [START, RESUME, MOVE])
def test_a_new_start_does_not_wait_for_the_switch_under_way(how: str) -> None:
    assert delay_s(how, 2.0, wait_s=1.0, busy_s=7.0) == 3.0


def test_a_prepared_job_pauses_only_when_gpus_join_or_leave_or_limits_change() -> None:
    costs = Switching(resize_s=0.25, limit_s=3.5)
    assert costs.pause_s(ADJUST, same_gpus=True) == 0.0
    assert costs.pause_s(RESIZE, same_gpus=False) == 0.25
    assert costs.pause_s(LIMIT, same_gpus=True) == 3.5

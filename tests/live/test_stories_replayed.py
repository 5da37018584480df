"""The log of any story is replayed without a difference that nobody can explain.

The stories are those of `test_nothing_lost.py`: controllers, agents and workers die, messages are
lost, nodes go down and come back, disks are full, users cancel and requeue.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from harness.replayed import replayed, unexplained
from harness.story import Story, Submission

BLOCK = 50
ONCE_DIFFERENT = (15, 22, 149, 192, 248, 357, 458, 1100)
"""Stories whose logs were once refused, or replayed with differences."""


def test_stories_are_replayed_without_an_unexplained_difference() -> None:
    assert unexplained(range(15)) == []


def test_stories_once_replayed_differently_are_not_any_more() -> None:
    assert unexplained(ONCE_DIFFERENT) == []


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_a_thousand_stories_are_replayed_without_an_unexplained_difference(block: int) -> None:
    assert unexplained(range(block * BLOCK, (block + 1) * BLOCK)) == []


def short_jobs(policy: str, crash_at: Sequence[int]) -> Story:
    """Many short jobs, and a controller killed again and again."""
    jobs = tuple(
        Submission(0.3 * i, "plain", 1 + i % 2, 1 + i % 2, 1 + i % 2, 0.5 + 0.1 * (i % 7))
        for i in range(20)
    )
    return Story(seed=3, policy=policy, submissions=jobs, crash_at=tuple(crash_at))


@pytest.mark.parametrize("policy", ["fifo", "srtf", "afs-p:unit-s=5", "gandiva:slice=2"])
def test_a_controller_killed_fifty_times_leaves_a_log_that_is_replayed(policy: str) -> None:
    found = replayed(short_jobs(policy, range(5, 205, 4)))
    assert found.unexplained == () and found.decisions >= 20


def test_a_policy_that_was_not_used_differs_without_an_explanation() -> None:
    found = replayed(short_jobs("fifo", range(5, 205, 4)), "srtf")
    assert len(found.unexplained) > 3

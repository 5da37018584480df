"""Nothing is lost, whatever fails: hundreds of seeded runs of the real controller and agents.

Each test plays a block of stories (`harness/story.py`) and holds every run against the rules of
`harness/truth.py` and `harness/verdict.py`. A failure prints its seed and the shortest story that
still fails; `python tests/live/harness/again.py SEED` plays it again. `make slow` plays 20,000.
"""

from __future__ import annotations

import pytest
from harness.stage import first_failure, play
from harness.story import Story, Submission, story

BLOCK = 100
BLOCKS, ALL_BLOCKS = 2, 200
ONCE_BROKEN = (6301, 7573, 8975, 9628, 10545, 10938, 11429, 13473)
"""Stories beyond those blocks that broke a rule when they were first played."""


@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_story_breaks_a_rule(block: int) -> None:
    failure = first_failure(story(seed) for seed in range(block * BLOCK, (block + 1) * BLOCK))
    assert failure is None, failure.told()


def test_no_story_that_once_broke_a_rule_does_so_again() -> None:
    failure = first_failure(story(seed) for seed in ONCE_BROKEN)
    assert failure is None, failure.told()


@pytest.mark.slow
@pytest.mark.parametrize("block", range(BLOCKS, ALL_BLOCKS))
def test_no_story_of_many_more_breaks_a_rule(block: int) -> None:
    failure = first_failure(story(seed) for seed in range(block * BLOCK, (block + 1) * BLOCK))
    assert failure is None, failure.told()


def small(policy: str, crash_at: tuple[int, ...] = ()) -> Story:
    """A plain gang, an elastic job that is resized when it comes, and one that depends on both."""
    jobs = (
        Submission(0.0, "elastic", 2, 1, 4, 12.0),
        Submission(3.0, "plain", 2, 2, 2, 6.0, twice=True),
        Submission(4.0, "plain", 1, 1, 1, 2.0, after="afterok"),
    )
    return Story(seed=1, policy=policy, submissions=jobs, crash_at=crash_at)


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("policy", ["srtf", "afs-p:unit-s=5"])
def test_killed_at_every_point_in_turn_nothing_is_lost(policy: str, every: int) -> None:
    points = play(small(policy)).crash_points
    assert points > 100
    failure = first_failure(small(policy, (at,)) for at in range(1, points + 1, every))
    assert failure is None, failure.told()
